"""Random schedules, by family of faults. The same family and seed give the same schedule in every run."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from speaker.ownership.hellos.frames import MIN_MTU
from speaker.ownership.simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule

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
_MTUS = (MIN_MTU, 1500)
_APART = 0.4
"""Seconds between starts: who looks for others in the same instant as they do finds nobody."""
_NEXT_PROBE = 10.5
"""Seconds until one who found an EIP in use looks again, and claims it."""
_TWO = 0.12
"""Seconds for which two may answer one client: a hello interval, and the way of a hello."""
_TOLD = 0.25
"""The same where only one hears the other: it gives that one an interval to hear it."""
_SICK = Limits(served=0.5, wire_answer=_TWO, no_cause=True, heal_moves=True, causeless=False)
"""Where it is frames that go astray."""


def _base(family: str, seed: int) -> tuple[Random, Schedule]:
    random = Random(f"{family} {seed}")  # noqa: S311  a schedule guards nothing
    nodes, eips = random.randint(2, 5), random.randint(1, 4)
    return random, Schedule(seed, nodes, eips, api=random.random() < 0.6, family=family)


def _at(random: Random, low: float = 1.5, high: float = 2.5) -> float:
    return round(random.uniform(low, high), 4)


def _some(random: Random, nodes: int) -> tuple[int, ...]:
    return tuple(sorted(random.sample(range(nodes), random.randint(1, nodes - 1))))


def crash(seed: int) -> Schedule:
    """One node dies, sometimes under an API that is gone."""
    random, schedule = _base("crash", seed)
    faults = [Fault(_at(random), Kind.CRASH, (random.randrange(schedule.nodes),))]
    if schedule.api and random.random() < 0.4:
        before = random.choice([1.0, faults[0].at - random.uniform(0, 0.04)])
        faults.insert(0, Fault(before, Kind.API_OUTAGE, tuple(range(schedule.nodes))))
    return replace(
        schedule, faults=tuple(faults), end=3.5, limits=Limits(crash=0.5, quiet_after=3.1, claims_per_crash=1)
    )


def crash_loss(seed: int) -> Schedule:
    random, schedule = _base("crash_loss", seed)
    fault = Fault(_at(random), Kind.CRASH, (random.randrange(schedule.nodes),))
    limits = Limits(one_answer=0.4, crash=0.5, causeless=False)
    return replace(schedule, loss=0.05, faults=(fault,), end=3.5, limits=limits)


def drain(seed: int) -> Schedule:
    random, schedule = _base("drain", seed)
    at = _at(random)
    drained = (random.randrange(schedule.nodes),)
    brief = Fault(at, Kind.BRIEF_DRAIN, drained, random.choice([0.01, 0.1, 1.0]))
    faults = [random.choice([Fault(at, Kind.DRAIN, drained, 3.5), brief])]
    if schedule.api and random.random() < 0.3:
        faults.insert(0, Fault(1.2, Kind.API_OUTAGE, tuple(range(schedule.nodes))))
    loss = random.choice([0.0, 0.0, 0.1])
    # Beyond the longest drain: who answers for so long found nobody to hand over to, and somebody is there.
    limits = Limits(one_answer=0.6 if loss else None, planned=(at, at + 3.4), causeless=not loss)
    return replace(schedule, loss=loss, faults=tuple(faults), end=at + 5.5, limits=limits)


def rebalance(seed: int) -> Schedule:
    """A node comes back to nothing; one node is told to level what they hold, or two are."""
    random, schedule = _base("rebalance", seed)
    nodes, eips, at = (
        max(schedule.nodes, 3),
        random.randint(4, 24),
        _at(random, 5.5, 6.0),
    )  # what went from one to another in the crash may move again
    first, second = random.sample(range(nodes), 2)
    faults = [Fault(_at(random), Kind.CRASH, (random.randrange(nodes),), 0.5), Fault(at, Kind.REBALANCE, (first,))]
    alone = random.random() < 0.6
    if not alone:
        faults.append(Fault(at + random.choice([0.0, 0.001, 0.05, 0.3]), Kind.REBALANCE, (second,)))
    if schedule.api and random.random() < 0.3:
        faults.append(Fault(random.choice([3.0, at + 0.1]), Kind.API_OUTAGE, _some(random, nodes)))
    loss, delay = random.choice([0.0, 0.0, 0.1]), random.choice([0.002, 0.02])
    limits = Limits(
        one_answer=0.6 + 4 * delay if loss else None,
        planned=(at, at + 3.0),
        quiet_after=at + 2.5,
        fewest=not loss,
        level=alone and not loss,
        causeless=not loss,
    )
    return replace(
        schedule, nodes=nodes, eips=eips, loss=loss, delay=delay, faults=_sorted(faults), end=at + 3.5, limits=limits
    )


def freeze(seed: int) -> Schedule:
    random, schedule = _base("freeze", seed)
    faults = [
        Fault(
            _at(random, 1.5, 4.0), Kind.FREEZE, (random.randrange(schedule.nodes),), round(random.uniform(0.1, 0.7), 4)
        )
        for _ in range(random.randint(1, 3))
    ]
    return replace(schedule, faults=_sorted(faults), asks=True, end=6.5)


def mixed(seed: int) -> Schedule:
    """Anything, up to five times, with loss, duplicates and slow links."""
    random, schedule = _base("mixed", seed)
    loss, delay = random.choice([0.0, 0.0, 0.0, 0.02]), random.choice([0.001, 0.005, 0.02])
    faults = [_random_fault(random, schedule, random.choice(_ANY)) for _ in range(random.randint(1, 5))]
    return replace(
        schedule,
        links=random.choice([1, 1, 2]),
        loss=loss,
        duplication=0.1,
        delay=delay,
        mtu=random.choice(_MTUS) if random.random() < 0.08 else None,
        drift=random.random() < 0.4,
        asks=True,
        faults=_sorted(faults),
        end=13.0 if schedule.api else 10.0,
        limits=Limits(
            one_answer=0.35 + 4 * delay if loss else None,
            unanswered=5.0 if schedule.api else 2.0,
            quiet_after=None if loss else 12.0 if schedule.api else 9.0,
            causeless=not loss,
        ),
    )


def _random_fault(random: Random, schedule: Schedule, kind: Kind) -> Fault:
    at, node, lasts = _at(random, 1.5, 4.0), random.randrange(schedule.nodes), round(random.uniform(0.05, 2.5), 4)
    other = (node + random.randint(1, schedule.nodes - 1)) % schedule.nodes
    match kind:
        case Kind.PARTITION | Kind.API_OUTAGE:
            return Fault(at, kind, _some(random, schedule.nodes), lasts)
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


def _sorted(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))


def flap(seed: int) -> Schedule:
    """Eligibility comes and goes."""
    random, schedule = _base("flap", seed)
    step = random.choice([0.03, 0.1, 0.25, 0.6])
    faults = [
        Fault(round(1.5 + i * step, 4), Kind.INELIGIBLE, (random.randrange(schedule.nodes),), _at(random, 0.01, 0.4))
        for i in range(random.randint(5, 12))
    ]
    return replace(schedule, faults=tuple(faults), end=faults[-1].at + 4.0)


def split(seed: int) -> Schedule:
    """A LAN split for good with a healthy API: each side is served, without endless takeovers."""
    random, schedule = _base("split", seed)
    fault = Fault(1.5, Kind.PARTITION, _some(random, schedule.nodes))
    limits = replace(_SICK, unanswered=4.0, quiet_after=4.0, moves=6, writes=8)
    return replace(schedule, api=True, faults=(fault,), end=9.0, limits=limits)


def split_faults(seed: int) -> Schedule:
    """No node hears another's hellos, ever: who finds that another answers does not."""
    random, schedule = _base("split_faults", seed)
    keys = [Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(schedule.nodes)]
    at, node = _at(random, 4.5, 6.0), random.randrange(schedule.nodes)
    fault = random.choice(
        [
            Fault(at, Kind.CRASH, (node,), random.choice([FOR_GOOD, _at(random, 0.1, 3.0)])),
            Fault(at, Kind.API_OUTAGE, (node,), _at(random, 0.5, 4.0)),
            Fault(at, Kind.INELIGIBLE, (node,), _at(random, 0.1, 3.0)),
            Fault(at, Kind.STALE_WATCH, (node,), _at(random, 0.5, 3.0)),
            Fault(at, Kind.CRASH_HOLDER),
        ]
    )
    limits = Limits(unanswered=_NEXT_PROBE, wire_answer=_TWO, causeless=False)
    return replace(schedule, api=True, apart=_APART, faults=(*keys, fault), end=18.0, limits=limits)


