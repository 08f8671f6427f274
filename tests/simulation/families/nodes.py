"""Nodes die, freeze, are drained, upgraded or told to rebalance; they lose their eligibility or their API."""

from dataclasses import replace

from simulation.families.base import SICK, by_time, draw, length, moment, sickly, some_of
from simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule


def crash(seed: int) -> Schedule:
    """One node dies, sometimes under an API that is gone."""
    random, schedule = draw("crash", seed)
    faults = [Fault(moment(random), Kind.CRASH, (random.randrange(schedule.nodes),))]
    if schedule.api and random.random() < 0.4:
        before = random.choice([1.0, faults[0].at - random.uniform(0, 0.04)])
        faults.insert(0, Fault(before, Kind.API_OUTAGE, tuple(range(schedule.nodes))))
    return replace(
        schedule, faults=tuple(faults), end=3.5, limits=Limits(crash=0.5, quiet_after=3.1, claims_per_crash=1)
    )


def crash_loss(seed: int) -> Schedule:
    random, schedule = draw("crash_loss", seed)
    fault = Fault(moment(random), Kind.CRASH, (random.randrange(schedule.nodes),))
    limits = Limits(one_answer=0.4, crash=0.5, causeless=False)
    return replace(schedule, loss=0.05, faults=(fault,), end=3.5, limits=limits)


def two_deaths(seed: int) -> Schedule:
    random, schedule = draw("two_deaths", seed)
    at = moment(random)
    deaths = [Fault(at, Kind.CRASH_HOLDER), Fault(at + moment(random, 0.0, 0.6), Kind.CRASH_HOLDER)]
    limits = Limits(unanswered=1.1, causeless=False)
    return replace(schedule, nodes=max(schedule.nodes, 3), faults=tuple(deaths), end=5.0, limits=limits)


def equal(seed: int) -> Schedule:
    """Both halves of a split claim the same term; the tie is settled when it heals."""
    random, schedule = draw("equal", seed)
    nodes = max(schedule.nodes, 4)
    cut = Fault(1.5, Kind.PARTITION, tuple(sorted(random.sample(range(nodes), 2))), 2.0)
    death = Fault(moment(random, 1.5, 3.0), Kind.CRASH_HOLDER)
    limits = Limits(quiet_after=4.5)
    return replace(schedule, nodes=nodes, api=False, delay=0.02, faults=(cut, death), end=6.0, limits=limits)


def freeze(seed: int) -> Schedule:
    random, schedule = draw("freeze", seed)
    faults = []
    for _ in range(random.randint(1, 3)):
        at, who = moment(random, 1.5, 4.0), (random.randrange(schedule.nodes),)
        faults.append(Fault(at, Kind.FREEZE, who, round(random.uniform(0.1, 0.7), 4)))
    return replace(schedule, faults=by_time(faults), asks=True, end=6.5)


def stutter(seed: int) -> Schedule:
    """Nodes stand still for a moment once a second, in turn or together."""
    random, schedule = draw("stutter", seed)
    stop, apart = round(random.uniform(0.15, 0.3), 4), random.choice([0.0, 1 / schedule.nodes])
    faults = [
        Fault(2.0 + n + node * apart, Kind.FREEZE, (node,), stop) for n in range(5) for node in range(schedule.nodes)
    ]
    limits = Limits(unanswered=0.55, causeless=False)
    return replace(schedule, faults=by_time(faults), asks=True, end=9.0, limits=limits)


def clock_back(seed: int) -> Schedule:
    """Restarts that find an earlier clock; sometimes a holder dies afterwards, and whoever restarted takes its turn."""
    random, schedule = draw("clock_back", seed)
    faults = [
        Fault(moment(random, 1.5, 3.0), Kind.CRASH, (random.randrange(schedule.nodes),), moment(random, 0.02, 1.0))
        for _ in range(2)
    ]
    if random.random() < 0.5:
        faults, limits = [faults[0], Fault(moment(random, 5.0, 5.5), Kind.CRASH_HOLDER)], Limits(crash=0.5)
    else:
        limits = Limits()
    return replace(schedule, clock_back=True, faults=by_time(faults), end=8.0, limits=limits)


