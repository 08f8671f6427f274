"""The lab measures what happens: outages as long as they were, by processes that nothing delays."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, ip_address

import pytest

from speaker.lab.capture import capturing, duplicates, first_after, moves, relapses
from speaker.lab.lan import Lan
from speaker.lab.outage import arp_request, asking, echoing, outages, probing
from speaker.model import Mac

pytestmark = pytest.mark.netns

EIPS = tuple(ip_address(f"192.0.2.{last}") for last in range(200, 210))
EIP = EIPS[0]
PORT = 7000
A_WHILE = 0.2


@contextmanager
def bound(lan: Lan, sh, node: str, *addresses) -> Iterator[None]:
    """The node's kernel answers for ``addresses``."""
    for address in addresses:
        sh(lan.namespace(node), f"ip addr add {address}/32 dev eth0")
    yield
    for address in addresses:
        sh(lan.namespace(node), f"ip addr del {address}/32 dev eth0")


def announce(lan: Lan, node: str, eip: IPv4Address) -> None:
    with lan.namespace(node).entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind(("eth0", 0))
        sock.send(arp_request(Mac(mac_of(lan, node)), eip, eip))


def mac_of(lan: Lan, node: str) -> bytes:
    return lan.topology.host(node).mac("eth0")


@pytest.fixture
def one(lan) -> Lan:
    return lan(1)


@pytest.fixture
def two(lan) -> Lan:
    return lan(2)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 -- what it looks at grows in another thread or process
            await asyncio.sleep(0.01)


async def test_ten_eips_that_are_always_there_lose_no_probe(one, sh):
    node = one.namespace("node1")
    with bound(one, sh, "node1", *EIPS), echoing([(node, PORT)]):
        async with probing(one.namespace("client"), [(eip, PORT) for eip in EIPS]) as probes:
            await probes.answering(time.monotonic() + A_WHILE)
    found = outages(probes.samples())
    assert {eip: outage.lost for eip, outage in found.items()} == dict.fromkeys(EIPS, 0)


async def test_an_outage_is_seen_from_the_first_lost_probe_to_the_last_and_for_that_eip_alone(one, sh):
    node = one.namespace("node1")
    with bound(one, sh, "node1", *EIPS[1:]), echoing([(node, PORT)]):
        async with probing(one.namespace("client"), [(eip, PORT) for eip in EIPS[:2]]) as probes:
            with bound(one, sh, "node1", EIP):
                await probes.answering(time.monotonic())
                gone = time.monotonic()
            await asyncio.sleep(A_WHILE)
            back = time.monotonic()
            with bound(one, sh, "node1", EIP):
                await probes.answering(back)
                end = time.monotonic()
    found = outages(sample for sample in probes.samples(gone - A_WHILE) if sample.sent < end)
    assert found[EIPS[1]].lost == 0
    assert found[EIP].over
    assert (found[EIP].ms + found[EIP].unsure_ms) / 1000 >= A_WHILE


async def test_ipv6_is_measured_too(one):
    with echoing([(one.namespace("node1"), PORT)]):
        async with probing(one.namespace("client"), [(ip_address("2001:db8:0:1::11"), PORT)]) as probes:
            await probes.answering(time.monotonic())


async def test_two_nodes_that_both_answer_are_caught(two, sh):
    with bound(two, sh, "node1", EIP), bound(two, sh, "node2", EIP):
        async with asking(two.namespace("client"), "eth0", [EIP], 0.01) as asks:
            await until(lambda: len(asks.replies()) >= 10)
    assert {reply.mac for reply in asks.replies()} == {mac_of(two, "node1"), mac_of(two, "node2")}
    assert len(duplicates(asks.replies(), within=0.1)) >= 9
    assert relapses(asks.replies(), within=0.1)


async def test_a_move_is_seen_by_who_asks_and_by_who_only_listens(two, sh):
    with capturing(two.namespace("host1"), "eth0") as capture:
        async with asking(two.namespace("client"), "eth0", EIPS[:2], 0.01) as asks:
            with bound(two, sh, "node1", EIP):
                await until(asks.replies)
                gone = time.monotonic()
            with bound(two, sh, "node2", EIP):
                announce(two, "node2", EIP)
                await until(lambda: EIP in first_after(asks.replies(), gone, {mac_of(two, "node1")}))
    assert [(move.before, move.mac) for move in moves(asks.replies())] == [(mac_of(two, "node1"), mac_of(two, "node2"))]
    assert {reply.mac for reply in capture.replies() if reply.unasked} == {mac_of(two, "node2")}
    asked = outages(asks.samples(), 0.01)
    assert asked[EIPS[1]].lost == asked[EIPS[1]].sent
    assert asked[EIP].lost < asked[EIP].sent
