"""Which remembered connections go on after a change."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from speaker.forwarding.changes import EipChange, Flow, RealChange, ServerChange, affected, goes_on
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.model import Protocol

ONE, TWO = (RealServer(ip_address(f"10.0.0.{last}"), 8080) for last in (3, 4))
UDP = VirtualServer(ip_address("192.0.2.10"), Protocol.UDP, 53, real_servers=(ONE, TWO))
TCP = replace(UDP, protocol=Protocol.TCP)
CLIENT = ip_address("198.51.100.7")


def flow_of(server: VirtualServer, real: RealServer = ONE) -> Flow:
    return Flow(server.key, CLIENT, 40000, real.address, real.port)


ELSEWHERE = (ip_network("203.0.113.0/24"),)
CASES = [
    ("nothing changed", UDP, {}, True),
    ("the real server drains", UDP, {"real_servers": (replace(ONE, weight=0), TWO)}, True),
    ("another real server is gone", UDP, {"real_servers": (ONE,)}, True),
    ("its real server is gone", UDP, {"real_servers": (TWO,)}, False),
    ("its real server has another port", UDP, {"real_servers": (replace(ONE, port=9090), TWO)}, False),
    ("no real server is left", UDP, {"real_servers": ()}, False),
    ("TCP: its real server is gone", TCP, {"real_servers": (TWO,)}, True),
    ("the client is let in", TCP, {"sources": (ip_network("198.51.100.0/24"),)}, True),
    ("the client is locked out", TCP, {"sources": ELSEWHERE}, False),
    ("ranges of the other family lock everyone out", TCP, {"sources": (ip_network("2001:db8::/32"),)}, False),
]


@pytest.mark.parametrize(("server", "changes", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_a_connection_goes_on_while_the_plan_has_room_for_it(server, changes, expected):
    after = replace(server, **changes)
    assert goes_on(flow_of(server), Plan(frozenset({after.address}), {after.key: after})) is expected


@pytest.mark.parametrize("server", [UDP, TCP])
def test_no_connection_outlives_its_virtual_server(server):
    assert not goes_on(flow_of(server), Plan(frozenset(), {}))


def test_a_udp_flow_from_before_its_service_is_not_left_untranslated():
    untranslated = Flow(UDP.key, CLIENT, 40000, UDP.address, UDP.port)
    assert not goes_on(untranslated, Plan(frozenset({UDP.address}), {UDP.key: UDP}))


LOOKED_AT = [
    (ServerChange(None, UDP), True),
    (ServerChange(None, TCP), False),
    (ServerChange(TCP, TCP), True),
    (ServerChange(TCP, None), True),
    (RealChange(UDP.key, ONE, None), True),
    (RealChange(TCP.key, ONE, None), False),
    (RealChange(UDP.key, None, ONE), False),
    (RealChange(UDP.key, ONE, replace(ONE, weight=0)), False),
    (EipChange(UDP.address), False),
    (EipChange(UDP.address, bound=False), False),
]


@pytest.mark.parametrize(("change", "looked_at"), LOOKED_AT)
def test_only_changes_that_can_strand_a_connection_are_followed_up(change, looked_at):
    assert bool(list(affected([change]))) is looked_at
