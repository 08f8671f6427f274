"""What is heard on a link that has VLANs of its own, which only the guest's kernel has."""

import select
import socket

import pytest

from speaker.model import Mac
from speaker.packets import arp, sockets
from speaker.packets.bpf import ACCEPT

pytestmark = pytest.mark.ipvs

PATIENCE = 10.0


def test_a_frame_of_a_vlan_is_heard_on_its_link_and_not_on_the_one_below(new_namespace, wire, sh):
    node, lan = new_namespace("node"), new_namespace("lan")
    wire(node, "eth0", lan, "port0")
    for namespace, below in ((node, "eth0"), (lan, "port0")):
        sh(namespace, f"ip link add link {below} name {below}.7 type vlan id 7")
        sh(namespace, f"ip link set {below}.7 up")
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
