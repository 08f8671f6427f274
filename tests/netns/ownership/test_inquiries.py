"""Asking a real link: who answers for an EIP, whether anybody is there at all, and what a stranger floods it with."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from speaker.interfaces.carrier import neighbors
from speaker.model import Link, Mac, Speaker
from speaker.ownership import inquirer
from speaker.ownership.events import Ask, FrameHeard, Question
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys
from speaker.wire.inquiries import Inquiries

pytestmark = pytest.mark.netns

GUARD = 30.0
EIP4, EIP6 = ip_address("192.0.2.10"), ip_address("2001:db8::10")
OURS, OUR_OTHER, THEIRS, THIRD = (f"02:00:00:00:00:{number:02}" for number in range(1, 5))
OWN = ip_address("192.0.2.1"), ip_address("fe80::1")
EVERYBODY = "ff:ff:ff:ff:ff:ff"


def mac(text):
    return Mac(bytes.fromhex(text.replace(":", "")))


@pytest.fixture
def lan(new_namespace, wire, sh):
    """eth0 to eth0: 192.0.2.1 and fe80::1 are the node's, .2 and fe80::2 the neighbour's."""
    node, neighbour = new_namespace("node"), new_namespace("neighbour")
    wire(node, "eth0", neighbour, "eth0")
    for side, number, address in ((node, 1, OURS), (neighbour, 2, THEIRS)):
        sh(side, f"ip link set eth0 address {address}")
        sh(side, "ip addr flush dev eth0")
        sh(side, f"ip addr add 192.0.2.{number}/24 dev eth0")
        sh(side, f"ip addr add fe80::{number}/64 dev eth0 nodad")
    return node, neighbour


@pytest.fixture
def quiet_lan(new_namespace, wire, sh):
    """The same without IPv6: no kernel says a word there by itself."""
    node, neighbour = new_namespace("node"), new_namespace("neighbour")
    for side in (node, neighbour):
        side.sysctl("net.ipv6.conf.default.disable_ipv6", 1)
    wire(node, "eth0", neighbour, "eth0")
    for side, number, address in ((node, 1, OURS), (neighbour, 2, THEIRS)):
        sh(side, f"ip link set eth0 address {address}")
        sh(side, f"ip addr add 192.0.2.{number}/24 dev eth0")
    return node, neighbour


@pytest.fixture
def stranger(quiet_lan):
    """``stranger(frame)`` puts bytes on the wire at the other end."""
    _, neighbour = quiet_lan
    with neighbour.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.bind(("eth0", 0))
    with sock:
        yield lambda frame: sock.send(bytes(frame))


PROBE = 0.04
"""Seconds between two questions."""


class Told:
    """What was heard, in order, and what went wrong."""

    def __init__(self):
        self.events, self.errors, self.failures, self.waited = [], [], [], []
        self._news = asyncio.Event()

    def hear_frame(self, link, version, waited=None):
        self._note(FrameHeard(link, version))

    def hear_answer(self, link, answer, waited=None):
        self.waited.append(waited)
        self._note((answer.address, answer.mac))

    def is_ours(self, mac_of_frame):
        return mac_of_frame in (mac(OURS), mac(OUR_OTHER))

    def _note(self, event):
        self.events.append(event)
        self._news.set()

    async def until(self, holds, ask=lambda: None):
        """``ask`` again and again, as the ownership machine does: a link that just came up loses a frame."""
        async with asyncio.timeout(GUARD):
            while not holds(self.events):
                self._news.clear()
                again = asyncio.get_running_loop().call_later(PROBE, self._news.set)
                await self._news.wait()
                again.cancel()
                ask()

    def tell(self, event):
        self.failures.append((event.edge, getattr(event, "error", None)))

    def internal_error(self, task, error):
        self.errors.append(error)


def ask(inquiries, link, own, eips, peers=(), anybody=True):
    """As the machine has it asked, with these silent ``peers``."""
    silent = {f"n{number}": peer for number, peer in enumerate(peers)}
    inquiries.ask(link, own, Ask(link.index, tuple(eips), tuple(silent), anybody), silent)


def within(namespace, story):
    """``story(inquiries, told, link)`` in a loop inside the namespace. Its host has two MACs."""

    async def run():
        told = Told()
        inquiries = Inquiries(told, told)
        link = Link(socket.if_nametoindex("eth0"), "eth0", mac(OURS))
        try:
            await story(inquiries, told, link)
        finally:
            inquiries.close(link.index)
        assert told.errors == []

    with namespace.entered():
        asyncio.run(run())


def packet_sockets():
    return len(Path("/proc/self/net/packet").read_text().splitlines()) - 1


BROADCASTS = [
    Ether(src=THIRD, dst=EVERYBODY) / ARP(hwsrc=THIRD, psrc="192.0.2.3", pdst="192.0.2.4"),
    Ether(src=THIRD, dst="33:33:ff:00:00:04") / IPv6(src="fe80::3", dst="ff02::1:ff00:4") / ICMPv6ND_NS(tgt="fe80::4"),
]


@pytest.mark.parametrize("eip", [EIP4, EIP6], ids=str)
def test_whoever_answers_for_an_eip_is_found(lan, sh, eip):
    node, neighbour = lan
    sh(neighbour, f"ip addr add {eip}/{'128 nodad' if eip.version == 6 else 32} dev eth0")

    async def story(inquiries, told, link):
        again = partial(ask, inquiries, link, OWN, [eip], [])
        await told.until(lambda events: (eip, mac(THEIRS)) in events, again)

    within(node, story)


@pytest.mark.parametrize("eip", [EIP4, EIP6], ids=str)
def test_what_is_doubted_is_asked_of_all_then_of_its_holder_and_then_of_others(lan, sh, eip):
    node, neighbour = lan
    theirs = ip_address("192.0.2.2" if eip.version == 4 else "fe80::2")
    for address in (eip, theirs):
        sh(neighbour, f"ip addr replace {address}/{'128 nodad' if eip.version == 6 else 32} dev eth0")
    known = {"n2": Speaker(mac(THEIRS), ()), "n3": Speaker(mac(THIRD), (theirs,))}

    async def story(inquiries, told, link):
        asked = Question(link.index, "n2", (eip,), doubted=True)

        def ask():
            inquiries.read(0.1)
            inquiries.ask(link, OWN, asked, known)

        await told.until(lambda events: (eip, mac(THEIRS)) in events, ask)
        await told.until(lambda events: FrameHeard(link.index, eip.version) in events, ask)
        assert inquirer_of(inquiries, link)._talk is None, "nothing wakes for what others say"

    within(node, story)


def test_nothing_wakes_for_answers_to_samples_which_wait_until_they_are_read(quiet_lan, stranger):
    node, _ = quiet_lan
    reply = Ether(src=THEIRS, dst=OURS) / ARP(op=2, hwsrc=THEIRS, psrc=str(EIP4), hwdst=OURS)

    async def story(inquiries, told, link):
        loop = asyncio.get_running_loop()
        inquiries.ask(link, OWN, Question(link.index, "n2", (EIP4,)), {})
        asker = inquirer_of(inquiries, link)._answers.asker
        assert not loop.remove_reader(asker._socket)
        stranger(reply)
        assert inquiries.read(0.07)
        assert told.events == [(EIP4, mac(THEIRS))]
        assert inquiries.read(0.08), "nothing is awaited"
        stranger(reply)
        inquirer_of(inquiries, link).awaited.add(EIP4)
        assert not inquiries.read(0.09), "a flood is read a few frames at a time"
        ask(inquiries, link, OWN, [])
        assert inquiries.read(0.08), "what is listened to is nobody else's to read"
        stranger(reply)
        await told.until(lambda events: events[1:] == [(EIP4, mac(THEIRS))])
        assert told.waited == [0.07, None]
        async with asyncio.timeout(GUARD):
            while inquirer_of(inquiries, link).listens:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.01)
        inquiries.ask(link, OWN, Question(link.index, "n2", (EIP4,)), {})
        assert not loop.remove_reader(inquirer_of(inquiries, link)._answers.asker._socket)

    within(node, story)


def test_while_nothing_is_doubted_an_answer_that_nobody_asked_for_is_no_news(quiet_lan, stranger):
    """The gateway answers this host's other programs every second."""
    node, _ = quiet_lan

    async def story(inquiries, told, link):
        asked = Question(link.index, "n2", (EIP4,), doubted=False)

        def ask_and_answer():
            inquiries.read(0.1)
            inquiries.ask(link, OWN, asked, {})
            stranger(Ether(src=THEIRS, dst=OURS) / ARP(op=2, hwsrc=THEIRS, psrc="192.0.2.9", hwdst=OURS))
            stranger(Ether(src=THEIRS, dst=OURS) / ARP(op=2, hwsrc=THEIRS, psrc=str(EIP4), hwdst=OURS))

        await told.until(lambda events: (EIP4, mac(THEIRS)) in events, ask_and_answer)
        assert FrameHeard(link.index, 4) not in told.events

    within(node, story)