def release(seed: int) -> Schedule:
    """No node hears another; the holder loses its eligibility, and the next to look finds nobody who answers."""
    _, schedule = _base("release", seed)
    keys = [Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(schedule.nodes)]
    vetoes = [Fault(4.5 + 3.0 * n, Kind.INELIGIBLE, (n,), 2.5) for n in range(schedule.nodes)]
    vetoes += [Fault(20.0, Kind.INELIGIBLE, (n,)) for n in range(schedule.nodes)]
    limits = Limits(unanswered=_NEXT_PROBE, wire_answer=_TWO, causeless=False)
    return replace(schedule, eips=1, api=True, apart=_APART, faults=(*keys, *vetoes), end=22.0, limits=limits)


def lease_blind(seed: int) -> Schedule:
    """No node hears another, and one that waits cannot read the API: holders keep, the others find them."""
    random, schedule = _base("lease_blind", seed)
    keys = [Fault(0.0, Kind.WRONG_KEY, (n,)) for n in range(schedule.nodes)]
    outage = Fault(_at(random, 4.5, 5.0), Kind.API_OUTAGE_OTHERS, lasts=5.0)
    limits = Limits(wire_answer=_TWO, no_cause=True, causeless=False)
    return replace(schedule, eips=1, api=True, apart=_APART, faults=(*keys, outage), end=12.0, limits=limits)


