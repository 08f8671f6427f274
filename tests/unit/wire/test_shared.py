"""The owner that shares: what the machine is told of what happens, and what comes of what it orders."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError
from speaker.model import Gratuitous, Link, Mac, Placement, Preference, Speaker
from speaker.model.events import (
    EipClaimed,
    EipYielded,
    HellosFiltered,
    HellosSent,
    LifeBegan,
    LinkLost,
    PeerChanged,
    PeersClaims,
    PeersCounted,
    SpeakerSeen,
    WasFrozen,
)
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import (
    Announce,
    ApiDown,
    ApiUp,
    Ask,
    Claim,
    Drain,
    EipAnswered,
    EligibilityChanged,
    FrameHeard,
    HelloHeard,
    InternalError,
    LinkChanged,
    Listen,
    NameClash,
    NameFree,
    PeersAddress,
    Rebalance,
    SendHello,
    SetAside,
    Withdraw,
    WriteRecord,
    Yielded,
)
from speaker.ownership.hello import EVERYTHING, Digest, Heard, Hello, Incarnation
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.peers import PeerState
from speaker.ownership.parameters import Parameters
from speaker.ownership.preference import Preferred
from speaker.ownership.score import claim_hash
from speaker.packets.asking import Answer
from speaker.wire.hello_links import FILTERED_SECONDS, RETRY_MAX, UNANSWERED, HelloLinks
from speaker.wire.messages import ClaimStatus, PeerSeen, Resumed, Taken, UseAddresses
from speaker.wire.shared import AGAIN_SECONDS, FILTERED, SharedOwner

TIMES = Parameters()
ETH0 = Link(7777, "eth0", Mac(b"\x02\0\0\0\0\x01"))
ETH1 = Link(7778, "eth1", Mac(b"\x02\0\0\0\0\x02"))
OURS, MACS = ETH0.mac, frozenset({ETH0.mac, ETH1.mac})
THEIRS, STRANGE = Mac(b"\x02\0\0\0\0\x09"), Mac(b"\x02\0\0\0\0\x0a")
HERE, THERE = Placement(ETH0, Gratuitous()), Placement(ETH1, Gratuitous())
OFTENER = Placement(ETH0, Gratuitous(refresh=60.0))
A, B = ip_address("192.0.2.10"), ip_address("2001:db8::10")
PEER = Hello("them", Incarnation(1), 1, 1, addresses=(ip_address("192.0.2.2"),))
OUR_HELLO = Hello("us", Incarnation(7), 1, 1)
INFORMED = PEER._replace(digest=Digest(1, 1))


def them(alive: bool, draining: bool) -> PeerState:
    return PeerState("them", Incarnation(1), alive, alive, alive, draining, 0)


@pytest.fixture
def during(virtually, parts):
    """``during(story, links=[ETH0])``: ``story(owner)`` once hellos go over ``links``, and whatever that brought is
    forgotten."""

    def run(story, links=(ETH0,)):
        async def tell():
            owner = SharedOwner(parts.machine, parts.sockets, parts.clock, parts.events, parts.links)
            parts.layer2 = owner._layer2
            async with owner:
                owner.use_links(links, MACS)
                await asyncio.sleep(0.01)
                parts.machine.told.clear()
                for notes in (parts.layer2, parts.events):
                    notes.all.clear()
                parts.order = lambda *orders: order(parts, owner, *orders)
                await story(owner)
            return owner

        return virtually(tell)

    return run


def order(parts, owner, *orders):
    """The machine orders these, at whatever event."""
    parts.machine.orders = list(orders)
    owner.drain(False)
    parts.machine.told.clear()


def claimed(*eips, first=False):
    return [Claim(eip, ETH0.index, 3, first) for eip in eips]


def gone(eip, reason=Yielded.BETTER_CLAIM):
    return Withdraw(eip, ETH0.index, reason, 0.0)


# ── what the machine is told ──


def may(eip, link=ETH0.index, demoted=False, preference=None, behind=False):
    return EligibilityChanged(eip, link, demoted=demoted, preference=preference, behind=behind)


def offer(owner):
    owner.offer({A: HERE})


WRITTEN = ApiUp(), ApiDown()
MUCH = Preference(7, 80, 300.0)


@pytest.mark.parametrize(
    ("story", "happens", "told"),
    [
        ("what is offered it may hold", [offer], [may(A)]),
        ("and what is withdrawn it may not", [offer, lambda o: o.withdraw([A, B])], [may(A), may(A, None)]),
        (
            "and how much it is preferred for it, however it is demoted",
            [lambda o: o.offer({A: HERE._replace(preference=MUCH)}), lambda o: o.demote(True)],
            [may(A, preference=MUCH), may(A, demoted=True, preference=MUCH)],
        ),
        (
            "a silent gateway demotes what is on its link",
            [lambda o: o.offer({A: HERE, B: THERE}), lambda o: o.gateway(ETH0.index, False)],
            [may(A), may(B, ETH1.index), may(A, demoted=True)],
        ),
        (
            "until it answers",
            [offer, lambda o: o.gateway(ETH0.index, False), lambda o: o.gateway(ETH0.index, True)],
            [may(A), may(A, demoted=True), may(A)],
        ),
        (
            "a node that is not ready is demoted, and one that is not is not any more",
            [offer, lambda o: o.demote(True), lambda o: o.demote(False)],
            [may(A), may(A, demoted=True), may(A)],
        ),
        (
            "for these EIPs others go first, until they need not",
            [
                lambda o: o.behind(frozenset({B})),
                lambda o: o.offer({A: HERE, B: HERE}),
                lambda o: o.behind(frozenset()),
            ],
            [may(A), may(B, behind=True), may(B)],
        ),
        (
            "what the API said before the start is demoted",
            [offer, lambda o: o.recalled(True), lambda o: o.recalled(False)],
            [may(A), may(A, demoted=True), may(A)],
        ),
        ("a link without carrier", [lambda o: o.carrier(ETH0.index, False)], [LinkChanged(ETH0.index, False)] * 2),
        ("a link that is left alone", [lambda o: o.use_links([], MACS)], [LinkChanged(ETH0.index, False)]),
        ("what the API server says, in order", [lambda o: o.api_says(WRITTEN)], list(WRITTEN)),
        ("a drain, and its end", [lambda o: o.drain(True), lambda o: o.drain(False)], [Drain(), Drain(on=False)]),
        ("a rebalancing", [lambda o: o.rebalance()], [Rebalance()]),
        ("a frame of somebody else", [lambda o: o.hear_frame(ETH0.index, None)], [FrameHeard(ETH0.index)]),
        (
            "a stranger who answers",
            [lambda o: o.hear_answer(ETH0.index, Answer(A, STRANGE))],
            [EipAnswered(A, ETH0.index, None)],
        ),
        (
            "a stranger found by a probe",
            [lambda o: o.found(ETH0.index, A.packed, STRANGE)],
            [EipAnswered(A, ETH0.index, None, probed=True)],
        ),
        ("an answer where no hellos go", [lambda o: o.hear_answer(ETH1.index, Answer(A, STRANGE))], []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_machine_is_told_of(during, parts, story, happens, told):
    async def tell(owner):
        for each in happens:
            each(owner)
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        assert parts.machine.told == told

    during(tell, [ETH0] if "gateway demotes" not in story else [ETH0, ETH1])


def test_a_link_is_told_of_as_soon_as_hellos_go_over_it(virtually, parts):
    async def tell():
        parts.sockets.refused = "down"
        async with SharedOwner(parts.machine, parts.sockets, parts.clock, parts.events, parts.links) as owner:
            owner.use_links([ETH0], MACS)
            await asyncio.sleep(2 * RETRY_MAX)
            assert parts.machine.told == []
            assert not owner.ready()
            parts.sockets.refused = ""
            await asyncio.sleep(2 * RETRY_MAX)
            assert parts.machine.told == [LinkChanged(ETH0.index, up=True)]
            assert owner.ready()
        assert parts.machine.told[1:] == [LinkChanged(ETH0.index, up=False)]
        assert parts.sockets.open == {}

    virtually(tell)
    assert set(parts.events.of(LinkLost)) == {LinkLost(ETH0, "down")}


@pytest.mark.parametrize(("looped", "mac"), [(False, THEIRS), (True, OURS)])
def test_a_hello_is_told_with_whose_it_is(during, parts, looped, mac):
    async def tell(owner):
        parts.sockets.open[ETH0.index].arrives(PEER, mac)
        await asyncio.sleep(0.001)
        assert parts.machine.told == [HelloHeard(ETH0.index, PEER, mac, looped, more=True)]

    during(tell)


def test_links_are_kept_ready_and_their_carriers_looked_at(during, parts):
    async def tell(owner):
        owner.hello_links.doubted.clear()
        owner.use_links([ETH0, ETH1], MACS)
        assert parts.layer2.of("keep") == [("keep", [ETH0, ETH1])]
        assert owner.hello_links.doubted.is_set()
        assert owner.hello_links.indexes == {ETH0.index, ETH1.index}

    during(tell)


def test_hellos_that_wait_are_heard_before_anything_is_answered_or_believed(during, parts):
    async def tell(owner):
        for heed in (parts.layer2.before_answer, lambda: owner.hear_frame(ETH0.index, None)):
            parts.sockets.open[ETH0.index].arrives(PEER, THEIRS)
            heed()
            assert type(parts.machine.take()[0]) is HelloHeard

    during(tell)


@pytest.mark.parametrize("routine", [False, True])
def test_what_news_leads_to_is_done_before_anything_is_answered_and_for_what_is_routine_nothing_is(
    virtually, parts, routine
):
    machine = Ownership("us", lambda known: Incarnation(5 << 31), 0.0)

    async def story():
        owner = SharedOwner(machine, parts.sockets, parts.clock, parts.events, parts.links)
        async with owner:
            owner.use_links([ETH0], MACS)
            owner.offer({A: HERE})
            await asyncio.sleep(1)
            assert owner._layer2.held == {A: HERE}
            heard = {"us": Heard(machine.incarnation, 10, ETH0.index)}
            digest = Digest(1, claim_hash(A, 9))
            better = PEER._replace(heard=heard, claims={A: 9}, covers=EVERYTHING, digest=digest, routine=routine)
            parts.sockets.open[ETH0.index].arrives(better, THEIRS)
            owner._layer2.before_answer()
            assert owner._layer2.held == ({A: HERE} if routine else {})

    virtually(story)


def test_the_first_word_of_a_peer_is_passed_on_and_what_it_says_of_its_eips_is_no_conflict(during, parts):
    async def tell(owner):
        hellos = parts.sockets.open[ETH0.index]
        parts.machine.believes = False
        hellos.arrives(PEER, THEIRS)
        await asyncio.sleep(0.001)
        assert parts.events.of(SpeakerSeen) == []
        parts.machine.believes = True
        for _ in range(2):
            hellos.arrives(PEER, THEIRS)
            await asyncio.sleep(0.001)
        assert parts.events.of(SpeakerSeen) == [SpeakerSeen(ETH0.index, "them", Speaker(THEIRS, PEER.addresses))]
        assert parts.layer2.of("peers") == [("peers", ETH0.index, MACS | {THEIRS})]
        hellos.arrives(PEER._replace(addresses=()), STRANGE)  # a part that says none
        await asyncio.sleep(0.001)
        moved = Speaker(STRANGE, PEER.addresses)
        assert parts.events.of(SpeakerSeen)[1:] == [SpeakerSeen(ETH0.index, "them", moved)]
        assert owner.resumed().speakers == ((ETH0.index, "them", moved),)

    during(tell)


def test_a_peer_is_excused_for_what_it_speaks_for_and_this_host_for_everything(during, parts):
    async def tell(owner):
        parts.sockets.open[ETH0.index].arrives(PEER, THEIRS)
        await asyncio.sleep(0.001)
        parts.machine.speaking = {(ETH0.index, "them", A)}
        asked = [(THEIRS, A), (THEIRS, B), (OURS, B), (STRANGE, A)]
        excused = [parts.layer2.excuses(ETH0.index, eip.packed, mac) for mac, eip in asked]
        assert excused == [True, False, True, False]
        assert parts.layer2.excuses(ETH1.index, A.packed, STRANGE)  # no hellos there: nobody knows

    during(tell)


def test_a_mac_that_this_host_had_is_still_its_own(during, parts):
    async def tell(owner):
        owner.use_links([ETH0], frozenset({ETH0.mac}))
        assert parts.layer2.ours(ETH1.mac)
        assert not parts.layer2.ours(THEIRS)

    during(tell)


@pytest.mark.parametrize(
    ("hello", "may_hold"),
    [(INFORMED, None), (PEER, ETH0.index), (INFORMED._replace(recalled=True), ETH0.index)],
    ids=["one that reads the API", "one that holds nothing", "one that was only started as well"],
)
def test_what_the_api_said_before_the_start_is_left_to_a_peer_that_reads_it(during, parts, hello, may_hold):
    async def tell(owner):
        owner.offer({A: HERE})
        owner.recalled(True)
        await asyncio.sleep(0.001)
        parts.machine.seen = {ETH0.index: (them(alive=True, draining=False),)}
        parts.sockets.open[ETH0.index].arrives(hello, THEIRS)
        await asyncio.sleep(0.001)
        offered = [event for event in parts.machine.told if isinstance(event, EligibilityChanged)]
        assert offered[-1].link == may_hold
        assert owner.informed() is (may_hold is None)
        parts.machine.told.clear()
        owner.recalled(False)
        await asyncio.sleep(0.001)
        assert parts.machine.told == [may(A)]  # this node reads it as well

    during(tell)


def test_what_was_left_to_a_peer_is_offered_again_when_that_one_is_dead(during, parts):
    async def tell(owner):
        owner.offer({A: HERE, B: THERE})  # B is on a link that there is no more
        parts.sockets.open[ETH0.index].arrives(INFORMED, THEIRS)
        await asyncio.sleep(0.001)
        owner.recalled(True)
        for alive, may_hold in ((True, may(A, None)), (False, may(A, demoted=True))):
            parts.machine.seen = {ETH0.index: (them(alive=alive, draining=False),)}
            await asyncio.sleep(0.001)
            parts.machine.told.clear()
            owner.look()
            await asyncio.sleep(0.001)
            assert parts.machine.told == [may_hold]
            owner.look()
            await asyncio.sleep(0.001)
            assert parts.machine.told == [may_hold]

    during(tell)


# ── what comes of its orders ──


def test_what_is_claimed_is_answered_for_and_told(during, parts):
    async def tell(owner):
        owner.offer({A: HERE})
        parts.layer2.all.clear()
        parts.order(*claimed(A, B, first=True))  # B was withdrawn meanwhile
        assert parts.layer2.all == [("drop", []), ("take", {A: HERE}, {A, B})]
        assert parts.events.of(EipClaimed) == [EipClaimed(A, HERE, 3, "before", None)]
        for term in (3, 5):  # it rises while the EIP is held
            parts.machine.terms = {A: term}
            claim = owner.claim_status(A)
            assert (claim.mine, claim.holder, claim.term) == (True, "us", term)
        assert owner.resumed() == Resumed({A: HERE}, {A: Taken(HERE, "before")}, Incarnation(7), (), False)

    during(tell)
    assert parts.layer2.all[-1] == ("left",)


def test_what_is_offered_otherwise_while_it_is_held_is_answered_for_otherwise(during, parts):
    async def tell(owner):
        owner.offer({A: HERE})
        parts.order(*claimed(A))
        parts.layer2.all.clear()
        owner.offer({A: OFTENER, B: HERE})
        assert parts.layer2.all == [("take", {A: OFTENER}, set())]

    during(tell)


def test_what_is_claimed_anew_without_a_probe_is_answered_for_at_once(during, parts):
    async def tell(owner):
        owner.offer({A: HERE})
        parts.order(*claimed(A, first=True))
        parts.layer2.all.clear()
        parts.order(*claimed(A))
        assert parts.layer2.all == [("drop", [A]), ("take", {A: HERE}, set())]

    during(tell)


def test_what_is_given_up_is_silent_before_anything_else_is_done(during, parts):
    async def tell(owner):
        owner.offer({A: HERE, B: HERE})
        parts.order(*claimed(A))
        parts.machine.known = "them", 4
        for notes in (parts.layer2, parts.events):
            notes.all.clear()
        parts.order(Announce(ETH0.index, (B,)), *claimed(B), SendHello(ETH0.index, OUR_HELLO), gone(A), gone(A))
        assert [call[0] for call in parts.layer2.all] == ["drop", "extend", "drop", "take", "announce"]
        assert parts.events.of(EipYielded, EipClaimed) == [
            EipYielded(A, "better_claim", "them"),
            EipClaimed(B, HERE, 3, "before", None),
        ]
        assert owner.claim_status(A) == ClaimStatus(False, "them", 4, None, 2, Preferred("them", 80, 0, 1.0, None))

    during(tell)


def test_a_failover_is_told_with_the_time_since_the_last_sign_of_the_dead_and_any_other_claim_is_none(during, parts):
    async def tell(owner):
        owner.offer({A: HERE, B: HERE})
        parts.order(Claim(A, ETH0.index, 3, silent_since=parts.clock() - 0.25), *claimed(B))
        assert parts.events.of(EipClaimed) == [
            EipClaimed(A, HERE, 3, "before", 0.25),
            EipClaimed(B, HERE, 3, "before", None),
        ]

    during(tell)


def test_that_others_claim_something_else_is_told_once(during, parts):
    async def tell(owner):
        for heard in (1, 1, 2):
            parts.machine.claims_heard = heard
            parts.order()
        assert parts.events.of(PeersClaims) == [(PeersClaims(), 1)] * 2

    during(tell)


def test_an_eip_that_cannot_be_taken_is_set_aside_and_no_other(during, parts):
    async def tell(owner):
        owner.offer({A: HERE, B: HERE})
        parts.layer2.fails = {A}
        parts.order(*claimed(A, B))
        await asyncio.sleep(0)
        assert parts.machine.told == [SetAside(A)]
        assert parts.layer2.held == {B: HERE}
        assert [claimed.eip for claimed in parts.events.of(EipClaimed)] == [B]
        parts.layer2.fails = {B}
        owner.offer({B: OFTENER})
        await asyncio.sleep(0)
        assert parts.machine.told[-1] == SetAside(B)

    during(tell)


def test_a_hello_that_left_allows_answers_for_the_self_lease(during, parts):
    ours = UseAddresses({ETH0.index: (A,)}, {ETH0.index: frozenset({A, B})}, {})

    async def tell(owner):
        owner.use_addresses(ours)
        now = parts.clock()
        parts.order(SendHello(ETH0.index, OUR_HELLO), SendHello(ETH1.index, OUR_HELLO))
        assert parts.sockets.open[ETH0.index].sent == [OUR_HELLO._replace(addresses=(A,), own=frozenset({A, B}))]
        assert parts.layer2.of("extend") == [("extend", now + TIMES.self_lease, ETH0.index)]
        assert parts.events.of(HellosSent) == [(HellosSent("eth0", True), 1)]
        owner.recalled(True)
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        assert [hello.recalled for hello in parts.sockets.open[ETH0.index].sent] == [False, True]

    during(tell)


def test_whom_no_broadcast_reaches_is_sent_a_copy_before_it(during, parts):
    async def tell(owner):
        parts.sockets.open[ETH0.index].arrives(PEER, THEIRS)
        owner.look()
        ours = OUR_HELLO._replace(sequence=7)
        parts.order(SendHello(ETH0.index, ours, ("them", "nobody we know")))
        opened = parts.sockets.open[ETH0.index]
        assert [(copy.direct, copy.sequence, to) for copy, to in opened.direct] == [(True, 6, THEIRS)]
        assert [(hello.direct, hello.sequence) for hello in opened.sent] == [(False, 7)]

    during(tell)


def test_a_link_that_has_no_room_for_hellos_is_given_up_after_the_self_lease(during, parts):
    async def tell(owner):
        parts.sockets.open[ETH0.index].room = False
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        await asyncio.sleep(0.9 * TIMES.self_lease)
        assert parts.machine.told == []
        assert parts.layer2.of("extend") == []
        await asyncio.sleep(0.1 * TIMES.self_lease)
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        await asyncio.sleep(0.001)
        assert LinkChanged(ETH0.index, up=False) in parts.machine.told
        await asyncio.sleep(RETRY_MAX)
        assert parts.sockets.opened == 2

    during(tell)


def test_a_link_that_has_no_room_for_one_hello_is_kept(during, parts):
    async def tell(owner):
        for room in (True, False, True, True):
            await asyncio.sleep(0.9 * TIMES.self_lease)
            parts.sockets.open[ETH0.index].room = room
            parts.order(SendHello(ETH0.index, OUR_HELLO))
        await asyncio.sleep(0.001)
        assert parts.machine.told == []
        assert parts.sockets.opened == 1

    during(tell)


def test_who_was_frozen_between_deciding_and_sending_says_nothing_of_what_it_decided(virtually, parts):
    """``request_age`` later what it says of others' ages is no longer true."""

    async def tell():
        late = 0.0

        def clock():
            return parts.clock() + late

        async with SharedOwner(parts.machine, parts.sockets, clock, parts.events, parts.links) as owner:
            owner.use_links([ETH0], MACS)
            await asyncio.sleep(0.01)

            def step(now, event):
                nonlocal late
                late += 2 * TIMES.request_age
                return [SendHello(ETH0.index, OUR_HELLO)]

            parts.machine.step = step
            owner.drain(False)
            del parts.machine.step
            assert parts.sockets.open[ETH0.index].sent == []
            assert owner._layer2.of("extend") == []
            assert parts.machine.spoken_again == 1

    virtually(tell)


