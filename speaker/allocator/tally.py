"""What was given, in numbers. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from speaker.allocator.assign import Outcome, Usage
from speaker.model import Family

ASSIGNED, PARTLY, REFUSED = "assigned", "partly", "refused"
INVALID = "invalid"
"""Reason: what the Service asks for cannot be read."""


class Given(NamedTuple):
    """To one Service: whether anything, and the reason why not all that it asks for."""

    anything: bool
    lacks: str | None


def given(outcome: Outcome) -> Given:
    return Given(outcome.assignment is not None, outcome.refusal.reason.value if outcome.refusal is not None else None)


class Tally(NamedTuple):
    """``services`` by outcome, ``lacking`` something by reason; ``pools``: size, used and resting, by pool and
    family."""

    services: Mapping[str, int]
    lacking: Mapping[str, int]
    pools: Mapping[tuple[str, str], tuple[int, int, int]]


def tally(services: Iterable[Given], usage: Mapping[str, Mapping[Family, Usage]]) -> Tally:
    outcomes, lacking = Counter({ASSIGNED: 0, PARTLY: 0, REFUSED: 0}), Counter[str]()
    for anything, lacks in services:
        if lacks is not None:
            lacking[lacks] += 1
        outcomes[REFUSED if not anything else ASSIGNED if lacks is None else PARTLY] += 1
    pools = {
        (pool, family.value): (numbers.size, numbers.used, numbers.resting)
        for pool, families in usage.items()
        for family, numbers in families.items()
    }
    return Tally(outcomes, lacking, pools)
