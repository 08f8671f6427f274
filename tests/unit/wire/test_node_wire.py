"""What of an offer the wire process is asked for: what changed, withdrawn before anything else, and no more."""

import asyncio
import socket
from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.wire.messages import Channel, Reply, Spec
from speaker.wire.remote import A_SLICE, Wire

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
ETH1 = Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"))
MACS = frozenset({ETH0.mac, ETH1.mac})
A, B, C = (ip_address(f"192.0.2.{10 + number}") for number in range(3))
HERE, THERE = Placement(ETH0, Gratuitous()), Placement(ETH1, Gratuitous())
OFTENER = Placement(ETH0, Gratuitous(refresh=60.0))
"""On the same link: only announced otherwise."""


class Deaf:
    """A listener that does not listen."""

    def __getattr__(self, name):
        return lambda *_: None


class Near(Wire):
    """Its other end is here instead of in a process; what comes there is noted and done with."""

    async def __aenter__(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._channel, self._other = await Channel.over(ours), await Channel.over(theirs)
        self.asked, self.linked, self.addressed = [], [], []
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self.watch())]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for channel in (self._channel, self._other):
            channel.close()
        await asyncio.sleep(0)

    async def _serve(self):
        async for request in self._other.messages():
            match request.command, request.arguments:
                case "withdraw" | "offer" as command, (what,):
                    self.asked.append((command, what))
                case "use_links", (links, macs):
                    self.linked.append((links, macs))
                case "use_addresses", (ours,):
                    self.addressed.append(ours.own)
            self._other.send(Reply(request.number, [] if request.command == "offer" else None))

    def asks(self):
        """Since the call before."""
        asked, self.asked = self.asked, []
        return asked

    async def brings(self, placements, among=None):
        """What an offer of ``placements`` asks for."""
        await self.offer(placements, [ETH0, ETH1], MACS, among)
        return self.asks()


@pytest.fixture
async def wire():
    async with Near(None, Spec("n1", None), Deaf()) as near:
        yield near


async def test_what_is_offered_first_is_asked_for_in_one_go(wire):
    assert await wire.brings({A: HERE, B: THERE}) == [("offer", {A: HERE, B: THERE})]
    assert (wire.offered(A), wire.offered(B), wire.offered(C)) == (HERE, THERE, None)


async def test_an_unchanged_offer_asks_for_no_eip(wire):
    await wire.brings({A: HERE, B: THERE})
    assert await wire.brings({A: HERE, B: THERE}) == []
    assert await wire.brings({B: Placement(*THERE), A: Placement(*HERE)}, {A, B}) == []


@pytest.mark.parametrize(
    ("story", "placements", "asked"),
    [
        ("one more", {A: HERE, B: HERE, C: HERE}, [("offer", {C: HERE})]),
        ("one less", {A: HERE}, [("withdraw", [B])]),
        ("announced otherwise", {A: OFTENER, B: HERE}, [("offer", {A: OFTENER})]),
        ("on another link", {A: THERE, B: HERE}, [("withdraw", [A]), ("offer", {A: THERE})]),
        ("one for another", {A: HERE, C: HERE}, [("withdraw", [B]), ("offer", {C: HERE})]),
        ("nothing", {}, [("withdraw", [A, B])]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_changed_offer_asks_for_what_changed_and_withdraws_first(wire, story, placements, asked):
    await wire.brings({A: HERE, B: HERE})
    assert await wire.brings(placements) == asked
    assert [wire.offered(each) for each in (A, B, C)] == [placements.get(each) for each in (A, B, C)]
    assert await wire.brings(placements) == []


async def test_a_link_with_another_mac_is_another(wire):
    await wire.brings({A: HERE})
    changed = Placement(replace(ETH0, mac=Mac(b"\x02\0\0\0\0\x09")), Gratuitous())
    assert await wire.brings({A: changed}) == [("withdraw", [A]), ("offer", {A: changed})]


async def test_a_link_that_only_looks_another_is_offered_without_a_gap(wire):
    await wire.brings({A: HERE})
    renamed = Placement(replace(ETH0, name="lan0", mtu=9000), Gratuitous())
    assert await wire.brings({A: renamed}) == [("offer", {A: renamed})]


async def test_only_those_that_something_changed_of_are_looked_at(wire):
    await wire.brings({A: HERE, B: HERE})
    # By the caller's word A is as it was and C is not new: that is believed.
    assert await wire.brings({A: THERE, C: HERE}, {B}) == [("withdraw", [B])]
    assert await wire.brings({A: THERE, C: HERE}, frozenset()) == []
    assert wire.offered(A) == HERE
    assert await wire.brings({A: THERE, C: HERE}) == [("withdraw", [A]), ("offer", {A: THERE, C: HERE})]


async def test_one_of_which_nothing_was_or_is_offered_asks_for_nothing(wire):
    await wire.brings({A: HERE})
    assert await wire.brings({A: HERE}, {B, C}) == []


async def test_what_is_withdrawn_beforehand_is_not_withdrawn_twice(wire):
    await wire.brings({A: HERE, B: HERE})
    await wire.withdraw_except({A: THERE, C: HERE}, (A, B, C))
    assert wire.asks() == [("withdraw", [A, B])]
    assert await wire.brings({A: THERE, C: HERE}) == [("offer", {A: THERE, C: HERE})]


async def test_thousands_are_asked_for_in_slices(wire):
    many = {ip_address(f"10.0.{number >> 8}.{number & 255}"): HERE for number in range(2 * A_SLICE + 1)}
    assert [len(offered) for _, offered in await wire.brings(many)] == [A_SLICE, A_SLICE, 1]
    assert [len(withdrawn) for _, withdrawn in await wire.brings({})] == [A_SLICE, A_SLICE, 1]


async def test_links_and_the_hosts_own_macs_are_told_with_every_offer(wire):
    """A link may be another although no EIP is elsewhere, and whoever is told looks at the carriers."""
    await wire.brings({A: HERE})
    await wire.brings({A: HERE}, frozenset())
    assert wire.linked == [((ETH0, ETH1), MACS)] * 2


async def test_the_hosts_own_addresses_are_told_when_they_are_others(wire):
    here, there = {2: (A,)}, {2: (B,)}
    for own in (here, here, there, here):
        await wire.addresses(own, {}, {})
    assert wire.addressed == [here, there, here]
