"""When the prober's relay sends on what it holds back."""

import pytest

from speaker.lab.prober import due


@pytest.mark.parametrize(
    ("do", "seconds", "arrived", "leaves"),
    [
        ("delay", 0.04, 10.0, 10.04),
        ("burst", 0.5, 10.1, 10.5),
        ("burst", 0.5, 10.49, 10.5),
        ("burst", 0.5, 10.5, 11.0),
    ],
)
def test_a_delayed_frame_leaves_so_much_later_and_one_of_a_burst_with_all_others(do, seconds, arrived, leaves):
    assert due({"do": do, "seconds": seconds}, arrived) == pytest.approx(leaves)