def test_who_was_away_falls_silent_and_drops_what_waits(during, parts):
    async def tell(owner):
        parts.order(Listen(1.0))
        assert parts.layer2.all == [("extend", float("-inf")), ("drop_queued",)]
        assert parts.sockets.open[ETH0.index].dropped == 1
        assert parts.events.all == [WasFrozen()]

    during(tell)


def test_who_was_away_hears_nothing_of_what_was_read_together_with_the_first_that_waited(during, parts):
    async def tell(owner):
        socket = parts.sockets.open[ETH0.index]
        for sequence in range(3):
            socket.arrives(PEER._replace(sequence=sequence), THEIRS)
        parts.machine.orders = [Listen(1.0)]
        owner.hello_links.hear()
        assert [event.hello.sequence for event in parts.machine.told] == [0]

    during(tell)


WRITE = WriteRecord(A, 1, 0, "us", Incarnation(7), 3)
CLASH = NameClash(ETH0.index, THEIRS, silent=True, on=ETH0)


@pytest.mark.parametrize(
    ("ordered", "asked", "told"),
    [
        (Announce(ETH0.index, (A, B)), [("announce", (A, B))], []),
        (WRITE, [], [WRITE]),
        (PeersAddress(A, "them"), [], [PeersAddress(A, "them")]),
        (NameClash(ETH0.index, THEIRS, silent=True), [], [CLASH]),
        (NameClash(None, None, silent=False), [], [NameClash(None, None, silent=False)]),
        (NameFree(), [], [NameFree()]),
        (Ask(ETH1.index, (A,), ()), [], []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_order_has_this_effect_and_no_other(during, parts, ordered, asked, told):
    async def tell(owner):
        parts.order(ordered)
        assert (parts.layer2.all, parts.events.all) == (asked, told)

    during(tell)


def test_an_error_of_the_machine_is_told_with_what_it_was_about(during, parts):
    async def tell(owner):
        parts.order(InternalError("judging", "192.0.2.10", KeyError("a bug")))
        ((_, task, error),) = parts.events.all
        assert (task, error.__notes__) == ("ownership: judging", ["192.0.2.10"])

    during(tell)


def test_a_new_life_is_told_once(during, parts):
    async def tell(owner):
        parts.machine.incarnation = Incarnation(8)
        parts.order()
        parts.order()
        assert parts.events.all == [LifeBegan(Incarnation(8))]
        assert owner.resumed().incarnation == Incarnation(8)

    during(tell)


def test_somebody_new_is_told_what_goes_on(during, parts):
    async def tell(owner):
        parts.machine.seen = {ETH0.index: (them(alive=True, draining=False),)}
        owner.look()
        parts.order(PeersAddress(A, "them"), PeersAddress(B, "them"), PeersAddress(B, None))
        parts.order(NameClash(ETH0.index, THEIRS, silent=True))
        parts.events.all.clear()
        owner.retell()
        owner.look()
        assert parts.events.all == [
            CLASH,
            PeersAddress(A, "them"),
            PeerChanged("them", ETH0, True),
            PeersCounted("eth0", 1, 0),
        ]
        owner.look()
        assert len(parts.events.all) == 4
        parts.order(NameFree())
        parts.events.all.clear()
        owner.retell()
        assert parts.events.all == [PeersAddress(A, "them")]

    during(tell)


def test_a_peer_that_comes_and_goes_is_told_and_could_take_over_meanwhile(during, parts):
    async def tell(owner):
        await asyncio.sleep(TIMES.listen)
        for alive, draining in ((True, False), (True, True), (False, False)):
            parts.machine.seen = {ETH0.index: (them(alive=alive, draining=draining),)}
            owner.look()
            assert owner.has_peers() is (alive and not draining)
        assert parts.events.of(PeerChanged, PeersCounted)[-4:] == [
            PeerChanged("them", ETH0, True),
            PeersCounted("eth0", 1, 0),
            PeerChanged("them", ETH0, False),
            PeersCounted("eth0", 0, 1),
        ]
        assert owner.peers() == [PeerSeen("them", "eth0", False, False, heard=False, hears_us=False)]

    during(tell)


def test_a_rebalancing_that_is_under_way_is_followed_and_no_other_begun(during, parts):
    async def tell(owner):
        for state, events in ((Rebalancing(2), []), (Rebalancing(2, finished=True), [Rebalance()])):
            parts.machine.rebalancing = state
            assert owner.rebalance() == state
            assert parts.machine.take() == events

    during(tell)


# ── what goes wrong ──


def test_a_bug_of_the_machine_ends_the_event_and_not_the_alarms(during, parts):
    async def tell(owner):
        steps = []

        def stumble(now, event):
            steps.append(now)
            raise KeyError("a bug")

        parts.machine.step = stumble
        owner.drain(True)
        await asyncio.sleep(2.5 * AGAIN_SECONDS)
        del parts.machine.step
        assert len(steps) == 3
        assert [task for _, task, _ in parts.events.of("internal_error")] == ["ownership"] * 3

    during(tell)


def test_hellos_that_meet_a_bug_are_dropped(during, parts):
    async def tell(owner):
        hellos = parts.sockets.open[ETH0.index]
        hellos.receive = lambda: 1 / 0
        hellos.arrives(PEER, THEIRS)
        hellos._far.send(b"2")
        hellos.drop_queued = lambda: [hellos._near.recv(1) for _ in range(2)]
        await asyncio.sleep(0.001)
        ((_, task, error),) = parts.events.of("internal_error")
        assert (task, type(error)) == ("hear", ZeroDivisionError)

    during(tell)


def test_a_link_that_refuses_hellos_is_lost_and_opened_anew(during, parts):
    async def tell(owner):
        parts.sockets.open[ETH0.index].refused = "down"
        owner.look()
        await asyncio.sleep(RETRY_MAX)
        assert parts.machine.told == [LinkChanged(ETH0.index, up=False), LinkChanged(ETH0.index, up=True)]
        assert parts.events.of(LinkLost) == [LinkLost(ETH0, "down")]

    during(tell)


@pytest.mark.parametrize("error", [KeyError("a bug"), EdgeError("down")], ids=["a bug", "refused"])
def test_a_link_that_is_not_answered_on_any_more_is_given_up_until_it_is_again(during, parts, error):
    async def tell(owner):
        parts.layer2.answering = False
        parts.layer2.lost(ETH0, error)
        await asyncio.sleep(2 * RETRY_MAX)
        assert parts.machine.take() == [LinkChanged(ETH0.index, up=False)]
        parts.layer2.answering = True
        await asyncio.sleep(2 * RETRY_MAX)
        assert parts.machine.told == [LinkChanged(ETH0.index, up=True)]
        told = {lost.error for lost in parts.events.of(LinkLost)}
        assert told == {str(error), f"eth0: {UNANSWERED}", f"eth0: {UNANSWERED}: {error}"}
        assert len(parts.events.of("internal_error")) == isinstance(error, KeyError)

    during(tell)


def test_another_link_of_that_index_is_not_given_up(during, parts):
    async def tell(owner):
        parts.layer2.lost(replace(ETH0, mac=ETH1.mac), EdgeError("down"))
        await asyncio.sleep(RETRY_MAX)
        assert parts.machine.told == []

    during(tell)


def test_a_hello_leaves_only_where_requests_are_answered(during, parts):
    async def tell(owner):
        parts.layer2.answering = False
        hellos = parts.sockets.open[ETH0.index]
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        assert (hellos.sent, parts.layer2.of("extend")) == ([], [])
        await asyncio.sleep(0.001)
        assert parts.machine.take() == [LinkChanged(ETH0.index, up=False)]
        await asyncio.sleep(2 * RETRY_MAX)
        assert parts.machine.told == []
        parts.layer2.answering = True
        await asyncio.sleep(2 * RETRY_MAX)
        assert parts.machine.told == [LinkChanged(ETH0.index, up=True)]

    during(tell)


def test_a_link_that_is_not_answered_on_is_not_even_opened(virtually, parts):
    async def tell():
        async with SharedOwner(parts.machine, parts.sockets, parts.clock, parts.events, parts.links) as owner:
            owner._layer2.answering = False
            owner.use_links([ETH0], MACS)
            await asyncio.sleep(2 * RETRY_MAX)
            assert (parts.sockets.opened, parts.machine.told) == (0, [])

    virtually(tell)


class Failing:
    """``events`` of which one raises."""

    def __init__(self, events, name):
        self._events, self._name = events, name

    def __getattr__(self, name):
        if name == self._name:
            raise ZeroDivisionError("a bug")
        return getattr(self._events, name)


def test_a_hello_that_cannot_be_counted_allows_answers_all_the_same(during, parts):
    parts.events = Failing(parts.events, "count")

    async def tell(owner):
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        assert len(parts.sockets.open[ETH0.index].sent) == 1
        assert len(parts.layer2.of("extend")) == 1

    during(tell)


def test_a_hello_that_left_and_allows_no_answers_is_the_last(during, parts):
    async def tell(owner):
        parts.layer2.extend = lambda until, link: 1 / 0
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        await asyncio.sleep(0.001)
        assert parts.machine.told[:1] == [LinkChanged(ETH0.index, up=False)]  # it opens again after a random while
        assert [task for _, task, _ in parts.events.of("internal_error")] == ["send hello"]

    during(tell)


def test_a_link_that_a_bug_keeps_out_of_the_machine_is_offered_until_it_is_taken(virtually, parts):
    async def tell():
        parts.machine.refuses_links = True
        async with SharedOwner(parts.machine, parts.sockets, parts.clock, parts.events, parts.links) as owner:
            owner.use_links([ETH0], MACS)
            await asyncio.sleep(3 * RETRY_MAX)
            assert len(parts.machine.told) > 3
            parts.machine.refuses_links = False
            await asyncio.sleep(3 * RETRY_MAX)
            assert parts.machine.take()[-1] == LinkChanged(ETH0.index, up=True)
            await asyncio.sleep(3 * RETRY_MAX)
            assert parts.machine.told == []

    virtually(tell)


def test_a_bug_in_one_hello_costs_that_one_and_in_all_of_them_the_link(during, parts):
    async def tell(owner):
        hellos = parts.sockets.open[ETH0.index]
        hellos.send = lambda hello: 1 / 0
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        await asyncio.sleep(TIMES.self_lease)
        assert parts.machine.told == []
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        await asyncio.sleep(0.001)
        assert parts.machine.told[:1] == [LinkChanged(ETH0.index, up=False)]  # as above

    during(tell)


class Unreadable(HelloLinks):
    def __iter__(self):
        raise ZeroDivisionError("a bug")


def test_where_hellos_cannot_be_read_none_leaves_and_all_links_are_given_up(during, parts):
    async def tell(owner):
        hellos = parts.sockets.open[ETH0.index]
        owner.hello_links.__class__ = Unreadable
        parts.order(SendHello(ETH0.index, OUR_HELLO))
        assert (hellos.sent, parts.layer2.of("extend")) == ([], [])
        hellos.arrives(PEER, THEIRS)
        await asyncio.sleep(0.01)
        assert parts.machine.told[0] == LinkChanged(ETH0.index, up=False)
        owner.hello_links.__class__ = HelloLinks
        await asyncio.sleep(RETRY_MAX)
        assert parts.machine.told[-1] == LinkChanged(ETH0.index, up=True)

    during(tell)


class Deaf(HelloLinks):
    """It fails before it has begun to read."""

    def hear(self):
        raise ZeroDivisionError("a bug")


def test_who_cannot_read_hellos_says_none_and_one_look_that_failed_costs_nothing(during, parts):
    async def tell(owner):
        for looks in range(2):
            assert parts.machine.told == [], looks
            owner.hello_links.__class__ = Deaf
            owner.look()
            owner.hello_links.__class__ = HelloLinks
            await asyncio.sleep(0.01)
            owner.look()
        owner.hello_links.__class__ = Deaf
        owner.look()
        owner.look()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert parts.machine.told[:1] == [LinkChanged(ETH0.index, up=False)]

    during(tell)


def test_an_eip_that_layer_2_cannot_answer_for_is_set_aside(during, parts):
    async def tell(owner):
        owner.offer({A: HERE})
        parts.machine.told.clear()
        parts.layer2.failed(ETH0.index, A.packed)
        assert parts.machine.told == []
        await asyncio.sleep(0)
        assert parts.machine.told == [SetAside(A)]

    during(tell)


def test_without_carrier_a_link_is_not_opened_and_with_it_it_is(during, parts):
    async def tell(owner):
        owner.carrier(ETH0.index, False)
        await asyncio.sleep(2 * RETRY_MAX)
        assert parts.sockets.open == {}
        owner.carrier(ETH0.index, True)
        await asyncio.sleep(2 * RETRY_MAX)
        assert list(parts.sockets.open) == [ETH0.index]
        owner.carrier(ETH0.index, False)
        for links in ([], [ETH0]):  # whoever comes back is looked at anew
            owner.use_links(links, MACS)
            await asyncio.sleep(0.01)
        assert list(parts.sockets.open) == [ETH0.index]

    during(tell)


def test_a_link_with_another_mac_or_mtu_is_another(during, parts):
    async def tell(owner):
        for link in (ETH0, replace(ETH0, name="lan0"), replace(ETH0, mtu=9000), replace(ETH0, mac=ETH1.mac)):
            before = parts.sockets.opened
            owner.use_links([link], MACS)
            await asyncio.sleep(0.01)
            assert parts.sockets.opened - before == ((link.mtu, link.mac) != (ETH0.mtu, ETH0.mac))

    during(tell)


def test_a_peer_that_answers_and_says_no_hello_is_told_of_once_in_a_while(during, parts):
    async def tell(owner):
        parts.sockets.open[ETH0.index].arrives(PEER, THEIRS)
        await asyncio.sleep(FILTERED * TIMES.dead - 0.1)
        owner.hear_answer(ETH0.index, Answer(A, THEIRS))
        await asyncio.sleep(2 * FILTERED_SECONDS)
        assert parts.events.of(HellosFiltered) == []
        for eip in (A, B):
            owner.hear_answer(ETH0.index, Answer(eip, THEIRS))
        await asyncio.sleep(2 * FILTERED_SECONDS)
        owner.hear_answer(ETH0.index, Answer(B, THEIRS))
        await asyncio.sleep(2 * FILTERED_SECONDS)
        told = [HellosFiltered(ETH0, "them", THEIRS, eips) for eips in (frozenset({A, B}), frozenset({B}))]
        assert parts.events.of(HellosFiltered) == told

    during(tell)


def test_of_a_peer_that_answers_a_moment_before_its_first_hello_after_a_cut_nothing_is_told(during, parts):
    async def tell(owner):
        await asyncio.sleep(FILTERED * TIMES.dead)
        parts.sockets.open[ETH0.index].arrives(PEER, THEIRS)
        await asyncio.sleep(2 * FILTERED * TIMES.dead)
        owner.hear_answer(ETH0.index, Answer(A, THEIRS))
        await asyncio.sleep(FILTERED_SECONDS / 2)
        parts.sockets.open[ETH0.index].arrives(PEER._replace(sequence=PEER.sequence + 1), THEIRS)
        await asyncio.sleep(2 * FILTERED_SECONDS)
        assert parts.events.of(HellosFiltered) == []

    during(tell)
