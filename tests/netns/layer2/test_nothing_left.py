"""A link that is closed leaves nothing behind that only the garbage collector would find: it looks rarely in the wire
process, and every flap would cost memory until then."""

import asyncio
import gc
from collections import Counter
from ipaddress import ip_address

import pytest

from speaker.layer2.link import LinkResponder
from speaker.layer2.responder import Responder
from speaker.model import Gratuitous, Placement
from speaker.model.events import EipClaimed, LinkLost
from speaker.ownership.hellos.hellos import Hellos
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.packets.packet_socket import Batch, PacketSocket
from speaker.wire.hello_links import HelloLink
from speaker.wire.process import incarnate
from speaker.wire.shared import SharedOwner

pytestmark = pytest.mark.netns

KINDS = LinkResponder, Responder, PacketSocket, Batch, Hellos, HelloLink
OPEN = {"LinkResponder": 1, "Responder": 6, "PacketSocket": 2, "Batch": 6, "Hellos": 1, "HelloLink": 1}
EIPS = [ip_address(text) for text in ("192.0.2.10", "192.0.2.11", "2001:db8::10")]
FLAPS = 3
PATIENCE = 30.0
"""Seconds until a test gives up."""


@pytest.fixture
def uncollected():
    """Without the garbage collector; what was garbage before is gone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive():
    """How many there are of each, garbage or not."""
    return dict(Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS)))


class Told:
    """``messages.Events``; ``lost`` is set by every link that is."""

    def __init__(self):
        self.lost, self.claims = asyncio.Event(), asyncio.Event()

    def tell(self, event):
        match event:
            case LinkLost():
                self.lost.set()
            case EipClaimed():
                self.claims.set()

    def __getattr__(self, name):
        return lambda *_: None


def clock():
    return asyncio.get_running_loop().time()


async def once(holds):
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.005)


def shared(told):
    machine = Ownership("n1", incarnate, clock(), times=Parameters.for_hello(0.1), api=False)
    keys = Keys(Key(b"k" * 32))
    return SharedOwner(machine, lambda link, count: Hellos(link, lambda: keys, 0x88B5, clock, count), clock, told)


async def flapped(sh, lan, eth0):
    """What is alive while the link is open, and when it is open again after it went down and came up so often."""
    told = Told()
    async with shared(told) as owner:
        owner.use_links([eth0], frozenset({eth0.mac}))
        owner.offer(dict.fromkeys(EIPS, Placement(eth0, Gratuitous(burst=1))))
        await asyncio.wait_for(told.claims.wait(), PATIENCE)
        await once(lambda: is_open(owner) == (True, True))
        before = alive()
        for _ in range(FLAPS):
            hello_link = owner.hello_links.get(eth0.index)
            sh(lan.node, "ip link set eth0 down")
            await once(lambda: is_open(owner) == (False, False))
            sh(lan.node, "ip link set eth0 up")
            await once(lambda: is_open(owner) == (True, True))
            assert owner.hello_links.get(eth0.index) is not hello_link
        del hello_link
        await once(lambda: alive() == before)  # some turns later
        return before, alive()


async def left_alone(sh, lan, eth0, while_down):
    """Until nothing is alive after it was told so often to leave the link alone and to take it up again."""
    async with shared(Told()) as owner:
        for _ in range(FLAPS):
            owner.use_links([eth0], frozenset({eth0.mac}))
            owner.offer(dict.fromkeys(EIPS, Placement(eth0, Gratuitous(burst=1))))
            await once(lambda: is_open(owner) == (True, True))
            if while_down:
                sh(lan.node, "ip link set eth0 down")
                await once(lambda: is_open(owner) == (False, False))
                sh(lan.node, "ip link set eth0 up")
            owner.withdraw(EIPS)
            owner.use_links([], frozenset())
            await once(lambda: is_open(owner) == (False, False))
        await once(lambda: not alive())


def is_open(owner):
    """For hellos, and for requests."""
    return bool(owner.hello_links), any(one.answers() for one in owner._layer2._responders.values())


def test_a_link_that_flaps_is_freed_each_time_without_the_garbage_collector(lan, sh, link, uncollected):
    with lan.node.entered():
        before, after = asyncio.run(flapped(sh, lan, link(lan.node, "eth0")))
    assert before == OPEN
    assert after == OPEN


@pytest.mark.parametrize("while_down", [False, True], ids=["while it works", "while it is down"])
def test_a_link_that_is_left_alone_is_freed_without_the_garbage_collector(lan, sh, link, uncollected, while_down):
    with lan.node.entered():
        asyncio.run(left_alone(sh, lan, link(lan.node, "eth0"), while_down))
    assert alive() == {}
