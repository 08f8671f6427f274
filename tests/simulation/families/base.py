"""What the families share."""

from dataclasses import replace
from random import Random

from simulation.schedule import FOR_GOOD, Fault, Limits, Schedule
from speaker.ownership.hellos.frames import MIN_MTU

TWO = 0.12
"""Seconds for which two may answer one client: a hello interval, and the way of a hello."""
SICK = Limits(served=0.5, wire_answer=TWO, no_cause=True, heal_moves=True, causeless=False)
"""Where it is frames that go astray."""
MTUS = (MIN_MTU, 1500)


def draw(family: str, seed: int) -> tuple[Random, Schedule]:
    random = Random(f"{family} {seed}")
    nodes, eips = random.randint(2, 5), random.randint(1, 4)
    return random, Schedule(seed, nodes, eips, api=random.random() < 0.6, family=family)


def moment(random: Random, low: float = 1.5, high: float = 2.5) -> float:
    return round(random.uniform(low, high), 4)


def some_of(random: Random, nodes: int) -> tuple[int, ...]:
    return tuple(sorted(random.sample(range(nodes), random.randint(1, nodes - 1))))


def by_time(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))


def length(random: Random, low: float, high: float) -> float:
    """For a while, or for good."""
    return random.choice([round(random.uniform(low, high), 4), round(random.uniform(low, high), 4), FOR_GOOD])


def sickly(schedule: Schedule, random: Random, faults: list[Fault], **changes: object) -> Schedule:
    """``schedule`` with these faults, played until what they cause is over; ``changes`` come on top."""
    ends = [fault.at + (fault.lasts if fault.lasts < FOR_GOOD else 3.0) for fault in faults]
    base = replace(schedule, asks=random.random() < 0.5, limits=SICK, faults=by_time(faults), end=max(ends) + 2.5)
    return replace(base, **changes)  # type: ignore[arg-type]


def sick_links(random: Random) -> tuple[int, int | None]:
    """How many there are, and which is sick."""
    return random.choice([(1, None), (1, 1), (2, 1), (2, None)])