def equal(seed: int) -> Schedule:
    """Both halves of a split claim the same term; the tie is settled when it heals."""
    random, schedule = _base("equal", seed)
    nodes = max(schedule.nodes, 4)
    cut = Fault(1.5, Kind.PARTITION, tuple(sorted(random.sample(range(nodes), 2))), 2.0)
    death = Fault(_at(random, 1.5, 3.0), Kind.CRASH_HOLDER)
    limits = Limits(quiet_after=4.5)
    return replace(schedule, nodes=nodes, api=False, delay=0.02, faults=(cut, death), end=6.0, limits=limits)


def windows(seed: int) -> Schedule:
    """More claims than fit a hello."""
    random, schedule = _base("windows", seed)
    faults = [
        random.choice(
            [
                Fault(_at(random), Kind.CRASH, (0,), _at(random, 0.02, 2.0)),
                Fault(_at(random), Kind.PARTITION, _some(random, schedule.nodes), _at(random, 0.5, 2.0)),
                Fault(_at(random), Kind.DRAIN, (0,), 3.5),
                Fault(_at(random), Kind.FREEZE, (0,), _at(random, 0.3, 0.9)),
            ]
        )
        for _ in range(2)
    ]
    loss = random.choice([0.0, 0.03])
    limits = Limits(one_answer=0.45 if loss else None, unanswered=4.0, causeless=not loss)
    per_hello = random.choice([1, 3, 3, 3])  # with 1, a node with more than 16 tells all of them in two slices
    return replace(schedule, eips=24, per_hello=per_hello, loss=loss, faults=_sorted(faults), end=9.0, limits=limits)


