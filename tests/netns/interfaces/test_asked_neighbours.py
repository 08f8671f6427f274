"""Neighbours that answer for an address of theirs, whoever runs there, and those that do not."""

import asyncio
from ipaddress import ip_address

import pytest

from speaker.interfaces.addresses import own_addresses, question
from speaker.interfaces.watcher import Watcher
from speaker.packets.asker import answers

pytestmark = pytest.mark.netns

TIMES, EVERY = 3, 0.05


@pytest.fixture
def pair(new_namespace, wire, sh):
    """Two nodes; 192.0.2.1 and 192.0.2.2, fe80::1 and fe80::2 on eth0."""
    both = new_namespace("one"), new_namespace("two")
    for node in both:
        node.sysctl("net.ipv6.conf.default.addr_gen_mode", 1)  # no link-local address but the one given
    wire(both[0], "eth0", both[1], "eth0")
    for number, node in enumerate(both, 1):
        sh(node, f"ip addr add 192.0.2.{number}/24 dev eth0")
        sh(node, f"ip addr add fe80::{number}/64 dev eth0 nodad")
    return both


async def seen_in(node):
    with node.entered():
        watcher = await Watcher().__aenter__()
    try:
        return await anext(aiter(watcher))
    finally:
        await watcher.__aexit__(None, None, None)


def answered(node, address, snapshot=None):
    async def ask():
        seen = snapshot or await seen_in(node)
        asked = question(seen, seen.link_named("eth0"), ip_address(address))
        return await answers(asked, TIMES, EVERY)

    with node.entered():
        return asyncio.run(ask())


def test_what_a_node_says_are_its_own_addresses_is_what_it_answers_for(pair):
    one, two = pair
    theirs = asyncio.run(seen_in(two))
    (own,) = own_addresses(theirs, [theirs.link_named("eth0")]).values()
    assert own == (ip_address("192.0.2.2"), ip_address("fe80::2"))
    assert [answered(one, address) for address in own] == [True, True]


@pytest.mark.parametrize("address", ["192.0.2.9", "fe80::9"])
def test_nobody_answers_for_what_nobody_has(pair, address):
    assert not answered(pair[0], address)


@pytest.mark.parametrize("address", ["192.0.2.2", "fe80::2"])
def test_a_node_behind_a_cut_cable_does_not_answer(pair, sh, address):
    one, two = pair
    sh(two, "ip link set eth0 down")
    assert not answered(one, address)


@pytest.mark.parametrize("address", ["192.0.2.2", "fe80::2"])
def test_a_link_that_is_gone_leads_to_nobody(pair, sh, address):
    one, _ = pair
    before = asyncio.run(seen_in(one))
    sh(one, "ip link del eth0")
    assert not answered(one, address, before)


def test_a_node_that_answers_only_for_what_the_link_has_answers(pair):
    """As the IPVS forwarder sets it."""
    one, two = pair
    two.sysctl("net.ipv4.conf.all.arp_ignore", 1)
    two.sysctl("net.ipv4.conf.all.arp_announce", 2)
    assert answered(one, "192.0.2.2")
