"""The ownership machine and planned moves: drain and its end, requests to move, and what a person may ask."""

from ipaddress import IPv4Address

import pytest
from stepping import EIP, LIFE, LINK, Claims, advance, alone, hello

from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import (
    ApiUp,
    Claim,
    Drain,
    LinkChanged,
    Order,
    Rebalance,
    Record,
    RecordRead,
    SendHello,
    Tick,
    Withdraw,
    Yielded,
)
from speaker.ownership.hello import Heard, Incarnation
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.peers import PeerState
from speaker.ownership.score import score


def beside_a_holder(term: int = 3) -> Ownership:
    """A machine that holds nothing at 0.5 s, and whose peer holds EIP."""
    machine = alone()
    for n in range(6):
        machine.step(n / 10, hello(machine, n, {EIP: term}))
        advance(machine, n / 10, n / 10 + 0.09)
    return machine


def kinds(orders: list[Order], *wanted: type) -> list[Order]:
    return [order for order in orders if isinstance(order, wanted)]


# ── Asked to move ─────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_is_asked_claims_above_the_holders_term() -> None:
    machine = beside_a_holder()
    orders = machine.step(0.6, hello(machine, 6, {EIP: 3}, moves={EIP: "me"}))
    assert kinds(orders, Claim) == [Claim(EIP, LINK, 4)]


@pytest.mark.parametrize(
    "asked",
    [
        {"moves": {EIP: "other"}},
        {"moves": {EIP + 1: "me"}},
        {"moves": {EIP: "me"}, "heard": {}},
        {"moves": {EIP: "me"}, "heard": {"me": Heard(Incarnation(1), 10, LINK)}},
    ],
    ids=[
        "somebody else",
        "an EIP it may not hold",
        "a holder that did not hear us lately",
        "one that hears another life",
    ],
)
def test_a_request_that_is_not_ours_to_follow_moves_nothing(asked: dict[str, object]) -> None:
    machine = beside_a_holder()
    # The holder heard us 10 ms before 0.5 s: by 0.85 it does not hear us any more unless it says so.
    for at, sequence in ((0.6, 6), (0.7, 7), (0.8, 8)):
        machine.step(
            at,
            hello(
                machine,
                sequence,
                {EIP: 3},
                heard={} if "heard" in asked else {"me": Heard(machine.incarnation, 10, LINK)},
            ),
        )
    advance(machine, 0.8, 0.86)
    assert kinds(machine.step(0.87, hello(machine, 9, {EIP: 3}, **asked)), Claim) == []


def test_a_drained_node_takes_nothing_on_request() -> None:
    machine = beside_a_holder()
    machine.step(0.59, Drain())
    assert kinds(machine.step(0.6, hello(machine, 6, {EIP: 3}, moves={EIP: "me"})), Claim) == []


def test_what_was_taken_from_us_a_moment_ago_is_not_taken_back() -> None:
    """Two nodes with different plans: without this an EIP would go back and forth for as long as both ask."""
    machine = beside_a_holder()
    machine.step(0.6, hello(machine, 6, {EIP: 3}, moves={EIP: "me"}))
    machine.step(0.61, hello(machine, 7, {EIP: 5}))
    assert not machine.holding(EIP)
    machine.step(0.62, hello(machine, 8, {EIP: 5}, moves={EIP: "me"}))
    assert not machine.holding(EIP)


# ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────────


def with_all(eips: int) -> tuple[Ownership, int]:
    """It holds all of ``eips`` at 2 s, and a peer that holds nothing is there; with the peer's next sequence number."""
    machine = alone(eips)
    advance(machine, 0.0, 1.8)
    assert len(machine.held()) == eips
    for n in range(3):
        machine.step(1.8 + n / 10, hello(machine, n))
        advance(machine, 1.8 + n / 10, 1.89 + n / 10)
    return machine, 3


def asked(orders: list[Order]) -> dict[IPv4Address, str]:
    return {eip: node for o in orders if isinstance(o, SendHello) for eip, node in o.hello.moves.items()}


def test_half_of_what_one_of_two_nodes_holds_is_asked_of_the_other_a_few_at_a_time() -> None:
    machine, sequence = with_all(20)
    assert machine.rebalancing is None
    machine.step(2.1, Rebalance())
    assert machine.rebalancing == Rebalancing(planned=10)
    taken: Claims = {}
    for beat in range(5):
        now = 2.1 + beat / 10
        machine.step(now, hello(machine, sequence + beat, taken))
        orders = advance(machine, now, now + 0.1)
        assert all(len(asked([order])) <= 2 * machine.times.moves_a_hello for order in orders)
        wanted = asked(orders)
        taken |= {eip: 2 for eip, node in wanted.items() if node == "peer"}
    assert machine.rebalancing == Rebalancing(planned=10, moved=10, finished=True)
    assert len(machine.held()) == 10


