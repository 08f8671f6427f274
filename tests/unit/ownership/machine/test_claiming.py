"""Whose turn it is and what is written meanwhile, to the millisecond: rules 9 to 19 and 25 of docs/ownership.md.

Here ``EIP`` is this node's before any other's by its score, and ``THEIRS`` that of all who are named by one letter.
"""

import pytest
from stepping import EIP, LIFE, LINK, Claims, alone, beside, hello, of_kind, timed

from speaker.ownership.events import (
    ApiUp,
    Claim,
    Drain,
    EipAnswered,
    EligibilityChanged,
    LinkChanged,
    Order,
    Record,
    RecordRead,
    RecordsRestored,
    RecordWritten,
    Tick,
    Withdraw,
    WriteRecord,
)
from speaker.ownership.hello import Digest, Incarnation
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.ownership.score import score

TIMES = alone().times
THEIRS = EIP + 1
OTHERS = ("a", "b", "c", "d")
SOON = 0.01
"""Seconds within which a test tells two moments apart."""


def claimed_at(orders: list[tuple[float, Order]], eip: object = EIP) -> float:
    return next(at for at, order in orders if isinstance(order, Claim) and order.eip == eip)


def nothing(*nodes: str) -> dict[str, Claims]:
    return {node: {} for node in nodes}


def test_the_scores_are_as_the_tests_here_take_them_to_be() -> None:
    assert all(score(EIP, node) < score(EIP, "me") for node in OTHERS)
    assert all(score(THEIRS, node) > score(THEIRS, "me") for node in OTHERS)


# ── Whose turn ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("better", "wait"),
    [
        (0, 0.0),
        (1, TIMES.listen + TIMES.slot),
        (2, TIMES.listen + 2 * TIMES.slot),
        (3, 2 * TIMES.listen + 3 * TIMES.slot),
        (4, 2 * TIMES.listen + 3 * TIMES.slot),
    ],
)
def test_what_nobody_held_waits_for_better_ones_that_may_still_listen_and_the_last_in_line_twice_as_long(
    better: int, wait: float
) -> None:
    machine = alone(0)
    machine.step(0.0, EligibilityChanged(THEIRS, LINK))
    orders = beside(machine, 0.0, 2.0, nothing("other", *OTHERS[:better]))
    assert claimed_at(orders, THEIRS) == pytest.approx(TIMES.listen + wait, abs=SOON)


def test_what_the_only_other_node_held_is_taken_in_turn_when_it_comes_back_without_it() -> None:
    """Its record names it, and no frame of anybody else was ever heard: that is no first sign of anybody."""
    machine = alone(0, api=True)
    machine.step(0.0, ApiUp())
    machine.step(0.0, EligibilityChanged(THEIRS, LINK))
    machine.step(0.0, RecordRead(THEIRS, Record("a", LIFE, 3, 1)))
    beside(machine, 0.1, 1.0, {"a": {THEIRS: 3}})
    back = 0.9 + TIMES.suspect + 0.01
    timed(machine, 1.0, back)
    orders = beside(machine, back, 2.0, {"a": {}}, incarnation=Incarnation(LIFE + 1))
    assert claimed_at(orders, THEIRS) == pytest.approx(back + TIMES.slot, abs=SOON)


@pytest.mark.parametrize(("newcomer", "wait"), [(False, 0.0), (True, TIMES.listen)])
def test_a_cluster_assembles_as_long_as_somebody_has_only_just_come(newcomer: bool, wait: float) -> None:
    machine = alone(0)
    beside(machine, 0.0, 9.5, nothing("a"))
    here = ("a", "other") if newcomer else ("a",)
    beside(machine, 9.5, 10.0, nothing(*here))
    machine.step(10.0, EligibilityChanged(THEIRS, LINK))
    orders = beside(machine, 10.0, 11.0, nothing(*here))
    assert claimed_at(orders, THEIRS) == pytest.approx(10.0 + wait + TIMES.slot, abs=SOON)


def with_its_share() -> Ownership:
    """At 3.0 it holds nine EIPs, ``a`` the tenth, which is EIP, and ``b`` none."""
    machine = alone(0)
    for n in range(1, 10):
        machine.step(0.0, EligibilityChanged(EIP + n, LINK))
    timed(machine, 0.0, 2.0)
    machine.step(2.0, EligibilityChanged(EIP, LINK))
    beside(machine, 2.0, 3.0, {"a": {EIP: 3}, "b": {}})
    assert len(machine.held()) == 9
    return machine