def test_a_node_without_an_address_on_the_link_asks_all_the_same(lan, sh):
    node, neighbour = lan
    sh(neighbour, f"ip addr add {EIP4}/32 dev eth0")

    async def story(inquiries, told, link):
        again = partial(ask, inquiries, link, (), [EIP4, EIP6], [])
        await told.until(lambda events: (EIP4, mac(THEIRS)) in events, again)

    within(node, story)


@pytest.mark.parametrize("whom", ["its gateway", "a neighbour", "a silent peer"])
def test_any_answer_shows_that_we_hear(quiet_lan, sh, whom):
    node, _ = quiet_lan
    if whom == "a neighbour":
        sh(node, f"ip neigh add 192.0.2.2 lladdr {THEIRS} dev eth0 nud permanent")

    async def story(inquiries, told, link):
        if whom == "its gateway":
            inquiries.gateways = {link.index: (ip_address("192.0.2.2"),)}
        peers = [Speaker(mac(THEIRS), (ip_address("192.0.2.2"),))] if whom == "a silent peer" else []
        again = partial(ask, inquiries, link, OWN, [], peers)
        await told.until(lambda events: FrameHeard(link.index, 4) in events, again)

    within(node, story)


@pytest.mark.parametrize("frame", BROADCASTS, ids=["ARP", "IPv6"])
def test_that_a_third_host_speaks_shows_that_we_hear(quiet_lan, stranger, frame):
    node, _ = quiet_lan

    async def story(inquiries, told, link):
        ask(inquiries, link, OWN, [])
        stranger(frame)
        await told.until(lambda events: events == [FrameHeard(link.index)])

    within(node, story)