def test_what_is_not_taken_within_a_second_was_refused() -> None:
    machine, sequence = with_all(4)
    machine.step(2.1, Rebalance())
    for beat in range(14):
        machine.step(2.1 + beat / 10, hello(machine, sequence + beat))
        advance(machine, 2.1 + beat / 10, 2.2 + beat / 10)
    assert machine.rebalancing == Rebalancing(planned=2, refused=2, finished=True)
    assert len(machine.held()) == 4
    assert asked(machine.step(3.55, Tick())) == {}


def test_a_second_rebalance_is_ignored_while_one_runs() -> None:
    machine, _ = with_all(20)
    machine.step(2.1, Rebalance())
    advance(machine, 2.1, 2.25)
    before = machine.rebalancing
    machine.step(2.26, Rebalance())
    assert machine.rebalancing == before


def test_of_two_that_rebalance_at_once_the_later_name_gives_up() -> None:
    machine, sequence = with_all(20)
    machine.step(2.1, Rebalance())
    machine.step(2.11, hello(machine, sequence, moves={EIP + 99: "b"}))
    assert not machine.rebalancing.finished, "we come before `peer`"
    machine.step(2.12, hello(machine, 0, moves={EIP + 99: "b"}, node="a", heard={}))
    assert not machine.rebalancing.finished, "a stranger asks nothing"
    machine.step(2.13, hello(machine, 1, moves={EIP + 99: "b"}, node="a"))
    assert machine.rebalancing == Rebalancing(planned=10, finished=True)


def test_nobody_moves_anything_to_one_who_drains() -> None:
    machine, sequence = with_all(4)
    machine.step(2.1, hello(machine, sequence, draining=True))
    machine.step(2.11, Rebalance())
    assert machine.rebalancing == Rebalancing(planned=0, finished=True)


# ── Draining, and its end ─────────────────────────────────────────────────────────────────────────────────────


def test_the_end_of_a_drain_keeps_what_is_still_held_and_takes_nothing_back() -> None:
    machine = alone(2)
    advance(machine, 0.0, 1.8)
    machine.step(1.8, hello(machine, 0))
    machine.step(1.81, Drain())
    machine.step(1.82, hello(machine, 1, {EIP: 2}))
    assert list(machine.held()) == [EIP + 1]
    machine.step(1.83, Drain(on=False))
    for n in range(40):
        machine.step(1.9 + n / 10, hello(machine, 2 + n, {EIP: 2}))
        assert kinds(advance(machine, 1.9 + n / 10, 1.99 + n / 10), Claim, Withdraw) == []
    assert list(machine.held()) == [EIP + 1]


def test_a_node_that_no_longer_drains_claims_by_the_rules_again() -> None:
    machine = beside_a_holder()
    machine.step(0.59, Drain())
    machine.step(0.6, Drain(on=False))
    orders = advance(machine, 0.6, 1.2, hears=True)
    assert [order.term for order in orders if isinstance(order, Claim)] == [4], "once its peer is dead"


def test_a_second_drain_does_not_start_the_limit_anew() -> None:
    machine = alone()
    advance(machine, 0.0, 1.0)
    machine.step(1.0, Drain())
    advance(machine, 1.0, 2.0)
    machine.step(2.0, Drain())
    orders = advance(machine, 2.0, 4.05)
    assert [o.reason for o in orders if isinstance(o, Withdraw)] == [Yielded.DRAINED]


# ── Who was first ─────────────────────────────────────────────────────────────────────────────────────────────


def first_claim(machine: Ownership, start: float) -> Claim:
    """On a LAN where others are heard when it asks."""
    return next(order for order in advance(machine, start, start + 8.0, hears=True) if isinstance(order, Claim))


def test_a_claim_is_the_first_where_nobody_is_known_to_have_held_the_eip() -> None:
    assert first_claim(alone(), 0.0).first


@pytest.mark.parametrize(
    "record",
    [Record("silent", LIFE, 3, 1), Record(None, LIFE, 3, 1), Record("me", Incarnation(1), 3, 1)],
    ids=["another's, whose hellos may be filtered", "given back", "of an earlier life of ours"],
)
def test_what_a_record_says_is_asked_of_the_wire(record: Record) -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    machine.step(0.1, RecordRead(EIP, record))
    assert first_claim(machine, 0.1).first


