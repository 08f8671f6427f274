"""Real servers on their way out: none goes before its connections have ended or its time is up, and none stays."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.ipvs.decisions import DRAIN_SECONDS, Draining, draining
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer
from speaker.model import Protocol

EIP = ip_address("192.0.2.10")
ONE, TWO = (RealServer(ip_address(f"10.0.0.{last}"), 8080) for last in (3, 4))
SERVER = VirtualServer(EIP, Protocol.TCP, 80, real_servers=(ONE, TWO))
PLACE = SERVER.key, ONE.address, ONE.port


def plan_of(*servers: VirtualServer) -> Plan:
    return Plan(frozenset(each.address for each in servers), {each.key: each for each in servers})


def at(server: VirtualServer, **weights: int) -> VirtualServer:
    """With these real servers only: ``at(SERVER, one=0, two=1)``."""
    reals = {"one": ONE, "two": TWO}
    return replace(
        server, real_servers=tuple(sorted(replace(reals[name], weight=weight) for name, weight in weights.items()))
    )


BUSY: dict[object, int] = {}
BOTH, LEFT = at(SERVER, one=1, two=1), at(SERVER, one=0, two=1)
STEPS = [
    ("goes", BOTH, {}, {}, LEFT, {PLACE: 1000 + DRAIN_SECONDS}),
    ("goes, and has none, but may be given one before its weight is 0", BOTH, {}, {PLACE: 0}, LEFT, {PLACE: 1900.0}),
    ("still has some", LEFT, {PLACE: 1500.0}, {PLACE: 3}, LEFT, {PLACE: 1500.0}),
    ("was not counted", LEFT, {PLACE: 1500.0}, {}, LEFT, {PLACE: 1500.0}),
    ("has none any more", LEFT, {PLACE: 1500.0}, {PLACE: 0}, at(SERVER, two=1), {}),
    ("its time is up", LEFT, {PLACE: 1000.0}, {PLACE: 3}, at(SERVER, two=1), {}),
    ("an earlier speaker had begun it", LEFT, {}, {PLACE: 3}, LEFT, {PLACE: 1900.0}),
    ("is gone already", at(SERVER, two=1), {PLACE: 1500.0}, {}, at(SERVER, two=1), {}),
]


@pytest.mark.parametrize(
    ("have", "until", "connections", "goal", "then"), [row[1:] for row in STEPS], ids=[row[0] for row in STEPS]
)
def test_a_real_server_that_nobody_wants(have, until, connections, goal, then):
    want = plan_of(at(SERVER, two=1))
    assert draining(plan_of(have), want, Draining(until), connections, 1000.0) == (plan_of(goal), Draining(then))


def test_one_that_comes_back_gets_its_weight_and_a_later_leave_gets_the_whole_time():
    assert draining(plan_of(LEFT), plan_of(BOTH), Draining({PLACE: 1.0}), {}, 1000.0) == (plan_of(BOTH), Draining())


def test_a_udp_real_server_goes_at_once():
    udp = replace(SERVER, protocol=Protocol.UDP)
    want = plan_of(at(udp, two=1))
    assert draining(plan_of(udp), want, Draining(), BUSY, 0.0) == (want, Draining())


def test_what_no_virtual_server_is_left_for_is_not_waited_for():
    assert draining(plan_of(SERVER), EMPTY, Draining({PLACE: 9.0}), BUSY, 0.0) == (EMPTY, Draining())


Histories = st.lists(st.tuples(st.sampled_from(["one", "two", "end one", "end two", "tend", "restart"]), st.booleans()))


@given(Histories)
def test_over_any_history_connections_end_only_by_themselves_or_by_time_and_nothing_is_left_over(history):
    """``one``: the first endpoint comes or goes; ``end one``: its connections end; a flag says whether time passes."""
    wanted = {"one": True, "two": True}
    connections = {"one": 1, "two": 1}
    reals = {"one": ONE, "two": TWO}
    kernel, kept, now = plan_of(SERVER), Draining(), 0.0
    unwanted_since: dict[str, float] = {}
    for step, time_passes in history:
        now += 400.0 if time_passes else 0.0
        if step in wanted:
            wanted[step] = not wanted[step]
        elif step.startswith("end"):
            connections[step.split()[1]] = 0
        elif step == "restart":
            kept = Draining()
            unwanted_since = dict.fromkeys(unwanted_since, now)
        unwanted_since = {name: unwanted_since.get(name, now) for name in wanted if not wanted[name]}
        want = plan_of(at(SERVER, **{name: 1 for name in wanted if wanted[name]}))
        counted = {(SERVER.key, real.address, real.port): connections[name] for name, real in reals.items()}
        goal, kept = draining(kernel, want, kept, counted if step == "tend" else {}, now)
        before = {real.address for real in kernel.virtual_servers[SERVER.key].real_servers}
        kernel = goal
        there = {real.address: real.weight for real in kernel.virtual_servers[SERVER.key].real_servers}
        for name, real in reals.items():
            if wanted[name]:
                assert there[real.address] == 1
                connections[name] = 1
            else:
                assert there.get(real.address, 0) == 0
                broken = connections[name] > 0 and real.address in before and real.address not in there
                assert not broken or now >= unwanted_since[name] + DRAIN_SECONDS
                if real.address not in there:
                    connections[name] = 0
    now += DRAIN_SECONDS
    goal, kept = draining(kernel, want if history else plan_of(SERVER), kept, {}, now)
    assert goal == (want if history else plan_of(SERVER))
    assert kept == Draining()
