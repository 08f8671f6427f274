"""What is heard on a link that has VLANs of its own, which only the guest's kernel has."""

import select
import socket
import time
from contextlib import ExitStack, closing
from ipaddress import IPv4Address

import pytest

from speaker.layer2.kernel import KernelResponder
from speaker.model import Link, Mac
from speaker.packets import arp, sockets
from speaker.packets.bpf import ACCEPT

pytestmark = pytest.mark.ipvs

PATIENCE = 10.0


@pytest.fixture
def cable(new_namespace, wire, sh):
    """(node, lan): a node's ``eth0`` and the LAN's ``port0``, each with the VLAN 7."""
    node, lan = new_namespace("node"), new_namespace("lan")
    wire(node, "eth0", lan, "port0")
    for namespace, below in ((node, "eth0"), (lan, "port0")):
        sh(namespace, f"ip link add link {below} name {below}.7 type vlan id 7")
        sh(namespace, f"ip link set {below}.7 up")
    return node, lan


def test_a_frame_of_a_vlan_is_heard_on_its_link_and_not_on_the_one_below(cable):
    node, lan = cable
    with node.entered():
        heard = {name: listening(name) for name in ("eth0", "eth0.7")}
    with lan.entered():
        for name, eip in (("port0.7", b"\xc0\0\2\7"), ("port0", b"\xc0\0\2\1")):
            say(name, arp.announce_by_request(Mac(b"\x02\0\0\0\0\x01"), eip))
    try:
        assert [eip_of(next_frame(heard[name])) for name in ("eth0.7", "eth0")] == [b"\xc0\0\2\7", b"\xc0\0\2\1"]
    finally:
        for opened in heard.values():
            opened.close()


def test_the_program_in_the_kernel_answers_on_the_link_of_its_vlan_alone(cable, sh):
    node, lan = cable
    with ExitStack() as stack:
        with node.entered():
            for name, eip in (("eth0.7", b"\xc0\0\2\7"), ("eth0", b"\xc0\0\2\1")):
                mac = Mac(bytes.fromhex(sh(node, f"ip -br link show {name}").split()[2].replace(":", "")))
                link = Link(socket.if_nametoindex(name), name, mac)
                kernel = stack.enter_context(KernelResponder(link, None))
                kernel.answer(eip)
                kernel.extend(time.clock_gettime(time.CLOCK_BOOTTIME) + 3600)
        with lan.entered():
            heard = stack.enter_context(closing(listening("port0.7")))
            untagged = stack.enter_context(closing(listening("port0")))
            for name in ("port0.7", "port0"):
                for eip in ("192.0.2.1", "192.0.2.7"):
                    say(name, arp.request(Mac(b"\x02\0\0\0\0\x01"), IPv4Address("192.0.2.2"), IPv4Address(eip)).pack())
        assert replied(heard) == b"\xc0\0\2\7"
        assert replied(untagged) == b"\xc0\0\2\1"
        assert not any(select.select([each], [], [], 0.1)[0] for each in (heard, untagged))


def replied(opened):
    """Of which EIP the next reply is."""
    while (frame := next_frame(opened))[20:22] != arp.REPLY:
        pass
    return frame[28:32]


def listening(name):
    return sockets.open_socket(socket.if_nametoindex(name), arp.ETHERTYPE, (ACCEPT,), lambda opened: None)


def say(name, frame):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as speaking:
        speaking.bind((name, 0))
        speaking.send(frame)


def next_frame(opened):
    assert select.select([opened], [], [], PATIENCE)[0], "nothing came"
    return opened.recv(100)


def eip_of(frame):
    return frame[28:32]
