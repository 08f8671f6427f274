"""The lab's own reading of ARP and neighbour advertisements, against scapy's packets."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from speaker.lab.capture import Reply, read_reply

MAC = "02:00:00:01:00:11"
RAW_MAC = bytes.fromhex("020000010011")
CLIENT = "02:00:00:01:01:00"


def _na(solicited: int) -> ICMPv6ND_NA:
    return ICMPv6ND_NA(tgt="2001:db8::7", R=0, S=solicited, O=1) / ICMPv6NDOptDstLLAddr(lladdr=MAC)


@pytest.mark.parametrize(
    ("packet", "claim"),
    [
        pytest.param(
            ARP(op=2, hwsrc=MAC, psrc="192.0.2.7", hwdst=CLIENT, pdst="192.0.2.100"),
            Reply(0.0, ip_address("192.0.2.7"), RAW_MAC, unasked=False),
            id="an ARP reply",
        ),
        pytest.param(
            ARP(op=1, hwsrc=MAC, psrc="192.0.2.7", pdst="192.0.2.7"),
            Reply(0.0, ip_address("192.0.2.7"), RAW_MAC, unasked=True),
            id="a gratuitous request",
        ),
        pytest.param(
            ARP(op=2, hwsrc=MAC, psrc="192.0.2.7", hwdst=MAC, pdst="192.0.2.7"),
            Reply(0.0, ip_address("192.0.2.7"), RAW_MAC, unasked=True),
            id="a gratuitous reply",
        ),
        pytest.param(ARP(op=1, hwsrc=CLIENT, psrc="192.0.2.100", pdst="192.0.2.7"), None, id="a question"),
        pytest.param(
            IPv6(src="fe80::1", dst="fe80::2") / _na(1),
            Reply(0.0, ip_address("2001:db8::7"), RAW_MAC, unasked=False),
            id="a solicited advertisement",
        ),
        pytest.param(
            IPv6(src="fe80::1", dst="ff02::1") / _na(0),
            Reply(0.0, ip_address("2001:db8::7"), RAW_MAC, unasked=True),
            id="an unsolicited advertisement",
        ),
        pytest.param(IPv6(src="fe80::1", dst="fe80::2") / ICMPv6ND_NS(tgt="2001:db8::7"), None, id="a solicitation"),
    ],
)
def test_a_claim_is_told_from_a_question(packet, claim):
    assert read_reply(bytes(Ether(src=MAC, dst=CLIENT) / packet), 0.0) == claim


@given(st.binary(max_size=100) | st.binary(max_size=90).map(lambda rest: bytes(12) + b"\x08\x06" + rest))
def test_no_bytes_make_it_raise(frame):
    read_reply(frame, 0.0)
