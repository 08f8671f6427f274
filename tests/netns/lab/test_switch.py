"""The switch loses the frames it is told to lose, and no others, and every carrier stays."""

import asyncio
import socket
import time
from contextlib import ExitStack
from ipaddress import ip_address
from itertools import pairwise

import pytest
from alert_lan import eventually

from speaker.lab.capture import ETH_P_ALL, capturing
from speaker.lab.outage import HELLO, arp_request, asking
from speaker.lab.sickness import Cast, Drop, Hold
from speaker.lab.switch import delayed, holding, hosts_on, spoil
from speaker.lab.topology import LAN

pytestmark = pytest.mark.netns

CLIENT, NODE1 = ip_address("192.0.2.100"), ip_address("192.0.2.11")
MARK = 0x88B6
"""An EtherType that no scenario drops; what comes after a frame tells that the frame is not on its way any more."""


def socket_on(lan, host, protocol):
    with lan.namespace(host).entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind(("eth0", protocol))
    sock.settimeout(60)
    return sock


def mac_of(lan, host):
    return lan.topology.host(host).mac("eth0")


def frame(lan, host, protocol, to=b"\xff" * 6):
    return to + mac_of(lan, host) + protocol.to_bytes(2) + bytes(46)


@pytest.fixture
def arrives():
    """``arrives(lan, "node1", "node2", HELLO)``: whether a broadcast of the one reaches the other, or what is for it
    ``alone``."""

    def send(lan, sender, receiver, protocol, alone=False):
        with socket_on(lan, sender, 0) as out, socket_on(lan, receiver, ETH_P_ALL) as ear:
            out.send(frame(lan, sender, protocol, *([mac_of(lan, receiver)] if alone else [])))
            spoil(lan, [])
            out.send(frame(lan, sender, MARK))
            found = set()
            while MARK not in found:
                found.add(int.from_bytes(ear.recv(2048)[12:14]))
        return protocol in found

    return send


def only(*hosts):
    return frozenset(hosts)


@pytest.mark.parametrize(
    ("sender", "receiver", "protocol", "arrived"),
    [
        ("node1", "node2", HELLO, False),
        ("node1", "node2", 0x0806, False),
        ("node2", "node1", HELLO, True),
        ("node1", "client", HELLO, True),
        ("client", "node2", 0x0806, True),
    ],
)
def test_frames_of_one_host_are_lost_on_their_way_to_another(lan, arrives, sender, receiver, protocol, arrived):
    two = lan(2)
    spoil(two, [Drop(only("node1"), only("node2"))])
    assert arrives(two, sender, receiver, protocol) is arrived


@pytest.mark.parametrize(("protocol", "arrived"), [(HELLO, False), (0x0806, True)])
def test_hellos_alone_can_be_eaten(lan, arrives, protocol, arrived):
    two = lan(2)
    everybody = hosts_on(two.topology, LAN)
    spoil(two, [Drop(everybody, everybody, hellos=True)])
    assert arrives(two, "node1", "node2", protocol) is arrived


def test_some_frames_are_lost_by_chance(lan):
    two = lan(2)
    spoil(two, [Drop(only("node1"), only("node2"), percent=50)])
    assert 40 < count_of(two, "node1", "node2", 200)["node2"] < 160


QUIET = 0.3


def count_of(lan, sender, receiver, frames, *more):
    """How many of so many broadcasts arrive, by receiver."""
    with ExitStack() as stack:
        out = stack.enter_context(socket_on(lan, sender, 0))
        ears = {each: stack.enter_context(socket_on(lan, each, HELLO)) for each in (receiver, *more)}
        for _ in range(frames):
            out.send(frame(lan, sender, HELLO))
        return {each: unread(ear) for each, ear in ears.items()}


def unread(ear):
    """Until no more come for a while: on a busy machine the kernel passes frames on when it gets to it."""
    ear.settimeout(QUIET)
    arrived = 0
    while True:
        try:
            ear.recv(2048)
        except TimeoutError:
            return arrived
        arrived += 1


