"""Sick links: nodes that do not hear or are not heard, ports that come and go, LANs that fall apart."""

from dataclasses import replace

from simulation.families.base import SICK, TWO, draw, length, moment, sick_links, sickly, some_of
from simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule

_TOLD = 0.25
"""As ``TWO``, where only one hears the other: it gives that one an interval to hear it."""


def one_cable(seed: int) -> Schedule:
    """One of a node's two links loses its carrier: it says so on the other, and nobody waits for it to die."""
    random, schedule = draw("one_cable", seed)
    node, lasts = random.randrange(schedule.nodes), random.choice([FOR_GOOD, round(random.uniform(0.02, 2.0), 4)])
    fault = Fault(moment(random), Kind.CABLE, (node,), lasts, link=1)
    limits = Limits(unanswered=0.2 if not schedule.api else 0.3, causeless=False)
    delay = random.choice([0.001, 0.005])
    return replace(schedule, eips=4, links=2, delay=delay, faults=(fault,), end=6.0, limits=limits)


def split(seed: int) -> Schedule:
    """A LAN split for good with a healthy API: each side is served, without endless takeovers."""
    random, schedule = draw("split", seed)
    fault = Fault(1.5, Kind.PARTITION, some_of(random, schedule.nodes))
    limits = replace(SICK, unanswered=4.0, quiet_after=4.0, moves=6, writes=8)
    return replace(schedule, api=True, faults=(fault,), end=9.0, limits=limits)


def deaf(seed: int) -> Schedule:
    """Nothing reaches some of the nodes, not all."""
    random, schedule = draw("deaf", seed)
    links, link = sick_links(random)
    who = some_of(random, schedule.nodes) if random.random() < 0.3 else (random.randrange(schedule.nodes),)
    fault = Fault(moment(random), Kind.DEAF, who, length(random, 0.2, 4.0), link=link)
    many, per_hello = random.random() < 0.3, random.choice([2, 64])
    return sickly(schedule, random, [fault], links=links, eips=12 if many else schedule.eips, per_hello=per_hello)


def deaf_start(seed: int) -> Schedule:
    """A node starts while nothing reaches it, and reads in the API who holds what: it takes nothing of theirs, not
    even once it hears."""
    random, schedule = draw("deaf_start", seed)
    links, link = sick_links(random)
    node, at, down = random.randrange(schedule.nodes), moment(random), round(random.uniform(0.6, 1.5), 4)
    deaf_at = round(at + random.uniform(0.0, down), 4)
    lasts = random.choice([FOR_GOOD, round(at + down - deaf_at + random.uniform(0.1, 4.0), 4)])
    faults = [Fault(at, Kind.CRASH, (node,), down), Fault(deaf_at, Kind.DEAF, (node,), lasts, link=link)]
    return sickly(schedule, random, faults, api=True, links=links)


def blip(seed: int) -> Schedule:
    """One port is silent for a while, and its carrier stays."""
    random, schedule = draw("blip", seed)
    links, link = sick_links(random)
    lasts = round(random.uniform(0.3, 3.0), 4)
    fault = Fault(moment(random), Kind.BLACKOUT, (random.randrange(schedule.nodes),), lasts, link=link)
    return sickly(schedule, random, [fault], links=links)


def flap_ports(seed: int) -> Schedule:
    """One port comes and goes, with its carrier or without: after the second time nothing moves any more, and what a
    third node leaves behind goes to the others."""
    random, schedule = draw("flap_ports", seed)
    node, kind = random.randrange(schedule.nodes), random.choice([Kind.CABLE, Kind.BLACKOUT])
    dies = schedule.nodes > 2 and random.random() < 0.5
    at, faults = moment(random), []
    for _ in range(random.randint(3, 8)):
        faults.append(Fault(round(at, 4), kind, (node,), round(random.uniform(0.6 if dies else 0.3, 1.5), 4)))
        at = faults[-1].at + faults[-1].lasts + random.uniform(0.3, 2.0)
    calm = faults[1].at + faults[1].lasts + 0.5
    limits = replace(SICK, claims_from=(calm, 4))
    if dies:
        limits = replace(limits, takes_nothing=(node, faults[1].at))
        death = round(faults[-1].at + faults[-1].lasts + random.uniform(0.5, 1.0), 4)
        faults.append(Fault(death, Kind.CRASH, ((node + 1) % schedule.nodes,)))
    return sickly(schedule, random, faults, limits=limits)