def clock_back(seed: int) -> Schedule:
    """Restarts that find an earlier clock; sometimes a holder dies afterwards, and whoever restarted takes its turn."""
    random, schedule = _base("clock_back", seed)
    faults = [
        Fault(_at(random, 1.5, 3.0), Kind.CRASH, (random.randrange(schedule.nodes),), _at(random, 0.02, 1.0))
        for _ in range(2)
    ]
    if random.random() < 0.5:
        faults, limits = [faults[0], Fault(_at(random, 5.0, 5.5), Kind.CRASH_HOLDER)], Limits(crash=0.5)
    else:
        limits = Limits()
    return replace(schedule, clock_back=True, faults=_sorted(faults), end=8.0, limits=limits)


def ineligible_many(seed: int) -> Schedule:
    """Most nodes may not hold the EIP: ranks count only those who may be heard, and the failover stays in time."""
    random, schedule = _base("ineligible_many", seed)
    able = random.sample(range(16), 3)
    vetoes = [Fault(0.0, Kind.INELIGIBLE, (n,)) for n in range(16) if n not in able]
    death = Fault(_at(random, 1.0, 1.3), Kind.CRASH_HOLDER)
    limits = Limits(crash=0.5, causeless=False)
    return replace(schedule, nodes=16, eips=1, faults=(*vetoes, death), end=2.0, limits=limits)


def one_cable(seed: int) -> Schedule:
    """One of a node's two links loses its carrier: it says so on the other, and nobody waits for it to die."""
    random, schedule = _base("one_cable", seed)
    node, lasts = random.randrange(schedule.nodes), random.choice([FOR_GOOD, round(random.uniform(0.02, 2.0), 4)])
    fault = Fault(_at(random), Kind.CABLE, (node,), lasts, link=1)
    limits = Limits(unanswered=0.2 if not schedule.api else 0.3, causeless=False)
    delay = random.choice([0.001, 0.005])
    return replace(schedule, eips=4, links=2, delay=delay, faults=(fault,), end=6.0, limits=limits)


def two_deaths(seed: int) -> Schedule:
    random, schedule = _base("two_deaths", seed)
    at = _at(random)
    deaths = [Fault(at, Kind.CRASH_HOLDER), Fault(at + _at(random, 0.0, 0.6), Kind.CRASH_HOLDER)]
    limits = Limits(unanswered=1.1, causeless=False)
    return replace(schedule, nodes=max(schedule.nodes, 3), faults=tuple(deaths), end=5.0, limits=limits)


def replay(seed: int) -> Schedule:
    """A fresh speaker is fed what a dead peer once said."""
    random, schedule = _base("replay", seed)
    dead, fresh = random.sample(range(schedule.nodes), 2)
    at = _at(random)
    faults = [
        Fault(at, Kind.CRASH, (dead,)),
        Fault(at + 0.6, Kind.CRASH, (fresh,), 0.1),
        Fault(at + 0.75, Kind.REPLAY, (dead, fresh), 1.5),
    ]
    limits = Limits(unanswered=0.8, quiet_after=at + 2.4)  # the fresh one's start, listening and first probe
    return replace(schedule, api=False, faults=tuple(faults), end=at + 4.0, limits=limits)


def as_frames(seed: int) -> Schedule:
    """Hellos as bytes, with names and EIPs so long that one takes several frames."""
    random, schedule = _base("as_frames", seed)
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
    faults = [_random_fault(random, schedule, random.choice(kinds)) for _ in range(random.randint(1, 3))]
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
        mtu=random.choice(_MTUS),
        loss=loss,
        faults=_sorted(faults),
        end=13.0 if schedule.api else 10.0,
        limits=limits,
    )


def rotation(seed: int) -> Schedule:
    """The key is replaced in three steps: nobody notices."""
    random, schedule = _base("rotation", seed)
    fault = Fault(2.0, Kind.KEY_ROTATION, (), _at(random, 0.05, 0.5))
    return replace(schedule, mtu=random.choice(_MTUS), faults=(fault,), end=4.5, limits=Limits(quiet_after=1.9))


