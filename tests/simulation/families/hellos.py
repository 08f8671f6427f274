"""What hellos say, who reads them, and who would like to be believed."""

from dataclasses import replace

from simulation.families.base import MTUS, TWO, by_time, draw, moment, some_of
from simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule

_APART = 0.4
"""Seconds between starts: who looks for others in the same instant as they do finds nobody."""
_NEXT_PROBE = 10.5
"""Seconds until one who found an EIP in use looks again, and claims it."""


def windows(seed: int) -> Schedule:
    """More claims than fit a hello."""
    random, schedule = draw("windows", seed)
    faults = [
        random.choice(
            [
                Fault(moment(random), Kind.CRASH, (0,), moment(random, 0.02, 2.0)),
                Fault(moment(random), Kind.PARTITION, some_of(random, schedule.nodes), moment(random, 0.5, 2.0)),
                Fault(moment(random), Kind.DRAIN, (0,), 3.5),
                Fault(moment(random), Kind.FREEZE, (0,), moment(random, 0.3, 0.9)),
            ]
        )
        for _ in range(2)
    ]
    loss = random.choice([0.0, 0.03])
    limits = Limits(one_answer=0.45 if loss else None, unanswered=4.0, causeless=not loss)
    per_hello = random.choice([1, 3, 3, 3])  # with 1, a node with more than 16 tells all of them in two slices
    return replace(schedule, eips=24, per_hello=per_hello, loss=loss, faults=by_time(faults), end=9.0, limits=limits)


def steady(seed: int) -> Schedule:
    """One frame in fourteen lost: no false move. (At a tenth there was one in 1,700 such schedules, five hours
    and a half of them: somebody has to lose seven frames of a peer in a row.)"""
    _, schedule = draw("steady", seed)
    limits = Limits(one_answer=0.6, quiet_after=1.5, causeless=False)
    return replace(schedule, eips=2, loss=0.07, end=12.0, limits=limits)


def replay(seed: int) -> Schedule:
    """A fresh speaker is fed what a dead peer once said."""
    random, schedule = draw("replay", seed)
    dead, fresh = random.sample(range(schedule.nodes), 2)
    at = moment(random)
    faults = [
        Fault(at, Kind.CRASH, (dead,)),
        Fault(at + 0.6, Kind.CRASH, (fresh,), 0.1),
        Fault(at + 0.75, Kind.REPLAY, (dead, fresh), 1.5),
    ]
    limits = Limits(unanswered=0.8, quiet_after=at + 2.4)  # the fresh one's start, listening and first probe
    return replace(schedule, api=False, faults=tuple(faults), end=at + 4.0, limits=limits)


def rotation(seed: int) -> Schedule:
    """The key is replaced in three steps: nobody notices."""
    random, schedule = draw("rotation", seed)
    fault = Fault(2.0, Kind.KEY_ROTATION, (), moment(random, 0.05, 0.5))
    return replace(schedule, mtu=random.choice(MTUS), faults=(fault,), end=4.5, limits=Limits(quiet_after=1.9))


def stranger(seed: int) -> Schedule:
    """A flood of recorded, damaged and forged frames changes nothing, not even while a holder dies."""
    random, schedule = draw("stranger", seed)
    faults = [Fault(1.5, Kind.STRANGER, (), 2.0)]
    if random.random() < 0.6:
        faults.append(Fault(moment(random, 1.8, 2.8), Kind.CRASH, (random.randrange(schedule.nodes),)))
    limits = Limits(crash=0.5, claims_per_crash=1, unswayed=True)
    links = random.choice([1, 2])
    return replace(schedule, links=links, mtu=1500, faults=by_time(faults), end=4.0, limits=limits)


def split_faults(seed: int) -> Schedule:
    """No node hears another's hellos, ever: who finds that another answers does not."""
    random, schedule = draw("split_faults", seed)
    keys = [Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(schedule.nodes)]
    at, node = moment(random, 4.5, 6.0), random.randrange(schedule.nodes)
    fault = random.choice(
        [
            Fault(at, Kind.CRASH, (node,), random.choice([FOR_GOOD, moment(random, 0.1, 3.0)])),
            Fault(at, Kind.API_OUTAGE, (node,), moment(random, 0.5, 4.0)),
            Fault(at, Kind.INELIGIBLE, (node,), moment(random, 0.1, 3.0)),
            Fault(at, Kind.STALE_WATCH, (node,), moment(random, 0.5, 3.0)),
            Fault(at, Kind.CRASH_HOLDER),
        ]
    )
    limits = Limits(unanswered=_NEXT_PROBE, wire_answer=TWO, causeless=False)
    return replace(schedule, api=True, apart=_APART, faults=(*keys, fault), end=18.0, limits=limits)


def release(seed: int) -> Schedule:
    """No node hears another; the holder loses its eligibility, and the next to look finds nobody who answers."""
    _, schedule = draw("release", seed)
    keys = [Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(schedule.nodes)]
    vetoes = [Fault(4.5 + 3.0 * n, Kind.INELIGIBLE, (n,), 2.5) for n in range(schedule.nodes)]
    vetoes += [Fault(20.0, Kind.INELIGIBLE, (n,)) for n in range(schedule.nodes)]
    limits = Limits(unanswered=_NEXT_PROBE, wire_answer=TWO, causeless=False)
    return replace(schedule, eips=1, api=True, apart=_APART, faults=(*keys, *vetoes), end=22.0, limits=limits)


def lease_blind(seed: int) -> Schedule:
    """No node hears another, and one that waits cannot read the API: holders keep, the others find them."""
    random, schedule = draw("lease_blind", seed)
    keys = [Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(schedule.nodes)]
    outage = Fault(moment(random, 4.5, 5.0), Kind.API_OUTAGE_OTHERS, lasts=5.0)
    limits = Limits(wire_answer=TWO, no_cause=True, causeless=False)
    return replace(schedule, eips=1, api=True, apart=_APART, faults=(*keys, outage), end=12.0, limits=limits)
