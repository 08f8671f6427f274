"""What a switch does to the frames on a LAN while a link is sick, and for how long: schedules, and whom they cut off.

A ``Course`` is what a scenario plays: in which second the switch drops or delays which frames, and which nodes stall.
It implies who can be served by whom, so the verdict needs nothing else. Pure.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

Hosts = frozenset[str]


# ── What clients are owed while a link is sick, and what they count as an answer ───────────────────────────────

FAILOVER = 0.5
"""Seconds within which another node answers for an EIP."""
SETTLED = 3.0
"""Seconds within which a node that sends hellos and answers nobody has lost its EIPs to one that answers."""
SOON = 0.1
"""Seconds within which a client has its answer where nothing holds it up; a busy machine may take so long."""


@dataclass(frozen=True, slots=True)
class Promise:
    """``dark``: the seconds for which an EIP may be unanswered whose holder could serve the client all the time;
    ``sick_dark``: one whose holder could not. The seconds that one node stood still come on top."""

    dark: float = FAILOVER
    sick_dark: float = FAILOVER
    in_sum: bool = False
    """All the times that it is unanswered, or answered twice, count together; or else the longest does."""
    still: bool = True
    """No EIP leaves a node that could serve the client all the time."""
    patience: float = 0.0
    """Seconds within which a request is answered; 0: before the next one for the same EIP."""
    twice: float = 0.0
    """Seconds for which two may answer, beside a hello interval for each minute."""
    apart: float = 0.0
    """Seconds between two bursts of answers: a node that is silent for less has not stopped answering."""


AT_A_TIME = Promise()
STUTTERING = Promise(in_sum=True, still=False, patience=SOON)
SICK_SETTLES = Promise(sick_dark=SETTLED, in_sum=True, patience=SOON)


def in_bursts_between_nodes(hold: float) -> Promise:
    """The first gap looks like a death, and what is claimed then is heard of a burst later."""
    return Promise(in_sum=True, patience=SOON, twice=2 * hold)


def in_bursts(hold: float) -> Promise:
    """A request waits for a burst, and its answer for the next one. Who does not answer when a burst comes leaves all
    requests unanswered that it brings, those of ``hold`` seconds."""
    return Promise(dark=FAILOVER + hold, in_sum=True, still=False, patience=2 * hold + SOON, apart=hold)


# ── What happens, and to whom ──────────────────────────────────────────────────────────────────────────────────


class Cast(Enum):
    """To how many a frame is sent, by its destination MAC."""

    ANY = "any"
    MANY = "many"
    """Broadcast and multicast."""
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Drop:
    """Frames from one of ``senders`` to one of ``receivers`` are lost, ``percent`` of them; ``hellos``: only those.
    ``claiming``: only ARP and neighbour advertisements that say who has this address. ``cast``: only those to many, or
    to one. ``over``: only those of a second's frames from ``senders`` that are more than so many, to whomever."""

    senders: Hosts
    receivers: Hosts
    hellos: bool = False
    percent: int = 100
    claiming: str = ""
    cast: Cast = Cast.ANY
    over: int = 0

    def parts(self, one: str, other: str) -> bool:
        """Whether the one's ARP request, a broadcast, cannot reach the other, or its answer, to one, not come back."""
        there = one in self.senders and other in self.receivers and self.cast is not Cast.ONE
        back = other in self.senders and one in self.receivers and self.cast is not Cast.MANY
        return (there or back) and self.percent == 100 and not (self.hellos or self.claiming or self.over)


@dataclass(frozen=True, slots=True)
class Hold:
    """Frames from one of ``senders`` to one of ``receivers`` wait, and are delivered together every ``seconds``."""

    seconds: float
    senders: Hosts
    receivers: Hosts


@dataclass(frozen=True, slots=True)
class Step:
    """From second ``at`` on the switch drops ``drops``, and ``pulled`` hosts have no carrier. ``what``: for people, if
    anything. ``useless``: nodes whose frames pass, but none or few of their answers. ``hold``: what waits.
    ``stopped``: nodes whose processes stand still."""

    at: float
    what: str
    drops: tuple[Drop, ...] = ()
    pulled: Hosts = frozenset()
    useless: Hosts = frozenset()
    hold: Hold | None = None
    stopped: Hosts = frozenset()

    @property
    def healthy(self) -> bool:
        return not (self.drops or self.pulled or self.hold or self.stopped)

    def in_reach(self, client: str, nodes: Iterable[str]) -> Hosts:
        """The nodes that hear ``client`` and that it hears. What waits gets there; who stands still goes on."""
        parted = (node for node in nodes if any(drop.parts(client, node) for drop in self.drops))
        return frozenset(nodes) - self.pulled - self.useless - frozenset(parted)


