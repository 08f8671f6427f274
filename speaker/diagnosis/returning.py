"""Edge: finds the link by which the kernel would send an EIP's answers, to a client on its link and to one beyond the
gateway.

An answer is routed before its source is translated back: it comes in from the endpoint, or is this host's own. IPVS
routes it once more, by the EIP (``snat_reroute``). Marks that a firewall rule may set are not known here, so every mark
that a policy rule asks for is tried.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice

from speaker.diagnosis.eip_checks import taking, way
from speaker.diagnosis.facts import Back, Facts
from speaker.diagnosis.kernel import route
from speaker.interfaces.snapshot import Snapshot
from speaker.model import IPAddress, IPNetwork, Link
from speaker.netlink.requests import Netlink
from speaker.node.known.knowledge import KnownEip

FAR: dict[int, IPAddress] = {4: IPv4Address("9.9.9.9"), 6: IPv6Address("2620:fe::fe")}
"""Public addresses, looked up but never sent to, that no local network has."""
MARKS = 16
_REFUSED = errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES


def backs(facts: Facts, snapshot: Snapshot, most: int) -> tuple[Back, ...]:
    """For the first ``most`` EIPs that have a link here. Raises EdgeError."""
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        ask = cache(partial(route, netlink))
        mine = [eip for eip in facts.knowledge.eips.first if snapshot.link_named(eip.link) is not None]
        return tuple(back for eip in mine[:most] for back in _of(facts, snapshot, ask, eip))


def _of(facts: Facts, snapshot: Snapshot, ask: Callable[..., tuple[int, int]], eip: KnownEip) -> Iterator[Back]:
    link, address = snapshot.link_named(eip.link), ip_address(eip.address)
    assert link is not None
    beyond = any(each.link == link.index and each.address.version == address.version for each in snapshot.gateways)
    clients = {True: FAR[address.version] if beyond else None, False: _near(link, address, snapshot)}
    source, incoming = _source(facts, snapshot, eip)
    for beyond, client in clients.items():
        if client is not None:
            out, error = ask(client, source, incoming)
            marks = [] if out == link.index else _marks(snapshot, address.version)
            right = tuple(mark for mark in marks if ask(client, source, incoming, mark)[0] == link.index)
            leaves, came = snapshot.links.get(out), snapshot.links.get(incoming)
            if came is not None and facts.setting("net.ipv4.conf", came.name, "forwarding") == "0":
                error = 0  # the kernel sends nothing on that comes in there, which is reported as such
            yield Back(eip.address, beyond, leaves.name if leaves else "", _lost(leaves, error), right)


def _near(link: Link, eip: IPAddress, snapshot: Snapshot) -> IPAddress | None:
    """An address of the link's subnet that this host does not have."""
    here = (each for each in snapshot.addresses if each.link == link.index)
    own = [each.subnet for each in here if each.address.version == eip.version]
    subnets = [each for each in own if eip in each] or own
    return next((host for subnet in subnets for host in strangers(snapshot, subnet, eip)), None)


def strangers(snapshot: Snapshot, subnet: IPNetwork, eip: IPAddress) -> Iterator[IPAddress]:
    """At most the last 62 addresses of the subnet, without this host's own and ``eip``."""
    hosts = (subnet[-number] for number in range(2, min(subnet.num_addresses, 64)))
    return (host for host in hosts if host not in snapshot.own and host != eip)


def _source(facts: Facts, snapshot: Snapshot, eip: KnownEip) -> tuple[IPAddress | None, int]:
    """An answer's source, and the index of the link that it comes in on (0 for this host's own)."""
    address = ip_address(eip.address)
    if facts.knowledge.forwarder == "ipvs":
        return (address if any(each.address == eip.address for each in facts.bound) else None), 0
    for _, each in taking(facts, eip):
        endpoint, incoming = ip_address(each.address), snapshot.link_named(way(facts, each.address))
        if endpoint in snapshot.own:
            return endpoint, 0
        if incoming is not None:
            return endpoint, incoming.index
    return None, 0


def _marks(snapshot: Snapshot, version: int) -> list[int]:
    asked = (rule.mark for rule in snapshot.rules if rule.version == version and rule.mark and not rule.invert)
    return [*islice(dict.fromkeys(asked), MARKS)]


def _lost(link: Link | None, error: int) -> str:
    if link is None:
        return os.strerror(error).lower() if error in _REFUSED else ""
    if not link.ethernet or not link.arp:
        return "which is not an Ethernet link (a tunnel?)"
    return "" if link.carrier else "which has no carrier"