def stranger(seed: int) -> Schedule:
    """A flood of recorded, damaged and forged frames changes nothing, not even while a holder dies."""
    random, schedule = _base("stranger", seed)
    faults = [Fault(1.5, Kind.STRANGER, (), 2.0)]
    if random.random() < 0.6:
        faults.append(Fault(_at(random, 1.8, 2.8), Kind.CRASH, (random.randrange(schedule.nodes),)))
    limits = Limits(crash=0.5, claims_per_crash=1, unswayed=True)
    links = random.choice([1, 2])
    return replace(schedule, links=links, mtu=1500, faults=_sorted(faults), end=4.0, limits=limits)


def meddled(seed: int) -> Schedule:
    """Somebody deletes records, and writes to them all the time, while a holder dies."""
    random, schedule = _base("meddled", seed)
    at, eip = _at(random), random.randrange(schedule.eips)
    faults = [
        Fault(round(at + random.uniform(-0.5, 0.5), 4), Kind.RECORD_DELETED, eip=random.randrange(schedule.eips))
        for _ in range(random.randint(1, 3))
    ]
    faults.append(Fault(at - 0.2, Kind.RECORD_TOUCHED, eip=eip, lasts=round(random.uniform(0.1, 2.0), 4)))
    if random.random() < 0.7:
        faults.append(Fault(at, Kind.CRASH_HOLDER, eip=eip))
    if random.random() < 0.3:
        faults.append(Fault(1.2, Kind.STALE_WATCH, _some(random, schedule.nodes), round(random.uniform(0.5, 2.0), 4)))
    # Writes that are refused for as long as one may take, and then one that is not made.
    limits = Limits(crash=0.6, causeless=False)
    return replace(schedule, api=True, faults=_sorted(faults), end=at + 5.0, limits=limits)


def upgrade(seed: int) -> Schedule:
    """One node after the other is drained and comes back with a higher revision: what is not the first one's moves
    once, and that twice."""
    random, schedule = _base("upgrade", seed)
    order = random.sample(range(schedule.nodes), schedule.nodes)
    lasts = round(random.uniform(0.8, 1.5), 4)
    faults = [Fault(round(2.0 + n * (lasts + 1.5), 4), Kind.UPGRADE, (node,), lasts) for n, node in enumerate(order)]
    begin, end = faults[0].at, faults[-1].at + lasts + 1.5
    limits = Limits(planned=(begin, end), moves=3)
    return replace(schedule, faults=tuple(faults), end=end + 1.0, limits=limits)


def steady(seed: int) -> Schedule:
    """One frame in fourteen lost: no false move. (At a tenth there was one in 1,700 such schedules, five hours
    and a half of them: somebody has to lose seven frames of a peer in a row.)"""
    _, schedule = _base("steady", seed)
    limits = Limits(one_answer=0.6, quiet_after=1.5, causeless=False)
    return replace(schedule, eips=2, loss=0.07, end=12.0, limits=limits)


# ── Sick links ────────────────────────────────────────────────────────────────────────────────────────────────────


def _lasts(random: Random, low: float, high: float) -> float:
    """For a while, or for good."""
    return random.choice([round(random.uniform(low, high), 4), round(random.uniform(low, high), 4), FOR_GOOD])


def _sick(schedule: Schedule, random: Random, faults: list[Fault], **changes: object) -> Schedule:
    ends = [fault.at + (fault.lasts if fault.lasts < FOR_GOOD else 3.0) for fault in faults]
    base = replace(schedule, asks=random.random() < 0.5, limits=_SICK, faults=_sorted(faults), end=max(ends) + 2.5)
    return replace(base, **changes)  # type: ignore[arg-type]


def _links(random: Random) -> tuple[int, int | None]:
    """How many there are, and which is sick."""
    return random.choice([(1, None), (1, 1), (2, 1), (2, None)])


def deaf(seed: int) -> Schedule:
    """Nothing reaches some of the nodes, not all."""
    random, schedule = _base("deaf", seed)
    links, link = _links(random)
    who = _some(random, schedule.nodes) if random.random() < 0.3 else (random.randrange(schedule.nodes),)
    fault = Fault(_at(random), Kind.DEAF, who, _lasts(random, 0.2, 4.0), link=link)
    many, per_hello = random.random() < 0.3, random.choice([2, 64])
    return _sick(schedule, random, [fault], links=links, eips=12 if many else schedule.eips, per_hello=per_hello)


