"""What the kernel says about links, addresses, routes and rules at one moment: values, no behaviour.

``watcher.py`` makes them; ``routing.py`` and ``resolve.py`` decide on them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from ipaddress import ip_network
from typing import Literal, NamedTuple, TypeAlias

from speaker.model import EIP_LINK, KUBE_PROXY_LINK, IPAddress, IPNetwork, Link, of_speakers

Version: TypeAlias = Literal[4, 6]

LOCAL_TABLE = 255
"""RT_TABLE_LOCAL: the addresses bound on this host. Left out: a bound address says nothing about the LAN."""
MAIN_TABLE = 254


class RouteKind(IntEnum):
    """``rtm_type``, with the kernel's numbers (include/uapi/linux/rtnetlink.h)."""

    UNICAST = 1
    LOCAL = 2
    BROADCAST = 3
    ANYCAST = 4
    MULTICAST = 5
    BLACKHOLE = 6
    UNREACHABLE = 7
    PROHIBIT = 8
    THROW = 9


class NextHop(NamedTuple):
    link: int
    """Index of the link it leaves through."""
    dead: bool = False
    """The kernel does not use it: its link is down, or lost its carrier under ``ignore_routes_with_linkdown``
    (the kernel's dump says "dead" for that too: ``fib_nexthop_info`` in net/ipv4/fib_semantics.c)."""


class Route(NamedTuple):
    """One route. A tuple with a bare number for a prefix, because a host may carry a full BGP table of these.

    ``prefix`` is the destination as a number (host bits zero), ``length`` its prefix length in bits.
    """

    version: Version
    table: int
    prefix: int
    length: int
    hops: tuple[NextHop, ...] = ()
    kind: RouteKind = RouteKind.UNICAST
    metric: int = 0
    tos: int = 0
    """IPv4 only: the route serves only packets with this type of service."""
    preference: int = 0
    """IPv6 only (RFC 4191): 1 high, 0 medium, -1 low; decides among equal metrics."""

    @property
    def destination(self) -> IPNetwork:
        return ip_network((self.prefix.to_bytes(4 if self.version == 4 else 16, "big"), self.length))

    @property
    def is_host(self) -> bool:
        return self.length == (32 if self.version == 4 else 128)


class RouteTables:
    """Routes filed by table, prefix length and prefix: what holds an address is found without walking the rest.

    Filled by ``add``, in the order in which the kernel lists them, and never changed once it is part of a Snapshot.
    """

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._filed: dict[tuple[Version, int], dict[int, dict[int, list[Route]]]] = {}
        for route in routes:
            self.add(route)

    def add(self, route: Route) -> None:
        table = self._filed.setdefault((route.version, route.table), {})
        table.setdefault(route.length, {}).setdefault(route.prefix, []).append(route)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RouteTables) and self._filed == other._filed)

    __hash__ = None  # type: ignore[assignment]  # filled by `add`

    def __len__(self) -> int:
        return sum(len(same) for table in self._filed.values() for by in table.values() for same in by.values())

    def holding(self, table: int, address: IPAddress) -> Iterator[Route]:
        """The routes of a table whose destination holds the address, in the order in which the kernel tries them:
        longest prefix, lowest metric, highest preference, first listed."""
        by_length = self._filed.get((address.version, table), {})
        number, width = int(address), address.max_prefixlen
        for length in sorted(by_length, reverse=True):
            prefix = number >> (width - length) << (width - length)
            yield from sorted(by_length[length].get(prefix, ()), key=lambda route: (route.metric, -route.preference))


class RuleAction(Enum):
    """What a matching policy rule does (FR_ACT_*)."""

    LOOKUP = "lookup"
    GOTO = "goto"
    NOP = "nop"
    BLACKHOLE = "blackhole"
    UNREACHABLE = "unreachable"
    PROHIBIT = "prohibit"


