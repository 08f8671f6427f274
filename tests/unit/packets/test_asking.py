"""Who is asked how, which frames the kernel's filters let through, and what is read of them."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6MLReport2,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    IPv6,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import ARP, STP, Dot3, Ether
from scapy.packet import Raw

from speaker.model import Mac, format_mac
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys
from speaker.packets import PACKET_BROADCAST, PACKET_HOST, PACKET_MULTICAST, PACKET_OTHERHOST, PACKET_OUTGOING
from speaker.packets.asking import POLLS, Answer, answers_to, others_talk, question_from, read_answer, read_poll

OURS, THEIRS, ANOTHER = (Mac(b"\x02\0\0\0\0" + bytes((n,))) for n in (1, 2, 3))
OWN4, OWN6 = IPv4Address("192.0.2.1"), IPv6Address("fe80::1")
EIP4, EIP6 = IPv4Address("192.0.2.10"), IPv6Address("2001:db8::10")
EVERYBODY = "ff:ff:ff:ff:ff:ff"


# ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("own", "sender"), [((OWN4, OWN6), str(OWN4)), ((OWN6,), "0.0.0.0")])
@pytest.mark.parametrize(("known", "to"), [(None, EVERYBODY), (THEIRS, format_mac(THEIRS))])
def test_arp_asks_from_our_own_address_where_there_is_one(own, sender, known, to):
    packet = Ether(question_from(OURS, own, EIP4, known))
    assert (packet.dst, packet.src, packet[ARP].op) == (to, format_mac(OURS), 1)
    assert (packet[ARP].hwsrc, packet[ARP].psrc, packet[ARP].pdst) == (format_mac(OURS), sender, str(EIP4))


@pytest.mark.parametrize(
    ("known", "to", "group"),
    [(None, "33:33:ff:00:00:10", "ff02::1:ff00:10"), (THEIRS, format_mac(THEIRS), str(EIP6))],
)
def test_a_solicitation_asks_the_group_or_one_alone(known, to, group):
    packet = Ether(question_from(OURS, (OWN4, OWN6), EIP6, known))
    assert (packet.dst, packet[IPv6].src, packet[IPv6].dst, packet[IPv6].hlim) == (to, str(OWN6), group, 255)
    assert packet[ICMPv6ND_NS].tgt == str(EIP6)
    assert packet.lladdr == format_mac(OURS)


def test_nobody_is_solicited_from_nowhere():
    """It would be duplicate address detection: a host that is just taking the address would give it up."""
    assert question_from(OURS, (OWN4,), EIP6) is None


# ── Filters ───────────────────────────────────────────────────────────────────────────────────────────────────


def passes(program, frame, pkttype, vlan=0):
    """What the kernel's interpreter says (net/core/filter.c), of the instructions used here."""
    loads = {0xFFFFF004: pkttype, 0xFFFFF02C: vlan}
    number, at = 0, 0
    while True:
        code, jt, jf, k = program[at]
        at += 1
        if code in (0x20, 0x28, 0x30):
            size = {0x20: 4, 0x28: 2, 0x30: 1}[code]
            if k not in loads and k + size > len(frame):
                return False
            number = loads[k] if k in loads else int.from_bytes(frame[k : k + size], "big")
        elif code in (0x15, 0x45):
            at += jt if (number == k if code == 0x15 else number & k) else jf
        else:
            assert code == 0x06
            return k > 0


def of(mac, *layers, to=EVERYBODY):
    packet = Ether(src=format_mac(mac), dst=to)
    for layer in layers:
        packet /= layer
    return bytes(packet)


REQUEST = ARP(op=1, hwsrc=format_mac(THEIRS), psrc="192.0.2.2", pdst="192.0.2.3")
DHCP = IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67)
MDNS = IPv6(src="fe80::2", dst="ff02::fb") / UDP(sport=5353, dport=5353)
LOOKS = IPv6(src="fe80::2", dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt="fe80::1")
DAD = IPv6(src="::", dst="ff02::1:ff00:1", hlim=255) / ICMPv6ND_NS(tgt="fe80::1")
ROUTER = IPv6(src="fe80::2", dst="ff02::1", hlim=255) / ICMPv6ND_RA()
NEW = IPv6(src="fe80::2", dst="ff02::2", hlim=255) / ICMPv6ND_RS()
MLD = IPv6(src="fe80::2", dst="ff02::16", hlim=1) / IPv6ExtHdrHopByHop() / ICMPv6MLReport2()
IGMP = IP(src="192.0.2.2", dst="224.0.0.1", proto=2, ttl=1) / Raw(bytes(8))
(HELLO,) = frames.encode(Hello("n2", Incarnation(1), 1, 1), Keys(Key(b"k" * 32)), THEIRS)
BPDU = bytes(Dot3(dst="01:80:c2:00:00:00", src=format_mac(THEIRS)) / STP())
LLDP = of(THEIRS, Raw(bytes(50)), to="01:80:c2:00:00:0e")[:12] + b"\x88\xcc" + bytes(50)


