"""What a switch does to the frames on a LAN while a link is sick, and for how long: schedules, and whom they cut off.

A ``Course`` is what a scenario plays: at which second the switch drops which frames. Who can be served by whom follows
from it, so that the judgement needs no other word about it. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

Hosts = frozenset[str]


@dataclass(frozen=True, slots=True)
class Drop:
    """Frames from one of ``senders`` to one of ``receivers`` are lost, ``percent`` of them; ``hellos``: only those.
    ``claiming``: only ARP that says who has this IPv4 address."""

    senders: Hosts
    receivers: Hosts
    hellos: bool = False
    percent: int = 100
    claiming: str = ""

    def parts(self, one: str, other: str) -> bool:
        """Whether the one's ARP cannot reach the other, or its answer not come back."""
        there = one in self.senders and other in self.receivers
        back = other in self.senders and one in self.receivers
        return (there or back) and self.percent == 100 and not (self.hellos or self.claiming)


@dataclass(frozen=True, slots=True)
class Step:
    """From second ``at`` on the switch drops ``drops``, and ``pulled`` hosts have no carrier. ``what``: for people."""

    at: float
    what: str
    drops: tuple[Drop, ...] = ()
    pulled: Hosts = frozenset()

    @property
    def healthy(self) -> bool:
        return not self.drops and not self.pulled

    def in_reach(self, client: str, nodes: Iterable[str]) -> Hosts:
        """The nodes that hear ``client`` and that it hears."""
        parted = (node for node in nodes if any(drop.parts(client, node) for drop in self.drops))
        return frozenset(nodes) - self.pulled - frozenset(parted)


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

    @property
    def everybody(self) -> Hosts:
        return self.others | frozenset(self.nodes)

    def ill(self, what: str, *drops: Drop) -> Course:
        """For ``seconds``, once."""
        return Course((Step(0.0, what, drops), Step(self.seconds, HEALED)), self.seconds + self.after)

    def silence(self, hosts: Collection[str]) -> tuple[Drop, ...]:
        """The ports of ``hosts`` carry nothing, in either direction."""
        return Drop(frozenset(hosts), self.everybody), Drop(self.everybody, frozenset(hosts))


HEALED = "the switch does its work again"
UP = 2.0
"""Seconds between two flaps."""
SETTLES = 2.0
"""Seconds that are watched after the last flap."""
CLAIMS_AFTER_FLAPS = 4


def deaf(ward: Ward) -> Course:
    """Nothing is delivered to one node; what it sends arrives."""
    one = frozenset((ward.victim,))
    return ward.ill(f"{ward.victim} hears nothing any more; it is heard", Drop(ward.everybody, one))


def oneway(ward: Ward) -> Course:
    """What one node sends reaches nobody; it hears everybody."""
    one = frozenset((ward.victim,))
    return ward.ill(f"{ward.victim} is heard by nobody any more; it hears", Drop(one, ward.everybody))


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
    what = "the switch eats every hello (EtherType 0x88B5), and nothing else"
    return ward.ill(what, Drop(ward.everybody, ward.everybody, hellos=True))


COURSES: Mapping[str, Callable[[Ward], Course]] = {
    "deaf": deaf,
    "blip": blip,
    "flap": flap,
    "stp": stp,
    "partial": partial,
    "oneway": oneway,
    "minority": minority,
    "filtered": filtered,
}
"""By the name that ``--scenario`` has for it."""