@dataclass(frozen=True, slots=True)
class Limit:
    """EIPs are claimed ``most`` times, by all nodes together, from second ``since`` on until second ``until``."""

    since: float
    until: float
    most: int


@dataclass(frozen=True, slots=True)
class Course:
    """``seconds``: until everything was seen."""

    steps: tuple[Step, ...]
    seconds: float
    claims: Limit | None = None
    promise: Promise = AT_A_TIME

    @property
    def healed(self) -> float:
        """The second from which on nothing is sick any more; ``seconds`` where that is never."""
        return self.steps[-1].at if self.steps[-1].healthy else self.seconds


@dataclass(frozen=True, slots=True)
class Ward:
    """Who is there, and for how long what happens to them. ``victim``: the node with the sick link."""

    nodes: tuple[str, ...]
    victim: str
    others: Hosts
    """Clients, gateway, hosts."""
    seconds: float
    after: float
    carrier: bool = False
    sides: tuple[Hosts, Hosts] = field(default=(frozenset(), frozenset()))
    """Two halves of the LAN, for what befalls one of them."""
    eips: tuple[str, ...] = ()
    hold: float = 0.0
    """Seconds between two bursts."""
    nodes_only: bool = False
    stop: float = 0.0
    """Seconds that a node stands still at a time."""
    unicast: bool = False

    @property
    def everybody(self) -> Hosts:
        return self.others | frozenset(self.nodes)

    def ill(self, what: str, *drops: Drop) -> Course:
        """For ``seconds``, once."""
        return self.once(Step(0.0, what, drops))

    def once(self, step: Step, promise: Promise = AT_A_TIME) -> Course:
        """``step`` for ``seconds``."""
        return Course((step, Step(self.seconds, HEALED)), self.seconds + self.after, promise=promise)

    def silence(self, hosts: Collection[str]) -> tuple[Drop, ...]:
        """The ports of ``hosts`` carry nothing, in either direction."""
        return Drop(frozenset(hosts), self.everybody), Drop(self.everybody, frozenset(hosts))


HEALED = "the switch does its work again"
UP = 2.0
"""Seconds between two flaps."""
SETTLES = 2.0
"""Seconds that are watched after the last flap."""
CLAIMS_AFTER_FLAPS = 4
STORM_LIMIT = 12
"""Frames a second."""


def deaf(ward: Ward) -> Course:
    """Nothing is delivered to one node; what it sends arrives."""
    one = frozenset((ward.victim,))
    return ward.ill(f"{ward.victim} no longer hears anything, but is heard", Drop(ward.everybody, one))


def oneway(ward: Ward) -> Course:
    """What one node sends reaches nobody; it hears everybody."""
    one = frozenset((ward.victim,))
    return ward.ill(f"{ward.victim} is no longer heard by anybody, but hears", Drop(one, ward.everybody))


def blip(ward: Ward) -> Course:
    """One port carries nothing for a moment."""
    return ward.ill(f"the port of {ward.victim} is silent both ways, its carrier up", *ward.silence([ward.victim]))


def flap(ward: Ward) -> Course:
    """One port is silent again and again, for as long as is watched after the second time."""
    second = 2 * ward.seconds + UP
    limit = Limit(second, second + ward.after, CLAIMS_AFTER_FLAPS)
    steps = tuple(_flaps(ward, limit.until))
    return Course(steps, max(limit.until, steps[-1].at + SETTLES), limit)


def _flaps(ward: Ward, until: float) -> Iterator[Step]:
    at, number = 0.0, 1
    while at < until:
        what = f"flap {number}: the {'cable' if ward.carrier else 'port'} of {ward.victim} is "
        if ward.carrier:
            yield Step(at, f"{what}out", pulled=frozenset((ward.victim,)))
        else:
            yield Step(at, f"{what}silent both ways, its carrier up", ward.silence([ward.victim]))
        at += ward.seconds
        yield Step(at, HEALED)
        at, number = at + UP, number + 1


def stp(ward: Ward) -> Course:
    """Every port of one half of the switch is silent, as while a spanning tree is drawn anew."""
    half = ward.sides[1]
    return ward.ill(f"the ports of {', '.join(sorted(half))} are silent both ways, carriers up", *ward.silence(half))


