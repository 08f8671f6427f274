"""How the speakers of a soak are asked: each by a directory of its own, all with the same files."""

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from lab_speaker import Speaker
from wishes import A_FILE, FIRST_OF_LONE, Wish, bad_manifest, first_wishes, manifest, pool

from speaker.lab.lan import Lan
from speaker.ownership.hellos.keys import generate

BAD = "bad.yaml"
OF_LONE = 300
"""Services of the lone one."""


class ByFiles:
    """The last node is alone: whatever happens to its link, what it had comes back to it."""

    def __init__(self, directory: Path, lan: Lan, environment: Mapping[str, str], hello_ms: int) -> None:
        key, (*nodes, last) = generate(os.urandom(32)), lan.topology.nodes
        self.speakers = {node: Speaker(node, lan, directory / node, environment, hello_ms, key) for node in nodes}
        self.lone = Speaker(last, lan, directory / last, environment, hello_ms, None)
        self.lones = first_wishes(OF_LONE, [last], FIRST_OF_LONE)
        (self.lone.manifests / "all.yaml").write_text(f"{pool(OF_LONE, FIRST_OF_LONE)}---\n{manifest(self.lones)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, wishes: Sequence[Wish], changed: Iterable[int]) -> None:
        self._put("pool.yaml", pool(len(wishes)).encode())
        for first in sorted({at - at % A_FILE for at in changed}):
            self._put(f"services-{first:04}.yaml", manifest(wishes[first : first + A_FILE]).encode())

    def disturb(self, dice: random.Random) -> str:
        """As long as one file is bad nothing new is read."""
        self._put(BAD, bad_manifest(dice))
        return "bad file"

    def calm(self) -> None:
        for speaker in self.speakers.values():
            with suppress(FileNotFoundError):
                (speaker.manifests / BAD).unlink()

    def _put(self, name: str, content: bytes) -> None:
        """Whole, by rename; nothing where that is what it says already."""
        for speaker in self.speakers.values():
            place, draft = speaker.manifests / name, speaker.manifests / f".{name}"
            if not place.exists() or place.read_bytes() != content:
                draft.write_bytes(content)
                draft.replace(place)
