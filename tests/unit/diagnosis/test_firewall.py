"""Whether a chain drops a packet: for certain, or nothing is said."""

import pytest
from healthy import matching, of

from speaker.diagnosis.facts import Chain
from speaker.diagnosis.firewall import arp_request, drops, ip_packet

EIP = "192.0.2.200"
SYN = ip_packet("who connects", None, EIP, "tcp", {"dport": 80}, {"iifname": "eth0"})
SYN6 = ip_packet("who connects", None, "2001:db8::1", "tcp", {"dport": 80}, {"iifname": "eth0"})
ARP = arp_request(EIP, "eth0")
DROP = [{"drop": None}]
LINK = {"meta": {"key": "iifname"}}


def chain(family, *rules, hook="prerouting"):
    return Chain(family, "fw", "f", hook, "accept", "", tuple(rules))


@pytest.mark.parametrize(
    ("family", "rules", "packet", "dropped"),
    [
        ("ip", [DROP], SYN, True),
        ("ip", [DROP], SYN6, False),
        ("ip6", [DROP], SYN6, True),
        ("inet", [DROP], SYN6, True),
        ("ip", [DROP], ARP, False),
        ("arp", [DROP], ARP, True),
        ("netdev", [DROP], ARP, True),
        ("ip", [[{"counter": {}}, {"log": None}, {"drop": None}]], SYN, True),
        ("ip", [[{"accept": None}], DROP], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", EIP, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "!=", EIP, "drop")], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", "192.0.2.201", "drop")], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", {"prefix": {"addr": "192.0.2.0", "len": 24}}, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "==", {"prefix": {"addr": "192.0.3.0", "len": 24}}, "drop")], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", {"set": [EIP, "192.0.2.7"]}, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "==", {"range": ["192.0.2.199", "192.0.2.201"]}, "drop")], SYN, True),
        ("ip", [matching(of("ip", "daddr"), "==", {"range": ["10.0.0.1", "::1"]}, "drop")], SYN, False),
        ("ip", [matching(of("tcp", "dport"), "==", 80, "reject")], SYN, True),
        ("ip", [matching(of("tcp", "dport"), "==", {"range": [70, 90]}, "drop")], SYN, True),
        ("ip", [matching(of("tcp", "dport"), "==", {"set": [22, 443]}, "drop")], SYN, False),
        ("ip", [matching(of("th", "dport"), "==", 80, "drop")], SYN, True),
        ("ip", [matching(of("udp", "dport"), "==", 80, "drop")], SYN, False),
        ("ip", [matching({"meta": {"key": "l4proto"}}, "==", 6, "drop")], SYN, True),
        ("ip", [matching(LINK, "==", "eth*", "drop")], SYN, True),
        ("ip", [matching(LINK, "==", "eth1", "drop")], SYN, False),
        ("netdev", [matching({"meta": {"key": "protocol"}}, "==", "arp", "drop")], ARP, True),
        ("netdev", [matching(of("ether", "type"), "==", 2054, "drop")], ARP, True),
        ("netdev", [matching(of("ether", "type"), "==", "ip", "drop")], ARP, False),
        # not understood, and so not certain
        ("ip", [matching(of("ip", "saddr"), "==", "198.51.100.1", "drop")], SYN, False),
        ("ip", [matching({"ct": {"key": "state"}}, "in", "new", "drop")], SYN, False),
        ("ip", [matching(of("ip", "daddr"), "==", "@blocked", "drop")], SYN, False),
        ("ip", [[{"limit": {"rate": 1}}, {"drop": None}]], SYN, False),
        ("ip", [[{"jump": {"target": "other"}}], DROP], SYN, False),
        ("ip", [[{"xt": None}, {"drop": None}]], SYN, False),
    ],
)
def test_a_packet_is_dropped(family, rules, packet, dropped):
    assert drops(chain(family, *rules), packet) is dropped


@pytest.mark.parametrize("rule", [None, 7, "drop", [], [None], ["drop"], [{}], [{"match": {}}, {"drop": None}]])
def test_what_nft_never_lists_drops_nothing_and_breaks_nothing(rule):
    assert drops(chain("ip", rule), SYN) is False
