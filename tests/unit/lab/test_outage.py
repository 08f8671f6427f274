"""An outage is what a client saw: from the last answered probe before to the first answered probe after."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from speaker.lab.outage import Outage, Sample, arp_request, matched, out_in_sum, outages, solicitation, stall_ms

EIP, OTHER = ip_address("192.0.2.200"), ip_address("2001:db8::200")
MS = 0.001


def probes(*sent: tuple[int, bool], eip=EIP):
    """``(millisecond, whether it was answered)``."""
    return [Sample(eip, at * MS, at * MS + 0.0001 if answered else None) for at, answered in sent]


@pytest.mark.parametrize(
    ("sent", "outage"),
    [
        pytest.param([(0, True), (2, True), (4, True)], Outage(0, 0, 3), id="nothing lost"),
        pytest.param([(0, True), (2, False), (4, True)], Outage(4, 1, 3, 0.0), id="one probe lost"),
        pytest.param(
            [(0, True), (2, False), (4, True), (6, False), (8, False), (10, True)],
            Outage(6, 3, 6, 0.004),
            id="the longest of two, and all that was lost",
        ),
        pytest.param(
            [(0, True), (50, True), (52, True)], Outage(0, 0, 3), id="the prober was late: no outage, nothing was lost"
        ),
        pytest.param(
            [(0, True), (50, False), (52, True)],
            Outage(4, 1, 3, 0.0, unsure_ms=48),
            id="late before the first lost probe: nobody knows",
        ),
        pytest.param(
            [(0, True), (2, False), (4, False), (54, True)],
            Outage(6, 2, 4, 0.0, unsure_ms=48),
            id="late after the last lost probe: nobody knows",
        ),
        pytest.param(
            [(0, True), (2, False), (52, False), (54, True)],
            Outage(54, 2, 4, 0.0),
            id="late between two lost probes: it was out on both sides",
        ),
        pytest.param([(0, True), (2, False), (4, False)], Outage(4, 2, 3, 0.0, over=False), id="never came back"),
        pytest.param([(0, False), (2, False), (4, True)], Outage(4, 2, 3, 0.0), id="out from the beginning"),
    ],
)
def test_an_outage_lasts_from_answer_to_answer(sent, outage):
    found = outages(probes(*sent), interval=2 * MS)[EIP]
    assert (found.lost, found.sent, found.began, found.over) == (
        *(outage.lost, outage.sent),
        *(outage.began, outage.over),
    )
    assert (found.ms, found.unsure_ms) == pytest.approx((outage.ms, outage.unsure_ms))


def test_every_eip_has_its_own_outage():
    found = outages(
        [*probes((0, True), (2, False), (4, True)), *probes((1, True), (3, True), eip=OTHER)], interval=2 * MS
    )
    assert (found[EIP].lost, found[OTHER].lost) == (1, 0)


def test_the_order_of_the_samples_does_not_matter():
    sent = probes((0, True), (2, False), (4, True))
    assert outages(reversed(sent), 2 * MS) == outages(sent, 2 * MS)


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=40))
def test_what_is_sure_and_what_is_not_add_up_to_no_more_than_the_whole(steps):
    at, sent = 0, []
    for step, answered in steps:
        at += step
        sent.append((at, answered))
    found = outages(probes(*sent), 2 * MS)[EIP]
    assert found.lost == sum(not answered for _, answered in sent)
    assert (found.ms > 0 or len(sent) == 1) if found.lost else found.ms == 0
    assert found.ms + found.unsure_ms <= (sent[-1][0] - sent[0][0]) + 1e-9


@pytest.mark.parametrize(
    ("sent", "out"),
    [
        ([(0, True), (2, True)], 0),
        ([(0, True), (2, False), (4, True)], 2),
        ([(0, False), (2, False), (4, True), (6, False), (8, True)], 6),
        ([(0, True), (2, False), (50, True)], 2),
        ([(0, True), (2, False), (50, False), (52, True)], 50),
        ([(0, True), (2, False)], 2),
    ],
)
def test_all_outages_together_last_as_long_as_requests_were_lost(sent, out):
    assert out_in_sum(probes(*sent), 2 * MS)[EIP] == pytest.approx(out * MS)


def test_a_stall_is_the_longest_silence_of_the_prober_towards_one_eip():
    assert stall_ms([*probes((0, True), (2, False), (9, True)), *probes((4, True), eip=OTHER)]) == pytest.approx(7)
    assert stall_ms([]) == 0


def test_a_request_is_answered_by_what_comes_before_the_next_one():
    asked = probes((0, False), (10, False), (20, False))
    found = matched(asked, {EIP: [0.003, 0.004, 0.025]})
    assert [sample.answered for sample in found] == [0.003, None, 0.025]


def test_a_request_is_what_scapy_makes_of_it():
    mac = bytes.fromhex("020000010100")
    packet = Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=mac, psrc="192.0.2.100", pdst="192.0.2.200")
    assert arp_request(mac, ip_address("192.0.2.100"), EIP) == bytes(packet)


def test_a_solicitation_is_what_scapy_makes_of_it():
    mac, sender, target = bytes.fromhex("020000010100"), "2001:db8:0:1::100", "2001:db8:0:1::2:ab01"
    packet = (
        Ether(src=mac, dst="33:33:ff:02:ab:01")
        / IPv6(src=sender, dst="ff02::1:ff02:ab01", hlim=255)
        / ICMPv6ND_NS(tgt=target)
        / ICMPv6NDOptSrcLLAddr(lladdr="02:00:00:01:01:00")
    )
    assert solicitation(mac, ip_address(sender), ip_address(target)) == bytes(packet)
