"""Requests that waited too long, by the kernel's own timestamps, are not answered; news is heeded before any is."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from speaker.layer2.answer import Ignored
from speaker.model import Family
from speaker.packets import BROADCAST, UNKNOWN, arp, ndp

pytestmark = [
    pytest.mark.netns,
    pytest.mark.usefixtures("stamping"),
    pytest.mark.parametrize("in_kernel", [None], ids=["sockets"]),
]

EIP4, EIP6 = "192.0.2.10", "2001:db8::10"
ARP, IPV6 = 0x0806, 0x86DD
OLDEST = 2.0
"""Forty times the real limit: what is young must still be so on a busy machine."""


def ask4(mac, sender="192.0.2.2"):
    return arp.ArpPacket(BROADCAST, mac, 1, mac, IPv4Address(sender), UNKNOWN, IPv4Address(EIP4)).pack()


def ask6(mac):
    return ndp.solicitation(mac, IPv6Address("2001:db8::2"), IPv6Address(EIP6)).pack()


def test_what_waited_while_the_process_stood_still_is_not_answered_and_what_comes_then_is(lan, speaking, ear):
    """The speaker's loop stands still from before the requests come until they are older than the limit."""
    station = speaking(EIP4, EIP6, oldest=OLDEST, held_back=True)
    arps, ndps = ear(lan.client, ARP), ear(lan.client, IPV6)
    for _ in range(100):  # more than one batch
        arps.send(ask4(arps.mac))
    ndps.send(ask6(ndps.mac))
    assert arps.never(arps.to_us, 1.2 * OLDEST)
    station.go()
    station.counts.wait_for(lambda counts: counts.reasons[Ignored.TOO_OLD] == 101)
    assert not station.counts.answers
    arps.send(ask4(arps.mac))
    ndps.send(ask6(ndps.mac))
    station.counts.wait_for(lambda counts: counts.answers == {Family.IPV4: 1, Family.IPV6: 1})
    assert arps.until(arps.to_us)


def test_in_one_batch_the_old_ones_are_dropped_and_the_young_ones_answered(lan, speaking, ear):
    station, client = speaking(EIP4, oldest=OLDEST, held_back=True), ear(lan.client, ARP)
    client.send(ask4(client.mac, "192.0.2.2"))
    assert client.never(client.to_us, 1.2 * OLDEST)
    client.send(ask4(client.mac, "192.0.2.3"))
    station.go()
    reply = arp.parse(client.until(client.to_us))
    assert str(reply.target_ip) == "192.0.2.3"
    station.counts.wait_for(lambda counts: counts.reasons == {Ignored.TOO_OLD: 1})
    assert station.counts.answers == {Family.IPV4: 1}


def test_without_a_limit_what_waited_is_answered(lan, speaking, ear):
    station, client = speaking(EIP4, held_back=True), ear(lan.client, ARP)
    client.send(ask4(client.mac))
    assert client.never(client.to_us, 0.2)
    station.go()
    assert client.until(client.to_us)
    assert not station.counts.reasons


def test_dropping_what_is_queued_leaves_nothing_to_answer_and_hurts_nothing_that_comes_later(lan, speaking, ear):
    station = speaking(EIP4, EIP6, held_back=True)
    arps, ndps = ear(lan.client, ARP), ear(lan.client, IPV6)
    for _ in range(100):
        arps.send(ask4(arps.mac))
        ndps.send(ask6(ndps.mac))
    station.speaker.drop_queued()  # its loop stands still: nothing else is at work there
    station.go()
    arps.send(ask4(arps.mac, "192.0.2.7"))
    ndps.send(ask6(ndps.mac))
    reply = arp.parse(arps.until(arps.to_us))
    assert str(reply.target_ip) == "192.0.2.7"
    station.counts.wait_for(lambda counts: counts.answers == {Family.IPV4: 1, Family.IPV6: 1})
    assert not station.counts.reasons


def test_news_that_came_before_a_request_is_heeded_before_it_is_answered(lan, speaking, ear):
    """As a hello would be: read when the request has been received, and it takes the EIP away."""
    heard = []

    def hear():
        heard.append("hello")
        station.speaker.drop([IPv4Address(EIP4).packed])

    station, client = speaking(EIP4, before=hear, held_back=True), ear(lan.client, ARP)
    client.send(ask4(client.mac))
    station.go()
    station.counts.wait_for(lambda counts: counts.reasons[Ignored.NOT_OURS] == 1)
    assert heard == ["hello"]
    assert not station.counts.answers