@pytest.mark.parametrize(
    ("what", "frame", "pkttype", "vlan", "counts"),
    [
        ("a request", of(THEIRS, REQUEST), PACKET_BROADCAST, 0, True),
        ("DHCP", of(THEIRS, DHCP), PACKET_BROADCAST, 0, True),
        ("who looks for a neighbour", of(THEIRS, LOOKS, to="33:33:ff:00:00:01"), PACKET_MULTICAST, 0, True),
        ("a router's advertisement", of(THEIRS, ROUTER, to="33:33:00:00:00:01"), PACKET_MULTICAST, 0, True),
        ("mDNS", of(THEIRS, MDNS, to="33:33:00:00:00:fb"), PACKET_MULTICAST, 0, False),
        ("IGMP", of(THEIRS, IGMP, to="01:00:5e:00:00:01"), PACKET_MULTICAST, 0, False),
        ("MLD", of(THEIRS, MLD, to="33:33:00:00:00:16"), PACKET_MULTICAST, 0, False),
        ("whose address is new", of(THEIRS, DAD, to="33:33:ff:00:00:01"), PACKET_MULTICAST, 0, False),
        ("who looks for routers", of(THEIRS, NEW, to="33:33:00:00:00:02"), PACKET_MULTICAST, 0, False),
        ("with a priority and no VLAN", of(THEIRS, REQUEST), PACKET_BROADCAST, 0xE000, True),
        ("a MAC that begins like ours", of(ANOTHER[:4] + b"\0\x09", REQUEST), PACKET_BROADCAST, 0, True),
        ("a MAC that ends like ours", of(b"\x06\0\0\0\0\x01", REQUEST), PACKET_BROADCAST, 0, True),
        ("our own", of(OURS, REQUEST), PACKET_BROADCAST, 0, False),
        ("what we send", of(THEIRS, REQUEST), PACKET_OUTGOING, 0, False),
        ("another VLAN's", of(THEIRS, REQUEST), PACKET_BROADCAST, 5, False),
        ("another host's", of(THEIRS, REQUEST), PACKET_OTHERHOST, 0, False),
        ("for us alone", of(THEIRS, REQUEST), PACKET_HOST, 0, False),
        ("a hello", HELLO, PACKET_BROADCAST, 0, False),
        ("a BPDU of the switch", BPDU, PACKET_MULTICAST, 0, False),
        ("LLDP of the switch", LLDP, PACKET_MULTICAST, 0, False),
        ("cut off", of(THEIRS, REQUEST)[:13], PACKET_BROADCAST, 0, False),
    ],
)
def test_that_another_host_of_this_lan_speaks_to_many_counts(what, frame, pkttype, vlan, counts):
    assert passes(others_talk(OURS), frame, pkttype, vlan) is counts, what


def reply(mac=THEIRS, to=OURS, **fields):
    there = {"op": 2, "hwsrc": format_mac(mac), "psrc": str(EIP4), "hwdst": format_mac(to), "pdst": str(OWN4)}
    return of(mac, ARP(**there | fields), to=format_mac(to))


def advertisement(mac=THEIRS, hop_limit=255, target=EIP6, option=True, says=None):
    """From ``mac``, which names ``says`` in its option: itself, if None."""
    packet = IPv6(src=str(target), dst=str(OWN6), hlim=hop_limit) / ICMPv6ND_NA(tgt=str(target), R=0, S=1, O=1)
    named = packet / ICMPv6NDOptDstLLAddr(lladdr=format_mac(says or mac))
    return of(mac, named if option else packet, to=format_mac(OURS))


SOLICITATION = of(THEIRS, IPv6(src="fe80::2", dst=str(OWN6), hlim=255) / ICMPv6ND_NS(tgt=str(OWN6)))
ECHO = of(THEIRS, IPv6(src="fe80::2", dst=str(OWN6), hlim=255) / ICMPv6EchoRequest(data=bytes(40)))