def test_of_one_hosts_frames_few_a_second_pass_and_a_broadcast_counts_once(lan):
    two = lan(2)
    spoil(two, [Drop(only("node1"), hosts_on(two.topology, LAN), over=12)])
    began = time.monotonic()
    found = count_of(two, "node1", "node2", 100, "client")
    seconds = time.monotonic() - began
    assert found["node2"] == found["client"]
    assert 12 - 3 <= found["node2"] <= 12 * (seconds + 2) < 100, "the kernel may have sent a few (MLD), which count too"
    assert count_of(two, "node2", "node1", 100)["node1"] == 100


@pytest.mark.parametrize(
    ("cast", "receiver", "alone", "arrived"),
    [
        (Cast.MANY, "node2", False, False),
        (Cast.MANY, "node2", True, True),
        (Cast.MANY, "client", False, True),
        (Cast.ONE, "node2", False, True),
        (Cast.ONE, "node2", True, False),
    ],
)
def test_what_is_sent_to_many_or_to_one_can_be_lost(lan, arrives, cast, receiver, alone, arrived):
    two = lan(2)
    spoil(two, [Drop(only("node1"), only("node2"), cast=cast)])
    assert arrives(two, "node1", receiver, 0x0806, alone) is arrived


@pytest.fixture
def two(lan):
    return lan(2)


@pytest.mark.parametrize("address", ["192.0.2.200", "2001:db8:0:1::200"])
async def test_what_a_host_says_of_one_address_can_be_lost(two, sh, address):
    other = ip_address(address) + 1
    for each in (address, other):
        sh(two.namespace("node1"), f"ip addr add {each} dev eth0")
    spoil(two, [Drop(only("node1"), hosts_on(two.topology, LAN), claiming=address)])
    eips = [ip_address(address), other]
    async with asking(two.namespace("client"), "eth0", eips, 0.01) as asks, asyncio.timeout(30):
        while len(asks.replies()) < 5:  # noqa: ASYNC110 -- what it looks at grows in another thread
            await asyncio.sleep(0.01)
    assert {reply.address for reply in asks.replies()} == {other}


BURST, HELD = 16, 0.25
"""So many frames in twice the time that the switch holds them."""


@pytest.mark.parametrize(
    ("held", "hears", "together"),
    [
        (("client", "node1", "node2"), "client", True),
        (("client", "node1", "node2"), "node2", True),
        (("node1", "node2"), "node2", True),
        (("node1", "node2"), "client", False),
    ],
)
def test_what_waits_comes_in_bursts_and_nothing_is_lost_or_kept(lan, held, hears, together):
    two = lan(2)
    hosts = only(*held)
    addresses = [ip_address("192.0.2.200") + number for number in range(2 * BURST)]
    with capturing(two.namespace(hears), "eth0") as capture, socket_on(two, "node1", 0) as out:
        with holding(two, Hold(HELD, hosts, hosts)) as relay:
            relay.redirect()
            for address in addresses[:BURST]:
                out.send(arp_request(mac_of(two, "node1"), address, address))
                time.sleep(2 * HELD / BURST)
            relay.release()
            for address in addresses[BURST:]:
                out.send(arp_request(mac_of(two, "node1"), address, address))
        eventually(lambda: {reply.address for reply in capture.replies()} == {*addresses}, capture.replies)
        time.sleep(HELD)  # in which nothing comes a second time
    came = capture.replies()
    assert sorted(reply.address for reply in came) == addresses
    times = sorted(reply.at for reply in came if reply.address in addresses[:BURST])
    bursts = 1 + sum(later - earlier > HELD / BURST for earlier, later in pairwise(times))
    assert (bursts <= BURST // 2) is together, times


def test_every_frame_takes_as_long_as_it_is_told_to_and_comes_once(lan):
    two = lan(2)
    ask = arp_request(two.topology.host("client").mac("eth0"), CLIENT, NODE1)
    with (
        capturing(two.namespace("client"), "eth0") as capture,
        delayed(two, 40),
        socket_on(two, "client", 0) as out,
        socket_on(two, "client", 0x0806) as ear,
    ):
        began = time.monotonic()
        out.send(ask)
        ear.recv(2048)
    (answer,) = capture.replies()
    assert answer.address == NODE1
    assert answer.at - began >= 2 * 0.040, "there and back"


def test_no_host_loses_its_carrier(lan, sh):
    two = lan(2)
    everybody = hosts_on(two.topology, LAN)
    spoil(two, [Drop(everybody, everybody)])
    assert "LOWER_UP" in sh(two.namespace("node1"), "ip link show eth0")