def test_what_a_peer_that_we_heard_held_last_is_not_asked_for_again() -> None:
    machine = alone()
    machine.step(0.1, hello(machine, 0, {EIP: 1}))
    assert not first_claim(machine, 0.1).first


def test_what_we_held_ourselves_somebody_may_have_taken_while_we_were_away() -> None:
    machine = alone()
    advance(machine, 0.0, 1.0)
    machine.step(1.0, LinkChanged(LINK, up=False))
    machine.step(1.05, LinkChanged(LINK, up=True))
    assert first_claim(machine, 1.05).first


def test_nobody_had_it_before_where_nobody_was_heard_to() -> None:
    machine = alone()
    assert machine.held_before(EIP) is None
    first_claim(machine, 0.0)
    assert machine.held_before(EIP) is None
    machine.step(8.0, hello(machine, 0, intents={EIP: 2}))
    assert machine.held_before(EIP) is None, "to be about to claim is not to hold"


def test_the_node_that_had_it_before_is_known_whatever_became_of_it() -> None:
    machine = beside_a_holder()
    machine.step(0.6, hello(machine, 6, {EIP: 3}, draining=True))
    assert machine.held_before(EIP) == "peer"
    advance(machine, 0.6, 2.0)
    assert machine.holding(EIP), "silent for so long it is dead"
    assert machine.held_before(EIP) == "peer"
    machine.step(2.0, hello(machine, 7, yielded={EIP: 3}))
    assert machine.held_before(EIP) == "peer"


@pytest.mark.parametrize("other_first", [True, False])
def test_of_two_that_had_it_the_one_with_the_higher_term_had_it_last(other_first: bool) -> None:
    machine = alone()
    said = [hello(machine, 0, {EIP: 4}, node="other"), hello(machine, 0, {EIP: 3})]
    for event in said if other_first else reversed(said):
        machine.step(0.1, event)
    assert machine.held_before(EIP) == "other"


@pytest.mark.parametrize("other_first", [True, False])
def test_of_two_that_claimed_at_one_term_the_one_that_prevailed_had_it_last(other_first: bool) -> None:
    machine = alone()
    said = [hello(machine, 0, {EIP: 3}, node="other"), hello(machine, 0, {EIP: 3})]
    for event in said if other_first else reversed(said):
        machine.step(0.1, event)
    assert machine.held_before(EIP) == max(("other", "peer"), key=lambda node: score(EIP, node))


@pytest.mark.parametrize(
    ("record", "before"),
    [
        (Record("dead", LIFE, 3, 1), "dead"),
        (Record("dead", LIFE, 2, 1), "peer"),
        (Record("me", Incarnation(1), 3, 1), "peer"),
        (Record(None, LIFE, 3, 1), "peer"),
    ],
)
def test_a_record_names_a_holder_that_was_not_heard(record: Record, before: str) -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    machine.step(0.1, hello(machine, 0, {EIP: 2}))
    machine.step(0.1, RecordRead(EIP, record))
    assert machine.held_before(EIP) == before
    ours = Record("me", machine.incarnation, 4, 2)
    machine.step(0.2, RecordRead(EIP, ours))
    assert machine.held_before(EIP) == before, "to write itself there is how this node takes it"


# ── Asked by a person ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_holder_is_whoever_has_the_best_living_claim() -> None:
    machine = beside_a_holder()
    assert machine.holder(EIP, 0.6) == ("peer", 3)
    assert machine.holder(EIP + 1, 0.6) is None
    machine.step(0.6, hello(machine, 6, {EIP: 3}, moves={EIP: "me"}))
    assert machine.holder(EIP, 0.61) == ("me", 4), "the peer's claim stands until it says otherwise"
    advance(machine, 0.61, 1.2)
    machine.step(1.2, LinkChanged(LINK, up=False))
    assert machine.holder(EIP, 1.21) is None


def test_peers_are_shown_by_link() -> None:
    machine = beside_a_holder()
    assert machine.peers(0.6) == {LINK: (PeerState("peer", LIFE, True, True, True, False, 1),)}
    assert machine.peers(2.0) == {LINK: (PeerState("peer", LIFE, False, False, False, False, 1),)}


def test_a_speaker_is_ready_when_no_link_that_is_up_listens() -> None:
    machine = alone()
    assert not machine.ready
    advance(machine, 0.0, 0.45)
    assert machine.ready
    machine.step(0.46, LinkChanged(LINK + 1, up=True))
    assert not machine.ready
    machine.step(0.47, LinkChanged(LINK + 1, up=False))
    assert machine.ready
