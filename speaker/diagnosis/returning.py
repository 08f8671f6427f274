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
_REFUSED = {
    **{error: os.strerror(error).lower() for error in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES)},
    **dict.fromkeys((errno.EINVAL, errno.EXDEV), "into a blackhole, or past the reverse path filter"),
}


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
    marks = _marks(snapshot, address.version)
    for beyond, client in clients.items():
        if client is not None:
            found = {mark: _both(facts, snapshot, ask, link, (client, source, incoming), mark) for mark in (0, *marks)}
            out, lost, refused = found[0]
            right = tuple(mark for mark in marks if found[mark][0] == link.index != out)
            astray = tuple(mark for mark in marks if found[mark][1] or found[mark][2])
            leaves = snapshot.links.get(out)
            yield Back(eip.address, beyond, leaves.name if leaves else "", lost, right, refused, astray)


def _both(
    facts: Facts,
    snapshot: Snapshot,
    ask: Callable[..., tuple[int, int]],
    link: Link,
    of: tuple[IPAddress, IPAddress | None, int],
    mark: int,
) -> tuple[int, str, str]:
    """The link that the answer leaves by, and why it or the question gets nowhere."""
    client, source, incoming = of
    out, error = ask(client, source, incoming, mark)
    refused = ask(source, client, link.index, mark)[1] if source is not None else 0
    came = snapshot.links.get(incoming)
    if came is not None and facts.setting("net.ipv4.conf", came.name, "forwarding") == "0":
        error = 0  # the kernel sends nothing on that comes in there, which is reported as such
    if facts.setting("net.ipv4.conf", link.name, "forwarding") == "0":
        refused = 0
    return out, _lost(snapshot.links.get(out), error), _REFUSED.get(refused, "")


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
        return _REFUSED.get(error, "")
    if not link.ethernet or not link.arp:
        return "which is not an Ethernet link (a tunnel?)"
    return "" if link.carrier else "which has no carrier"
