"""What hellos, and their absence, are worth: rules 4 to 7, 12, 14, 15, 17 and 19 of docs/ownership.md."""

import pytest
from stepping import EIP, LIFE, LINK, advance, alone, beside, hello, of_kind, said, timed

from speaker.ownership.events import (
    Announce,
    Ask,
    Claim,
    EipAnswered,
    EligibilityChanged,
    FrameHeard,
    HelloHeard,
    LinkChanged,
    Rebalance,
    SendHello,
    Tick,
)
from speaker.ownership.hello import MAX_AGE, Digest, Heard, Hello, Incarnation
from speaker.ownership.machine.claims import OwnClaims
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.segment import Segment
from speaker.ownership.score import score

TIMES = alone().times
HELD = {EIP: 3}
LATER = Incarnation(LIFE + (1 << 31))


def of_life(event: HelloHeard, life: Incarnation) -> HelloHeard:
    return event._replace(hello=event.hello._replace(incarnation=life))


# ── Who is heard ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_waited_in_the_socket_of_a_link_that_went_down_counts_for_nothing() -> None:
    machine = alone()
    machine.step(0.1, LinkChanged(LINK, up=False))
    machine.step(0.1, hello(machine, 0, HELD))
    assert machine.peers(0.1) == {LINK: ()}


def test_a_higher_life_voids_what_the_one_before_it_claimed() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    beside(machine, 1.0, 1.1, {"b": {}})
    machine.step(1.12, of_life(hello(machine, 0, {}, "a"), LATER))
    assert machine.holding(EIP), "long before that life would be dead"


def test_whoever_comes_back_with_a_lower_life_is_told_of_the_higher_one() -> None:
    machine = alone()
    machine.step(0.1, of_life(hello(machine, 0, {}, "a"), LATER))
    advance(machine, 0.1, 3.0, hears=True)
    machine.step(3.0, hello(machine, 9, {}, "a"))
    (_, told), *_ = said(timed(machine, 3.0, 3.11))
    assert told.heard["a"].incarnation == LATER


@pytest.mark.parametrize(
    ("life", "age", "lives"), [(LIFE, 40, True), (LATER, 40, False), (LIFE, MAX_AGE, False)], ids=str
)
def test_a_witness_is_believed_for_the_life_and_the_moment_that_it_names(
    life: Incarnation, age: int, lives: bool
) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    heard = {"me": Heard(machine.incarnation, 10, LINK), "a": Heard(life, age, LINK)}
    orders = beside(machine, 1.0, 2.0, {"b": {}}, heard=heard)
    assert (of_kind(orders, Claim) == []) is lives


def test_an_age_that_is_only_known_to_be_long_is_no_hearing() -> None:
    machine = alone()
    heard = {"me": Heard(machine.incarnation, MAX_AGE, LINK)}
    machine.step(0.1, hello(machine, 0, {}, "a", heard=heard, interval=60_000))
    (state,) = machine.peers(0.2)[LINK]
    assert (state.heard, state.hears_us) == (True, False)


@pytest.mark.parametrize(("ago", "hurries"), [(0.05, True), (0.25, False)])
def test_whoever_heard_a_silent_one_of_late_says_so_at_once(ago: float, hurries: bool) -> None:
    machine = alone()
    beside(machine, 0.0, 2.0, {"a": {}, "b": {}})
    machine.step(2.0, hello(machine, 9000, {}, "a"))
    beside(machine, 2.0, 2.0 + ago, {"b": {}})
    now = 2.0 + ago
    while not of_kind([(now, order) for order in machine.step(now, Tick())], SendHello):
        now = max(machine.next_wake(now), now + 1e-6)
    at = now + TIMES.pace
    orders = [(at, order) for order in machine.step(at, hello(machine, 9001, {}, "b", probes=frozenset({"a"})))]
    assert bool(said(orders)) is hurries


@pytest.mark.parametrize("wrong_for", [0.0, TIMES.hello])
def test_all_claims_are_asked_for_once_they_have_been_wrong_for_longer_than_a_message_takes(wrong_for: float) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {}})
    part = {"digest": Digest(7, 1), "covers": None}
    orders = [(1.0, order) for order in machine.step(1.0, hello(machine, 9000, {}, "a", **part))]
    orders += timed(machine, 1.0, 1.0 + wrong_for)
    machine.speak_again()
    at = 1.0 + wrong_for + TIMES.pace
    orders += [(at, order) for order in machine.step(at, Tick())]
    assert [each.wants for _, each in said(orders)][-1] == (frozenset({"a"}) if wrong_for else frozenset())