def minority(seed: int) -> Schedule:
    """The LAN falls into two halves, equal or not; with the API in reach of both, of one, or none at all."""
    random, schedule = draw("minority", seed)
    nodes, some = random.choice([(2, 1), (3, 1), (4, 1), (4, 2), (4, 2), (5, 2), (5, 2)])
    cut_off = tuple(sorted(random.sample(range(nodes), some)))
    at, lasts = moment(random), length(random, 0.5, 5.0)
    faults = [Fault(at, Kind.PARTITION, cut_off, lasts)]
    if schedule.api and random.random() < 0.4:
        faults.append(Fault(round(at - 0.01, 4), Kind.API_OUTAGE, cut_off, lasts))
    others = tuple(n for n in range(nodes) if n not in cut_off)
    clients = random.choice([None, None, None, cut_off, others])
    return sickly(schedule, random, faults, nodes=nodes, eips=max(schedule.eips, 2), clients=clients)


def partial(seed: int) -> Schedule:
    """Two nodes do not hear each other, all others hear both."""
    random, schedule = draw("partial", seed)
    nodes = max(schedule.nodes, 3)
    pairs = [tuple(random.sample(range(nodes), 2)) for _ in range(random.choice([1, 1, nodes - 2]))]
    at, lasts = moment(random), length(random, 0.5, 5.0)
    faults = [Fault(at, Kind.PAIR, pair, lasts) for pair in pairs[:1]]
    faults += [Fault(moment(random, at, at + 1.0), Kind.ONE_WAY, pair, lasts) for pair in pairs[1:]]
    return sickly(schedule, random, faults, nodes=nodes)


def sick(seed: int) -> Schedule:
    """One port loses much of what passes it, both ways: it is left, nobody is answered twice for long, and nothing else
    moves."""
    random, schedule = draw("sick", seed)
    nodes, node, at = max(schedule.nodes, 3), random.randrange(max(schedule.nodes, 3)), moment(random)
    share = round(random.uniform(0.3, 0.6), 2)
    within = 3.0 if share >= 0.45 else 10.0 if share >= 0.35 else 20.0
    fault = Fault(at, Kind.LOSSY, (node,), round(random.uniform(10.0, 12.0) * max(1.0, within / 10), 4), share=share)
    left = node, at + within
    limits = replace(SICK, wire_answer=1.0, one_answer=1.0, heal_moves=False, left=left)
    return sickly(schedule, random, [fault], nodes=nodes, eips=random.randint(1, 12), limits=limits)


def filtered(seed: int) -> Schedule:
    """Something eats hellos on one link and passes the rest; a second link is healthy, or there is none."""
    random, schedule = draw("filtered", seed)
    between = tuple(random.sample(range(schedule.nodes), random.choice([1, 2])))
    fault = Fault(moment(random), Kind.HELLOS_EATEN, random.choice([(), between]), length(random, 0.5, 5.0), link=1)
    return sickly(schedule, random, [fault], links=random.choice([1, 2]), eips=max(schedule.eips, 2))


def nobroadcast(seed: int) -> Schedule:
    """No broadcast reaches one node, and all that is for it alone does: clients that ask for an EIP are answered by
    others. Sometimes another dies before."""
    random, schedule = draw("nobroadcast", seed)
    links, link = sick_links(random)
    node, at = random.randrange(schedule.nodes), moment(random)
    faults = [Fault(at, Kind.UNFLOODED, (node,), length(random, 2.0, 6.0), link=link)]
    if schedule.nodes > 2 and random.random() < 0.3:
        faults.append(Fault(round(at - 0.5, 4), Kind.CRASH, ((node + 1) % schedule.nodes,)))
    limits = replace(SICK, served=1.5, unanswered=3.0)
    return sickly(schedule, random, faults, links=links, limits=limits)


