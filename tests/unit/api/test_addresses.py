"""Spans against sets of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from speaker.api.addresses import Span, overlaps, without


@st.composite
def spans(draw, index=0):
    first = draw(st.integers(0, 30))
    return Span(draw(st.sampled_from([4, 6])), first, first + draw(st.integers(0, 12)), index)


def members(found):
    return {(span.version, number) for span in found for number in range(span.first, span.last + 1)}


@given(st.lists(spans(), max_size=4), st.lists(spans(), max_size=4))
def test_without_leaves_what_a_set_difference_leaves(wanted, excluded):
    left = without(wanted, excluded)
    assert members(left) == members(wanted) - members(excluded)
    assert all(span.first <= span.last for span in left)


@given(st.lists(spans(), max_size=8))
def test_overlaps_are_found_where_there_are_any_and_only_there(found):
    numbered = [Span(span.version, span.first, span.last, i) for i, span in enumerate(found)]
    pairs = overlaps(numbered)
    assert all(former < latter and numbered[former].meets(numbered[latter]) for former, latter in pairs)
    assert bool(pairs) == any(a.meets(b) for a in numbered for b in numbered if a.index < b.index)
