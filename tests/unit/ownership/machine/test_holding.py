"""Who may take away what this node holds, and what it says of it: rules 19 to 29 of docs/ownership.md."""

import pytest
from stepping import EIP, LIFE, LINK, alone, beside, hello, of_kind, timed

from speaker.ownership.events import (
    Announce,
    ApiUp,
    Claim,
    Drain,
    FrameHeard,
    LinkChanged,
    Order,
    Record,
    RecordRead,
    RecordWritten,
    SendHello,
    Tick,
    Withdraw,
    WriteRecord,
    Yielded,
)
from speaker.ownership.hello import Heard, Hello
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.score import score

TIMES = alone().times


def announced(orders: list[Order]) -> list[object]:
    return [eip for order in orders if isinstance(order, Announce) for eip in order.eips]


def said(orders: list[tuple[float, Order]]) -> list[Hello]:
    return [order.hello for _, order in orders if isinstance(order, SendHello)]


def holder() -> Ownership:
    """At 2.0 it holds EIP at term 1, beside ``a``, which hears it and holds nothing."""
    machine = alone()
    beside(machine, 0.0, 2.0, {"a": {}})
    assert machine.held() == {EIP: 1}
    return machine


def unheard() -> Ownership:
    """At 2.0 it holds EIP at term 4, weak: it took it from ``a``, which fell silent as ``c`` did. ``b`` goes on."""
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}, "c": {}})
    beside(machine, 1.0, 2.0, {"b": {}})
    assert machine.held() == {EIP: 4}
    assert machine.known.eips[EIP].weak
    return machine


WEAK = {"weak": frozenset({EIP})}


# ── Who stands ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_holder_that_stands_keeps_the_eip_and_announces_it() -> None:
    machine = holder()
    orders = machine.step(2.0, hello(machine, 9000, {EIP: 2}, "a", **WEAK))
    assert machine.held() == {EIP: 3}
    assert machine.term(EIP) == 3
    assert announced(orders) == [EIP]


def test_what_it_stands_for_is_not_weak_any_more() -> None:
    machine = unheard()
    machine.step(2.0, hello(machine, 9000, {EIP: 7}, "b", **WEAK))
    assert machine.held() == {EIP: 8}
    orders = timed(machine, 2.0, 2.3)
    assert [(hello.claims, hello.weak) for hello in said(orders)][-1] == ({EIP: 8}, frozenset())


def test_a_holder_that_was_away_for_a_moment_does_not_stand() -> None:
    machine = holder()
    now = 2.0
    while not of_kind([(now, order) for order in machine.step(now, Tick())], SendHello):
        now = max(machine.next_wake(now), now + 1e-6)
    now += TIMES.self_lease - 0.01
    orders = machine.step(now, hello(machine, 9000, {EIP: 2}, "a", **WEAK))
    assert [order.reason for order in orders if isinstance(order, Withdraw)] == [Yielded.BETTER_CLAIM]


def test_a_holder_that_has_only_just_claimed_does_not_stand() -> None:
    """It still looks for who answers, and may be about to find the very one that it would silence."""
    machine = alone()
    timed(machine, 0.0, 0.401)
    assert machine.held() == {EIP: 1}
    machine.step(0.41, hello(machine, 9000, {EIP: 2}, "a", **WEAK))
    assert machine.held() == {}


def test_a_holder_that_drains_does_not_stand() -> None:
    machine = holder()
    machine.step(2.0, Drain())
    machine.step(2.01, hello(machine, 9000, {EIP: 2}, "a", **WEAK))
    assert machine.held() == {}


@pytest.mark.parametrize(("ago", "stands"), [(50, True), (250, False)])
def test_only_a_taker_that_has_heard_us_of_late_will_yield_to_who_stands(ago: int, stands: bool) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {}})
    timed(machine, 1.0, 1.15)
    machine.step(1.15, FrameHeard(LINK))
    timed(machine, 1.15, 2.0)
    heard = {"me": Heard(machine.incarnation, ago, LINK)}
    machine.step(2.0, hello(machine, 9000, {EIP: 2}, "a", heard=heard, **WEAK))
    assert machine.held() == {EIP: 3 if stands else 1}


def test_of_two_that_took_it_unheard_at_one_term_the_score_decides() -> None:
    machine = alone(2)
    theirs = EIP + 1
    assert score(theirs, "b") > score(theirs, "me")
    beside(machine, 0.0, 1.0, {"a": {theirs: 3}, "b": {}, "other": {}})
    beside(machine, 1.0, 2.0, {"other": {}})
    assert machine.held()[theirs] == 4
    assert machine.known.eips[theirs].weak
    machine.step(2.0, hello(machine, 9000, {theirs: 4}, "b", weak=frozenset({theirs})))
    assert theirs not in machine.held()


def test_a_taker_that_has_not_heard_us_yet_may_not_even_answer_and_is_given_a_hello_to_let_go() -> None:
    machine = alone(2)
    theirs = EIP + 1
    beside(machine, 0.0, 1.0, {"a": {theirs: 3}, "b": {}, "other": {}})
    beside(machine, 1.0, 2.0, {"other": {}})
    nobody = hello(machine, 9000, {theirs: 4}, "b", weak=frozenset({theirs}), heard={})
    machine.step(2.0, nobody)
    timed(machine, 2.0, 2.0 + machine.times.hello - 0.001)
    assert theirs in machine.held()
    timed(machine, 2.0, 2.0 + machine.times.hello + 0.001)
    assert theirs not in machine.held()


