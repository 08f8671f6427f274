"""Gateways that answer, fall silent and come back, asked on a real link. Rounds are short here, and are waited for."""

import asyncio
import socket
from typing import Self

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from speaker.interfaces.gateway import watch_gateways
from speaker.interfaces.snapshot import Snapshot
from speaker.interfaces.watcher import Watcher

pytestmark = pytest.mark.netns

EVERY = 0.05
GUARD = 30.0
"""Seconds after which a question that was never asked fails the test."""
NODE_MAC, ROUTER_MAC = "02:00:00:00:00:05", "02:00:00:00:00:01"
ADDRESSES = {4: ("192.0.2.5/24", "192.0.2.1/24"), 6: ("2001:db8::5/64", "2001:db8::1/64")}


@pytest.fixture
def router(new_namespace):
    return new_namespace("router")


@pytest.fixture
def node(new_namespace, wire, sh, router):
    """eth0 to the router, with both families and no default route yet."""
    node = new_namespace("node")
    wire(node, "eth0", router, "port0")
    for where, link, mac in ((node, "eth0", NODE_MAC), (router, "port0", ROUTER_MAC)):
        sh(where, f"ip link set {link} address {mac}")
        for addresses in ADDRESSES.values():
            sh(where, f"ip addr add {addresses[where is router]} dev {link} nodad")
    return node


@pytest.fixture
def default_route(node, sh):
    def add(version: int) -> None:
        sh(node, f"ip -{version} route add default via {ADDRESSES[version][1].split('/')[0]}")

    return add


@pytest.fixture
def eth0(node):
    with node.entered():
        return socket.if_nametoindex("eth0")


class Seen:
    """Watches the gateways of eth0 with the last Snapshot, as ``node/host.py`` does."""

    snapshot: Snapshot | None = None

    async def watch(self, told) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(watch_gateways(lambda: self.snapshot, self._links, told, EVERY))

    async def watch_as_it_was(self, told) -> None:
        """With the first complete Snapshot, however old: what happens between two of them."""
        async with Watcher() as watcher:
            async for snapshot in watcher:
                if snapshot.gateways:
                    self.snapshot = snapshot
                    break
        await watch_gateways(lambda: self.snapshot, self._links, told, EVERY)

    async def _follow(self) -> None:
        async with Watcher() as watcher:
            async for self.snapshot in watcher:
                pass

    def _links(self):
        assert self.snapshot is not None
        return [link for link in self.snapshot.links.values() if link.name == "eth0"]


@pytest.mark.parametrize("version", ADDRESSES)
def test_a_gateway_that_falls_silent_and_comes_back_is_told(node, router, eth0, sh, during, default_route, version):
    default_route(version)
    address = ADDRESSES[version][1]

    async def story(told):
        assert await told.next() == (eth0, True)
        sh(router, f"ip addr del {address} dev port0")
        assert await told.next() == (eth0, False)
        sh(router, f"ip addr add {address} dev port0 nodad")
        assert await told.next() == (eth0, True)

    during(node, Seen().watch, story)


def test_a_link_whose_last_silent_gateway_is_removed_answers(node, router, eth0, sh, during, default_route):
    default_route(4)
    sh(router, f"ip addr del {ADDRESSES[4][1]} dev port0")

    async def story(told):
        assert await told.next() == (eth0, False)
        sh(node, "ip route del default")
        assert await told.next() == (eth0, True)

    during(node, Seen().watch, story)


def test_a_router_that_announces_itself_is_asked_by_its_link_local_address(node, router, eth0, sh, during):
    sh(node, "ip addr flush dev eth0 scope link")
    sh(node, "ip addr add fe80::5/64 dev eth0 nodad")
    sh(router, "ip addr add fe80::1/64 dev port0 nodad")
    sh(node, "ip -6 route add default via fe80::1 dev eth0")

    async def story(told):
        assert await told.next() == (eth0, True)
        sh(router, "ip addr del fe80::1/64 dev port0")
        assert await told.next() == (eth0, False)

    during(node, Seen().watch, story)


# ── What happens to a link between two Snapshots ──────────────────────────────────────────────────────────────


def test_a_link_that_goes_down_falls_silent_and_comes_back_by_itself(node, eth0, sh, during, default_route):
    default_route(4)

    async def story(told):
        assert await told.next() == (eth0, True)
        sh(node, "ip link set eth0 down")
        assert await told.next() == (eth0, False)
        sh(node, "ip link set eth0 up")
        assert await told.next() == (eth0, True)

    during(node, Seen().watch_as_it_was, story)


