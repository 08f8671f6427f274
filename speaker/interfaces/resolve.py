"""Which link of this node serves an EIP, or why none does.

A link must be able to carry ARP and NDP itself, and do so now. ``can_reach`` looks the route up without anything that
only shows that an address is bound here: the local table, routes through ``lo`` and dummies, and the host route that
IPv6 puts into the main table for every address. Everything else in a route counts: if it leads into a tunnel, to a link
without a cable or nowhere ("unreachable"), this node has no link for the EIP, and the next best route is not guessed
at.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from speaker.interfaces.routing import Found, Refused, lookup
from speaker.interfaces.snapshot import NextHop, Route, RouteKind, Snapshot, leads_nowhere
from speaker.model import CanReach, IPAddress, IPNetwork, Link, LinkNames, OwnSubnet, Selector


class UnresolvedReason(Enum):
    """Why there is no link; the value is the metric label."""

    NO_SUCH_LINK = "no_such_link"
    LOOPBACK = "loopback"
    DUMMY = "dummy"
    PORT = "port"
    """It belongs to a bridge, bond or team: that one has the addresses."""
    NOT_ETHERNET = "not_ethernet"
    NO_ARP = "no_arp"
    LINK_DOWN = "link_down"
    NO_CARRIER = "no_carrier"
    NO_ROUTE = "no_route"
    ROUTE_REFUSES = "route_refuses"
    NO_SUBNET = "no_subnet"
    ANSWERS_ELSEWHERE = "answers_elsewhere"
    """The kernel sends answers to its clients by another link, which brings them to nobody."""


_PASSING = frozenset({UnresolvedReason.LINK_DOWN, UnresolvedReason.NO_CARRIER})
"""Reasons that say how a link is now, not what it is."""


@dataclass(frozen=True, slots=True)
class Resolved:
    link: Link


@dataclass(frozen=True, slots=True)
class Unresolved:
    """``message`` is a sentence for the user that names every candidate and what is wrong with it."""

    reason: UnresolvedReason
    message: str


def resolve(selector: Selector, eip: IPAddress, snapshot: Snapshot) -> Resolved | Unresolved:
    """The one link this node would announce the EIP on. Never ``lo``, a dummy, a port, or a link without ARP."""
    match selector:
        case LinkNames(names):
            return _first_named(names, eip, snapshot)
        case CanReach(target):
            return _towards(target, eip, snapshot)
        case OwnSubnet():
            return _in_subnet(eip, snapshot)


def _first_named(names: tuple[str, ...], eip: IPAddress, snapshot: Snapshot) -> Resolved | Unresolved:
    faults: list[tuple[str, Unresolved]] = []
    for name in names:
        if (link := snapshot.link_named(name)) is None:
            faults.append((name, Unresolved(UnresolvedReason.NO_SUCH_LINK, "there is no such link")))
        elif (fault := _unfit(link, eip, snapshot)) is None:
            return Resolved(link)
        else:
            faults.append((name, fault))
    return _all_unfit("", faults)


def _towards(target: IPAddress, eip: IPAddress, snapshot: Snapshot) -> Resolved | Unresolved:
    match _way_to(target, snapshot):
        case None:
            return Unresolved(UnresolvedReason.NO_ROUTE, f"no route leads to {target} (can_reach)")
        case Refused(how, by):
            what = f"the route {by.destination}" if isinstance(by, Route) else f"the rule {by.priority}"
            return Unresolved(UnresolvedReason.ROUTE_REFUSES, f"{what}, which applies to {target}, says {how.value}")
        case Found(_, hops):
            lead = f"the route to {target} leads through "
            return _first_fit(lead, (snapshot.links[hop.link] for hop in hops), eip, snapshot)


def _way_to(target: IPAddress, snapshot: Snapshot) -> Found | Refused | None:
    return lookup(target, snapshot, lambda route, hop: _leads_to_a_lan(route, hop, snapshot))


def _leads_to_a_lan(route: Route, hop: NextHop, snapshot: Snapshot) -> bool:
    link = snapshot.links.get(hop.link)
    if link is None or leads_nowhere(link) or route.kind in (RouteKind.LOCAL, RouteKind.ANYCAST):
        return False
    return not (route.is_host and _is_bound(route, link, snapshot))


def _is_bound(route: Route, link: Link, snapshot: Snapshot) -> bool:
    """IPv6 files a /128 in the main table for an address bound so; IPv4 does not, and both shall answer alike."""
    return any(
        bound.link == link.index and bound.address.version == route.version and int(bound.address) == route.prefix
        for bound in snapshot.addresses
    )


def _in_subnet(eip: IPAddress, snapshot: Snapshot) -> Resolved | Unresolved:
    """Of the links whose subnet holds the EIP, those with the longest prefix: a lost cable does not make the wider
    subnet of another link the right segment. Links that can never announce do not hide one that can."""
    holding = [
        (bound.subnet.prefixlen, snapshot.links[bound.link])
        for bound in snapshot.addresses
        if bound.link in snapshot.links and bound.subnet.prefixlen < eip.max_prefixlen and eip in bound.subnet
    ]
    if not holding:
        return Unresolved(UnresolvedReason.NO_SUBNET, f"no link has an address in a subnet that holds {eip}")
    able = [(length, link) for length, link in holding if not _never(link, snapshot)]
    longest = max(length for length, _ in able or holding)
    links = (link for length, link in able or holding if length == longest)
    return _first_fit(f"the subnet of {eip} is that of ", links, eip, snapshot)


def _first_fit(lead: str, links: Iterable[Link], eip: IPAddress, snapshot: Snapshot) -> Resolved | Unresolved:
    """By index: the kernel's order of next hops and addresses changes as they come and go."""
    faults: list[tuple[str, Unresolved]] = []
    for link in sorted(set(links), key=lambda link: link.index):
        if (fault := _unfit(link, eip, snapshot)) is None:
            return Resolved(link)
        faults.append((link.name, fault))
    return _all_unfit(lead, faults)