def test_of_one_term_what_was_taken_unheard_gives_way_whatever_the_score() -> None:
    machine = alone(2)
    theirs = EIP + 1
    assert score(theirs, "a") > score(theirs, "me")
    beside(machine, 0.0, 1.0, {"a": {}})
    machine.step(1.0, hello(machine, 9000, {theirs: 1}, "a", weak=frozenset({theirs})))
    assert machine.held() == {EIP: 1, theirs: 1}
    other = unheard()
    assert score(EIP, "me") > score(EIP, "b")
    other.step(2.0, hello(other, 9000, {EIP: 4}, "b"))
    assert other.held() == {}


def test_what_was_claimed_before_anybody_was_heard_gives_way_at_one_term_and_says_so() -> None:
    """A node that boots behind a blocked port claims everything; at the heal nothing moves that was served."""
    machine = alone(2)
    assert score(EIP, "me") > score(EIP, "b")
    timed(machine, 0.0, 1.0)
    machine.step(1.0, hello(machine, 9000, {EIP: 1}, "b"))
    assert machine.held() == {EIP + 1: 1}
    assert {each.weak for each in said(timed(machine, 1.0, 1.1))} == {frozenset({EIP + 1})}
    later = said(beside(machine, 1.1, 2.3, {"b": {EIP: 1}}))
    assert later[-1].weak == frozenset(), "a second later all have heard it"


# ── Better and worse ──────────────────────────────────────────────────────────────────────────────────────────


def taken_on_request() -> Ownership:
    """At 1.01 it holds EIP at term 4, taken from ``a`` on request."""
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}})
    machine.step(1.0, hello(machine, 5000, {EIP: 3}, "a", moves={EIP: "me"}))
    assert machine.held() == {EIP: 4}
    timed(machine, 1.0, 1.01)
    return machine


def test_a_worse_claim_is_answered_once() -> None:
    machine = taken_on_request()
    assert machine.known.eips[EIP].worse_claims == {"a": (3, 4)}, "the one that it was taken from has not let it go yet"
    assert announced(machine.step(1.02, hello(machine, 5001, {EIP: 3}, "a"))) == []
    assert announced(machine.step(1.03, hello(machine, 5002, {EIP: 2}, "b"))) == [EIP]
    assert announced(machine.step(1.04, hello(machine, 5003, {EIP: 2}, "b"))) == []
    assert announced(machine.step(1.05, RecordRead(EIP, Record("a", LIFE, 3, 1)))) == [], "whatever has it judged again"


def test_what_is_about_to_go_back_is_not_announced_against_the_one_that_held_on() -> None:
    machine = unheard()
    machine.step(2.0, hello(machine, 9000, {}, "a"))
    timed(machine, 2.0, 2.05)
    assert announced(machine.step(2.05, hello(machine, 9001, {EIP: 3}, "a"))) == []
    assert machine.held() == {EIP: 4}


def test_a_yield_for_what_it_holds_is_answered_once() -> None:
    machine = holder()
    for n in range(5):
        orders = machine.step(2.0 + n / 100, hello(machine, 9000 + n, {}, "a", yielded={EIP: 1}))
        assert announced(orders) == ([EIP] if n == 0 else [])


def test_the_better_claim_of_one_that_drains_is_taken_up_from_there() -> None:
    """It answers until somebody claims above it: to go on below its term would be a second answer for all that time."""
    machine = holder()
    machine.step(2.0, hello(machine, 9000, {EIP: 5}, "a", draining=True))
    assert machine.held() == {EIP: 6}


def test_whoever_yields_tells_the_term_that_it_yielded_to() -> None:
    machine = holder()
    orders = [(2.0, order) for order in machine.step(2.0, hello(machine, 9000, {EIP: 5}, "a"))]
    assert [hello.yielded for hello in said(orders + timed(machine, 2.0, 2.05))][-1] == {EIP: 5}


def test_what_it_lets_go_on_a_link_without_a_carrier_is_told_on_the_others_at_once() -> None:
    machine = holder()
    machine.step(2.0, LinkChanged(LINK + 1, up=True))
    timed(machine, 2.0, 2.5)
    orders = [(2.5, order) for order in machine.step(2.5, LinkChanged(LINK, up=False))]
    orders += timed(machine, 2.5, 2.5 + TIMES.pace)
    told = [order for _, order in orders if isinstance(order, SendHello)]
    assert {(order.link, *order.hello.yielded.items()) for order in told} == {(LINK + 1, (EIP, 1))}


# ── The record ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stands", "after", "term"),
    [
        pytest.param(Record("silent", LIFE, 1, 9), TIMES.record_stale, 2, id="of our term, who is not heard"),
        pytest.param(Record("a", LIFE, 1, 9), TIMES.record_grace, 2, id="of our term, who is heard and claims nothing"),
        pytest.param(Record("a", LIFE, 3, 9), TIMES.record_grace, 4, id="of a higher term, who is heard"),
        pytest.param(Record("a", LIFE, 0, 9), 0.0, 1, id="of a lower term"),
    ],
)
def test_anothers_record_is_overtaken_in_its_time(stands: Record, after: float, term: int) -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    (_, first) = of_kind(beside(machine, 0.2, 1.0, {"a": {}}), WriteRecord)[0]
    assert isinstance(first, WriteRecord)
    machine.step(1.0, RecordWritten(EIP, first.attempt, True, Record("me", machine.incarnation, 1, 1)))
    orders = [(1.0, order) for order in machine.step(1.0, RecordRead(EIP, stands))]
    orders += beside(machine, 1.0, 70.0 if after > 1 else 2.0, {"a": {}})
    at, write = of_kind(orders, WriteRecord)[0]
    assert isinstance(write, WriteRecord)
    assert (at, write.holder, write.term) == (pytest.approx(1.0 + after, abs=0.011), "me", term)
    assert of_kind(orders, Claim) == of_kind(orders, Withdraw) == [], "a record takes nothing away"
