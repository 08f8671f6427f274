"""A file of kernel settings as they were before the speaker changed them. An edge."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from speaker.errors import EdgeError
from speaker.system.decoding import UNFIT
from speaker.system.files import read_regular, shown, write_atomically

_MAX_BYTES = 2**20

_originals = msgspec.json.Decoder(dict[str, int])


class Remembered:
    """Original values by name, in a small JSON file that outlives the process but not the machine's uptime.

    It is written before a setting is changed, and whole or not at all: a crash at any moment loses no original.
    Methods raise EdgeError when the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, int]:
        try:
            content, _ = read_regular(self._path, _MAX_BYTES)
            return _originals.decode(content)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unreadable(error.strerror) from error
        except UNFIT as error:
            raise self._unreadable(str(error)) from error

    def add(self, originals: Mapping[str, int], *, keep: Collection[str]) -> None:
        """Remember values that are about to change; of those known before, which stand, only names in ``keep``."""
        known = self.read()
        new = {**originals, **{name: value for name, value in known.items() if name in keep}}
        if new == known:
            return
        write_atomically(self._path, json.dumps(new, indent=1, sort_keys=True).encode())

    def _unreadable(self, why: str | None) -> EdgeError:
        return EdgeError(f"cannot read {shown(self._path)}, which holds original settings: {why}")

    def forget(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise EdgeError(f"cannot remove {self._path}: {error}") from error
