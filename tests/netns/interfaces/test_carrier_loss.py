"""A carrier that comes or goes is told, whatever the kernel's own notifications do."""

import asyncio
import socket

import pytest

from speaker.errors import EdgeError
from speaker.interfaces.carrier import watch_carrier

pytestmark = pytest.mark.netns


@pytest.fixture
def lan(new_namespace):
    return new_namespace("lan")


@pytest.fixture
def node(new_namespace, wire, lan):
    node = new_namespace("node")
    wire(node, "eth0", lan, "port0")
    wire(node, "eth1", lan, "port1")
    return node


@pytest.fixture
def index(node):
    """``index("eth0")`` of the node."""

    def of(name: str) -> int:
        with node.entered():
            return socket.if_nametoindex(name)

    return of


def watching(*links: int):
    return lambda told: watch_carrier(lambda: links, told, asyncio.Event())


def test_every_pulled_and_plugged_cable_is_told(node, lan, index, sh, during):
    eth0 = index("eth0")

    async def story(told):
        assert await told.next() == (eth0, True)
        for _ in range(5):
            sh(lan, "ip link set port0 down")
            assert await told.next() == (eth0, False)
            sh(lan, "ip link set port0 up")
            assert await told.next() == (eth0, True)

    during(node, watching(eth0), story)


def test_links_are_told_apart(node, lan, index, sh, during):
    eth0, eth1 = index("eth0"), index("eth1")

    async def story(told):
        assert {await told.next(), await told.next()} == {(eth0, True), (eth1, True)}
        sh(lan, "ip link set port1 down")
        assert await told.next() == (eth1, False)

    during(node, watching(eth0, eth1), story)


@pytest.mark.parametrize("end", ["ip link set eth0 down", "ip link del eth0"])
def test_a_link_that_is_down_or_gone_has_no_carrier(node, index, sh, during, end):
    eth0 = index("eth0")

    async def story(told):
        assert await told.next() == (eth0, True)
        sh(node, end)
        assert await told.next() == (eth0, False)

    during(node, watching(eth0), story)


def test_what_is_stacked_on_a_link_loses_its_carrier_with_it(node, lan, index, sh, during):
    sh(node, "ip link add mv0 link eth0 type macvlan mode bridge")
    sh(node, "ip link set mv0 up")
    mv0 = index("mv0")

    async def story(told):
        while await told.next() != (mv0, True):  # the kernel brings it up in its own time
            pass
        sh(lan, "ip link set port0 down")
        assert await told.next() == (mv0, False)

    during(node, watching(mv0), story)


def test_a_link_without_a_cable_from_the_start_is_told(node, lan, index, sh, during):
    sh(lan, "ip link set port0 down")
    eth0 = index("eth0")

    async def story(told):
        assert await told.next() == (eth0, False)

    during(node, watching(eth0), story)


def test_a_link_is_told_anew_when_it_is_watched_again(node, index, during):
    eth0, eth1 = index("eth0"), index("eth1")
    links, others = (eth0,), asyncio.Event()

    async def story(told):
        nonlocal links
        assert await told.next() == (eth0, True)
        for link in (eth1, eth0):
            links = (link,)
            others.set()
            assert await told.next() == (link, True)

    during(node, lambda told: watch_carrier(lambda: links, told, others), story)


def test_nothing_is_told_once_the_watch_was_cancelled(node, lan, index, sh, during):
    eth0 = index("eth0")

    async def cancelled(told):
        watch = asyncio.ensure_future(watch_carrier(lambda: (eth0,), told, asyncio.Event(), every=0.001))
        assert await told.next() == (eth0, True)
        watch.cancel()
        await asyncio.wait([watch])
        sh(lan, "ip link set port0 down")
        await asyncio.get_running_loop().shutdown_default_executor()  # until its thread has ended
        await asyncio.sleep(0)  # and the loop had its turn
        assert told.waiting.empty()

    async def forever(told):
        await asyncio.get_running_loop().create_future()

    during(node, forever, cancelled)


def test_a_link_that_is_doubted_is_asked_for_although_the_kernel_tells_nothing(
    node, lan, index, sh, during, monkeypatch
):
    monkeypatch.setattr("speaker.interfaces.carrier._RTMGRP_LINK", 0)
    eth0, doubted = index("eth0"), asyncio.Event()

    async def story(told):
        assert await told.next() == (eth0, True)
        sh(lan, "ip link set port0 down")
        doubted.set()
        assert await told.next() == (eth0, False)
        sh(lan, "ip link set port0 up")
        assert await told.next() == (eth0, True)  # one without a carrier is looked at until it has one

    during(node, lambda told: watch_carrier(lambda: (eth0,), told, doubted), story)


def test_a_refusal_of_the_kernel_is_an_edge_error(node, during):
    async def story(told):
        await told.next()

    with pytest.raises(EdgeError, match="Invalid argument"):
        during(node, watching(-1), story)
