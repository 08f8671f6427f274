"""The life of a link that answers is one thing: whatever of it ends ends all of it, and it begins anew."""

import asyncio
import time
from ipaddress import IPv4Address

import pytest

from speaker.layer2.answer import Claims
from speaker.layer2.link import drop_each
from speaker.model import Gratuitous, Placement
from speaker.packets import BROADCAST, UNKNOWN, arp

pytestmark = pytest.mark.netns

EIP, OTHER, ARP = IPv4Address("192.0.2.10"), IPv4Address("192.0.2.11"), 0x0806
PATIENCE = 30.0


def ask(client):
    frame = arp.ArpPacket(BROADCAST, client.mac, 1, client.mac, IPv4Address("192.0.2.2"), UNKNOWN, EIP).pack()
    client.send(frame)
    return not client.never(client.to_us, 0.05)


def until(so):
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, "it never came to be"


@pytest.fixture
def holding(lan, layer2, link):
    """``holding(before)`` answers for ``EIP`` for an hour."""

    def start(before=lambda: None):
        running, eth0 = layer2(before), link(lan.node, "eth0")
        running.do(running.layer2.extend, time.clock_gettime(time.CLOCK_BOOTTIME) + 3600)
        running.do(running.layer2.take, {EIP: Placement(eth0, Gratuitous(burst=1))})
        return running, eth0

    return start


@pytest.mark.parametrize("in_kernel", [None], ids=["sockets"])
def test_a_cancel_that_nobody_asked_for_costs_one_answer(lan, holding, ear):
    raised = []

    def cancel_once():
        if not raised:
            raised.append(1)
            raise asyncio.CancelledError

    client, (running, eth0) = ear(lan.client, ARP), holding(cancel_once)
    until(lambda: ask(client))
    assert raised
    assert [type(error) for _, error in running.counts.errors] == [asyncio.CancelledError]
    assert running.do(running.layer2.answers_on, eth0.index)
    assert running.lost == []


class Broken(Claims):
    __slots__ = ()

    def expired(self, now):
        raise ZeroDivisionError("a bug")


def test_a_link_whose_own_requests_get_no_answer_is_lost_and_opened_anew_once_they_do(lan, holding, ear):
    client, (running, eth0) = ear(lan.client, ARP), holding()
    until(lambda: ask(client))
    running.do(running.layer2.take, {OTHER: Placement(eth0, Gratuitous(burst=1))})
    (responder,) = running.layer2._responders.values()
    responder._claims.__class__ = Broken
    assert not running.do(running.layer2.answers_on, eth0.index)
    running.wait_for_loss()
    assert "requests are not answered" in str(running.lost[0])
    assert running.failed == []
    responder._claims.__class__ = Claims
    until(lambda: running.do(running.layer2.answers_on, eth0.index))
    until(lambda: ask(client))


def test_an_eip_that_alone_is_not_answered_is_told_of_and_the_link_goes_on(lan, holding, ear):
    client, (running, eth0) = ear(lan.client, ARP), holding()
    until(lambda: ask(client))
    running.do(running.layer2.take, {OTHER: Placement(eth0, Gratuitous(burst=1))})
    (responder,) = running.layer2._responders.values()
    running.do(responder._claims.arp.__setitem__, OTHER.packed, b"nonsense")
    assert all(running.do(running.layer2.answers_on, eth0.index) for _ in range(4))
    assert set(running.failed) == {OTHER.packed}
    assert running.lost == []
    assert ask(client)


def test_one_bug_that_only_our_own_request_meets_costs_nothing(lan, holding, ear):
    client, (running, eth0) = ear(lan.client, ARP), holding()
    until(lambda: ask(client))
    (responder,) = running.layer2._responders.values()
    answers = iter([lambda passes: 1 / 0, lambda passes: None])
    for port in responder._opened.ports:
        port.proof.give = lambda passes: next(answers, lambda passes: None)(passes)
    assert running.do(running.layer2.answers_on, eth0.index)
    assert [task for task, _ in running.counts.errors] == ["link"]
    assert running.lost == []
    assert ask(client)


def test_an_eip_whose_answer_cannot_be_made_is_told_of_and_no_other_is_hurt(lan, holding, ear):
    client, (running, eth0) = ear(lan.client, ARP), holding()
    running.do(running.layer2.take, {OTHER: Placement(eth0, object())})  # announced how?
    until(lambda: running.failed == [OTHER.packed])
    until(lambda: ask(client))
    assert running.do(running.layer2.answers_on, eth0.index)


def test_what_cannot_be_dropped_is_answered_for_no_longer_all_the_same(lan, holding, ear):
    client, (running, _) = ear(lan.client, ARP), holding()
    until(lambda: ask(client))
    running.layer2.drop = lambda addresses: 1 / 0
    running.do(drop_each, running.layer2, [EIP], running.counts)
    assert not any(ask(client) for _ in range(5))
    assert {task for task, _ in running.counts.errors} == {"drop"}
