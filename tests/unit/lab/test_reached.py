"""When ``reach`` is content, and what it says when it is not."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.lab.backends import Expectation, Listener
from speaker.lab.reach import EipResult, PortResult, Reached
from speaker.model import Family, Mac, Protocol

NODE, STRANGER = Mac(bytes.fromhex("020000010011")), Mac(bytes.fromhex("020000010012"))
WISH = Expectation(
    "shop/web",
    Family.IPV4,
    Protocol.TCP,
    80,
    frozenset({Listener("pod1", Protocol.TCP, 8080), Listener("pod2", Protocol.TCP, 8080)}),
)
GOOD = EipResult(
    address=ip_address("192.0.2.200"),
    service="shop/web",
    link="eth0",
    observer="client",
    expected=NODE,
    mac=NODE,
    claimed_by=frozenset({NODE}),
    ports=(PortResult(WISH, {"pod1": 6, "pod2": 6}, lost=1), PortResult(WISH, {"pod1": 1, "pod2": 2})),
)


def test_all_backends_through_the_nodes_mac_is_good():
    reached = Reached((GOOD,), 0.5)
    assert reached.ok
    assert reached.as_json() == {
        "ok": True,
        "eips": [
            {
                "address": "192.0.2.200",
                "service": "shop/web",
                "link": "eth0",
                "mac": "02:00:00:01:00:11",
                "answers": {"pod1": 7, "pod2": 8},
                "ports": [
                    {"protocol": "TCP", "port": 80, "answers": {"pod1": 6, "pod2": 6}, "lost": 1},
                    {"protocol": "TCP", "port": 80, "answers": {"pod1": 1, "pod2": 2}, "lost": 0},
                ],
            }
        ],
        "problems": [],
    }


@pytest.mark.parametrize(
    ("flaw", "problem"),
    [
        (
            {"mac": STRANGER},
            "shop/web at 192.0.2.200: client's neighbour table has 02:00:00:01:00:12, not eth0's 02:00:00:01:00:11",
        ),
        ({"mac": None}, "shop/web at 192.0.2.200: client's neighbour table has no MAC, not eth0's 02:00:00:01:00:11"),
        (
            {"claimed_by": frozenset({NODE, STRANGER})},
            "shop/web at 192.0.2.200: 02:00:00:01:00:12 claimed the address too",
        ),
        ({"ports": (PortResult(WISH, {"pod1": 12}),)}, "shop/web at 192.0.2.200, TCP 80: no answer from pod2"),
        ({"ports": ()}, "shop/web at 192.0.2.200: was asked on no port"),
        ({"ports": (PortResult(WISH, {}),)}, "shop/web at 192.0.2.200, TCP 80: no answer from pod1, pod2"),
        (
            {"ports": (PortResult(WISH, {"pod1": 5, "pod2": 6, "node1": 1}),)},
            "shop/web at 192.0.2.200, TCP 80: answered by node1",
        ),
    ],
)
def test_each_flaw_is_told_and_fails_the_whole(flaw, problem):
    reached = Reached((GOOD, replace(GOOD, **flaw)), 0.5)
    assert reached.problems == (problem,)
    assert not reached.ok


def test_a_run_without_any_eip_is_no_success():
    assert not Reached((), 0.5).ok


def test_the_closing_line_names_the_families_and_ports_that_were_asked():
    six = replace(GOOD, address=ip_address("2001:db8::1"), ports=GOOD.ports[:1])
    assert Reached((GOOD,), 0.5).summary() == (
        "1 EIPs of 1 Services reached over IPv4, on each of 2 ports an answer from every backend, "
        "0.5 s after the speaker's start"
    )
    assert "2 EIPs of 1 Services reached over IPv4 and IPv6, on each of 3 ports" in Reached((GOOD, six), 0.5).summary()