def test_what_was_let_go_on_one_link_is_not_taken_up_again_by_what_comes_late_on_the_other() -> None:
    peer = Peer(Hello("a", LIFE, 0, 0, claims=HELD), 0.0)
    peer.learn(Hello("a", LIFE, 0, 0, Digest(1, 1), claims=HELD))
    assert peer.leave({EIP: 3}, (LIFE, 0, 0), 1.0) == {EIP}
    assert peer.learn(Hello("a", LIFE, 1, 0, Digest(1, 1), claims=HELD)) == set()
    assert peer.learn(Hello("a", LIFE, 2, 0, Digest(1, 2), claims={EIP: 4})) == {EIP}


def test_a_hello_that_claims_what_it_says_was_let_go_before_claims_it() -> None:
    peer = Peer(Hello("a", LIFE, 0, 0), 0.0)
    peer.learn(Hello("a", LIFE, 0, 0, Digest(1, 1), claims=HELD, yielded=HELD))
    assert peer.claims == HELD


def test_only_what_is_still_held_is_announced() -> None:
    segment = Segment("me", LINK, TIMES, 64, 0.0)
    segment.own.add(EIP, 1, 0.0)
    segment.announce.update({EIP: None, EIP + 1: None})
    assert segment.to_announce() == (EIP,)
    assert segment.to_announce() == ()


def test_what_is_claimed_anew_without_a_doubt_is_weak_no_more() -> None:
    own = OwnClaims(TIMES, 64)
    own.add(EIP, 1, 0.0, weak=True)
    own.add(EIP, 2, 0.1)
    assert own.weak == set()


# ── Silence ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_that_comes_up_is_deaf_no_sooner_than_one_that_fell_silent() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD})
    machine.step(1.0, LinkChanged(LINK, up=False))
    timed(machine, 1.0, 3.0)
    machine.step(3.0, LinkChanged(LINK, up=True))
    deaf = [at for at, each in said(timed(machine, 3.0, 4.0)) if each.deaf]
    assert deaf[0] == pytest.approx(3.0 + TIMES.dead, abs=0.01)


def test_a_frame_just_before_the_suspicion_keeps_nobody_from_being_deaf() -> None:
    machine = alone(2)
    beside(machine, 0.0, 1.0, {"a": HELD})
    machine.step(1.0, FrameHeard(LINK))
    deaf = [at for at, each in said(timed(machine, 1.0, 2.0)) if each.deaf]
    assert deaf[0] == pytest.approx(0.9 + TIMES.dead, abs=0.01)


@pytest.mark.parametrize(("times", "demoted"), [(1, False), (2, True)])
def test_a_port_that_fell_silent_twice_comes_and_goes(times: int, demoted: bool) -> None:
    machine = alone()
    now = 0.0
    for _ in range(times):
        beside(machine, now, now + 1.0, {"a": {}})
        timed(machine, now + 1.0, now + 2.0)
        assert machine.known.segments[LINK].deaf
        now += 2.0
    assert {each.demoted for _, each in said(beside(machine, now, now + 1.0, {"a": {}}))} == {demoted}


def test_whoever_hears_again_gives_those_time_who_say_hello_less_often() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD}, interval=300)
    timed(machine, 1.0, 5.0)
    assert machine.known.segments[LINK].deaf
    machine.step(5.0, FrameHeard(LINK))
    orders = timed(machine, 5.0, 7.0, hears=True)
    assert of_kind(orders, Claim)[0][0] == pytest.approx(5.0 + 3 * TIMES.dead, abs=0.02)


def test_that_one_is_heard_which_hears_nobody_is_no_reason_to_wait() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD})
    orders = beside(machine, 1.0, 2.0, {"a": {}}, heard={}, deaf=True)
    assert [at for at, _ in of_kind(orders, Claim)] == [pytest.approx(1.0, abs=0.01)]
    machine.step(2.0, EligibilityChanged(EIP + 1, LINK))
    beside(machine, 2.0, 3.0, {"a": {}}, heard={}, deaf=True)
    assert machine.holding(EIP + 1)


# ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("others", "anybody"), [((), True), (("b",), False)])
def test_anybody_at_all_is_asked_for_where_nobody_is_heard(others: tuple[str, ...], anybody: bool) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, **{node: {} for node in others}})
    asks = of_kind(beside(machine, 1.0, 1.25, {node: {} for node in others}), Ask)
    assert {order.anybody for _, order in asks} == {anybody}


def test_who_said_that_it_is_deaf_is_not_looked_for() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    beside(machine, 1.0, 1.2, {"a": {EIP: 3}, "b": {}}, deaf=True)
    assert of_kind(beside(machine, 1.2, 1.8, {"b": {}}), Ask) == []


def test_what_we_hold_by_now_is_not_asked_for() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    machine.step(1.0, hello(machine, 5000, HELD, "a", moves={EIP: "me"}))
    assert machine.holding(EIP)
    asks = of_kind(beside(machine, 1.01, 1.41, {"b": {}}), Ask)
    assert {order.eips for _, order in asks} == {()}


def test_who_answers_on_the_wire_was_not_heard_to_say_hello() -> None:
    """Or others would be told so, and take it for a witness's word (rule 7)."""
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    orders = []
    for n in range(10):
        orders += beside(machine, 1.0 + n / 10, 1.1 + n / 10, {"b": {}})
        machine.step(1.1 + n / 10 - 1e-7, EipAnswered(EIP, LINK, "a"))
    assert not machine.holding(EIP)
    assert {"a" in each.heard for at, each in said(orders) if at > 0.91 + TIMES.dead} == {False}


def test_a_peer_that_lives_by_its_answers_is_asked_once_a_hello_interval() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    orders = []
    for n in range(20):
        orders += beside(machine, 1.0 + n / 10, 1.1 + n / 10, {"b": {}})
        machine.step(1.1 + n / 10 - 1e-7, EipAnswered(EIP, LINK, "a"))
    asks = [at for at, _ in of_kind(orders, Ask) if at > 1.5]
    assert 12 <= len(asks) <= 16


def test_an_answer_that_waited_while_we_were_away_keeps_nobody_alive() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    machine.step(3.0, EipAnswered(EIP, LINK, "a"))
    assert [state.alive for state in machine.peers(3.0)[LINK]] == [False, False]


# ── Moves ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_two_that_claim_it_both_must_hear_whoever_is_asked_to_take_it() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    for n in range(4):
        now = 1.0 + n / 10
        machine.step(now, hello(machine, 9000 + n, HELD, "a"))
        machine.step(now, hello(machine, 9000 + n, {EIP: 2}, "b", heard={}))
        timed(machine, now, now + 0.09)
    ask = hello(machine, 9009, HELD, "a", moves={EIP: "me"})
    assert not any(isinstance(order, Claim) for order in machine.step(1.4, ask))
    machine.step(1.41, hello(machine, 9010, {EIP: 2}, "b"))
    ask = hello(machine, 9011, HELD, "a", moves={EIP: "me"})
    assert any(isinstance(order, Claim) for order in machine.step(1.42, ask))


def test_of_two_that_claim_at_one_term_the_better_one_by_its_score_holds_it() -> None:
    machine = alone()
    machine.step(0.1, hello(machine, 0, HELD, "a"))
    machine.step(0.1, hello(machine, 0, HELD, "b"))
    assert machine.holder(EIP, 0.1) == (max("ab", key=lambda node: score(EIP, node)), 3)


def test_whoever_was_away_asks_for_no_more_moves() -> None:
    machine = alone(8)
    timed(machine, 0.0, 1.8)
    beside(machine, 1.8, 2.0, {"a": {}})
    machine.step(2.0, Rebalance())
    assert not machine.rebalancing.finished
    machine.step(2.9, Tick())
    assert machine.rebalancing.finished


def test_whom_a_better_claim_of_our_own_term_replaced_is_known_to_have_held_it() -> None:
    """It is not looked for on the wire as somebody who was never heard."""
    machine = alone(0)
    theirs = EIP + 1
    machine.step(0.0, EligibilityChanged(theirs, LINK))
    timed(machine, 0.0, 1.0)
    assert machine.held() == {theirs: 1}
    machine.step(1.0, hello(machine, 0, {theirs: 1}, "a"))
    assert machine.held() == {}
    orders = beside(machine, 1.0, 2.0, {"b": {}})
    assert [order.first for _, order in of_kind(orders, Claim)] == [False]
    assert of_kind(orders, Announce) != []
