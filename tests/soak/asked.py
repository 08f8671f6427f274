"""How the speakers of a soak are asked: each by a directory of its own, all with the same files."""

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from lab_speaker import Speaker
from wishes import A_FILE, Wish, bad_manifest, manifest, pool

from speaker.lab.lan import Lan
from speaker.ownership.keys import generate

BAD = "bad.yaml"


class ByFiles:
    def __init__(self, directory: Path, lan: Lan, environment: Mapping[str, str], hello_ms: int) -> None:
        key = generate(os.urandom(32))
        self.speakers = {
            node: Speaker(node, lan, directory / node, environment, hello_ms, key) for node in lan.topology.nodes
        }

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
