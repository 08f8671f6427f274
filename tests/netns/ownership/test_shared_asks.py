"""An owner whose machine asks the LAN: what it hears of the answers, and what people are told of a peer that answers
for EIPs although none of its hellos arrives."""

import asyncio
import socket
from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import HellosFiltered
from speaker.ownership import inquirer
from speaker.ownership.events import Ask, EipAnswered, EligibilityChanged, FrameHeard, HelloHeard, LinkChanged, Tick
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.hellos import Hellos
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.parameters import Parameters
from speaker.packets.asking import Answer
from speaker.wire.shared import FILTERED, SharedOwner

pytestmark = pytest.mark.netns

GUARD = 30.0
KEYS = Keys(Key(b"k" * 32))
OURS, THEIRS = (Mac(b"\x02\0\0\0\0" + bytes((number,))) for number in (1, 2))
EIP, OTHER = ip_address("192.0.2.10"), ip_address("192.0.2.11")


class Machine:
    """Asks when it is told to, believes everybody, and wants nothing else."""

    node, times, incarnation, watch_at = "n1", Parameters(), Incarnation(1), float("inf")

    def __init__(self):
        self.events, self.orders, self.news = [], [], asyncio.Event()

    def step(self, now, event):
        if not isinstance(event, Tick):
            self.events.append(event)
        self.news.set()
        orders, self.orders = self.orders, []
        return orders

    def next_wake(self, now):
        return now + 0.01

    def uses(self, link):
        return True

    def believed(self, link, hello):
        return True

    def peers(self, now):
        return {}

    claims_heard = peers_changed = 0


class Told:
    """``messages.Events``: what was told of hellos that do not arrive."""

    def __init__(self, machine):
        self.filtered, self.machine = [], machine

    def tell(self, event):
        if isinstance(event, HellosFiltered):
            self.filtered.append(event)
            self.machine.news.set()

    def internal_error(self, task, error):
        raise error

    def __getattr__(self, name):
        return lambda *_: None


class Host:
    """One with two addresses on the LAN, the first a peer's that said hello, and a clock of the test's own."""

    def __init__(self, link, sock):
        self.machine, self.now, self.link = Machine(), 1000.0, link
        self.told = Told(self.machine)
        self._socket = sock
        self.owner = SharedOwner(self.machine, self._hellos, lambda: self.now, self.told)

    def _hellos(self, link, count):
        return Hellos(link, lambda: KEYS, frames.ETHERTYPE, lambda: self.now, count)

    async def until(self, holds):
        async with asyncio.timeout(GUARD):
            while not holds():
                self.machine.news.clear()
                await self.machine.news.wait()

    async def hear_hello(self, sequence):
        (frame,) = frames.encode(Hello("n2", Incarnation(1), sequence, 1), KEYS, THEIRS)
        before = self.count(HelloHeard)
        self._socket.send(frame)
        await self.until(lambda: self.count(HelloHeard) > before)

    def count(self, kind):
        return sum(isinstance(event, kind) for event in self.machine.events)

    def ask(self, *eips):
        self.machine.orders = [Ask(self.link.index, eips, ("n2", "n3"))]

    async def until_told(self, event):
        await self.until(lambda: event in self.machine.events)


@pytest.fixture
def during(new_namespace, wire, sh):
    """``during(story)`` runs ``story(host)``; the neighbour answers for EIP."""

    def run(story):
        node, neighbour = new_namespace("node"), new_namespace("neighbour")
        for side in (node, neighbour):
            side.sysctl("net.ipv6.conf.default.disable_ipv6", 1)
        wire(node, "eth0", neighbour, "eth0")
        sh(node, "ip link set eth0 address 02:00:00:00:00:01")
        sh(neighbour, "ip link set eth0 address 02:00:00:00:00:02")
        sh(neighbour, f"ip addr add {EIP}/32 dev eth0")
        with neighbour.entered():
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            sock.bind(("eth0", 0))

        async def tell():
            host = Host(Link(socket.if_nametoindex("eth0"), "eth0", OURS), sock)
            async with host.owner:
                host.owner.use_links([host.link], frozenset({OURS}))
                await host.until_told(LinkChanged(host.link.index, up=True))
                host.machine.events.clear()
                await story(host)

        with sock, node.entered():
            asyncio.run(tell())

    return run


def test_a_peers_answer_is_told_by_its_name_and_a_strangers_without_one(during):
    async def story(host):
        host.ask(EIP, OTHER)
        await host.until_told(EipAnswered(EIP, host.link.index, None))
        await host.hear_hello(1)
        host.now += 1
        host.ask(EIP, OTHER)
        await host.until_told(EipAnswered(EIP, host.link.index, "n2"))
        assert host.count(EipAnswered) == 2
        assert not host.told.filtered

    during(story)


def test_of_many_answers_for_one_eip_each_node_counts_once_in_a_while(during):
    async def story(host):
        await host.hear_hello(1)
        for mac in (THEIRS, *(Mac(b"\x02\0\0\0\1" + bytes((number,))) for number in range(9)), THEIRS):
            host.owner.hear_answer(host.link.index, Answer(EIP, mac))
        told = [EipAnswered(EIP, host.link.index, node) for node in ("n2", None)]
        assert host.machine.events[-2:] == told
        host.now += 2 * inquirer.PAUSE
        host.owner.hear_answer(host.link.index, Answer(EIP, THEIRS))
        assert host.machine.events[-3:] == [*told, told[0]]

    during(story)


def test_what_waits_unread_is_heard_before_what_was_answered(during):
    """A hello that lies there says that its sender lives."""

    async def story(host):
        (frame,) = frames.encode(Hello("n2", Incarnation(1), 1, 1), KEYS, THEIRS)
        host._socket.send(frame)
        host.owner.hear_frame(host.link.index, None)
        assert [type(event) for event in host.machine.events] == [HelloHeard, FrameHeard]

    during(story)


def test_a_peer_that_answers_and_whose_hellos_do_not_arrive_is_told_of(during):
    async def story(host):
        await host.hear_hello(1)
        host.now += FILTERED * host.machine.times.dead - 0.1
        host.ask(EIP)
        await host.until_told(EipAnswered(EIP, host.link.index, "n2"))
        assert not host.owner.hello_links.get(host.link.index).speakers.filtered
        host.now += 0.2
        host.ask(EIP)
        await host.until(lambda: host.told.filtered)
        assert host.told.filtered == [HellosFiltered(host.link, "n2", THEIRS, frozenset({EIP}))]
        assert host.count(EipAnswered) == 2

    during(story)


def test_a_link_that_is_gone_is_not_asked_and_not_heard_on(during):
    async def story(host):
        host.ask(EIP)
        await host.until_told(EipAnswered(EIP, host.link.index, None))
        host.machine.events.clear()
        host.owner.use_links([], frozenset())
        await host.until_told(LinkChanged(host.link.index, up=False))
        host.ask(EIP)
        await host.until(lambda: not host.machine.orders)
        host.owner.hear_answer(host.link.index, Answer(EIP, THEIRS))
        assert host.count(EipAnswered) == 0
        assert not host.owner._inquiries._inquirers

    during(story)


def test_whoever_goes_by_what_the_api_said_before_its_start_goes_last(during):
    async def story(host):
        offered = EligibilityChanged(EIP, host.link.index)
        host.owner.offer({EIP: Placement(host.link, Gratuitous())})
        await host.until_told(offered)
        host.machine.events.clear()
        host.owner.recalled(True)
        await host.until_told(replace(offered, demoted=True))
        host.machine.events.clear()
        host.owner.recalled(False)
        await host.until_told(offered)

    during(story)