def drain(seed: int) -> Schedule:
    random, schedule = draw("drain", seed)
    at = moment(random)
    drained = (random.randrange(schedule.nodes),)
    brief = Fault(at, Kind.BRIEF_DRAIN, drained, random.choice([0.01, 0.1, 1.0]))
    faults = [random.choice([Fault(at, Kind.DRAIN, drained, 3.5), brief])]
    if schedule.api and random.random() < 0.3:
        faults.insert(0, Fault(1.2, Kind.API_OUTAGE, tuple(range(schedule.nodes))))
    loss = random.choice([0.0, 0.0, 0.1])
    # Beyond the longest drain: who answers for so long found nobody to hand over to, and somebody is there.
    limits = Limits(one_answer=0.6 if loss else None, planned=(at, at + 3.4), causeless=not loss)
    return replace(schedule, loss=loss, faults=tuple(faults), end=at + 5.5, limits=limits)


def upgrade(seed: int) -> Schedule:
    """One node after the other is drained and comes back with a higher revision: what is not the first one's moves
    once, and that twice."""
    random, schedule = draw("upgrade", seed)
    order = random.sample(range(schedule.nodes), schedule.nodes)
    lasts = round(random.uniform(0.8, 1.5), 4)
    faults = [Fault(round(2.0 + n * (lasts + 1.5), 4), Kind.UPGRADE, (node,), lasts) for n, node in enumerate(order)]
    begin, end = faults[0].at, faults[-1].at + lasts + 1.5
    limits = Limits(planned=(begin, end), moves=3)
    return replace(schedule, faults=tuple(faults), end=end + 1.0, limits=limits)


def rebalance(seed: int) -> Schedule:
    """A node comes back to nothing; one node is told to level what they hold, or two are."""
    random, schedule = draw("rebalance", seed)
    nodes, eips, at = (
        max(schedule.nodes, 3),
        random.randint(4, 24),
        moment(random, 5.5, 6.0),
    )  # what went from one to another in the crash may move again
    first, second = random.sample(range(nodes), 2)
    faults = [Fault(moment(random), Kind.CRASH, (random.randrange(nodes),), 0.5), Fault(at, Kind.REBALANCE, (first,))]
    alone = random.random() < 0.6
    if not alone:
        faults.append(Fault(at + random.choice([0.0, 0.001, 0.05, 0.3]), Kind.REBALANCE, (second,)))
    if schedule.api and random.random() < 0.3:
        faults.append(Fault(random.choice([3.0, at + 0.1]), Kind.API_OUTAGE, some_of(random, nodes)))
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
        schedule, nodes=nodes, eips=eips, loss=loss, delay=delay, faults=by_time(faults), end=at + 3.5, limits=limits
    )


def preferred(seed: int) -> Schedule:
    """Nodes that EIPs prefer go and come back: the EIPs follow them at the stated pace, or never. Sometimes one node
    still has the release before."""
    random, schedule = draw("preferred", seed)
    nodes, kinds = range(schedule.nodes), [Kind.CRASH, Kind.CRASH, Kind.DRAIN, Kind.BRIEF_DRAIN, Kind.INELIGIBLE]
    weights = (*random.sample([0, 30, 80], 2), *(random.choice([0, 30, 80]) for _ in nodes[2:]))
    failback = random.choice([0.4, 1.0, 2.5, 2.5, None])
    heedless = (random.randrange(schedule.nodes),) if random.random() < 0.15 else ()
    at, faults, once = moment(random), [], [Kind.CABLE, Kind.FREEZE, Kind.PARTITION, Kind.GATEWAY_SILENT]
    for _ in range(random.randint(1, 4)):
        kind = random.choice([*kinds, *once])
        # A link that came back twice waits for a minute.
        gone = (Kind.CABLE, Kind.FREEZE) if kind in (Kind.CABLE, Kind.FREEZE) else (kind,)
        once = [each for each in once if each not in gone]
        who, lasts = (random.randrange(schedule.nodes),), round(random.uniform(0.1, 3.0), 4)
        lasts = 3.5 if kind is Kind.DRAIN else min(lasts, 0.9) if kind is Kind.FREEZE else lasts
        link = 1 if kind in (Kind.CABLE, Kind.GATEWAY_SILENT) else None
        faults.append(Fault(round(at, 4), kind, who, lasts, eip=random.randrange(schedule.eips), link=link))
        at += random.uniform(0.0, 4.0)
    if random.random() < 0.2:
        faults.append(Fault(round(at, 4), Kind.REBALANCE, (random.randrange(schedule.nodes),)))
    last = max(fault.at + (fault.lasts if fault.lasts < FOR_GOOD else 0.0) for fault in faults)
    end = last + 3 * (failback or 0.4) + 2.0 * schedule.nodes + 3.0
    loss = random.choice([0.0, 0.0, 0.03])
    limits = Limits(preferred=True, causeless=not loss, one_answer=0.45 if loss else None)
    shape = replace(schedule, weights=weights, failback=failback, heedless=heedless, asks=random.random() < 0.3)
    return replace(shape, loss=loss, faults=by_time(faults), end=end, limits=limits)