(HELLO,) = frames.encode(Hello("n2", Incarnation(1), 1, 1), Keys(Key(b"k" * 32)), mac(THEIRS))


@pytest.mark.parametrize(
    ("what", "frame"),
    [
        ("our own", Ether(src=OURS, dst=EVERYBODY) / ARP(hwsrc=OURS, psrc="192.0.2.1", pdst="192.0.2.4")),
        ("of another link of ours", Ether(src=OUR_OTHER, dst=EVERYBODY) / ARP(hwsrc=OUR_OTHER, pdst="192.0.2.4")),
        ("of another VLAN", Ether(src=THEIRS, dst=EVERYBODY) / Dot1Q(vlan=5) / ARP(hwsrc=THEIRS, pdst="192.0.2.4")),
        ("to another host", Ether(src=THEIRS, dst="02:00:00:00:00:09") / ARP(hwsrc=THEIRS, pdst="192.0.2.4")),
        ("a hello", HELLO),
        (
            "an answer of our own",
            Ether(src=OURS, dst=OURS) / ARP(op=2, hwsrc=OURS, psrc=str(EIP4), hwdst=OURS, pdst="192.0.2.1"),
        ),
        (
            "an answer of another link of ours",
            Ether(src=THEIRS, dst=OURS) / ARP(op=2, hwsrc=OUR_OTHER, psrc=str(EIP4), hwdst=OURS, pdst="192.0.2.1"),
        ),
        (
            "an answer of another VLAN",
            Ether(src=THEIRS, dst=OURS)
            / Dot1Q(vlan=5)
            / ARP(op=2, hwsrc=THEIRS, psrc=str(EIP4), hwdst=OURS, pdst="192.0.2.1"),
        ),
    ],
)
def test_what_shows_nothing_is_passed_over(quiet_lan, stranger, what, frame):
    """What follows it is heard alone."""
    node, _ = quiet_lan

    async def story(inquiries, told, link):
        ask(inquiries, link, OWN, [EIP4])
        for _ in range(5):
            stranger(frame)
        await asyncio.sleep(0)
        stranger(Ether(src=THEIRS, dst=OURS) / ARP(op=2, hwsrc=THEIRS, psrc=str(EIP4), hwdst=OURS, pdst="192.0.2.1"))
        await told.until(bool)
        assert told.events == [(EIP4, mac(THEIRS))], what

    within(node, story)


