"""The owner that shares with nobody: what it is offered it answers for, and as long as it beats."""

import asyncio
import math
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError
from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import EipClaimed, EipYielded, LinkLost
from speaker.ownership import sole
from speaker.wire.alone import AGAIN_SECONDS, SoloOwner
from speaker.wire.events import ClaimStatus, Taken

ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
ETH1 = Link(3, "eth1", Mac(b"\x02\0\0\0\0\x02"))
HERE, THERE = Placement(ETH0, Gratuitous()), Placement(ETH1, Gratuitous())
A, B = ip_address("192.0.2.10"), ip_address("2001:db8::10")


@pytest.fixture
def during(virtually, parts):
    """``during(story)``: ``story(owner)``, its links in ``owner.links_asked``."""

    def run(story):
        async def tell():
            owner = SoloOwner("us", parts.clock, parts.events, parts.links)
            async with owner:
                await story(owner, owner._layer2)
            return owner._layer2

        return virtually(tell)

    return run


CLAIMED_A, CLAIMED_B = EipClaimed(A, HERE, 0, None), EipClaimed(B, HERE, 0, None)
YIELDED_A = EipYielded(A, "not_offered", None)


@pytest.mark.parametrize(
    ("story", "asked", "links", "told"),
    [
        ("what is offered is taken, and probed for", [{A: HERE}], [("take", {A: HERE}, {A})], [CLAIMED_A]),
        (
            "of what is offered again nothing is told",
            [{A: HERE}, {A: HERE, B: HERE}],
            [("take", {A: HERE}, {A}), ("take", {A: HERE, B: HERE}, {B})],
            [CLAIMED_A, CLAIMED_B],
        ),
        (
            "on another link it is answered for without a probe",
            [{A: HERE}, {A: THERE}],
            [("take", {A: HERE}, {A}), ("take", {A: THERE}, set())],
            [CLAIMED_A],
        ),
        (
            "what is withdrawn is dropped and told",
            [{A: HERE}, [A, B]],
            [("take", {A: HERE}, {A}), ("drop", [A, B])],
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
        assert layer2.of("take", "drop") == links

    during(tell)
    assert parts.events.all == told


def test_what_somebody_else_uses_is_probed_for_again_when_it_comes_back(during):
    async def tell(owner, layer2):
        layer2.taken = {A}
        owner.offer({A: HERE, B: HERE})
        owner.withdraw([A, B])  # a pulled cable, an edit
        layer2.all.clear()
        owner.offer({A: HERE, B: HERE})
        assert layer2.of("take") == [("take", {A: HERE, B: HERE}, {A})]

    during(tell)


def test_what_it_holds_is_what_it_is_offered(during):
    async def tell(owner, layer2):
        owner.offer({A: HERE})
        owner.offer({A: THERE})
        claimed = owner.claim_status(A)
        assert (claimed.mine, claimed.holder, claimed.term) == (True, "us", 0)
        assert owner.claim_status(B) == ClaimStatus(False, None, 0, None)
        assert list(owner.offered) == [A]
        found = owner.resumed()
        assert (found.offered, found.held) == ({A: THERE}, {A: Taken(THERE, None)})
        owner.offer({A: HERE})
        assert owner.claim_status(A) == claimed  # held all the time
        owner.withdraw([A])
        assert (list(owner.offered), owner.resumed().held) == ([], {})

    during(tell)


def test_one_eip_that_meets_a_bug_is_refused_and_no_other(during, parts):
    async def tell(owner, layer2):
        layer2.fails = {A}
        assert owner.offer({A: HERE, B: HERE}) == [A]
        assert layer2.held == {B: HERE}
        assert list(owner.offered) == [B]
        assert layer2.all[-1] == ("drop", [A])

    during(tell)
    assert parts.events.of("internal_error", EipClaimed) == parts.events.all
    assert parts.events.of("internal_error")
    assert [claimed.eip for claimed in parts.events.of(EipClaimed)] == [B]


def test_one_eip_that_cannot_be_answered_for_is_tried_again_as_long_as_it_is_offered(during):
    async def tell(owner, layer2):
        owner.offer({A: HERE, B: HERE})
        owner.withdraw([B])
        layer2.all.clear()
        for eip in (A, B):
            layer2.failed(ETH0.index, eip.packed)
        await asyncio.sleep(2 * AGAIN_SECONDS)
        assert layer2.of("take", "drop") == [("take", {A: HERE}, set())]

    during(tell)


def test_answers_are_given_as_long_as_it_beats(during):
    async def tell(owner, layer2):
        await asyncio.sleep(2.1 * sole.BEAT)
        beats = [0.0, sole.BEAT, 2 * sole.BEAT]
        assert layer2.of("extend") == [("extend", pytest.approx(at + sole.HOLD)) for at in beats]

    during(tell)


def test_this_hosts_macs_are_no_strangers_and_no_request_is_too_old(during):
    async def tell(owner, layer2):
        owner.links([ETH0, ETH1], frozenset({ETH0.mac}))
        assert layer2.of("peers") == [("peers", 2, frozenset({ETH0.mac})), ("peers", 3, frozenset({ETH0.mac}))]
        assert (layer2.ours(ETH0.mac), layer2.ours(ETH1.mac)) == (True, False)
        assert layer2.oldest == math.inf

    during(tell)


@pytest.mark.parametrize(
    ("error", "told"),
    [(EdgeError("down"), []), (KeyError("a bug"), ["internal_error"])],
    ids=["refused", "a bug"],
)
def test_a_link_that_is_lost_is_told(during, parts, error, told):
    async def tell(owner, layer2):
        layer2.lost(ETH0, error)

    during(tell)
    assert [name for name, *_ in parts.events.all[:-1]] == told
    assert parts.events.all[-1] == LinkLost(ETH0, str(error))


def test_left_it_answers_for_nothing(during):
    async def tell(owner, layer2):
        owner.offer({A: HERE})

    assert during(tell).all[-1] == ("left",)
