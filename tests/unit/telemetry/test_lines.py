"""What happens to many things for one cause is one line, and every source of lines has a bound, which is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.telemetry.lines import (
    BURST,
    FEW,
    QUIET,
    REFILL,
    SHOWN,
    SOURCES,
    TELL,
    TURN,
    WINDOW,
    Bound,
    Gather,
    LeftOut,
    Line,
    Transition,
    in_lines,
)


def claimed(number, **fields):
    return Transition("info", "claimed", "eip", f"192.0.2.{number}", "eth0", {"link": "eth0", "term": 1, **fields})


def lost(error):
    return Transition("warning", "link lost", "error", error, "eth0", {"link": "eth0"})


# ── many at once ──


@pytest.mark.parametrize("number", range(FEW + 1))
def test_a_few_get_a_line_each(number):
    found = list(in_lines(map(claimed, range(number))))
    assert found == [
        Line("info", "claimed", {"eip": f"192.0.2.{one}", "link": "eth0", "term": 1}) for one in range(number)
    ]


def test_many_get_one_line_with_their_count_the_first_names_and_what_they_share():
    (line,) = in_lines(claimed(number, term=number) for number in range(300))
    names = [f"192.0.2.{number}" for number in range(SHOWN)]
    assert line == Line("info", "claimed", {"count": 300, "eips": names, "link": "eth0"})


def test_of_many_messages_the_first_is_the_example():
    (line,) = in_lines(claimed(number, message=f"no link for 192.0.2.{number}") for number in range(300))
    assert line.fields["message"] == "no link for 192.0.2.0"


def test_what_has_another_cause_has_a_line_of_its_own():
    told = [claimed(number) for number in range(100)] + [claimed(7)._replace(cause="eth1"), lost("gone")]
    assert [line.fields.get("count") for line in in_lines(told)] == [100, None, None]


# ── many in a while ──


def lines_of(gather, now):
    return [line.fields.get("count", 1) for line in gather.due(now)]


def test_one_waits_for_others_like_it_no_longer_than_a_turn_and_says_when_it_was():
    gather = Gather()
    gather.add(10.0, claimed(1))
    assert gather.wake() == pytest.approx(10 + TURN)
    assert gather.due(10.0) == []
    assert gather.due(10 + TURN) == [
        Line("info", "claimed", {"eip": "192.0.2.1", "link": "eth0", "term": 1}, at=10.0),
    ]
    assert gather.wake() is None


def test_all_that_come_in_one_turn_are_one_line():
    gather = Gather()
    for number in range(300):
        gather.add(10 + number / 100_000, claimed(number))
    assert lines_of(gather, 10 + TURN) == [300]


def test_the_next_ones_of_a_cause_that_had_its_lines_wait_for_the_end_of_its_window():
    gather = Gather()
    for number in range(FEW):
        gather.add(10.0, claimed(number))
    assert lines_of(gather, 10.1) == [1] * FEW
    for number in range(50):
        gather.add(10.2 + number / 1000, claimed(number))
    assert gather.wake() == pytest.approx(10 + WINDOW)
    assert lines_of(gather, 10.9) == []
    assert lines_of(gather, 10 + WINDOW) == [50]


def test_a_few_that_come_slowly_are_told_one_by_one():
    gather = Gather()
    for step in range(20):
        gather.add(float(step), claimed(step))
        assert lines_of(gather, step + TURN) == [1]


def test_another_cause_does_not_wait_for_the_first():
    gather = Gather()
    for number in range(300):
        gather.add(10.0, claimed(number))
    assert lines_of(gather, 10 + TURN) == [300]
    gather.add(10.1, claimed(1))
    gather.add(10.1, lost("gone"))
    assert [line.event for line in gather.due(10.1 + TURN)] == ["link lost"]


@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(0, 3), st.integers(1, 400)), max_size=40))
def test_each_transition_is_told_once_and_a_cause_has_few_lines_in_a_window(steps):
    gather, now, came, written = Gather(), 0.0, 0, []

    def write(until):
        while (wake := gather.wake()) is not None and wake <= until:
            written.extend((wake, line) for line in gather.due(wake))

    for wait, cause, count in steps:
        now += wait
        write(now)
        for number in range(count):
            gather.add(now, claimed(number)._replace(cause=cause, fields={"cause": cause}))
        came += count
    write(now + 2 * WINDOW)
    assert gather.wake() is None
    assert sum(line.fields.get("count", 1) for _, line in written) == came
    for cause in range(4):
        times = [at for at, line in written if line.fields["cause"] == cause]
        for start in times:
            assert sum(start <= at < start + WINDOW for at in times) <= 2 * FEW + 2


def test_what_waits_at_the_end_is_told():
    gather = Gather()
    gather.add(10.0, claimed(1))
    assert len(gather.rest()) == 1
    assert gather.rest() == []


# ── too many all the same ──


def test_a_source_may_have_a_burst_and_then_one_line_every_so_often():
    bound = Bound()
    assert sum(bound.admits(0.0, "a") for _ in range(1000)) == BURST
    assert sum(bound.admits(step / 100, "a") for step in range(1, 6001)) == 60 / REFILL


def test_the_sources_do_not_share():
    bound = Bound()
    for _ in range(1000):
        bound.admits(0.0, "a")
    assert bound.admits(0.0, "b")


def test_how_many_were_left_out_is_told_once_it_is_over():
    bound = Bound()
    for step in range(BURST + 5):
        bound.admits(step / 1000, "a")
    assert bound.left_out(QUIET / 2) == []
    assert bound.left_out(QUIET + 1) == [LeftOut("a", 5, 0.0)]
    assert bound.left_out(QUIET + 2) == []


def test_and_now_and_then_while_it_lasts():
    bound, told, admitted = Bound(), [], 0
    for step in range(100 * 60):
        admitted += bound.admits(step / 100, "a")
        told += bound.left_out(step / 100)
    assert len(told) == 60 // TELL - 1
    told += bound.left_out(60 + QUIET)
    assert sum(one.lines for one in told) + admitted == 100 * 60


def test_however_many_sources_there_are_few_are_remembered():
    bound = Bound()
    for number in range(3 * SOURCES):
        bound.admits(number, str(number))
    assert len(bound._sources) == SOURCES
