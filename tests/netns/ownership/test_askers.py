"""A node asks a LAN for EIPs, and reads a moment later how many hosts answer."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from speaker.model import Link, Mac
from speaker.packets.asker import Askers

pytestmark = pytest.mark.netns

ONE, TWO, NONE = (ip_address(f"198.51.100.{number}") for number in (10, 11, 12))
SIX = ip_address("2001:db8::10")


@pytest.fixture
def lan(new_namespace, wire, sh):
    """Who asks, and two hosts that both have one of the EIPs."""
    switch = new_namespace("switch")
    sh(switch, "ip link add br0 type bridge")
    sh(switch, "ip link set br0 up")
    hosts = [new_namespace(name) for name in ("node", "one", "two")]
    for number, host in enumerate(hosts, 1):
        wire(host, "eth0", switch, f"p{number}")
        sh(switch, f"ip link set p{number} master br0")
    node, one, two = hosts
    sh(node, "ip addr add 198.51.100.1/24 dev eth0")
    sh(node, "ip addr add 2001:db8::1/64 dev eth0 nodad")
    for host, eips in ((one, (ONE, TWO)), (two, (TWO,))):
        for eip in eips:
            sh(host, f"ip addr add {eip}/24 dev eth0")
    sh(one, f"ip addr add {SIX}/64 dev eth0 nodad")
    return node


def link_of(node, sh):
    index, _, _ = sh(node, "ip -o link show eth0").partition(":")
    return Link(int(index), "eth0", Mac(bytes.fromhex(sh(node, "ip -br link show eth0").split()[2].replace(":", ""))))


def hosts_by_eip(node, sh, eips, own, answers, turns=100):
    """How many answered, once that many did: the first requests may find a bridge that still learns, or a machine that
    has other work."""
    link = link_of(node, sh)

    async def ask(sockets):
        sockets.use([link], {link.index: own})
        sockets.drop()
        assert all(sockets.ask(eip, link.index) for eip in eips)
        await asyncio.sleep(0.2)
        macs = {}
        for eip, mac in sockets.answers():
            macs.setdefault(eip, set()).add(mac)
        return {eip: len(macs.get(eip, ())) for eip in eips}

    async def whole():
        with Askers() as sockets:
            for _ in range(turns):
                if sum((found := await ask(sockets)).values()) >= answers:
                    break
        return found

    with node.entered():
        return asyncio.run(whole())


def test_it_is_found_out_how_many_answer(lan, sh):
    own = (ip_address("198.51.100.1"), ip_address("2001:db8::1"))
    assert hosts_by_eip(lan, sh, [ONE, TWO, NONE, SIX], own, 4) == {ONE: 1, TWO: 2, NONE: 0, SIX: 1}


def test_without_an_address_of_that_family_nothing_is_asked(lan, sh):
    link = link_of(lan, sh)
    with lan.entered(), Askers() as sockets:
        sockets.use([link], {link.index: (ip_address("198.51.100.1"),)})
        assert not sockets.ask(SIX, link.index)
        assert not sockets.ask(ONE, link.index + 100), "no link that is in use"


def test_a_link_that_goes_down_is_asked_again_when_it_is_back(lan, sh):
    link = link_of(lan, sh)
    with lan.entered(), Askers() as sockets:
        sockets.use([link], {link.index: (ip_address("198.51.100.1"),)})
        assert sockets.ask(ONE, link.index)
        sh(lan, "ip link set eth0 down")
        assert not sockets.ask(ONE, link.index)
        sh(lan, "ip link set eth0 up")
        assert any(sockets.ask(ONE, link.index) for _ in range(100))


def packet_sockets():
    """In the namespace that was entered."""
    return len(Path("/proc/thread-self/net/packet").read_text().splitlines()) - 1


@pytest.mark.parametrize("then", ["has another MAC", "is used no more"])
def test_a_link_that_is_not_as_it_was_keeps_no_socket(lan, sh, then):
    link = link_of(lan, sh)
    now = [replace(link, mac=Mac(bytes(6)))] if then == "has another MAC" else []
    with lan.entered():
        before = packet_sockets()
        with Askers() as sockets:
            sockets.use([link], {link.index: (ip_address("198.51.100.1"),)})
            assert sockets.ask(ONE, link.index)
            assert packet_sockets() == before + 1
            sockets.use(now, {})
            assert packet_sockets() == before


def test_nothing_is_open_behind_the_block(lan, sh):
    link = link_of(lan, sh)
    with lan.entered():
        before = packet_sockets()
        with Askers() as sockets:
            sockets.use([link], {link.index: (ip_address("198.51.100.1"),)})
            assert sockets.ask(ONE, link.index)
        assert packet_sockets() == before
