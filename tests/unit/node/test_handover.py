"""To whom the packets of unknown connections go: told by claims, asked again and again, and bounded."""

import asyncio
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_interface

import pytest
from structlog.testing import capture_logs

from speaker.errors import EdgeError
from speaker.forwarding.handing_over import NextHop
from speaker.interfaces.snapshot import LinkAddress, Snapshot
from speaker.model import Gratuitous, Link, Mac, Placement, Speaker
from speaker.model.events import EipClaimed, EipYielded, SpeakerSeen
from speaker.node.handover import ASK_SECONDS, LOOK_SECONDS, MAX_SPEAKERS, HandOver
from speaker.node.report import Report
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import Before, Began, Resumed, Taken

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
SPOT = Placement(ETH0, Gratuitous())
A, B, SIX = map(ip_address, ("192.0.2.10", "192.0.2.11", "2001:db8::10"))
N2, N3 = ip_address("192.0.2.2"), ip_address("192.0.2.3")
N2_MAC = Mac(b"\x02\0\0\0\0\x02")
TO_N2, TO_N3 = NextHop("eth0", N2), NextHop("eth0", N3)


def bound(text):
    found = ip_interface(text)
    return LinkAddress(2, found.ip, found.network)


LAN = Snapshot(links={2: ETH0}, addresses=(bound("192.0.2.1/24"),))
BOTH_FAMILIES = Snapshot(links={2: ETH0}, addresses=(bound("192.0.2.1/24"), bound("2001:db8::1/64")))


class Kernel:
    """What it was brought to, each time; it refuses while ``broken`` says so."""

    def __init__(self):
        self.brought, self.broken = [], False

    async def bring_to(self, next_hops, macs):
        if self.broken:
            raise EdgeError("no nft")
        self.brought.append((next_hops, macs))

    @property
    def next_hops(self):
        return self.brought[-1][0]


class Lan:
    """Who answers there; every question is noted with its time. ``refused``: nobody can be asked, for this reason."""

    def __init__(self, *there):
        self.there, self.asked, self.refused = {*there}, [], ""

    async def asks(self, question, requests, seconds):
        if self.refused:
            raise EdgeError(self.refused)
        self.asked.append((asyncio.get_running_loop().time(), question.target))
        if question.target in self.there:
            return True
        await asyncio.sleep(requests * seconds)
        return False


class Site:
    """One node that hands over; n2 and n3 have told their addresses."""

    def __init__(self, home, *there):
        self.kernel, self.lan = Kernel(), Lan(*there)
        self.report = Report(Metrics(), home)
        self.hand_over = HandOver(self.kernel, self.report, self.lan.asks)
        self.hand_over.hear(SpeakerSeen(2, "n2", Speaker(N2_MAC, (N2,))))
        self.hand_over.hear(SpeakerSeen(2, "n3", Speaker(Mac(b"\x02\0\0\0\0\x03"), (N3,))))

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.hand_over.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
def site(tmp_path):
    return lambda *there: Site(tmp_path, *there)


# ── Whom a claim names ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("speaker", "snapshot", "eip", "before", "next_hops"),
    [
        (Speaker(N2_MAC, (N2,)), LAN, A, "n2", {A: TO_N2}),
        (Speaker(N2_MAC, (N2,)), LAN, A, None, {}),
        (Speaker(N2_MAC, (N2,)), LAN, A, "n9", {}),
        (Speaker(N2_MAC, ()), LAN, A, "n2", {}),
        (Speaker(N2_MAC, (ip_address("198.51.100.2"),)), LAN, A, "n2", {}),
        (Speaker(N2_MAC, (N2,)), BOTH_FAMILIES, SIX, "n2", {}),
        (
            Speaker(N2_MAC, (N2, ip_address("2001:db8::2"))),
            BOTH_FAMILIES,
            SIX,
            "n2",
            {SIX: NextHop("eth0", ip_address("2001:db8::2"))},
        ),
    ],
    ids=["known", "nobody's", "stranger", "no address", "not on the link", "another family", "both families"],
)
def test_who_had_it_before_gets_its_packets_where_there_is_a_way(
    in_virtual_time, site, speaker, snapshot, eip, before, next_hops
):
    async def story():
        here = site()
        here.hand_over.hear(SpeakerSeen(2, "n2", speaker))
        await here.hand_over.follow(frozenset({eip}), snapshot)
        assert here.kernel.next_hops == {eip: None}, "not held yet: dropped"
        here.hand_over.hear(EipClaimed(eip, SPOT, 1, before))
        await here.hand_over.follow(frozenset({eip}), snapshot)
        assert here.kernel.next_hops == next_hops

    in_virtual_time(story())