def mute(seed: int) -> Schedule:
    """Hellos of one node arrive and its answers do not, or those of all but one: who answers takes over, within three
    seconds, and keeps it."""
    random, schedule = draw("mute", seed)
    links, link = sick_links(random)
    well = random.randrange(schedule.nodes)
    sick = [node for node in range(schedule.nodes) if node != well]
    some = random.sample(sick, 1 if random.random() < 0.7 else min(2, len(sick)))
    at, lasts = moment(random), random.choice([5.0, 8.0, FOR_GOOD])
    faults = [Fault(at, Kind.UNANSWERING, tuple(some), lasts, link=link)]
    loss = random.choice([0.0, 0.0, 0.02])
    limits = replace(SICK, served=3.0 * len(some), unanswered=4.0, heal_moves=False, wire_answer=None if loss else TWO)
    return sickly(schedule, random, faults, links=links, loss=loss, limits=limits, end=at + 9.0)


def mute_all(seed: int) -> Schedule:
    """No node's answers arrive: what they hold goes round no more than once, and stays."""
    random, schedule = draw("mute_all", seed)
    at = moment(random)
    fault = Fault(at, Kind.UNANSWERING, tuple(range(schedule.nodes)))
    limits = replace(SICK, no_cause=False, served=None, unanswered=4.0, moves=5, quiet_after=at + 9.0)
    return sickly(schedule, random, [fault], limits=limits, end=at + 30.0)


def unasked(seed: int) -> Schedule:
    """Only hellos and unicast reach one node, or two: others answer for what it holds once it has answered five times
    in a row by its MAC alone."""
    random, schedule = draw("unasked", seed)
    links, link = sick_links(random)
    nodes = max(schedule.nodes, 3)
    some = tuple(random.sample(range(nodes), 1 if nodes < 5 or random.random() < 0.7 else 2))
    at, loss = moment(random), random.choice([0.0, 0.0, 0.02])
    fault = Fault(at, Kind.UNASKED, some, random.choice([4.0, 10.5, FOR_GOOD]), link=link)
    within = 9.0 * len(some) + (6.0 if loss else 0.0)
    limits = replace(SICK, served=within, heal_moves=False, wire_answer=None if loss else TWO)
    many = {"nodes": nodes, "links": links, "eips": random.randint(1, 2) * links}
    return sickly(schedule, random, [fault], **many, loss=loss, limits=limits, end=at + within + 2.0)


def throttled(seed: int) -> Schedule:
    """Hardly anything but hellos of one node arrives: what others answer for stays where it is, whatever it says."""
    random, schedule = draw("throttled", seed)
    fault = Fault(moment(random), Kind.THROTTLED, (random.randrange(schedule.nodes),))
    limits = replace(SICK, served=None, wire_answer=None)
    return sickly(schedule, random, [fault], limits=limits, end=14.0)


def oneway(seed: int) -> Schedule:
    """Nothing of one node arrives: nowhere, or not at one other. Sometimes another dies meanwhile."""
    random, schedule = draw("oneway", seed)
    links, link = sick_links(random)
    node, at, lasts = random.randrange(schedule.nodes), moment(random), length(random, 0.3, 4.0)
    other = (node + random.randint(1, schedule.nodes - 1)) % schedule.nodes
    fault = Fault(at, Kind.MUTE_ALL, (node,), lasts, link=link)
    if random.random() < 0.5:
        fault = Fault(at, Kind.ONE_WAY, (node, other), lasts, link=link)
    faults, limits = [fault], replace(SICK, wire_answer=_TOLD if schedule.nodes == 2 else TWO)
    if schedule.nodes > 2 and fault.kind is Kind.MUTE_ALL and random.random() < 0.5:
        faults.append(Fault(moment(random, at, at + 1.0), Kind.CRASH, (other,)))
    return sickly(schedule, random, faults, links=links, limits=limits)


def mute_start(seed: int) -> Schedule:
    """One of two nodes comes back, hears the other, and is not heard: it takes nothing of what the API says is held."""
    random, schedule = draw("mute_start", seed)
    node, at, down = random.randrange(2), moment(random), round(random.uniform(0.6, 1.5), 4)
    fault = random.choice([Fault(at, Kind.MUTE_ALL, (node,)), Fault(at, Kind.ONE_WAY, (node, 1 - node))])
    lasts = random.choice([FOR_GOOD, round(down + random.uniform(0.1, 4.0), 4)])
    faults = [Fault(at, Kind.CRASH, (node,), down), replace(fault, lasts=lasts)]
    return sickly(schedule, random, faults, nodes=2, api=True)