def test_who_has_its_share_goes_last_to_what_nobody_held() -> None:
    machine = with_its_share()
    beside(machine, 3.0, 6.0, {"a": {EIP: 3}, "b": {}})
    fresh = next(EIP + n for n in range(20, 40) if score(EIP + n, "me") > max(score(EIP + n, n_) for n_ in "ab"))
    machine.step(6.0, EligibilityChanged(fresh, LINK))
    orders = beside(machine, 6.0, 7.0, {"a": {EIP: 3}, "b": {}})
    assert claimed_at(orders, fresh) == pytest.approx(6.0 + TIMES.ranks * TIMES.slot, abs=SOON)


@pytest.mark.parametrize(("theirs", "rank"), [(4, 0), (3, 1)], ids=["its share", "one less"])
def test_nobody_waits_for_a_better_one_that_has_its_share(theirs: int, rank: int) -> None:
    machine = alone(0)
    holding = {"a": {EIP + n: 3 for n in range(theirs)}}
    for n in range(6):
        machine.step(0.0, EligibilityChanged(EIP + n, LINK))
    beside(machine, 0.0, 9.0, holding)
    fresh = next(EIP + n for n in range(20, 40) if score(EIP + n, "a") > score(EIP + n, "me"))
    orders = [(9.0, order) for order in machine.step(9.0, EligibilityChanged(fresh, LINK))]
    orders += beside(machine, 9.0, 10.0, holding)
    assert claimed_at(orders, fresh) == pytest.approx(9.0 + rank * TIMES.slot, abs=SOON)


def test_who_has_its_share_takes_its_turn_where_something_fails_over() -> None:
    orders = beside(with_its_share(), 3.0, 4.0, {"b": {}})
    assert claimed_at(orders) == pytest.approx(2.9 + TIMES.dead, abs=SOON)


@pytest.mark.parametrize(("demoted", "rank"), [(False, 2), (True, 0)])
def test_the_demoted_stand_behind_whoever_is_not_and_not_before(demoted: bool, rank: int) -> None:
    machine = alone(2)
    holding = {"a": {THEIRS: 3}, "b": {}, "c": {}}
    beside(machine, 0.0, 1.0, holding, demoted=demoted)
    orders = beside(machine, 1.0, 2.0, nothing("b", "c"), demoted=demoted)
    assert claimed_at(orders, THEIRS) == pytest.approx(0.9 + TIMES.dead + rank * TIMES.slot, abs=SOON)


@pytest.mark.parametrize(("theirs", "rank"), [(0, 1), (7, 1), (6, 0)], ids=["unknown", "ours", "an earlier one"])
def test_in_an_upgrade_a_higher_revision_comes_first(theirs: int, rank: int) -> None:
    machine = Ownership("me", lambda above: Incarnation(above + (5 << 31)), 0.0, revision=7 if theirs else 0)
    machine.step(0.0, LinkChanged(LINK, up=True))
    machine.step(0.0, EligibilityChanged(THEIRS, LINK))
    beside(machine, 0.0, 1.0, {"a": {THEIRS: 3}, "b": {}}, revision=theirs)
    orders = beside(machine, 1.0, 2.0, nothing("b"), revision=theirs)
    assert claimed_at(orders, THEIRS) == pytest.approx(0.9 + TIMES.dead + rank * TIMES.slot, abs=SOON)


# ── Whose it is ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("term", "wait"), [(3, 0.0), (5, TIMES.suspect)], ids=["to nobody", "to a better claim"])
def test_who_made_the_claim_that_somebody_yielded_to_is_waited_for(term: int, wait: float) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}})
    orders = beside(machine, 1.0, 2.0, nothing("a", "b"), yielded={EIP: term})
    assert claimed_at(orders) == pytest.approx(1.0 + wait, abs=SOON)
    assert machine.held() == {EIP: term + 1}