def test_a_main_process_that_comes_later_finds_speakers_and_whom_each_eip_was_taken_from(in_virtual_time, site):
    async def story():
        here = site()
        told_address = Speaker(Mac(b"\x02\0\0\0\0\x04"), (N3,))
        found = Resumed({A: SPOT}, {A: Taken(SPOT, "n4"), B: Taken(SPOT, None)}, speakers=((2, "n4", told_address),))
        here.hand_over.hear(Began(Before("killed by SIGKILL", 0.5), found))
        await here.hand_over.follow(frozenset({A, B}), LAN)
        assert here.kernel.next_hops == {A: NextHop("eth0", N3)}, "of B nobody had it before"

    in_virtual_time(story())


def test_what_was_claimed_before_the_links_were_known_counts_once_they_are_unless_it_was_let_go(in_virtual_time, site):
    async def story():
        here = site()
        here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
        here.hand_over.hear(EipClaimed(B, SPOT, 1, "n3"))
        here.hand_over.hear(EipYielded(B, "drained", None))
        await here.hand_over.follow(frozenset({A, B}), LAN)
        assert here.kernel.next_hops == {A: TO_N2, B: None}

    in_virtual_time(story())


def test_the_kernel_knows_the_macs_of_all_speakers(in_virtual_time, site):
    async def story():
        here = site()
        await here.hand_over.follow(frozenset({A}), LAN)
        assert here.kernel.brought == [({A: None}, {N2_MAC, Mac(b"\x02\0\0\0\0\x03")})]

    in_virtual_time(story())


def test_a_kernel_that_refuses_is_told_and_tried_again(in_virtual_time, site):
    async def story():
        here = site(N2)
        async with here.running():
            here.kernel.broken = True
            await here.hand_over.follow(frozenset({A}), LAN)
            assert here.report.problems() == ["no nft"]
            here.kernel.broken = False
            await asyncio.sleep(LOOK_SECONDS + 1)
            assert here.kernel.next_hops == {A: None}
            assert here.report.problems() == []

    in_virtual_time(story())


# ── Asked ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_previous_holder_is_asked_for_as_long_as_it_answers_and_something_is_handed_to_it(in_virtual_time, site):
    async def story():
        here = site(N2)
        async with here.running():
            await here.hand_over.follow(frozenset({A}), LAN)
            here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
            await asyncio.sleep(10 * ASK_SECONDS)
            assert {who for _, who in here.lan.asked} == {N2}
            assert 9 <= len(here.lan.asked) <= 11, "every ASK_SECONDS"
            assert here.kernel.next_hops == {A: TO_N2}
            here.hand_over.hear(EipYielded(A, "drained", None))
            await asyncio.sleep(ASK_SECONDS)
            asked = len(here.lan.asked)
            await asyncio.sleep(10 * ASK_SECONDS)
            assert len(here.lan.asked) == asked
            assert here.kernel.next_hops == {A: None}

    in_virtual_time(story())


def test_that_one_cannot_be_asked_is_a_problem_until_there_is_nobody_to_ask(in_virtual_time, site):
    async def story():
        here = site(N2)
        async with here.running():
            await here.hand_over.follow(frozenset({A}), LAN)
            here.lan.refused = "Too many open files"
            here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
            await asyncio.sleep(ASK_SECONDS)
            assert here.report.problems() == ["Too many open files"]
            here.hand_over.hear(EipYielded(A, "drained", None))
            await asyncio.sleep(2 * ASK_SECONDS)
            assert here.report.problems() == []

    in_virtual_time(story())