def flap(seed: int) -> Schedule:
    """Eligibility comes and goes."""
    random, schedule = draw("flap", seed)
    step = random.choice([0.03, 0.1, 0.25, 0.6])
    faults = [
        Fault(round(1.5 + i * step, 4), Kind.INELIGIBLE, (random.randrange(schedule.nodes),), moment(random, 0.01, 0.4))
        for i in range(random.randint(5, 12))
    ]
    return replace(schedule, faults=tuple(faults), end=faults[-1].at + 4.0)


def ineligible_many(seed: int) -> Schedule:
    """Most nodes may not hold the EIP: ranks count only those who may be heard, and the failover stays in time."""
    random, schedule = draw("ineligible_many", seed)
    able = random.sample(range(16), 3)
    vetoes = [Fault(0.0, Kind.INELIGIBLE, (n,)) for n in range(16) if n not in able]
    death = Fault(moment(random, 1.0, 1.3), Kind.CRASH_HOLDER)
    limits = Limits(crash=0.5, causeless=False)
    return replace(schedule, nodes=16, eips=1, faults=(*vetoes, death), end=2.0, limits=limits)


def meddled(seed: int) -> Schedule:
    """Somebody deletes records, and writes to them all the time, while a holder dies."""
    random, schedule = draw("meddled", seed)
    at, eip = moment(random), random.randrange(schedule.eips)
    faults = [
        Fault(round(at + random.uniform(-0.5, 0.5), 4), Kind.RECORD_DELETED, eip=random.randrange(schedule.eips))
        for _ in range(random.randint(1, 3))
    ]
    faults.append(Fault(at - 0.2, Kind.RECORD_TOUCHED, eip=eip, lasts=round(random.uniform(0.1, 2.0), 4)))
    if random.random() < 0.7:
        faults.append(Fault(at, Kind.CRASH_HOLDER, eip=eip))
    if random.random() < 0.3:
        faults.append(Fault(1.2, Kind.STALE_WATCH, some_of(random, schedule.nodes), round(random.uniform(0.5, 2.0), 4)))
    # Writes that are refused for as long as one may take, and then one that is not made.
    limits = Limits(crash=0.6, causeless=False)
    return replace(schedule, api=True, faults=by_time(faults), end=at + 5.0, limits=limits)


def api_frozen(seed: int) -> Schedule:
    """The API answers nobody, and all nodes start anew: all is held again before it answers, and stays then."""
    random, schedule = draw("api_frozen", seed)
    everybody, at = tuple(range(schedule.nodes)), moment(random)
    outage = Fault(round(at - 0.5, 4), Kind.API_OUTAGE, everybody, length(random, 4.0, 5.0))
    starts = [
        Fault(round(at + random.uniform(0, 0.3), 4), Kind.CRASH, (node,), round(random.uniform(0.1, 0.5), 4))
        for node in everybody
    ]
    limits = replace(SICK, heal_moves=False, unanswered=1.8, quiet_after=at + 2.5)
    return sickly(schedule, random, [outage, *starts], api=True, limits=limits)
