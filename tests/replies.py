"""What a host says to requests, and announces, as whole values: what the speaker's own bytes are held to."""

from ipaddress import IPv4Address, IPv6Address

from speaker.model import Mac
from speaker.packets import BROADCAST, arp, ndp


def reply(request: arp.ArpPacket, mac: Mac) -> arp.ArpPacket:
    """What ``mac`` says to a request for an address it answers for: sender and target change places."""
    return arp.ArpPacket(
        destination=request.sender_mac,
        source=mac,
        operation=arp.Operation.REPLY,
        sender_mac=mac,
        sender_ip=request.target_ip,
        target_mac=request.sender_mac,
        target_ip=request.sender_ip,
    )


def gratuitous_request(mac: Mac, address: IPv4Address) -> arp.ArpPacket:
    """An ARP announcement (RFC 5227 §3): ``address`` is both sender and target."""
    return arp.request(mac, address, address)


def gratuitous_reply(mac: Mac, address: IPv4Address) -> arp.ArpPacket:
    """The same news as a reply. Its target MAC is its sender's, or Linux takes it for an ordinary unasked reply and
    ignores it within ``locktime`` (``arp_is_garp``, net/ipv4/arp.c)."""
    return arp.ArpPacket(BROADCAST, mac, arp.Operation.REPLY, mac, address, mac, address)


def advertisement(request: ndp.NeighborSolicitation, mac: Mac) -> ndp.NeighborAdvertisement:
    """What ``mac`` says to a solicitation of an address it alone answers for (RFC 4861 §7.2.4).

    R=0: an EIP is no router. O=1: the address is neither anycast nor proxied, one node holds it at a time, and the
    asker's cache must follow when it moves. S=1, except to an asker without an address, who listens on all-nodes.
    """
    if request.source.is_unspecified:
        return unsolicited(mac, request.target)
    return ndp.NeighborAdvertisement(
        destination_mac=request.source_link_layer or request.source_mac,
        source_mac=mac,
        source=request.target,
        destination=request.source,
        target=request.target,
        router=False,
        solicited=True,
        override=True,
        target_link_layer=mac,
    )


def unsolicited(mac: Mac, address: IPv6Address) -> ndp.NeighborAdvertisement:
    """Tells all nodes that ``mac`` has ``address`` now (RFC 4861 §7.2.6)."""
    return ndp.NeighborAdvertisement(
        destination_mac=ndp.multicast_mac(ndp.ALL_NODES),
        source_mac=mac,
        source=address,
        destination=IPv6Address(ndp.ALL_NODES),
        target=address,
        router=False,
        solicited=False,
        override=True,
        target_link_layer=mac,
    )