def deaf_start(seed: int) -> Schedule:
    """A node starts while nothing reaches it, and reads in the API who holds what: it takes nothing of theirs, not
    even once it hears."""
    random, schedule = _base("deaf_start", seed)
    links, link = _links(random)
    node, at, down = random.randrange(schedule.nodes), _at(random), round(random.uniform(0.6, 1.5), 4)
    deaf_at = round(at + random.uniform(0.0, down), 4)
    lasts = random.choice([FOR_GOOD, round(at + down - deaf_at + random.uniform(0.1, 4.0), 4)])
    faults = [Fault(at, Kind.CRASH, (node,), down), Fault(deaf_at, Kind.DEAF, (node,), lasts, link=link)]
    return _sick(schedule, random, faults, api=True, links=links)


def blip(seed: int) -> Schedule:
    """One port is silent for a while, and its carrier stays."""
    random, schedule = _base("blip", seed)
    links, link = _links(random)
    lasts = round(random.uniform(0.3, 3.0), 4)
    fault = Fault(_at(random), Kind.BLACKOUT, (random.randrange(schedule.nodes),), lasts, link=link)
    return _sick(schedule, random, [fault], links=links)


def flap_ports(seed: int) -> Schedule:
    """One port comes and goes, with its carrier or without: after the second time nothing moves any more, and what a
    third node leaves behind goes to the others."""
    random, schedule = _base("flap_ports", seed)
    node, kind = random.randrange(schedule.nodes), random.choice([Kind.CABLE, Kind.BLACKOUT])
    dies = schedule.nodes > 2 and random.random() < 0.5
    at, faults = _at(random), []
    for _ in range(random.randint(3, 8)):
        faults.append(Fault(round(at, 4), kind, (node,), round(random.uniform(0.6 if dies else 0.3, 1.5), 4)))
        at = faults[-1].at + faults[-1].lasts + random.uniform(0.3, 2.0)
    calm = faults[1].at + faults[1].lasts + 0.5
    limits = replace(_SICK, claims_from=(calm, 4))
    if dies:
        limits = replace(limits, takes_nothing=(node, faults[1].at))
        death = round(faults[-1].at + faults[-1].lasts + random.uniform(0.5, 1.0), 4)
        faults.append(Fault(death, Kind.CRASH, ((node + 1) % schedule.nodes,)))
    return _sick(schedule, random, faults, limits=limits)


def minority(seed: int) -> Schedule:
    """The LAN falls into two halves, equal or not; with the API in reach of both, of one, or none at all."""
    random, schedule = _base("minority", seed)
    nodes, some = random.choice([(2, 1), (3, 1), (4, 1), (4, 2), (4, 2), (5, 2), (5, 2)])
    cut_off = tuple(sorted(random.sample(range(nodes), some)))
    at, lasts = _at(random), _lasts(random, 0.5, 5.0)
    faults = [Fault(at, Kind.PARTITION, cut_off, lasts)]
    if schedule.api and random.random() < 0.4:
        faults.append(Fault(round(at - 0.01, 4), Kind.API_OUTAGE, cut_off, lasts))
    others = tuple(n for n in range(nodes) if n not in cut_off)
    clients = random.choice([None, None, None, cut_off, others])
    return _sick(schedule, random, faults, nodes=nodes, eips=max(schedule.eips, 2), clients=clients)


def partial(seed: int) -> Schedule:
    """Two nodes do not hear each other, all others hear both."""
    random, schedule = _base("partial", seed)
    nodes = max(schedule.nodes, 3)
    pairs = [tuple(random.sample(range(nodes), 2)) for _ in range(random.choice([1, 1, nodes - 2]))]
    at, lasts = _at(random), _lasts(random, 0.5, 5.0)
    faults = [Fault(at, Kind.PAIR, pair, lasts) for pair in pairs[:1]]
    faults += [Fault(_at(random, at, at + 1.0), Kind.ONE_WAY, pair, lasts) for pair in pairs[1:]]
    return _sick(schedule, random, faults, nodes=nodes)