@dataclass(frozen=True, slots=True)
class Rule:
    """One policy rule (``ip rule``), as far as it decides about a packet this host sends on nobody's behalf.

    ``special`` is set where it asks for what such a packet does not have: an outgoing or another incoming interface
    than ``lo``, a VRF, a tunnel, a type of service, a protocol, a port. ``invert`` ("not") turns the whole match round.
    """

    version: Version
    priority: int
    action: RuleAction = RuleAction.LOOKUP
    table: int = MAIN_TABLE
    target: int = 0
    """Of GOTO: the priority to go on at."""
    source: IPNetwork | None = None
    destination: IPNetwork | None = None
    mark: int = 0
    mask: int = 0
    uids: tuple[int, int] | None = None
    """First and last user id it is for."""
    special: bool = False
    invert: bool = False
    suppress_length: int = -1
    """A route no longer than this many bits does not count (``suppress_prefixlength``)."""
    suppress_group: int = -1
    """A route through a link of this group does not count (``suppress_ifgroup``)."""


@dataclass(frozen=True, slots=True)
class LinkAddress:
    """An address bound on a link. ``subnet`` is the network it is in, or the peer's on a point-to-point link."""

    link: int
    address: IPAddress
    subnet: IPNetwork
    tentative: bool = False
    """IPv6: not, or not yet, known to be nobody else's (RFC 4862 §5.4), so nothing may be sent from it."""


class Gateway(NamedTuple):
    """A router that a default route names, and the link it is on."""

    link: int
    address: IPAddress


@dataclass(frozen=True, slots=True)
class Snapshot:
    """This node's links and what leads where. Addresses on ``lo`` and on dummies are left out: nothing asks for them,
    and the speaker binds EIPs there by the thousand."""

    links: Mapping[int, Link] = field(default_factory=dict)
    """By index."""
    addresses: tuple[LinkAddress, ...] = ()
    rules: tuple[Rule, ...] = ()
    """Both families, in the order of the kernel: by priority, then as added."""
    routes: RouteTables = field(default_factory=RouteTables)
    gateways: frozenset[Gateway] = frozenset()
    """Of all default routes, whatever their table and metric. Those of other routes are not kept: where a BGP table
    changes them all day, that is no news to us."""
    groups: Mapping[int, int] = field(default_factory=dict)
    """The group of each link that is not in group 0."""
    other_names: Mapping[str, int] = field(default_factory=dict)
    """``altname``: the link of each. The kernel gives no name twice."""
    own: Mapping[IPAddress, str] = field(default_factory=dict)
    """The addresses that this host has for its own, ``lo``'s among them, and the link that each is bound on."""

    def link_named(self, name: str) -> Link | None:
        """By its name, or another one that it has."""
        named = (link for link in self.links.values() if link.name == name)
        return next(named, self.links.get(self.other_names.get(name, 0)))


OF_SERVICES = frozenset({KUBE_PROXY_LINK, "kube-dummy-if"})
"""Links on which others bind addresses of Services: kube-proxy in ipvs mode, kube-router."""


def of_services(link: str) -> bool:
    """Whether addresses of Services are bound on the link of that name: by others, by us or by another group."""
    return link in OF_SERVICES or of_speakers(link)


def own(links: Mapping[int, Link], bound: Iterable[LinkAddress], ours: str = EIP_LINK) -> dict[IPAddress, str]:
    """As in ``Snapshot``; ``ours`` is the name of our dummy. What is bound for Services is nobody's own, or no EIP
    could be served beside kube-proxy; but what another group's speaker has bound here is that group's. Of two that
    bound it in the same instant the one whose link has the higher name keeps it: never the one without a group."""
    names = {index: link.name for index, link in links.items() if link.name not in OF_SERVICES}
    bound = [each for each in bound if each.link in names]
    mine = {each.address for each in bound if names[each.link] == ours}
    others = [each for each in bound if names[each.link] != ours]
    return {
        each.address: name
        for each in others
        for name in [names[each.link]]
        if not (of_speakers(name) and each.address in mine and name < ours)
    }


def leads_nowhere(link: Link) -> bool:
    """``lo`` and dummies (kube-ipvs0, nodelocaldns, our own): addresses are bound there, and no LAN is behind."""
    return link.loopback or link.kind == "dummy"
