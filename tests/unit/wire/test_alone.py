"""The owner that shares with nobody: what it is offered it answers for at once, and as long as it looks."""

import asyncio
import math
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError
from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import EipClaimed, EipYielded, LifeBegan, LinkLost, WasFrozen
from speaker.ownership.events import WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.wire.messages import ClaimStatus, Taken
from speaker.wire.shared import HOLD, SharedOwner

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
ETH1 = Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"))
HERE, THERE = Placement(ETH0, Gratuitous()), Placement(ETH1, Gratuitous())
A, B = ip_address("192.0.2.10"), ip_address("2001:db8::10")
TIMES = Parameters.for_one()


@pytest.fixture
def during(virtually, parts):
    """``during(story)``: ``story(owner, layer2)``."""

    def run(story):
        async def tell():
            machine = Ownership("us", lambda known: Incarnation(5 << 31), parts.clock(), times=TIMES)
            owner = SharedOwner(machine, parts.sockets, parts.clock, parts.events, parts.links)
            async with owner:
                owner.use_links([ETH0, ETH1], frozenset({ETH0.mac}))
                await story(owner, owner._layer2)
            assert parts.sockets.opened == 0, "there is nobody to say hello to"
            assert parts.events.of(LifeBegan, WriteRecord) == [], "nobody keeps records"
            return owner._layer2

        return virtually(tell)

    return run


CLAIMED_A, CLAIMED_B = EipClaimed(A, HERE, 0, None), EipClaimed(B, HERE, 0, None)
YIELDED_A = EipYielded(A, "ineligible", None)


def asked_of(layer2, *names):
    return [call for call in layer2.of(*names) if call[1]]


