"""The allocator's memory on disk: which Service has which EIP.

A file that cannot be understood is never taken for an empty one: every Service might get another address. A write
that is cut short (power, disk full) leaves the former file as it was.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from speaker.errors import EdgeError
from speaker.system.decoding import UNFIT
from speaker.system.files import is_there, read_regular, shown, write_atomically

MAX_BYTES = 256 * 1024 * 1024
"""Ten thousand Services take two million."""

VERSION = 1
"""Raised with every change of the ledger that an older reader would misread."""

L = TypeVar("L")


class _Envelope(msgspec.Struct):
    version: int
    ledger: msgspec.Raw


def read_state(path: Path, ledger: type[L]) -> L | None:
    """The ledger last written to ``path``; None where there is no such file yet.

    ``ledger`` is a dataclass that msgspec can hold. Raises EdgeError where the file cannot be read or understood.
    """
    try:
        content, _ = read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EdgeError(f"state file {shown(path)} cannot be read: {error.strerror}") from error
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
        if envelope.version == VERSION:
            return msgspec.json.decode(envelope.ledger, type=ledger)
    except UNFIT as error:
        raise EdgeError(
            f"state file {shown(path)} is damaged ({error}): restore it from a backup, or move it away to start anew, "
            "where Services may get other addresses than before"
        ) from error
    raise EdgeError(
        f"state file {shown(path)} has version {envelope.version} and this speaker reads version {VERSION}: "
        "run the release that wrote it"
    )


def write_state(path: Path, ledger: object) -> None:
    """Replaces the file that ``path`` leads to, readable by its owner only; on disk when this returns.

    Raises EdgeError, also for a link to nothing: what it leads to may be a volume that is not mounted.
    """
    if path.is_symlink() and not is_there(path):
        raise EdgeError(f"cannot write {shown(path)}: Is a link to {shown(path.readlink())}, which does not exist")
    write_atomically(path.resolve(), msgspec.json.encode({"version": VERSION, "ledger": ledger}), mode=0o600)