def partial(ward: Ward) -> Course:
    """Two nodes do not hear each other; everybody else hears both."""
    one, other = frozenset(ward.nodes[:1]), frozenset(ward.nodes[-1:])
    what = f"{ward.nodes[0]} and {ward.nodes[-1]} do not hear each other; all others hear both"
    return ward.ill(what, Drop(one, other), Drop(other, one))


def minority(ward: Ward) -> Course:
    """The LAN falls in two, with a client on each side."""
    one, other = ward.sides
    what = f"the switch falls in two: {', '.join(sorted(one))} | {', '.join(sorted(other))}"
    return ward.ill(what, Drop(one, other), Drop(other, one))


def filtered(ward: Ward) -> Course:
    """Hellos are eaten between all; everything else passes."""
    what = "the switch drops every hello (EtherType 0x88B5), and nothing else"
    return ward.ill(what, Drop(ward.everybody, ward.everybody, hellos=True))


def burst(ward: Ward) -> Course:
    """Frames wait, those of all or those between nodes, and come together again and again."""
    hosts = frozenset(ward.nodes) if ward.nodes_only else ward.everybody
    which = "what nodes send each other" if ward.nodes_only else "every frame"
    what = f"the switch keeps {which}, and delivers what it has every {ward.hold * 1000:.0f} ms"
    promise = (in_bursts_between_nodes if ward.nodes_only else in_bursts)(ward.hold)
    return ward.once(Step(0.0, what, hold=Hold(ward.hold, hosts, hosts)), promise)


def stutter(ward: Ward) -> Course:
    """Once a second each node stands still for a moment, one at a time."""
    steps = (*_stops(ward), Step(ward.seconds, "all go on"))
    return Course(steps, ward.seconds + ward.after, promise=STUTTERING)


def _stops(ward: Ward) -> Iterator[Step]:
    what = f"nodes stand still in turn, each for {ward.stop * 1000:.0f} ms in a second"
    apart = 1 / len(ward.nodes)
    for number in range(math.ceil(ward.seconds / apart)):
        node = ward.nodes[number % len(ward.nodes)]
        yield Step(number * apart, "" if number else what, stopped=frozenset((node,)))
        if (end := number * apart + ward.stop) < ward.seconds:
            yield Step(end, "")


def nobroadcast(ward: Ward) -> Course:
    """One port gets what is sent to its MAC, and nothing that is sent to many (``bcast_flood off mcast_flood off``)."""
    drop = Drop(ward.everybody, frozenset((ward.victim,)), cast=Cast.MANY)
    what = f"no broadcast and no multicast is delivered to {ward.victim}; what is sent to it alone is"
    return ward.once(Step(0.0, what, (drop,)), SICK_SETTLES)


def mute(ward: Ward) -> Course:
    """Hellos of one node pass, and none of its answers for EIPs; or nothing that it sends to one host alone."""
    one = frozenset((ward.victim,))
    if ward.unicast:
        what = f"what {ward.victim} sends to one host is lost; its broadcasts pass"
        return ward.once(Step(0.0, what, (Drop(one, ward.everybody, cast=Cast.ONE),)), SICK_SETTLES)
    drops = tuple(Drop(one, ward.everybody, claiming=eip) for eip in ward.eips)
    what = f"the switch drops what {ward.victim} says of EIPs by ARP and NDP, and nothing else"
    return ward.once(Step(0.0, what, drops, useless=one), SICK_SETTLES)


def storm(ward: Ward) -> Course:
    """Of what one node sends few frames pass, whatever they are; it hears everybody."""
    one = frozenset((ward.victim,))
    drop = Drop(one, ward.everybody, over=STORM_LIMIT)
    what = f"of what {ward.victim} sends {STORM_LIMIT} frames a second pass; it hears everything"
    return ward.once(Step(0.0, what, (drop,), useless=one), SICK_SETTLES)


def sick(ward: Ward) -> Course:
    """One port loses half of what passes it, both ways."""
    one = frozenset((ward.victim,))
    drops = Drop(one, ward.everybody, percent=50), Drop(ward.everybody, one, percent=50)
    what = f"the port of {ward.victim} loses half of all frames, both ways, its carrier up"
    return ward.once(Step(0.0, what, drops, useless=one), SICK_SETTLES)


_COURSES = (deaf, blip, flap, stp, partial, oneway, minority, filtered, burst, stutter, nobroadcast, mute, storm, sick)
COURSES: Mapping[str, Callable[[Ward], Course]] = {course.__name__: course for course in _COURSES}
"""By the name that ``--scenario`` has for it."""