@pytest.mark.parametrize(
    ("story", "asked", "links", "told"),
    [
        ("what is offered is taken at once, and probed for", [{A: HERE}], [("take", {A: HERE}, {A})], [CLAIMED_A]),
        (
            "of what is offered again nothing is told",
            [{A: HERE}, {A: HERE, B: HERE}],
            [("take", {A: HERE}, {A}), ("take", {B: HERE}, {B}), ("take", {A: HERE}, set())],
            [CLAIMED_A, CLAIMED_B],
        ),
        (
            "on another link it is answered for without a probe",
            [{A: HERE}, {A: THERE}],
            [("take", {A: HERE}, {A}), ("drop", [A]), *2 * [("take", {A: THERE}, set())]],
            [CLAIMED_A, EipYielded(A, "ineligible", "us"), EipClaimed(A, THERE, 0, None)],
        ),
        (
            "what is withdrawn is dropped and told",
            [{A: HERE}, [A, B]],
            [("take", {A: HERE}, {A}), ("drop", [A])],
            [CLAIMED_A, YIELDED_A],
        ),
        (
            "what comes back was nobody's else meanwhile",
            [{A: HERE}, [A], {A: HERE}],
            [("take", {A: HERE}, {A}), ("drop", [A]), ("take", {A: HERE}, set())],
            [CLAIMED_A, YIELDED_A, CLAIMED_A],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_offers_and_withdrawals(during, parts, story, asked, links, told):
    async def tell(owner, layer2):
        for each in asked:
            (owner.offer if isinstance(each, dict) else owner.withdraw)(each)
        assert asked_of(layer2, "take", "drop") == links

    during(tell)
    assert parts.events.of(EipClaimed, EipYielded) == told


def test_what_somebody_else_uses_is_probed_for_again_when_it_comes_back(during):
    async def tell(owner, layer2):
        layer2.taken = {A}
        owner.offer({A: HERE, B: HERE})
        owner.withdraw([A, B])  # a pulled cable, an edit
        layer2.all.clear()
        owner.offer({A: HERE, B: HERE})
        assert asked_of(layer2, "take") == [("take", {A: HERE}, {A}), ("take", {B: HERE}, set())]

    during(tell)


def test_what_it_holds_is_what_it_is_offered(during):
    async def tell(owner, layer2):
        owner.offer({A: HERE})
        claimed = owner.claim_status(A)
        assert (claimed.mine, claimed.holder, claimed.term) == (True, "us", 0)
        assert owner.claim_status(B) == ClaimStatus(False, None, 0, None)
        assert owner.ready()
        assert not owner.has_peers()
        owner.offer({A: HERE})
        assert owner.claim_status(A) == claimed  # held all the time
        owner.offer({A: THERE})
        assert list(owner.placements) == [A]
        found = owner.resumed()
        assert (found.offered, found.held) == ({A: THERE}, {A: Taken(THERE, None)})
        owner.withdraw([A])
        assert (list(owner.placements), owner.resumed().held) == ([], {})

    during(tell)


def test_one_eip_that_meets_a_bug_is_given_up_for_a_while_and_no_other(during, parts):
    async def tell(owner, layer2):
        layer2.fails = {A}
        owner.offer({A: HERE, B: HERE})
        await asyncio.sleep(0)
        assert layer2.held == {B: HERE}
        await asyncio.sleep(1.0)
        assert len(parts.events.of("internal_error")) < 20
        layer2.fails = set()
        await asyncio.sleep(1.0)
        assert layer2.held == {A: HERE, B: HERE}

    during(tell)


def test_one_eip_that_cannot_be_answered_for_is_tried_again_as_long_as_it_is_offered(during):
    async def tell(owner, layer2):
        owner.offer({A: HERE, B: HERE})
        owner.withdraw([B])
        layer2.all.clear()
        for eip in (A, B):
            layer2.failed(ETH0.index, eip.packed)
        await asyncio.sleep(1.0)
        assert asked_of(layer2, "take") == [("take", {A: HERE}, set())]

    during(tell)


def test_answers_are_given_as_long_as_it_looks(during):
    async def tell(owner, layer2):
        owner.offer({A: HERE})
        await asyncio.sleep(0.01)
        layer2.all.clear()
        await asyncio.sleep(1.0)
        assert [deadline for _, deadline, link in layer2.of("extend") if link == ETH0.index] == [
            pytest.approx(at * TIMES.hello + HOLD, abs=0.01) for at in range(1, 5)
        ]

    during(tell)


@pytest.mark.parametrize("answering", [True, False, KeyError("a bug")], ids=str)
def test_each_time_it_looks_it_proves_that_requests_are_answered_and_answers_whatever_comes_of_it(during, answering):
    async def tell(owner, layer2):
        owner.offer({A: HERE})
        layer2.answering = answering
        await asyncio.sleep(0.01)
        layer2.all.clear()
        layer2.proven.clear()
        await asyncio.sleep(1.0)
        assert layer2.proven[ETH0.index] == layer2.proven[ETH1.index] == 4
        assert len(layer2.of("extend")) == 8

    during(tell)


def test_whoever_stood_still_keeps_what_it_holds_as_nobody_took_it(during, parts):
    async def tell(owner, layer2):
        owner.offer({A: HERE})
        clock, owner.clock = owner.clock, lambda: clock() + 60.0
        owner.look()
        assert parts.events.of(EipYielded, WasFrozen) == []
        assert layer2.of("drop_queued") == []
        assert layer2.of("extend")[-1] == ("extend", pytest.approx(60.0 + HOLD), ETH1.index)

    during(tell)


def test_this_hosts_macs_are_no_strangers_and_no_request_is_too_old(during):
    async def tell(owner, layer2):
        assert layer2.of("peers") == [("peers", 2, frozenset({ETH0.mac})), ("peers", 3, frozenset({ETH0.mac}))]
        assert (layer2.ours(ETH0.mac), layer2.ours(ETH1.mac)) == (True, False)
        assert layer2.oldest == math.inf

    during(tell)


@pytest.mark.parametrize(
    ("error", "told"),
    [(EdgeError("down"), []), (KeyError("a bug"), ["internal_error"])],
    ids=["refused", "a bug"],
)
def test_a_link_that_is_lost_is_told_and_what_is_held_there_kept(during, parts, error, told):
    async def tell(owner, layer2):
        owner.offer({A: HERE})
        layer2.lost(ETH0, error)
        await asyncio.sleep(1.0)
        assert layer2.held == {A: HERE}

    during(tell)
    assert [name for name, *_ in parts.events.of("internal_error")] == told
    assert parts.events.all[-1] == LinkLost(ETH0, str(error))


def test_left_it_answers_for_nothing(during):
    async def tell(owner, layer2):
        owner.offer({A: HERE})

    assert during(tell).all[-1] == ("left",)