def _all_unfit(lead: str, faults: list[tuple[str, Unresolved]]) -> Unresolved:
    """The reason is that of the most preferred candidate; the message has them all."""
    return Unresolved(faults[0][1].reason, lead + "; ".join(f"{name}: {fault.message}" for name, fault in faults))


def _never(link: Link, snapshot: Snapshot) -> bool:
    fault = _fault(link, snapshot)
    return fault is not None and fault.reason not in _PASSING


def _fault(link: Link, snapshot: Snapshot) -> Unresolved | None:
    """What keeps the link from announcing. What it is comes before how it is."""
    if link.loopback:
        return Unresolved(UnresolvedReason.LOOPBACK, "it is the loopback link")
    if link.kind == "dummy":
        return Unresolved(UnresolvedReason.DUMMY, "it is a dummy link, with no LAN behind it")
    if link.master is not None and link.master_kind != "vrf":
        return Unresolved(UnresolvedReason.PORT, _use_master(link, snapshot))
    if not link.ethernet:
        return Unresolved(UnresolvedReason.NOT_ETHERNET, "it is not an Ethernet link")
    if not link.arp:
        return Unresolved(UnresolvedReason.NO_ARP, "it does not use ARP (NOARP)")
    if not link.up:
        return Unresolved(UnresolvedReason.LINK_DOWN, "it is down")
    if not link.carrier:
        return Unresolved(UnresolvedReason.NO_CARRIER, "it has no carrier")
    return None


def _unfit(link: Link, eip: IPAddress, snapshot: Snapshot) -> Unresolved | None:
    """What keeps the link from announcing this EIP, or clients there from being answered."""
    return _fault(link, snapshot) or _answers_elsewhere(link, eip, snapshot)


def _answers_elsewhere(link: Link, eip: IPAddress, snapshot: Snapshot) -> Unresolved | None:
    """Only where each of its subnets is routed by links that bring nothing there: a second link in the same subnet
    whose cable is out, a tunnel. A VRF has tables of its own."""
    own = [
        bound.subnet
        for bound in snapshot.addresses
        if bound.link == link.index and bound.subnet.version == eip.version and not bound.subnet.is_link_local
    ]
    lost = [_lost(link, subnet, snapshot) for subnet in [each for each in own if eip in each] or own]
    if link.master is not None or not lost or None in lost:
        return None
    told = ", ".join(dict.fromkeys(filter(None, lost)))
    return Unresolved(UnresolvedReason.ANSWERS_ELSEWHERE, f"answers to clients there leave by {told}")


def _lost(link: Link, subnet: IPNetwork, snapshot: Snapshot) -> str | None:
    """The other link by which the kernel routes the subnet, and what is wrong with it; None where answers arrive, or
    where it cannot be told."""
    match _way_to(subnet.network_address, snapshot):
        case Found(route, hops) if route.length <= subnet.prefixlen and link.index not in {hop.link for hop in hops}:
            others = [snapshot.links[hop.link] for hop in hops]
            faults = [(other.name, _fault(other, snapshot)) for other in others]
            if all(fault is not None for _, fault in faults):
                return "; ".join(f"{name}: {fault.message}" for name, fault in faults if fault is not None)
    return None


def _use_master(link: Link, snapshot: Snapshot) -> str:
    master = snapshot.links.get(link.master) if link.master is not None else None
    name = master.name if master is not None else f"link {link.master}"
    return f"it is a port of {f'{link.master_kind} {name}'.strip()}: use {name}"