def test_a_link_that_is_removed_falls_silent_and_harms_nothing(node, eth0, sh, during, default_route):
    default_route(4)

    async def story(told):
        assert await told.next() == (eth0, True)
        sh(node, "ip link del eth0")
        assert await told.next() == (eth0, False)

    during(node, Seen().watch_as_it_was, story)


# ── What is on the wire ───────────────────────────────────────────────────────────────────────────────────────


class Liar:
    """Stands where the router stood and answers every question with ``answers``; ``asked`` are the questions."""

    def __init__(self, router, answers: list[bytes]) -> None:
        with router.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(3))
            self._socket.bind(("port0", 3))
        self.answers = answers
        self.asked: asyncio.Queue[Ether] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def _read(self) -> None:
        frame = Ether(self._socket.recv(2000))
        if frame.src != NODE_MAC or not self._is_question(frame):
            return
        self.asked.put_nowait(frame)
        for answer in self.answers:
            self._socket.send(answer)

    @staticmethod
    def _is_question(frame: Ether) -> bool:
        if ARP in frame:
            return frame[ARP].op == 1 and frame[ARP].pdst == "192.0.2.1"
        return ICMPv6ND_NS in frame and frame[ICMPv6ND_NS].tgt == "2001:db8::1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()


def arp(**fields) -> Ether:
    told = {"op": 2, "hwsrc": ROUTER_MAC, "psrc": "192.0.2.1", "hwdst": NODE_MAC, "pdst": "192.0.2.5"} | fields
    return Ether(dst=NODE_MAC, src=ROUTER_MAC) / ARP(**told)


def advertisement(target="2001:db8::1", hlim=255, **fields) -> Ether:
    told = ICMPv6ND_NA(tgt=target, R=1, S=1, O=1, **fields) / ICMPv6NDOptDstLLAddr(lladdr=ROUTER_MAC)
    return Ether(dst=NODE_MAC, src=ROUTER_MAC) / IPv6(src="2001:db8::1", dst="2001:db8::5", hlim=hlim) / told


LIES = {
    4: [
        arp(psrc="192.0.2.2"),
        arp(pdst="192.0.2.6"),
        arp(op=1),
        arp(hwsrc="ff:ff:ff:ff:ff:ff"),
        Ether(dst=NODE_MAC, src=ROUTER_MAC) / Dot1Q(vlan=7) / arp()[ARP],
        Ether(bytes(arp())[:41]),
    ],
    6: [
        advertisement(target="2001:db8::2"),
        advertisement(hlim=64),
        advertisement(cksum=1),
        advertisement(code=1),
        Ether(dst=NODE_MAC, src=ROUTER_MAC) / Dot1Q(vlan=7) / advertisement()[IPv6],
        Ether(bytes(advertisement())[:77]),
    ],
}
TRUTH = {4: arp(), 6: advertisement()}


@pytest.mark.parametrize("version", ADDRESSES)
def test_lies_do_not_make_a_silent_gateway_answer_and_the_truth_does(
    node, router, eth0, sh, during, default_route, version
):
    default_route(version)
    sh(router, f"ip addr del {ADDRESSES[version][1]} dev port0")

    async def story(told):
        with Liar(router, [bytes(lie) for lie in LIES[version]]) as liar:
            assert await told.next() == (eth0, False)
            liar.answers = [*liar.answers, bytes(TRUTH[version])]
            assert await told.next() == (eth0, True)

    during(node, Seen().watch, story)


def test_arp_asks_all_until_the_gateway_answers_then_the_gateway_alone(node, router, sh, during, default_route):
    default_route(4)
    sh(router, f"ip addr del {ADDRESSES[4][1]} dev port0")

    async def story(told):
        with Liar(router, []) as liar:

            async def asked_from_some_time_on(destination: str) -> None:
                """Not at once: a question may be under way already."""
                async with asyncio.timeout(GUARD):
                    while (await liar.asked.get()).dst != destination:
                        pass
                    assert [(await liar.asked.get()).dst for _ in range(3)] == [destination] * 3

            await asked_from_some_time_on("ff:ff:ff:ff:ff:ff")
            liar.answers = [bytes(arp(hwsrc="02:00:00:00:00:77"))]
            await asked_from_some_time_on("02:00:00:00:00:77")
            liar.answers = []
            await asked_from_some_time_on("ff:ff:ff:ff:ff:ff")

    during(node, Seen().watch, story)
