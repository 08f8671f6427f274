"""The question, the answer, and the filter in between, held to scapy. The kernel judges the filter in netns/."""

from collections.abc import Callable
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from speaker.model import Mac, format_mac
from speaker.packets import PACKET_HOST, PACKET_OTHERHOST
from speaker.packets.asking import Answer, Question, only_answers, question, read_answer

OURS, ROUTERS = "02:00:00:00:00:05", "02:00:00:00:00:01"
OURS_RAW, ROUTERS_RAW = Mac(bytes.fromhex("020000000005")), Mac(bytes.fromhex("020000000001"))
V4 = Question(3, OURS_RAW, ip_address("192.0.2.5"), ip_address("192.0.2.1"))
V6 = Question(3, OURS_RAW, ip_address("fe80::5"), ip_address("fe80::1:2:3"))

macs = st.binary(min_size=6, max_size=6).map(Mac)


def arp_reply(**fields) -> Ether:
    told = {"op": 2, "hwsrc": ROUTERS, "psrc": "192.0.2.1", "hwdst": OURS, "pdst": "192.0.2.5"} | fields
    return Ether(dst=OURS, src=ROUTERS) / ARP(**told)


def advertisement(target="fe80::1:2:3", dst="fe80::5", hlim=255, **fields) -> Ether:
    told = ICMPv6ND_NA(tgt=target, **{"R": 1, "S": 1, "O": 1} | fields) / ICMPv6NDOptDstLLAddr(lladdr=ROUTERS)
    return Ether(dst=OURS, src=ROUTERS) / IPv6(src="fe80::1:2:3", dst=dst, hlim=hlim) / told


@pytest.fixture
def passes(accepts) -> Callable[..., bool]:
    return lambda question, frame, pkttype=PACKET_HOST: accepts(only_answers(question), frame, pkttype)


@given(macs, st.none() | macs, st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_an_arp_question_is_byte_identical_to_scapys(mac, known, source, gateway):
    to = format_mac(known) if known else "ff:ff:ff:ff:ff:ff"
    arp = ARP(op=1, hwsrc=format_mac(mac), psrc=str(source), hwdst="00:00:00:00:00:00", pdst=str(gateway))
    assert question(mac, source, gateway, known) == bytes(Ether(dst=to, src=format_mac(mac), type=0x806) / arp)


@given(macs, st.ip_addresses(v=6), st.ip_addresses(v=6))
def test_a_solicitation_is_byte_identical_to_scapys(mac, source, gateway):
    tail = gateway.packed[13:]
    group = ip_address(bytes.fromhex("ff0200000000000000000001ff") + tail)
    frame = (
        Ether(dst=format_mac(b"\x33\x33\xff" + tail), src=format_mac(mac))
        / IPv6(src=str(source), dst=str(group), hlim=255)
        / ICMPv6ND_NS(tgt=str(gateway))
    )
    if not source.is_unspecified:  # without an address nobody may name a MAC (RFC 4861 §4.3)
        frame /= ICMPv6NDOptSrcLLAddr(lladdr=format_mac(mac))
    assert question(mac, source, gateway) == bytes(frame)


@pytest.mark.parametrize(
    ("asked", "frame", "answer"),
    [
        (V4, bytes(arp_reply()), Answer(V4.target, ROUTERS_RAW)),
        (V4, bytes(arp_reply()) + bytes(18), Answer(V4.target, ROUTERS_RAW)),
        (V6, bytes(advertisement()), Answer(V6.target, ROUTERS_RAW)),
        (V6, bytes(advertisement()) + bytes(7), Answer(V6.target, ROUTERS_RAW)),
    ],
    ids=["ARP", "ARP, padded", "NA", "NA, padded"],
)
def test_a_gateways_answer_passes_and_is_read(passes, asked, frame, answer):
    assert passes(asked, frame)
    assert read_answer(frame) == answer


NEARLY = {
    "another address": (V4, arp_reply(psrc="192.0.2.2")),
    "for another asker": (V4, arp_reply(pdst="192.0.2.6")),
    "a request": (V4, arp_reply(op=1)),
    "another hardware": (V4, arp_reply(hwtype=6)),
    "longer addresses": (V4, arp_reply(hwlen=8)),
    "another protocol": (V4, arp_reply(ptype=0x86DD)),
    "in a VLAN of its own": (V4, Ether(dst=OURS, src=ROUTERS) / Dot1Q(vlan=7) / arp_reply()[ARP]),
    "another target": (V6, advertisement(target="fe80::1:2:4")),
    "another target that ends alike": (V6, advertisement(target="fe80::9:1:2:3")),
    "for another address of ours": (V6, advertisement(dst="2001:db8::5")),
    "to all nodes": (V6, advertisement(dst="ff02::1")),
    "from beyond a router": (V6, advertisement(hlim=254)),
    "another code": (V6, advertisement(code=1)),
    "a solicitation": (V6, Ether() / IPv6(dst="fe80::5", hlim=255) / ICMPv6ND_NS(tgt="fe80::1:2:3")),
    "nothing": (V6, Ether()),
}


@pytest.mark.parametrize(("asked", "frame"), NEARLY.values(), ids=NEARLY)
def test_what_only_looks_like_an_answer_does_not_pass(passes, asked, frame):
    assert not passes(asked, bytes(frame))


@pytest.mark.parametrize(("asked", "frame"), [(V4, arp_reply()), (V6, advertisement())], ids=["ARP", "NA"])
def test_an_answer_of_another_vlan_or_to_another_host_does_not_pass(passes, asked, frame):
    assert not passes(asked, bytes(frame), PACKET_OTHERHOST)


@pytest.mark.parametrize(("asked", "frame"), [(V4, arp_reply()), (V6, advertisement())], ids=["ARP", "NA"])
def test_an_answer_that_was_cut_off_is_none(passes, asked, frame):
    whole = bytes(frame)
    for length in range(len(whole)):
        assert read_answer(whole[:length]) is None or not passes(asked, whole[:length])


@pytest.mark.parametrize("mac", ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"])
def test_a_gateway_that_gives_no_stations_address_for_its_mac_has_not_answered(mac):
    assert read_answer(bytes(arp_reply(hwsrc=mac))) is None


@given(st.integers(38, 85), st.integers(1, 255))
def test_one_wrong_byte_is_told_by_the_checksum(at, difference):
    frame = bytearray(bytes(advertisement()))
    frame[at] ^= difference
    assert read_answer(bytes(frame)) is None


@given(st.binary(max_size=120))
def test_no_bytes_break_the_reader(frame):
    assert read_answer(frame) is None or len(frame) >= 42
