"""A packet from outside that claims an address bound here is dropped by the kernel, and seen by us."""

import socket

import pytest

from speaker.interfaces.martians import martian_sources

pytestmark = pytest.mark.netns

EIP = "192.0.2.100"


def test_a_packet_from_outside_with_a_locally_bound_source_is_counted(new_namespace, wire, sh):
    node, probe = new_namespace("node"), new_namespace("probe")
    wire(node, "eth0", probe, "eth0")
    sh(node, "ip addr add 192.0.2.5/24 dev eth0")
    sh(node, f"ip addr add {EIP}/32 dev lo")
    sh(probe, "ip addr add 192.0.2.9/24 dev eth0")
    sh(probe, f"ip addr add {EIP}/32 dev lo")
    # Or its ARP requests would come from the EIP, which the node does not even answer.
    probe.sysctl("net.ipv4.conf.all.arp_announce", 2)
    sh(probe, "ping -c 1 -W 30 192.0.2.5")
    with node.entered():
        before = martian_sources()
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("192.0.2.5", 5000))
        listener.settimeout(30)
    with probe.entered():
        senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for sender, source in zip(senders, (EIP, "192.0.2.9"), strict=True):
        sender.bind((source, 5000))
        sender.sendto(source.encode(), ("192.0.2.5", 5000))
        sender.close()
    with listener:
        assert listener.recv(100) == b"192.0.2.9"  # the second: the first did not get this far
    with node.entered():
        assert martian_sources() > before  # by how much is everybody's business: the kernel counts for all namespaces
