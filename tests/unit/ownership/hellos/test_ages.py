"""How long a routine hello waited until it was read."""

import pytest

from speaker.ownership.hellos.hellos import age_of


@pytest.mark.parametrize(
    ("case", "arrived", "today", "age"),
    [
        ("read at once", 1000.0, 1000.0, 0.0),
        ("it waited", 1000.0, 1000.25, 0.25),
        ("the time of day was set forward: no longer than since none waited", 1000.0, 5000.0, 0.5),
        ("the time of day was set back: it may have waited as long as since none did", 1000.0, 900.0, 0.5),
        ("without a stamp as well", float("inf"), 1000.0, 0.5),
    ],
)
def test_an_age_is_what_the_time_of_day_says_or_the_most_it_can_be(case, arrived, today, age):
    assert age_of(arrived, today, at_most=0.5) == age
