"""This node's own addresses on its links: those at which others reach it, and from which it asks. Pure."""

from collections.abc import Iterable, Iterator
from itertools import islice

from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import IPAddress, Link, rank
from speaker.packets.asking import Question

MOST = 64
"""Addresses of a link that are told in hellos: a kilobyte of them."""
MOST_GATEWAYS = 4
"""Of a link."""


def own_addresses(snapshot: Snapshot, links: Iterable[Link]) -> dict[int, tuple[IPAddress, ...]]:
    """By index: the first IPv4 address there, one with a subnet before others, and the first IPv6 link-local one; those
    that there are."""
    return {link.index: tuple(filter(None, (_ipv4(snapshot, link), _ipv6(snapshot, link)))) for link in links}


def bound_addresses(snapshot: Snapshot, links: Iterable[Link]) -> dict[int, frozenset[IPAddress]]:
    """By index: all that are bound there, so that nobody takes them for EIPs; of more than ``MOST`` the first, those
    with a subnet before others."""
    return {link.index: frozenset(islice(_in_order(snapshot, link), MOST)) for link in links}


def gateways(snapshot: Snapshot, links: Iterable[Link]) -> dict[int, tuple[IPAddress, ...]]:
    """By index: those of the default routes there, at most ``MOST_GATEWAYS``."""
    found: dict[int, tuple[IPAddress, ...]] = {link.index: () for link in links}
    for gateway in sorted(snapshot.gateways, key=lambda each: rank(each.address)):
        if gateway.link in found and len(found[gateway.link]) < MOST_GATEWAYS:
            found[gateway.link] += (gateway.address,)
    return found


def _in_order(snapshot: Snapshot, link: Link) -> Iterator[IPAddress]:
    bound = sorted(_bound(snapshot, link), key=lambda each: each.subnet.prefixlen == each.address.max_prefixlen)
    return (each.address for each in bound if not each.address.is_link_local)


def _ipv4(snapshot: Snapshot, link: Link) -> IPAddress | None:
    own = [bound for bound in _bound(snapshot, link) if bound.address.version == 4]
    # A host's own address has a subnet; one without may be a service's, and elsewhere tomorrow.
    first = min(own, key=lambda bound: bound.subnet.prefixlen == 32, default=None)
    return first.address if first is not None else None


def _ipv6(snapshot: Snapshot, link: Link) -> IPAddress | None:
    own = (bound.address for bound in _bound(snapshot, link))
    return next((address for address in own if address.version == 6 and address.is_link_local), None)


def question(snapshot: Snapshot, link: Link, address: IPAddress) -> Question | None:
    """To ask ``address`` on ``link`` whether it is there; None where none of our subnets there has it: it would be sent
    to a gateway."""
    own = [bound for bound in _bound(snapshot, link) if address in bound.subnet and address != bound.address]
    return Question(link.index, link.mac, own[0].address, address) if own else None


def _bound(snapshot: Snapshot, link: Link) -> list[LinkAddress]:
    return [bound for bound in snapshot.addresses if bound.link == link.index and not bound.tentative]
