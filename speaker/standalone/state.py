"""The allocator's memory on disk: which Service has which EIP.

A file that cannot be understood is never treated as empty, because every Service might then get another address. A
write that is cut short (power, disk full) leaves the former file as it was.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from speaker.allocator.assign import Allocator
from speaker.allocator.book import Ledger
from speaker.allocator.settle import Settlement
from speaker.errors import EdgeError
from speaker.model import Assignment, ServiceKey
from speaker.system.decoding import UNFIT
from speaker.system.files import absolute, is_there, locked, read_regular, shown, write_atomically

MAX_BYTES = 256 * 1024 * 1024
"""Ten thousand Services take two million."""

VERSION = 1
"""Raised with every change of the ledger that an older reader would misread."""

LOCK_SECONDS = 10.0
"""For which a speaker that is ending may still have the file: the kernel may take so long to clear it away."""
_AGAIN_SECONDS = 0.05

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
            f"state file {shown(path)} is damaged ({error}): restore it from a backup, or move it away to start "
            "without it; Services may then get other addresses than before"
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
    write_atomically(absolute(path).resolve(), msgspec.json.encode({"version": VERSION, "ledger": ledger}), mode=0o600)


# ── Of two speakers each would write over what the other remembers ────────────────────────────────────────────


@asynccontextmanager
async def one_speakers(path: Path, patience: float = LOCK_SECONDS) -> AsyncIterator[None]:
    """The file is this speaker's alone while the block lasts. Raises EdgeError where another one has it."""
    fd = await _lock(path, patience)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


async def _lock(path: Path, patience: float) -> int | None:
    """Of a file beside it, as it is itself another one after each write. None where none can be had, as on a read-only
    disk, where nobody writes over anything."""
    if (lock := _beside(path)) is None:
        return None
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            return locked(lock)
        except EdgeError as error:
            if not isinstance(error.__cause__, BlockingIOError):
                return None
            if loop.time() >= until:
                words = "another speaker uses it, and each would overwrite the other's: name another file (--state)"
                raise EdgeError(f"state file {shown(path)}: {words}") from error
        await asyncio.sleep(_AGAIN_SECONDS)


def _beside(path: Path) -> Path | None:
    """The lock of a regular file, or of nothing yet. What else is there ``read_state`` refuses: nothing is left beside
    that."""
    try:
        real = Path(os.path.realpath(absolute(path)))
        if real.is_file() or not (path.is_symlink() or is_there(real)):
            return real.parent / f".{real.name}.lock"
    except (OSError, EdgeError):
        pass
    return None


# ── What an allocator is told of it ─────────────────────────────────────────────────────────────────────────


def recall(state: Path, rest_seconds: float, now: float) -> Allocator:
    """An allocator that knows what ``state`` says; an empty one where there is no such file yet.

    Raises EdgeError for a file that cannot be understood: starting from nothing would move addresses.
    """
    allocator = Allocator(rest_seconds)
    if (ledger := read_state(state, Ledger)) is not None:
        try:
            allocator.restore(ledger, now)
        except ValueError as error:
            raise EdgeError(f"state file {shown(state)} is damaged ({error}): restore it from a backup") from error
    return allocator


Holdings = frozenset[tuple[ServiceKey, str]]
"""Who has which EIP, as a state file says it."""


def holdings(ledger: Ledger) -> Holdings:
    return frozenset((each.service, address) for each in ledger.held for address in each.addresses)


def only(settlement: Settlement, on_disk: Holdings) -> Settlement:
    """Without the EIPs that would be forgotten if this host lost its power now: another Service might get them then."""
    left = (_part(each, on_disk) for each in settlement.assignments.values())
    return replace(settlement, assignments={each.service: each for each in left if each.addresses})


def _part(assignment: Assignment, on_disk: Holdings) -> Assignment:
    kept = [i for i, eip in enumerate(assignment.addresses) if (assignment.service, str(eip)) in on_disk]
    if len(kept) == len(assignment.addresses):
        return assignment
    return replace(
        assignment,
        addresses=tuple(assignment.addresses[i] for i in kept),
        pools=tuple(assignment.pools[i] for i in kept),
        flagged=assignment.flagged.intersection(assignment.addresses[i] for i in kept),
    )
