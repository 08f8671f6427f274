"""Three questions, twenty milliseconds apart, before an EIP that nobody was known to hold is answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.layer2.holdings import AGAIN, ASKED_A_SECOND, SPACING, TAKE_OVER, Probes
from speaker.ownership.parameters import Parameters

EIP, OTHER = b"\xc0\x00\x02\x0a", b"\xc0\x00\x02\x0b"


def story(probes, until):
    """Every (instant, what) that a caller who wakes exactly when told sees up to ``until``."""
    seen = []
    while (when := probes.wake()) is not None and when <= until:
        step = probes.due(when, 100)
        seen += [(round(when, 6), "ask") for _ in step.ask] + [(round(when, 6), "free") for _ in step.free]
    return seen


@pytest.fixture
def probes():
    probes = Probes()
    probes.begin(EIP, 10.0)
    return probes


def test_three_probes_and_silence_find_it_free_within_60_ms(probes):
    assert story(probes, 99.0) == [(10.0, "ask"), (10.02, "ask"), (10.04, "ask"), (10.06, "free")]
    assert EIP not in probes


@pytest.mark.parametrize(("heard", "asked"), [(10.001, 1), (10.03, 2), (10.059, 3)])
def test_an_answer_at_any_time_ends_the_round_and_after_a_pause_the_next_begins(probes, heard, asked):
    assert story(probes, heard) == [(10.0, "ask"), (10.02, "ask"), (10.04, "ask")][:asked]
    probes.taken(EIP, heard)
    again = round(heard + AGAIN, 6)
    assert [when for when, _ in story(probes, heard + AGAIN)] == [again]
    assert story(probes, heard + 20)[-1] == (round(again + 3 * SPACING, 6), "free")


def test_it_is_probed_every_second_until_nobody_answers(probes):
    asked = []
    for _ in range(4):
        (when, what), *_ = story(probes, probes.wake())
        asked.append(when)
        assert what == "ask"
        probes.taken(EIP, when)
    assert asked == [10.0, 11.0, 12.0, 13.0]
    assert story(probes, 60.0)[-1] == (14.06, "free")


def falling_silent(probes, stops):
    """``EIP`` is answered for at once until ``stops``; when it is found free."""
    while (when := probes.wake()) is not None:
        step = probes.due(when, 100)
        if step.free:
            return when
        if when < stops:
            probes.taken(EIP, when + 0.001)
    raise AssertionError


@given(st.floats(10.0, 12.0))
def test_who_takes_over_has_what_another_answered_for_within_a_failover_and_not_for_one_lost_answer(stops):
    probes = Probes(TAKE_OVER)
    probes.begin(EIP, 10.0)
    silence = falling_silent(probes, stops) - stops
    assert 2 * TAKE_OVER.spacing <= silence <= 0.42 < Parameters().worst_failover + 0.1


def test_of_thousands_that_another_answers_for_no_more_are_asked_for_than_a_lan_bears():
    probes, asked = Probes(TAKE_OVER), 0
    eips = [bytes((10, 0, at // 256, at % 256)) for at in range(5000)]
    for address in eips:
        probes.begin(address, 0.0)
    for at in range(10, 3000):
        step = probes.due(at / 100, 10_000)
        asked += len(step.ask)
        for address in step.ask:
            probes.taken(address, at / 100)
    assert asked <= 30 * ASKED_A_SECOND + len(eips)


def test_one_who_never_stops_talking_does_not_put_the_next_round_off(probes):
    story(probes, 10.0)
    for at in range(100):
        probes.taken(EIP, 10.0 + at / 100)
    assert probes.wake() == 10.0 + AGAIN


def test_withdrawal_ends_it(probes):
    story(probes, 10.02)
    probes.end(EIP)
    probes.end(OTHER)
    assert probes.wake() is None
    probes.taken(EIP, 10.03)
    assert story(probes, 99.0) == []


def test_an_interrupted_round_starts_over_and_one_that_waits_goes_on_waiting(probes):
    probes.begin(OTHER, 10.0)
    story(probes, 10.04)
    probes.taken(OTHER, 10.05)
    probes.interrupt(10.055)
    assert story(probes, 11.0) == [(10.055, "ask"), (10.075, "ask"), (10.095, "ask"), (10.115, "free")]
    assert probes.wake() == 10.05 + AGAIN


def test_slices_take_every_eip_in_turn():
    probes = Probes()
    eips = [bytes((10, 0, at // 256, at % 256)) for at in range(1000)]
    for address in eips:
        probes.begin(address, 0.0)
    asked = [probes.due(0.001, 300).ask for _ in range(4)]
    assert [len(some) for some in asked] == [300, 300, 300, 100]
    assert [address for some in asked for address in some] == eips


@given(st.lists(st.floats(0.0, 0.2), min_size=4, max_size=40))
def test_however_late_the_caller_it_asks_three_times_and_listens_20_ms_after_each(pauses):
    probes, now, asked = Probes(), 0.0, []
    probes.begin(EIP, now)
    for pause in pauses:
        now += pause
        step = probes.due(now, 10)
        if step.free:
            assert len(asked) == 3
            assert all(after - before >= SPACING - 1e-9 for before, after in zip(asked, [*asked[1:], now], strict=True))
            return
        asked += [now] * len(step.ask)
    assert len(asked) <= 3
