"""The switch loses the frames it is told to lose, and no others, and every carrier stays."""

import socket
import time
from ipaddress import ip_address

import pytest

from speaker.lab.breaking.sickness import Drop
from speaker.lab.breaking.switch import HELLO, delayed, hosts_on, spoil
from speaker.lab.network.topology import LAN
from speaker.lab.watching.arp_listener import ETH_P_ALL
from speaker.lab.watching.capture import capturing
from speaker.lab.watching.outage import arp_request

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


def frame(lan, host, protocol):
    return b"\xff" * 6 + lan.topology.host(host).mac("eth0") + protocol.to_bytes(2) + bytes(46)


@pytest.fixture
def arrives():
    """``arrives(lan, "node1", "node2", HELLO)``: whether a broadcast of the one reaches the other."""

    def send(lan, sender, receiver, protocol):
        with socket_on(lan, sender, 0) as out, socket_on(lan, receiver, ETH_P_ALL) as ear:
            out.send(frame(lan, sender, protocol))
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
    with socket_on(two, "node1", 0) as out, socket_on(two, "node2", HELLO) as ear:
        for _ in range(200):
            out.send(frame(two, "node1", HELLO))
        ear.setblocking(False)
        arrived = 0
        while True:
            try:
                ear.recv(2048)
            except BlockingIOError:
                break
            arrived += 1
    assert 40 < arrived < 160


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
