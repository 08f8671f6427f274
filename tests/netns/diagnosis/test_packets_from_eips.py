"""Packets that come in from an EIP that is bound here are seen; those of other hosts on this kernel are not counted."""

import asyncio
import socket
from ipaddress import ip_address

import pytest

from speaker.diagnosis.listening import martians
from speaker.interfaces.martians import martian_sources
from speaker.interfaces.watcher import look

pytestmark = pytest.mark.netns

EIP = ip_address("192.0.2.200")


def host(new_namespace, wire, sh, name):
    """(node, client): the node has the EIP bound."""
    node, client = new_namespace(f"{name}-node"), new_namespace(f"{name}-client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 192.0.2.11/24 dev eth0")
    sh(node, f"ip addr add {EIP}/32 dev lo")
    sh(client, "ip addr add 192.0.2.50/24 dev eth0")
    sh(client, f"ip addr add {EIP}/32 dev lo")
    node.sysctl("net.ipv4.conf.all.arp_ignore", 1)
    return node, client


def send(client, source, times=3):
    with client.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind((str(source), 0))
        for _ in range(times):
            opened.sendto(b"x", ("192.0.2.11", 9))


def test_packets_that_come_in_from_a_bound_eip_are_counted_and_no_others(new_namespace, wire, sh):
    node, client = host(new_namespace, wire, sh, "a")
    _, elsewhere = host(new_namespace, wire, sh, "b")
    client.sysctl("net.ipv4.conf.all.arp_announce", 2)
    elsewhere.sysctl("net.ipv4.conf.all.arp_announce", 2)

    def count(act):
        async def listen():
            eth0 = (await look()).link_named("eth0")
            counting = asyncio.create_task(martians([eth0], [EIP, ip_address("2001:db8::1")], 0.5))
            for _ in range(9):  # until it listens
                await asyncio.sleep(0)
            act()
            return await counting

        with node.entered():
            return asyncio.run(listen())

    assert count(lambda: send(client, EIP)) == 3
    assert count(lambda: send(client, "192.0.2.50")) == 0
    before = martian_sources()
    assert count(lambda: send(elsewhere, EIP)) == 0
    assert martian_sources() > before, "the kernel counts those of the other host as well"