@contextmanager
def flooding(namespace, packets):
    """Another thread sends these without a pause."""
    over = threading.Event()
    count = 0

    def flood():
        nonlocal count
        with namespace.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.bind(("eth0", 0))
            while not over.is_set():
                for packet in packets:
                    sock.send(packet)
                    count += 1

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield lambda: count
    finally:
        over.set()
        thread.join()


def lies(number, address=EIP4):
    return bytes(
        Ether(src=THEIRS, dst=OURS)
        / ARP(
            op=2,
            hwsrc=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}",
            psrc=str(address),
            hwdst=OURS,
            pdst="192.0.2.1",
        )
    )


@pytest.mark.parametrize(
    ("flood", "most"),
    [
        ([bytes(BROADCASTS[0])], 1),
        ([lies(n) for n in range(256, 1280)], inquirer.FRAMES),
        ([lies(n, "192.0.2.99") for n in range(256, 1280)], 1),
    ],
    ids=["broadcasts", "answers", "answers that nobody asked for"],
)
def test_a_flood_is_heard_a_few_frames_at_a_time(lan, flood, most):
    node, neighbour = lan
    pauses = 10

    async def story(inquiries, told, link):
        loop = asyncio.get_running_loop()
        ask(inquiries, link, OWN, [EIP4])
        with flooding(neighbour, flood) as sent:
            await told.until(bool)
            begun, before = loop.time(), len(told.events)
            while sent() < 20_000 or loop.time() < begun + pauses * inquirer.PAUSE:
                ask(inquiries, link, OWN, [EIP4])
                await asyncio.sleep(inquirer.PAUSE)
            await told.until(lambda events: len(events) > before)
            passed = (loop.time() - begun) / inquirer.PAUSE + 2
        assert before < len(told.events) <= before + most * passed

    within(node, story)


def test_after_one_frame_of_a_flood_the_loop_has_its_rest(quiet_lan, stranger):
    node, _ = quiet_lan

    async def story(inquiries, told, link):
        ask(inquiries, link, OWN, [])
        for _ in range(3):
            stranger(BROADCASTS[0])
        await told.until(bool)
        asking = inquirer_of(inquiries, link)
        assert not asyncio.get_running_loop().remove_reader(asking._talk.asker._socket)
        assert asyncio.get_running_loop().remove_reader(asking._answers.asker._socket)

    within(node, story)


def test_an_answer_is_heard_through_a_flood_of_broadcasts(lan, sh):
    node, neighbour = lan
    sh(neighbour, f"ip addr add {EIP4}/32 dev eth0")

    async def story(inquiries, told, link):
        with flooding(neighbour, [bytes(BROADCASTS[0])]):
            ask(inquiries, link, OWN, [])
            await told.until(bool)
            ask(inquiries, link, OWN, [EIP4])
            await told.until(lambda events: (EIP4, mac(THEIRS)) in events)

    within(node, story)


