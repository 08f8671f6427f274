"""Anything, several times."""

from dataclasses import replace
from random import Random

from simulation.families.base import MTUS, by_time, draw, moment, some_of
from simulation.schedule import Fault, Kind, Limits, Schedule

_ANY = (
    Kind.PARTITION,
    Kind.PARTITION,
    Kind.ONE_WAY,
    Kind.PAIR,
    Kind.CRASH,
    Kind.CRASH,
    Kind.FREEZE,
    Kind.FREEZE,
    Kind.API_OUTAGE,
    Kind.STALE_WATCH,
    Kind.DRAIN,
    Kind.INELIGIBLE,
    Kind.CABLE,
    Kind.WRONG_KEY,
    Kind.REPLAY,
    Kind.SEND_FAILS,
    Kind.REBALANCE,
    Kind.BRIEF_DRAIN,
)


def mixed(seed: int) -> Schedule:
    """Anything, up to five times, with loss, duplicates and slow links."""
    random, schedule = draw("mixed", seed)
    loss, delay = random.choice([0.0, 0.0, 0.0, 0.02]), random.choice([0.001, 0.005, 0.02])
    faults = [random_fault(random, schedule, random.choice(_ANY)) for _ in range(random.randint(1, 5))]
    return replace(
        schedule,
        links=random.choice([1, 1, 2]),
        loss=loss,
        duplication=0.1,
        delay=delay,
        mtu=random.choice(MTUS) if random.random() < 0.08 else None,
        drift=random.random() < 0.4,
        asks=True,
        faults=by_time(faults),
        end=13.0 if schedule.api else 10.0,
        limits=Limits(
            one_answer=0.35 + 4 * delay if loss else None,
            unanswered=5.0 if schedule.api else 2.0,
            quiet_after=None if loss else 12.0 if schedule.api else 9.0,
            causeless=not loss,
        ),
    )


def as_frames(seed: int) -> Schedule:
    """Hellos as bytes, with names and EIPs so long that one takes several frames."""
    random, schedule = draw("as_frames", seed)
    kinds = [
        Kind.CRASH,
        Kind.PARTITION,
        Kind.WRONG_KEY,
        Kind.FREEZE,
        Kind.DRAIN,
        Kind.REBALANCE,
        Kind.REPLAY,
        Kind.SEND_FAILS,
    ]
    faults = [random_fault(random, schedule, random.choice(kinds)) for _ in range(random.randint(1, 3))]
    loss = random.choice([0.0, 0.0, 0.03])
    limits = Limits(
        one_answer=0.45 if loss else None,
        unanswered=5.0 if schedule.api else 2.0,
        quiet_after=None if loss else 12.0 if schedule.api else 9.0,
        causeless=not loss,
    )
    return replace(
        schedule,
        eips=random.randint(1, 30),
        per_hello=random.choice([5, 64]),
        mtu=random.choice(MTUS),
        loss=loss,
        faults=by_time(faults),
        end=13.0 if schedule.api else 10.0,
        limits=limits,
    )


def random_fault(random: Random, schedule: Schedule, kind: Kind) -> Fault:
    at, node, lasts = moment(random, 1.5, 4.0), random.randrange(schedule.nodes), round(random.uniform(0.05, 2.5), 4)
    other = (node + random.randint(1, schedule.nodes - 1)) % schedule.nodes
    match kind:
        case Kind.PARTITION | Kind.API_OUTAGE:
            return Fault(at, kind, some_of(random, schedule.nodes), lasts)
        case Kind.ONE_WAY | Kind.PAIR:
            return Fault(at, kind, (node, other), lasts)
        case Kind.REPLAY:
            return Fault(at, kind, (node, other), 0.3)
        case Kind.FREEZE:
            paused = (node, other) if random.random() < 0.3 else (node,)
            return Fault(at, kind, paused, random.choice([round(random.uniform(0.1, 0.4), 4), lasts]))
        case Kind.SEND_FAILS | Kind.CABLE:
            return Fault(at, kind, (node,), lasts, link=random.choice([None, 1]))
        case Kind.DRAIN:
            return Fault(at, kind, (node,), 3.5)
        case Kind.INELIGIBLE:
            return Fault(at, kind, (node,), lasts, eip=random.randrange(schedule.eips))
        case _:
            return Fault(at, kind, (node,), lasts)
