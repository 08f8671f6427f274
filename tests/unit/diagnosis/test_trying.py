"""What ``nft monitor trace`` of nft 1.0.6 printed, and what is read from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.diagnosis.trying import Traced, read_trace

OWN = "eip-speaker-try-1-2"
PACKET = 'packet: iif "eth0" ether saddr 02:00:00:00:00:77 ip saddr 192.0.2.254 ip daddr 192.0.2.200 tcp dport 80'
BEGUN = f"trace id 64f1b795 netdev {OWN} in rule ether saddr 02:00:00:00:00:77 meta nftrace set 1 (verdict continue)"
ANSWER = f"trace id 0badcafe inet {OWN} prerouting rule ct direction reply meta nftrace set 1 (verdict continue)"


def met(what: str, number: str = "64f1b795", where: str = "inet fw f") -> str:
    return f"trace id {number} {where} {what}"


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        (met("rule tcp dport 80 counter packets 1 drop (verdict drop)"), "by tcp dport 80 counter packets 1 drop"),
        (met('rule xt target "REJECT" (verdict drop)'), 'by xt target "REJECT"'),
        (met("unknown rule handle 7 (verdict drop)"), "by unknown rule handle 7"),
        (met("policy drop "), "by its policy"),
        (met("policy accept "), ""),
        (met("rule jump x (verdict jump x)"), ""),
        (met("rule drop-in comment (verdict accept)"), ""),
        (met("verdict continue "), ""),
        (met("rule tcp dport 80 drop (verdict drop)", number="11111111"), ""),
    ],
)  # fmt: skip
def test_the_rule_that_drops_it_is_read(line, dropped):
    asked, answer = read_trace([BEGUN, met(PACKET), line], OWN)
    assert asked.dropped == (f"chain inet fw f, {dropped}" if dropped else "")
    assert (asked.seen, asked.last, answer) == (True, "chain inet fw f", Traced())


def test_an_answer_is_another_packet_and_the_link_it_leaves_by_is_read():
    out = 'packet: iif "cni0" oif "eth0" ip saddr 10.244.1.11'
    own = f"trace id 64f1b795 inet {OWN} prerouting"
    lines = [
        BEGUN,
        f"{own} {PACKET}",
        f"{own} policy accept ",
        ANSWER,
        met(out, "0badcafe"),
        met("policy drop", "0badcafe"),
    ]
    asked, answer = read_trace(lines, OWN)
    assert (asked.dropped, asked.last) == ("", "")
    assert answer == Traced(True, "chain inet fw f, by its policy", "chain inet fw f", "eth0")


@given(st.lists(st.text() | st.sampled_from([BEGUN, ANSWER, met("policy drop")])))
def test_whatever_is_printed_can_be_read(lines):
    read_trace(lines, OWN)