def test_what_another_speaker_answers_for_is_not_taken_for_as_long_as_a_death_takes() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}})
    beside(machine, 1.0, 1.2, nothing("b"))
    machine.step(1.2, EipAnswered(EIP, LINK, "b"))
    ((at, claim),) = of_kind(beside(machine, 1.2, 2.0, nothing("b")), Claim)
    assert at == pytest.approx(1.2 + TIMES.dead, abs=SOON)
    assert claim == Claim(EIP, LINK, 4, first=True), "that one may go on answering, and say so where it is not heard"
    beside(machine, 2.0, 3.0, {"a": {}, "b": {EIP: 5}})
    ((_, claim),) = of_kind(beside(machine, 3.0, 4.0, nothing("a")), Claim)
    assert claim == Claim(EIP, LINK, 6, first=False), "this time the claim of whoever answered was heard"


@pytest.mark.parametrize(("age", "waits"), [(0.1, False), (0.0, True)])
def test_an_answer_that_may_be_older_than_its_holders_yield_delays_nobody(age: float, waits: bool) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}})
    machine.step(1.0, hello(machine, 9000, {}, "a", yielded={EIP: 3})._replace(more=True))
    machine.step(1.0, EipAnswered(EIP, LINK, "a", age=age, more=True))
    claims = of_kind([(1.0, order) for order in machine.step(1.0, Tick())], Claim)
    assert bool(claims) is not waits


def test_whoever_answered_and_has_said_so_since_is_waited_for_no_longer_and_taken_from_like_any() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}})
    beside(machine, 1.0, 1.2, nothing("b"))
    machine.step(1.2, EipAnswered(EIP, LINK, "b"))
    beside(machine, 1.2, 1.4, {"b": {EIP: 4}})
    orders = [(1.4, order) for order in machine.step(1.4, hello(machine, 9000, {EIP: 4}, "b", moves={EIP: "me"}))]
    assert [order for _, order in of_kind(orders, Claim)] == [Claim(EIP, LINK, 5)], "make before break"


def test_who_goes_or_hears_nobody_asks_nobody_else_to_wait_where_it_holds_nothing() -> None:
    """The one peer hears nobody and lets go: to be heard by nobody but a deaf one is not to be out of touch."""
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}})
    orders = beside(machine, 1.0, 2.0, nothing("a"), deaf=True, heard={}, yielded={EIP: 3})
    assert claimed_at(orders) <= 1.0 + TIMES.hello


# ── When listening ends ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("told_at", "claims_at"), [(0.8, 0.81), (9.0, TIMES.sync)])
def test_a_node_that_starts_waits_for_all_claims_of_those_it_hears_for_a_while(
    told_at: float, claims_at: float
) -> None:
    machine = alone()
    part = Digest(7, 1)
    orders = beside(machine, 0.0, min(told_at, 2.0), nothing("a"), digest=part, covers=None)
    orders += beside(machine, min(told_at, 2.0), 2.5, nothing("a"))
    assert claimed_at(orders) == pytest.approx(claims_at, abs=0.03)


@pytest.mark.parametrize(("api", "claims_at"), [(False, 0.08), (True, 0.2)])
def test_a_node_that_starts_waits_for_the_first_list_where_that_may_take_longer_than_to_listen(
    api: bool, claims_at: float
) -> None:
    machine = Ownership(
        "me", lambda above: Incarnation(above + (5 << 31)), 0.0, times=Parameters.for_hello(0.02), api=api
    )
    machine.step(0.0, LinkChanged(LINK, up=True))
    machine.step(0.0, EligibilityChanged(EIP, LINK))
    assert claimed_at(timed(machine, 0.0, 1.0)) == pytest.approx(claims_at, abs=0.005)


# ── The record ────────────────────────────────────────────────────────────────────────────────────────────────


def recording(until: float = 0.55) -> Ownership:
    """Holds EIP since 0.4, and its record says so."""
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    (_, write) = of_kind(timed(machine, 0.1, until), WriteRecord)[0]
    assert isinstance(write, WriteRecord)
    machine.step(until, RecordWritten(EIP, write.attempt, True, Record("me", machine.incarnation, 1, 1)))
    return machine


def test_a_drained_node_frees_the_record_at_once_where_nobody_took_the_eip() -> None:
    machine = recording()
    machine.step(0.6, Drain())
    orders = timed(machine, 0.6, 5.0)
    (gone, _), (freed, _) = *of_kind(orders, Withdraw), *of_kind(orders, WriteRecord)
    assert gone == freed == pytest.approx(0.6 + TIMES.drain)