def test_one_that_falls_silent_gets_nothing_more_and_that_is_told_once_with_what_it_had(in_virtual_time, site):
    async def story():
        here = site(N2, N3)
        async with here.running():
            await here.hand_over.follow(frozenset({A, B, SIX}), LAN)
            here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
            here.hand_over.hear(EipClaimed(B, SPOT, 1, "n3"))
            await asyncio.sleep(ASK_SECONDS)
            assert here.kernel.next_hops == {A: TO_N2, B: TO_N3, SIX: None}
            here.lan.there.discard(N2)
            await asyncio.sleep(3 * ASK_SECONDS)
            assert here.kernel.next_hops == {B: TO_N3, SIX: None}, "those of A are reset"
        return here

    with capture_logs() as logs:
        in_virtual_time(story())
    silent = [line for line in logs if line["event"] == "previous holder silent"]
    assert [(line["address"], line["link"], line["eips"]) for line in silent] == [("192.0.2.2", "eth0", 1)]


def test_one_from_which_more_was_taken_is_asked_at_once(in_virtual_time, site):
    async def story():
        here = site(N2)
        async with here.running():
            await here.hand_over.follow(frozenset({A, B}), LAN)
            here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
            await asyncio.sleep(ASK_SECONDS / 2)
            asked = len(here.lan.asked)
            here.hand_over.hear(EipClaimed(B, SPOT, 1, "n2"))
            await asyncio.sleep(0.01)
            assert len(here.lan.asked) == asked + 1
            for _ in range(100):
                here.hand_over.hear(EipClaimed(B, SPOT, 1, "n2"))
                await asyncio.sleep(0.001)
            assert len(here.lan.asked) == asked + 1, "no sooner again, however much is taken"

    in_virtual_time(story())


def test_one_that_was_silent_and_is_named_again_is_asked_again(in_virtual_time, site):
    async def story():
        here = site()
        async with here.running():
            await here.hand_over.follow(frozenset({A}), LAN)
            here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
            await asyncio.sleep(2 * ASK_SECONDS)
            assert here.kernel.next_hops == {}
            here.lan.there.add(N2)
            here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
            await asyncio.sleep(2 * ASK_SECONDS)
            assert here.kernel.next_hops == {A: TO_N2}

    in_virtual_time(story())


def test_a_previous_holder_on_a_link_that_is_gone_does_not_answer(in_virtual_time, site):
    async def story():
        here = site(N2)
        async with here.running():
            await here.hand_over.follow(frozenset({A}), LAN)
            here.hand_over.hear(EipClaimed(A, SPOT, 1, "n2"))
            await asyncio.sleep(ASK_SECONDS)
            await here.hand_over.follow(frozenset({A}), Snapshot(links={3: Link(3, "eth1", ETH0.mac)}))
            await asyncio.sleep(2 * ASK_SECONDS)
            assert here.kernel.next_hops == {}

    in_virtual_time(story())


def test_without_news_the_kernel_is_looked_at_every_so_often(in_virtual_time, site):
    async def story():
        here = site()
        async with here.running():
            await here.hand_over.follow(frozenset({A}), LAN)
            await asyncio.sleep(1)
            looked = len(here.kernel.brought)
            await asyncio.sleep(10 * LOOK_SECONDS)
            assert 9 <= len(here.kernel.brought) - looked <= 10

    in_virtual_time(story())


# ── Bounds ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_speakers_without_end_are_not_remembered_and_whoever_spoke_last_is(in_virtual_time, site):
    async def story():
        here = site()
        for number in range(MAX_SPEAKERS + 100):
            here.hand_over.hear(SpeakerSeen(2, f"n{number}", Speaker(Mac(number.to_bytes(6, "big")), (N2,))))
            here.hand_over.hear(SpeakerSeen(2, "real", Speaker(N2_MAC, (N2,))))
        await here.hand_over.follow(frozenset({A}), LAN)
        assert len(here.kernel.brought[-1][1]) == MAX_SPEAKERS
        here.hand_over.hear(EipClaimed(A, SPOT, 1, "real"))
        await here.hand_over.follow(frozenset({A}), LAN)
        assert here.kernel.next_hops == {A: TO_N2}

    in_virtual_time(story())
