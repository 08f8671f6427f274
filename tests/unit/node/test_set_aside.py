"""A Service, or an EIP, that meets a bug of ours in a decision stays as it was; no other notices."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface

import pytest

from speaker.api.ranges import parse_range
from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import Assignment, Link, LinkNames, Mac, Pool, Protocol, Service, ServiceKey, ServicePort, World
from speaker.node.decide import MayHold, MayNotHold, NodeDecider
from speaker.settings import Node

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"), up=True, carrier=True)
BOUND = ip_interface("192.0.2.1/24")
SNAPSHOT = Snapshot(links={2: ETH0}, addresses=(LinkAddress(2, BOUND.ip, BOUND.network),))
LAN = Pool("lan", (parse_range("192.0.2.0/24"),), interface=LinkNames(("eth0",)))
OTHER = replace(LAN, name="other")
A, B = ServiceKey("default", "a"), ServiceKey("default", "b")
EIPS = {A: ip_address("192.0.2.10"), B: ip_address("192.0.2.11")}
NODE = Node.parse("n1")


def service(key, port=80, **more):
    return Service(key, (ServicePort(Protocol.TCP, port),), **more)


def world(a, b, lan=LAN):
    return World(pools={"lan": lan, "other": OTHER}, services={A: a, B: b})


ASSIGNED = {A: Assignment(A, (EIPS[A],), ("lan",)), B: Assignment(B, (EIPS[B],), ("other",))}


@pytest.fixture
def decider():
    return NodeDecider(forwards=True)


def decided(decider, asked, changed=None):
    decision, _ = decider.decide(asked, ASSIGNED, SNAPSHOT, NODE, changed)
    return decision


def ports(decision):
    return {(address, port) for address, _, port in decision.forwarding.virtual_servers}


BROKEN = replace(service(A), ports=None)
"""Of a kind that no reading gives."""


@pytest.mark.parametrize("changed", [None, {A, B}])
def test_one_that_cannot_be_planned_keeps_its_virtual_servers_and_the_others_get_theirs(decider, changed):
    decided(decider, world(service(A), service(B)))
    decision = decided(decider, world(BROKEN, service(B, 443)), changed)
    assert ports(decision) == {(EIPS[A], 80), (EIPS[B], 443)}
    assert set(decider.failed) == {A}
    decision = decided(decider, world(service(A, 81), service(B, 443)), changed)
    assert ports(decision) == {(EIPS[A], 81), (EIPS[B], 443)}
    assert not decider.failed


def test_one_that_could_never_be_planned_gets_nothing(decider):
    decision = decided(decider, world(BROKEN, service(B)))
    assert ports(decision) == {(EIPS[B], 80)}
    assert set(decider.failed) == {A}


@pytest.mark.parametrize("changed", [None, {A, B}])
def test_an_eip_that_cannot_be_decided_is_held_as_before(decider, changed):
    before = decided(decider, world(service(A), service(B)))
    broken = replace(LAN, node_selector="a bug", interface=object())
    decision = decided(decider, world(service(A), service(B), broken), changed)
    assert decision.eips == before.eips
    assert set(decider.failed) == {A}


def test_an_eip_that_was_never_decided_is_not_held_and_says_why(decider):
    broken = replace(LAN, node_selector="a bug", interface=object())
    decision = decided(decider, world(service(A), service(B), broken))
    assert isinstance(decision.eips[EIPS[B]], MayHold)
    found = decision.eips[EIPS[A]]
    assert isinstance(found, MayNotHold)
    assert found.reason == "internal_error"