@pytest.mark.parametrize("writes", [False, True], ids=["which does not write it", "which writes itself"])
def test_a_drained_node_leaves_the_record_to_whoever_took_the_eip(writes: bool) -> None:
    machine = recording()
    beside(machine, 0.6, 2.0, nothing("a"))
    machine.step(2.0, Drain())
    orders = beside(machine, 2.01, 2.21, {"a": {EIP: 2}})
    if writes:
        machine.step(2.2, RecordRead(EIP, Record("a", LIFE, 2, 2)))
    orders += beside(machine, 2.21, 3.01, {"a": {EIP: 2}})
    freed = [at for at, _ in of_kind(orders, WriteRecord)]
    assert freed == ([] if writes else [pytest.approx(2.01 + TIMES.record_grace, abs=SOON)])


def test_a_record_that_is_read_again_is_no_newer_for_that() -> None:
    machine = recording()
    theirs = Record("silent", LIFE, 3, 9)
    machine.step(0.6, RecordRead(EIP, theirs))
    orders = timed(machine, 0.6, 30.0)
    machine.step(30.0, RecordRead(EIP, theirs))
    orders += timed(machine, 30.0, 99.0)
    assert of_kind(orders, WriteRecord)[0][0] == pytest.approx(0.6 + TIMES.record_stale)


def test_a_deletion_of_the_same_version_comes_after_it_and_is_made_good_without_a_version() -> None:
    machine = recording()
    orders = machine.step(0.6, RecordRead(EIP, Record(None, Incarnation(0), 0, 1, gone=True)))
    (write,) = (order for order in orders if isinstance(order, WriteRecord))
    assert (write.expected, write.holder, write.term) == (0, "me", 1)


def test_a_late_reply_ends_no_write_but_its_own() -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    timed(machine, 0.1, 2.6)
    assert not machine.known.api.up, "the first write was not answered"
    (second,) = (order for order in machine.step(2.7, ApiUp()) if isinstance(order, WriteRecord))
    assert second.attempt == 2
    timed(machine, 2.7, 2.75)
    orders = [(2.75, order) for order in machine.step(2.75, RecordWritten(EIP, 1, False, None))]
    assert of_kind(orders + timed(machine, 2.75, 3.5), WriteRecord) == []


@pytest.mark.parametrize(("succeeded", "term"), [(True, 5), (False, 1)])
def test_a_term_above_that_of_the_record_is_told_once_it_is_written(succeeded: bool, term: int) -> None:
    machine = recording()
    (write,) = (o for o in machine.step(0.6, RecordRead(EIP, Record(None, LIFE, 4, 9))) if isinstance(o, WriteRecord))
    assert write.term == 5
    found = Record("me", machine.incarnation, 5, 10) if succeeded else Record(None, LIFE, 4, 9)
    machine.step(0.7, RecordWritten(EIP, write.attempt, succeeded, found))
    assert machine.held() == {EIP: term}


def test_a_write_that_finds_an_older_version_than_it_was_to_follow_goes_by_that_one() -> None:
    """An older backup of etcd was restored: at no version that we know would a write ever succeed again."""
    machine = recording()
    (write,) = (o for o in machine.step(0.6, RecordRead(EIP, Record(None, LIFE, 1, 900))) if isinstance(o, WriteRecord))
    assert write.expected == 900
    orders = machine.step(0.7, RecordWritten(EIP, write.attempt, False, Record("old", LIFE, 0, 500)))
    orders += [order for _, order in timed(machine, 0.7, 0.8)]
    assert [order.expected for order in orders if isinstance(order, WriteRecord)] == [500]


def test_after_a_restore_records_of_lower_versions_are_believed() -> None:
    machine = recording()
    machine.step(0.6, RecordRead(EIP, Record("me", machine.incarnation, 1, 900)))
    machine.step(0.7, RecordsRestored())
    orders = machine.step(0.7, RecordRead(EIP, Record("old", LIFE, 0, 500)))
    orders += [order for _, order in timed(machine, 0.7, 1.2)]
    (write,) = (order for order in orders if isinstance(order, WriteRecord))
    assert (write.expected, write.holder) == (500, "me")
