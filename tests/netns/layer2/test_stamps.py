"""When a packet arrived, by the kernel."""

import select
import socket
import time
from contextlib import closing
from ipaddress import IPv4Address

import pytest

from speaker.layer2.filter import around, arp_program
from speaker.packets import arp
from speaker.packets.packet_socket import PacketSocket

pytestmark = pytest.mark.netns

EIP = IPv4Address("192.0.2.10")
PATIENCE = 30.0
"""Seconds until a test gives up."""
STAMPING = 64  # SO_TIMESTAMPNS_NEW, <asm-generic/socket.h>


@pytest.fixture
def client(lan, ear):
    return ear(lan.client, arp.ETHERTYPE)


@pytest.fixture
def packets(lan, link):
    """A socket of the node that stamps already: what arrives in the first moment is stamped when it is read."""
    with lan.node.entered():
        program = arp_program(around([EIP.packed]))
        found = PacketSocket(link(lan.node, "eth0"), arp.ETHERTYPE, program, room=64, frame_length=arp.LENGTH)
    with closing(found):
        yield found


def received(packets):
    assert select.select([packets], [], [], PATIENCE)[0]
    return stamps(packets.receive())


def stamps(received):
    return [whole + part * 1e-9 for whole, part in zip(received.seconds, received.nanoseconds, strict=True)]


def sent(client, packets):
    """Between which instants a probe arrived, and its stamp; read after the second."""
    before = time.time()
    client.send(arp.request(client.mac, IPv4Address(0), EIP).pack())
    after = time.time()
    assert client.never(client.to_us, 0.02)
    (stamp,) = received(packets)
    return before, stamp, after


def until_stamping(client, packets):
    for _ in range(500):
        before, stamp, after = sent(client, packets)
        if before <= stamp <= after:
            return
    raise AssertionError(f"arrived between {before} and {after}, stamped {stamp}")


def test_a_stamp_tells_when_it_arrived_not_when_it_was_read(client, packets):
    until_stamping(client, packets)
    for _ in range(3):
        before, stamp, after = sent(client, packets)
        assert before <= stamp <= after


def test_each_packet_of_a_batch_has_its_own_in_their_order(client, packets):
    until_stamping(client, packets)
    before = time.time()
    for _ in range(10):
        client.send(arp.request(client.mac, IPv4Address(0), EIP).pack())
    found = []
    while len(found) < 10:
        found += received(packets)
    assert len(found) == 10
    assert before <= found[0]
    assert found == sorted(found)
    assert found[-1] <= time.time()


def test_a_packet_without_a_stamp_spoils_none_of_those_to_come(client, packets):
    """The kernel writes back that it used none of the room for one, and would believe that to be all there is."""
    until_stamping(client, packets)
    packets._socket.setsockopt(socket.SOL_SOCKET, STAMPING, 0)
    sent(client, packets)
    packets._socket.setsockopt(socket.SOL_SOCKET, STAMPING, 1)
    until_stamping(client, packets)