@pytest.mark.parametrize(
    ("what", "frame", "pkttype", "vlan", "counts"),
    [
        ("a reply", reply(), PACKET_HOST, 0, True),
        ("an advertisement", advertisement(), PACKET_HOST, 0, True),
        ("a request", reply(op=1), PACKET_HOST, 0, False),
        ("a reply to another", reply(), PACKET_OTHERHOST, 0, False),
        ("a reply to all", reply(), PACKET_BROADCAST, 0, False),
        ("another VLAN's reply", reply(), PACKET_HOST, 5, False),
        ("our own reply", reply(OURS), PACKET_HOST, 0, False),
        ("our own advertisement", advertisement(OURS), PACKET_HOST, 0, False),
        ("a reply of another hardware", reply(hwtype=6), PACKET_HOST, 0, False),
        ("an advertisement from beyond a router", advertisement(hop_limit=254), PACKET_HOST, 0, False),
        ("a solicitation", SOLICITATION, PACKET_HOST, 0, False),
        ("an echo request", ECHO, PACKET_HOST, 0, False),
        ("IPv4", of(THEIRS, DHCP), PACKET_HOST, 0, False),
        ("cut off", reply()[:20], PACKET_HOST, 0, False),
        ("an advertisement cut off", advertisement()[:54], PACKET_HOST, 0, False),
    ],
)
def test_an_answer_to_us_alone_counts(what, frame, pkttype, vlan, counts):
    assert passes(answers_to(OURS), frame, pkttype, vlan) is counts, what


# ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        (reply(), Answer(EIP4, THEIRS)),
        (reply(hwsrc=format_mac(ANOTHER)), Answer(EIP4, ANOTHER)),
        (advertisement(), Answer(EIP6, THEIRS)),
        (advertisement(option=False), Answer(EIP6, THEIRS)),
        (advertisement(says=ANOTHER), Answer(EIP6, ANOTHER)),
        (reply(hwsrc=EVERYBODY), None),
        (reply(hwsrc="00:00:00:00:00:00"), None),
        (advertisement()[:-1] + b"\x77", None),
        (SOLICITATION, None),
        (b"", None),
    ],
)
def test_who_answers_is_read_as_its_kernel_would_be_believed(frame, answer):
    assert read_answer(frame) == answer


@given(st.binary(max_size=200), st.sampled_from([b"", reply()[:20], advertisement()[:58]]))
def test_no_bytes_raise_anything(data, head):
    found = read_answer(head + data)
    assert found is None or ip_address(found.address)


# ── What other programs of this host ask ──────────────────────────────────────────────────────────────────────

AN_ANSWER = of(OURS, ARP(op=2, hwsrc=format_mac(OURS), psrc=str(OWN4), hwdst=format_mac(THEIRS), pdst="192.0.2.2"))
TRAFFIC = IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP() / Raw(bytes(50))


@pytest.mark.parametrize(
    ("what", "frame", "pkttype", "poll"),
    [
        ("ARP to one", question_from(OURS, (OWN4,), EIP4, THEIRS), PACKET_OUTGOING, Answer(EIP4, THEIRS)),
        ("NDP to one", question_from(OURS, (OWN6,), EIP6, THEIRS), PACKET_OUTGOING, Answer(EIP6, THEIRS)),
        ("ARP to everybody", question_from(OURS, (OWN4,), EIP4), PACKET_OUTGOING, None),
        ("NDP to everybody", question_from(OURS, (OWN6,), EIP6), PACKET_OUTGOING, None),
        ("another host's", question_from(THEIRS, (OWN4,), EIP4, OURS), PACKET_HOST, None),
        ("an answer", AN_ANSWER[:6].replace(b"\xff" * 6, THEIRS) + AN_ANSWER[6:], PACKET_OUTGOING, None),
        ("traffic over IPv6", of(OURS, TRAFFIC, to=format_mac(THEIRS)), PACKET_OUTGOING, None),
        ("traffic over IPv4", of(OURS, IP(dst="192.0.2.2") / UDP(), to=format_mac(THEIRS)), PACKET_OUTGOING, None),
    ],
)
def test_a_question_of_this_host_to_one_alone_is_a_poll(what, frame, pkttype, poll):
    assert passes(POLLS, frame, pkttype) is (poll is not None), what
    assert poll is None or read_poll(frame) == poll


@given(st.binary(max_size=100))
def test_any_bytes_are_a_poll_or_none(frame):
    assert read_poll(frame) is None or isinstance(read_poll(frame), Answer)