def filtered(seed: int) -> Schedule:
    """Something eats hellos on one link and passes the rest; a second link is healthy, or there is none."""
    random, schedule = _base("filtered", seed)
    between = tuple(random.sample(range(schedule.nodes), random.choice([1, 2])))
    fault = Fault(_at(random), Kind.HELLOS_EATEN, random.choice([(), between]), _lasts(random, 0.5, 5.0), link=1)
    return _sick(schedule, random, [fault], links=random.choice([1, 2]), eips=max(schedule.eips, 2))


def oneway(seed: int) -> Schedule:
    """Nothing of one node arrives: nowhere, or not at one other. Sometimes another dies meanwhile."""
    random, schedule = _base("oneway", seed)
    links, link = _links(random)
    node, at, lasts = random.randrange(schedule.nodes), _at(random), _lasts(random, 0.3, 4.0)
    other = (node + random.randint(1, schedule.nodes - 1)) % schedule.nodes
    fault = Fault(at, Kind.MUTE_ALL, (node,), lasts, link=link)
    if random.random() < 0.5:
        fault = Fault(at, Kind.ONE_WAY, (node, other), lasts, link=link)
    faults, limits = [fault], replace(_SICK, wire_answer=_TOLD if schedule.nodes == 2 else _TWO)
    if schedule.nodes > 2 and fault.kind is Kind.MUTE_ALL and random.random() < 0.5:
        faults.append(Fault(_at(random, at, at + 1.0), Kind.CRASH, (other,)))
    return _sick(schedule, random, faults, links=links, limits=limits)


def all_demoted(seed: int) -> Schedule:
    """The gateway answers nobody, or not one of them; then a holder dies, and one node takes each of its EIPs."""
    random, schedule = _base("all_demoted", seed)
    nodes = max(schedule.nodes, 3)
    whom = random.choice([tuple(range(nodes)), tuple(range(nodes)), (random.randrange(nodes),)])
    faults = [Fault(1.5, Kind.GATEWAY_SILENT, whom), Fault(_at(random, 2.0, 2.5), Kind.CRASH_HOLDER)]
    limits = replace(_SICK, crash=0.5, claims_per_crash=1)
    return _sick(schedule, random, faults, nodes=nodes, limits=limits, end=4.5)


def silent(seed: int) -> Schedule:
    """Of two nodes on a LAN on which nobody else says anything one dies: the first who wants something is served."""
    random, schedule = _base("silent", seed)
    wakes = round(random.uniform(3.0, 5.0), 4)
    limits = replace(_SICK, no_cause=False, unanswered=1e3)
    fault = Fault(_at(random), Kind.CRASH, (random.randrange(2),), random.choice([FOR_GOOD, 0.3, 1.0]))
    return replace(
        schedule, nodes=2, faults=(fault,), asks=True, silent_until=wakes, limits=limits, end=round(wakes + 2.0, 4)
    )


def silent_drain(seed: int) -> Schedule:
    """On a LAN on which nobody else says anything one of two is drained, and gone: the other misses nobody."""
    random, schedule = _base("silent_drain", seed)
    at, node = _at(random), (random.randrange(2),)
    faults = [Fault(at, Kind.DRAIN, node), Fault(round(at + random.uniform(0.2, 1.5), 4), Kind.CRASH, node)]
    return _sick(schedule, random, faults, nodes=2, silent_until=100.0)


def started_apart(seed: int) -> Schedule:
    """A node starts anew while its port is silent, with the API in reach: it takes nothing, then or later."""
    random, schedule = _base("started_apart", seed)
    at, node, kind = _at(random), random.randrange(schedule.nodes), random.choice([Kind.DEAF, Kind.BLACKOUT])
    start = Fault(at, Kind.CRASH, (node,), round(random.uniform(0.9, 1.5), 4))
    sick = Fault(round(at + 0.1, 4), kind, (node,), _lasts(random, 3.0, 5.0))
    limits = replace(_SICK, takes_nothing=(node, at))
    return _sick(schedule, random, [start, sick], api=True, limits=limits)


