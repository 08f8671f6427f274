"""The allocator and its file: which Service has which EIP, across restarts."""

from pathlib import Path

from speaker.allocator.assign import Allocator
from speaker.allocator.ledger import Ledger
from speaker.errors import EdgeError
from speaker.files import shown
from speaker.standalone.state import read_state, write_state


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


def remember(state: Path, allocator: Allocator, now: float) -> None:
    """On disk when this returns. Raises EdgeError."""
    write_state(state, allocator.ledger(now))
