"""What silences that meant nothing teach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.ownership.machine.loss import HALF_LIFE, LONGEST, MARGIN, Fading


def test_nobody_is_patient_without_a_reason() -> None:
    assert Fading().lasts(100.0) == 0


@pytest.mark.parametrize(
    ("after", "expected"),
    [(0.0, 0.5 * MARGIN), (HALF_LIFE, 0.25 * MARGIN), (2 * HALF_LIFE, 0.125 * MARGIN)],
)
def test_it_is_a_quarter_more_than_the_silence_and_falls_to_half_in_a_minute(after: float, expected: float) -> None:
    patience = Fading()
    patience.survived(0.5, 10.0)
    assert patience.lasts(10.0 + after) == pytest.approx(expected)


def test_a_shorter_silence_takes_nothing_away() -> None:
    patience = Fading()
    patience.survived(1.0, 10.0)
    patience.survived(0.3, 11.0)
    assert patience.lasts(11.0) > 0.98 * MARGIN


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 100)), max_size=20))
def test_it_never_lasts_longer_than_the_longest_that_counts(silences: list[tuple[float, float]]) -> None:
    patience, now = Fading(), 0.0
    for gap, pause in silences:
        now += pause
        patience.survived(gap, now)
        assert patience.lasts(now) <= MARGIN * LONGEST


@given(st.floats(0.01, LONGEST), st.floats(0.1, 1.0), st.floats(0.001, 300.0))
def test_it_is_over_when_it_lasts_no_longer_than_the_usual_time(gap: float, usual: float, away: float) -> None:
    patience = Fading()
    assert patience.over_at(usual) < 0
    patience.survived(gap, 10.0)
    over = patience.over_at(usual)
    assert patience.lasts(over + away) < usual
    assert patience.lasts(over - away) > usual