def mixed_intervals(seed: int) -> Schedule:
    """Every node has a hello interval of its own; one dies, or its port is silent for a while."""
    random, schedule = _base("mixed_intervals", seed)
    hellos = tuple(random.choice([0.05, 0.1, 0.2, 0.3]) for _ in range(schedule.nodes))
    slowest = max(hellos)
    node, at = (random.randrange(schedule.nodes),), round(random.uniform(4.0, 5.0), 4)
    fault = random.choice(
        [Fault(at, Kind.CRASH, node), Fault(at, Kind.BLACKOUT, node, round(random.uniform(0.3, 3.0), 4))]
    )
    limits = replace(_SICK, served=round(0.2 + 3.2 * slowest, 2), wire_answer=slowest + 0.02, unanswered=2.5)
    return _sick(schedule, random, [fault], hellos=hellos, limits=limits)


def api_frozen(seed: int) -> Schedule:
    """The API answers nobody, and all nodes start anew: all is held again before it answers, and stays then."""
    random, schedule = _base("api_frozen", seed)
    everybody, at = tuple(range(schedule.nodes)), _at(random)
    outage = Fault(round(at - 0.5, 4), Kind.API_OUTAGE, everybody, _lasts(random, 4.0, 5.0))
    starts = [
        Fault(round(at + random.uniform(0, 0.3), 4), Kind.CRASH, (node,), round(random.uniform(0.1, 0.5), 4))
        for node in everybody
    ]
    limits = replace(_SICK, heal_moves=False, unanswered=1.8, quiet_after=at + 2.5)
    return _sick(schedule, random, [outage, *starts], api=True, limits=limits)


FAMILIES: dict[str, tuple[Callable[[int], Schedule], int]] = {
    "crash": (crash, 4),
    "crash_loss": (crash_loss, 2),
    "drain": (drain, 2),
    "rebalance": (rebalance, 2),
    "freeze": (freeze, 2),
    "mixed": (mixed, 6),
    "flap": (flap, 1),
    "split": (split, 1),
    "split_faults": (split_faults, 1),
    "release": (release, 1),
    "lease_blind": (lease_blind, 1),
    "equal": (equal, 3),
    "windows": (windows, 1),
    "clock_back": (clock_back, 1),
    "ineligible_many": (ineligible_many, 1),
    "one_cable": (one_cable, 1),
    "two_deaths": (two_deaths, 1),
    "replay": (replay, 1),
    "steady": (steady, 1),
    "as_frames": (as_frames, 1),
    "rotation": (rotation, 1),
    "stranger": (stranger, 1),
    "meddled": (meddled, 2),
    "upgrade": (upgrade, 1),
    "deaf": (deaf, 1),
    "deaf_start": (deaf_start, 1),
    "blip": (blip, 1),
    "flap_ports": (flap_ports, 1),
    "minority": (minority, 1),
    "partial": (partial, 1),
    "filtered": (filtered, 1),
    "oneway": (oneway, 1),
    "all_demoted": (all_demoted, 1),
    "silent": (silent, 1),
    "silent_drain": (silent_drain, 1),
    "started_apart": (started_apart, 1),
    "mixed_intervals": (mixed_intervals, 1),
    "api_frozen": (api_frozen, 1),
}
"""Name → maker, and how many of a round's schedules are of its kind."""


def schedules(number: int, seed: int) -> Iterator[Schedule]:
    """``number`` schedules, the families taking turns by weight; ``seed`` chooses which."""
    turns = [make for make, weight in FAMILIES.values() for _ in range(weight)]
    random = Random(seed)  # noqa: S311
    for _ in range(number):
        yield random.choice(turns)(random.randrange(2**32))
