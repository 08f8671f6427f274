"""The allocator and its file: which Service has which EIP, across restarts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from speaker.allocator.assign import Allocator
from speaker.allocator.book import Ledger
from speaker.allocator.settle import Settlement
from speaker.errors import EdgeError
from speaker.model import Assignment, ServiceKey
from speaker.standalone.state import read_state
from speaker.system.files import shown


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
    kept = [*_kept(assignment, on_disk)]
    if len(kept) == len(assignment.addresses):
        return assignment
    return replace(
        assignment,
        addresses=tuple(assignment.addresses[i] for i in kept),
        pools=tuple(assignment.pools[i] for i in kept),
        flagged=assignment.flagged.intersection(assignment.addresses[i] for i in kept),
    )


def _kept(assignment: Assignment, on_disk: Holdings) -> Iterator[int]:
    return (i for i, eip in enumerate(assignment.addresses) if (assignment.service, str(eip)) in on_disk)
