"""Runs of numbers against sets of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from speaker.api.addresses import merged, subtracted

RUNS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-2, 12)).map(lambda run: (run[0], run[0] + run[1])), max_size=8
)


def members(intervals):
    return {number for first, last in intervals for number in range(first, last + 1)}


def in_order_and_apart(intervals):
    return all(first <= last for first, last in intervals) and all(a[1] < b[0] for a, b in pairwise(intervals))


@given(RUNS)
def test_merged_they_cover_what_they_covered_with_as_few_as_can_be(found):
    runs = merged(found)
    assert members(runs) == members(found)
    assert in_order_and_apart(runs)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(runs)), "neighbours are one"


@given(RUNS, RUNS)
def test_subtracted_is_what_a_set_difference_leaves(found, holes):
    left = subtracted(merged(found), merged(holes))
    assert members(left) == members(found) - members(holes)
    assert in_order_and_apart(left)
