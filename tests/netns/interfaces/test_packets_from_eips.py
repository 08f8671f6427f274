"""Packets that come in from an EIP that is bound here are seen; those of other hosts on this kernel are not counted."""

import asyncio
import socket
from ipaddress import ip_address

import pytest

from speaker.interfaces.martians import Martians, coming_in, martian_sources
from speaker.interfaces.watcher import look

pytestmark = pytest.mark.netns

EIP = ip_address("192.0.2.200")


def host(new_namespace, wire, sh, name):
    """(node, client): the node has the EIP bound."""
    node, client = new_namespace(f"{name}-node"), new_namespace(f"{name}-client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 192.0.2.11/24 dev eth0")
    sh(node, "ip link add kube-dummy-if type bridge")  # some kernels have no dummies
    sh(node, f"ip addr add {EIP}/32 dev kube-dummy-if")
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
            counting = asyncio.create_task(coming_in([eth0], [EIP, ip_address("2001:db8::1")], 0.5))
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


def test_a_node_counts_those_that_come_in_on_its_own_links_and_none_of_another_host(new_namespace, wire, sh):
    node, client = host(new_namespace, wire, sh, "a")
    _, elsewhere = host(new_namespace, wire, sh, "b")
    client.sysctl("net.ipv4.conf.all.arp_announce", 2)
    elsewhere.sysctl("net.ipv4.conf.all.arp_announce", 2)

    async def story():
        snapshot, martians, found = await look(), Martians(), []
        eth0 = snapshot.link_named("eth0")
        for sender in (elsewhere, client):
            await martians.look([eth0], snapshot, 0.5)
            send(sender, EIP)  # by which the kernel's counter rises
            counting = asyncio.create_task(martians.look([eth0], snapshot, 0.5))
            while not counting.done():
                send(sender, EIP)
                await asyncio.sleep(0.02)
            found.append((await counting)[0] > 0)
        return found

    with node.entered():
        assert asyncio.run(story()) == [False, True]