def test_of_addresses_without_end_those_asked_for_last_are_told_of(quiet_lan, stranger):
    node, _ = quiet_lan
    reply = Ether(src=THEIRS, dst=OURS) / ARP(op=2, hwsrc=THEIRS, psrc=str(EIP4), hwdst=OURS, pdst="192.0.2.1")

    async def story(inquiries, told, link):
        ask(inquiries, link, OWN, [EIP4])
        inquirer_of(inquiries, link).ask([ip_address("10.0.0.0") + n for n in range(inquirer.MAX_ASKED)], [])
        stranger(reply)
        await told.until(lambda events: events == [FrameHeard(link.index, 4)])
        inquirer_of(inquiries, link).ask([EIP4], [])
        stranger(reply)
        await told.until(lambda events: events[1:] == [(EIP4, mac(THEIRS))])

    within(node, story)


def inquirer_of(inquiries, link):
    return inquiries._inquirers[link.index]


def test_nothing_is_open_before_the_first_question_and_a_second_after_the_last(lan):
    node, _ = lan

    async def story(inquiries, told, link):
        before = packet_sockets()
        ask(inquiries, link, OWN, [EIP4])
        assert packet_sockets() == before + 2
        asked = asyncio.get_running_loop().time()
        async with asyncio.timeout(GUARD):
            while packet_sockets() > before:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() >= asked + inquirer.LISTEN
        ask(inquiries, link, OWN, [EIP4])
        assert packet_sockets() == before + 2

    within(node, story)


@pytest.mark.parametrize("number", [0, 1], ids=["talk", "an answer"])
def test_what_is_heard_may_end_the_listening(quiet_lan, stranger, number):
    """An order that follows from it may meet a link that is gone."""
    node, _ = quiet_lan

    async def story(inquiries, told, link):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.errors.append(context))
        note, told._note = told._note, lambda event: (inquiries.close(link.index), note(event))
        ask(inquiries, link, OWN, [EIP4])
        for _ in range(inquirer.FRAMES):
            stranger((BROADCASTS[0], Ether(lies(256)))[number])
        await told.until(bool)
        rested = loop.create_future()
        loop.call_later(2 * inquirer.PAUSE, rested.set_result, None)
        await rested

    within(node, story)


def test_what_goes_wrong_is_told_once_and_tried_again(lan, sh):
    node, _ = lan

    async def story(inquiries, told, link):
        sh(node, "ip link set eth0 down")
        for _ in range(3):
            ask(inquiries, link, OWN, [EIP4])
        ((edge, error),) = told.failures
        assert edge == "inquiry"
        assert "eth0" in error
        sh(node, "ip link set eth0 up")
        ask(inquiries, link, OWN, [EIP4])
        assert told.failures == [(edge, error), (edge, None)]

    within(node, story)


def test_the_neighbours_that_the_kernel_knows_on_the_link_are_listed_the_surest_first(lan, wire, sh, new_namespace):
    node, _ = lan
    wire(node, "eth1", new_namespace("elsewhere"), "eth1")
    for number in range(10, 250):
        state = "reachable" if number == 77 else "stale"
        sh(node, f"ip neigh add 192.0.2.{number} lladdr 02:00:00:00:01:{number:02x} dev eth0 nud {state}")
    sh(node, f"ip neigh add fe80::77 lladdr {THIRD} dev eth0 nud permanent")
    sh(node, f"ip neigh add 192.0.2.9 lladdr {THIRD} dev eth0 nud failed")
    sh(node, f"ip neigh add 198.51.100.9 lladdr {THIRD} dev eth1 nud reachable")
    with node.entered():
        found = neighbors(socket.if_nametoindex("eth0"), 8)
        assert neighbors(99, 8) == []
    assert len(found) == 8
    assert {str(one.address) for one in found} >= {"fe80::77"}
    assert [one.doubt for one in found] == sorted(one.doubt for one in found)
    assert all(one.doubt < 4 and one.link == found[0].link for one in found)