def all_demoted(seed: int) -> Schedule:
    """The gateway answers nobody, or not one of them; then a holder dies, and one node takes each of its EIPs."""
    random, schedule = draw("all_demoted", seed)
    nodes = max(schedule.nodes, 3)
    whom = random.choice([tuple(range(nodes)), tuple(range(nodes)), (random.randrange(nodes),)])
    faults = [Fault(1.5, Kind.GATEWAY_SILENT, whom), Fault(moment(random, 2.0, 2.5), Kind.CRASH_HOLDER)]
    limits = replace(SICK, crash=0.5, claims_per_crash=1)
    return sickly(schedule, random, faults, nodes=nodes, limits=limits, end=4.5)


def silent(seed: int) -> Schedule:
    """Of two nodes on a LAN on which nobody else says anything one dies: the first who wants something is served."""
    random, schedule = draw("silent", seed)
    wakes = round(random.uniform(3.0, 5.0), 4)
    limits = replace(SICK, no_cause=False, unanswered=1e3)
    fault = Fault(moment(random), Kind.CRASH, (random.randrange(2),), random.choice([FOR_GOOD, 0.3, 1.0]))
    return replace(
        schedule, nodes=2, faults=(fault,), asks=True, silent_until=wakes, limits=limits, end=round(wakes + 2.0, 4)
    )


def silent_drain(seed: int) -> Schedule:
    """On a LAN on which nobody else says anything one of two is drained, and gone: the other misses nobody."""
    random, schedule = draw("silent_drain", seed)
    at, node = moment(random), (random.randrange(2),)
    faults = [Fault(at, Kind.DRAIN, node), Fault(round(at + random.uniform(0.2, 1.5), 4), Kind.CRASH, node)]
    return sickly(schedule, random, faults, nodes=2, silent_until=100.0)


def started_apart(seed: int) -> Schedule:
    """A node starts anew while its port is silent, with the API in reach: it takes nothing, then or later."""
    random, schedule = draw("started_apart", seed)
    at, node, kind = moment(random), random.randrange(schedule.nodes), random.choice([Kind.DEAF, Kind.BLACKOUT])
    start = Fault(at, Kind.CRASH, (node,), round(random.uniform(0.9, 1.5), 4))
    sick = Fault(round(at + 0.1, 4), kind, (node,), length(random, 3.0, 5.0))
    limits = replace(SICK, takes_nothing=(node, at))
    return sickly(schedule, random, [start, sick], api=True, limits=limits)


def mixed_intervals(seed: int) -> Schedule:
    """Every node has a hello interval of its own; one dies, or its port is silent for a while."""
    random, schedule = draw("mixed_intervals", seed)
    hellos = tuple(random.choice([0.05, 0.1, 0.2, 0.3]) for _ in range(schedule.nodes))
    slowest = max(hellos)
    node, at = (random.randrange(schedule.nodes),), round(random.uniform(4.0, 5.0), 4)
    fault = random.choice(
        [Fault(at, Kind.CRASH, node), Fault(at, Kind.BLACKOUT, node, round(random.uniform(0.3, 3.0), 4))]
    )
    limits = replace(SICK, served=round(0.2 + 3.2 * slowest, 2), wire_answer=slowest + 0.02, unanswered=2.5)
    return sickly(schedule, random, [fault], hellos=hellos, limits=limits)


def bursts(seed: int) -> Schedule:
    """The LAN delivers in bursts. A node may be taken for dead, or for deaf, in the first gap, which begins anywhere,
    and in the second, which is longer; not in any other."""
    random, schedule = draw("bursts", seed)
    hold = round(random.uniform(0.3, 1.5), 4)
    fault = Fault(moment(random), Kind.BURST, (), 6.0, hold=hold)
    limits = Limits(
        one_answer=2 * hold + 0.1,
        unanswered=2 * hold + 0.9,
        claims_from=(fault.at + 3 * hold + 1.0, 0),
        causeless=False,
    )
    return replace(schedule, faults=(fault,), asks=random.random() < 0.5, end=fault.at + 9.0, limits=limits)
