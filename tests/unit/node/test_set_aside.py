"""A Service, or an EIP, that meets a bug of ours in a decision stays as it was; no other notices."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from types import SimpleNamespace

import pytest

from speaker.allocator.settle import Settlement
from speaker.api.addresses import parse_range
from speaker.errors import EdgeError
from speaker.forwarding.forwarder import NoForwarder
from speaker.forwarding.isolating import Isolating
from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import (
    Assignment,
    Forwarding,
    Link,
    LinkNames,
    Mac,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    World,
)
from speaker.node.decide import MayHold, MayNotHold, NodeDecider
from speaker.node.host import Host
from speaker.node.report import Report
from speaker.node.source import View
from speaker.settings import Node
from speaker.telemetry.metrics import Metrics

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


class Passing(tuple):
    """Ports that meet a bug until ``over``."""

    over = False

    def __iter__(self):
        if not self.over:
            raise ZeroDivisionError("a bug")
        return super().__iter__()


def test_one_that_is_set_aside_is_decided_again_though_nothing_of_it_changed(decider):
    ports_of_a = Passing((ServicePort(Protocol.TCP, 81),))
    odd = replace(service(A), ports=ports_of_a)
    decided(decider, world(service(A), service(B)))
    assert ports(decided(decider, world(odd, service(B)), {A})) == {(EIPS[A], 80), (EIPS[B], 80)}
    ports_of_a.over = True
    assert ports(decided(decider, world(odd, service(B)), set())) == {(EIPS[A], 81), (EIPS[B], 80)}
    assert not decider.failed


# ── and is tried again ──

SOON = 25.0
"""Seconds after the fault within which what was set aside is in force: two of the longest waits, and a pass."""


class Files:
    """A source that says the same all the time."""

    record_sink = None

    def __init__(self, asked):
        self.asked, self.passes = asked, []

    async def view(self, _own):
        self.passes.append(asyncio.get_running_loop().time())
        return View(
            self.asked, Settlement(ASSIGNED, {}), NODE, {}, changed=None if len(self.passes) == 1 else frozenset()
        )


class Taking:
    """A wire process that takes what is offered, but for what it ``refuses``."""

    held, draining = frozenset(), False

    def __init__(self):
        self.refuses, self.offered = frozenset(), {}

    async def withdraw_except(self, *_):
        pass

    async def behind(self, _):
        pass

    async def offer(self, placements, *_):
        self.offered = {eip: place for eip, place in placements.items() if eip not in self.refuses}
        return self.offered.keys() == placements.keys()


class Kernel(NoForwarder):
    """Refuses a port."""

    refuses = None

    async def apply(self, plan):
        if any(port == self.refuses for _, _, port in plan.virtual_servers):
            raise EdgeError("refused")
        self.plan = plan
        return ()


@pytest.fixture
def node(tmp_path, in_virtual_time):
    """``node(asked, story)``: a host at work plays ``story(host, source, wire, kernel)``."""

    def play(asked, story):
        async def life():
            settings = SimpleNamespace(node=NODE, peers=None, forwarder=Forwarding.IPVS, runtime_dir=tmp_path)
            report, source, wire, kernel = Report(Metrics(), tmp_path), Files(asked), Taking(), Kernel(tmp_path)
            host = Host(settings, None, source, Isolating(kernel, report), wire, report, None)
            host._snapshot = SNAPSHOT
            host._look_around = lambda: asyncio.sleep(0)
            working = asyncio.create_task(host._reconcile())
            host._changed.set()
            try:
                return await story(host, source, wire, kernel)
            finally:
                working.cancel()
                with suppress(asyncio.CancelledError):
                    await working

        return in_virtual_time(life())

    return play


def test_a_service_that_met_a_bug_is_in_force_soon_after_the_bug_is_over(node):
    ports = Passing((ServicePort(Protocol.TCP, 81),))

    async def story(host, source, wire, kernel):
        await asyncio.sleep(60)
        assert {port for _, _, port in kernel.plan.virtual_servers} == {80}
        ports.over = True
        await asyncio.sleep(SOON)
        assert {port for _, _, port in kernel.plan.virtual_servers} == {80, 81}
        tried = len(source.passes)
        await asyncio.sleep(300)
        assert len(source.passes) == tried, "then it rests"
        assert tried < 40, "it does not try without a pause"

    node(world(replace(service(A), ports=ports), service(B)), story)


def test_an_eip_that_the_wire_process_could_not_take_is_offered_again(node):
    async def story(host, source, wire, kernel):
        wire.refuses = frozenset({EIPS[A]})
        await asyncio.sleep(60)
        assert set(wire.offered) == {EIPS[B]}
        wire.refuses = frozenset()
        await asyncio.sleep(SOON)
        assert set(wire.offered) == {EIPS[A], EIPS[B]}

    node(world(service(A), service(B)), story)


def test_what_the_kernel_refused_is_asked_of_it_again(node):
    async def story(host, source, wire, kernel):
        await asyncio.sleep(60)
        kernel.refuses, source.asked, host._decided_on = 81, world(service(A, 81), service(B)), None
        host._changed.set()
        await asyncio.sleep(60)
        assert {port for _, _, port in kernel.plan.virtual_servers} == {80}
        kernel.refuses = None
        await asyncio.sleep(SOON)
        assert {port for _, _, port in kernel.plan.virtual_servers} == {80, 81}

    node(world(service(A), service(B)), story)


def test_what_people_were_not_told_because_of_a_bug_they_are_told_soon(node):
    async def story(host, source, wire, kernel):
        tell, bugs = host._report.brought_about, [ZeroDivisionError("a bug")]

        def brought_about(in_force):
            if bugs:
                raise bugs.pop()
            tell(in_force)

        host._report.brought_about = brought_about
        await asyncio.sleep(SOON)
        assert host._report.in_force is not None

    node(world(service(A), service(B)), story)
