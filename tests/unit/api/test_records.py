"""What session Leases say in text, and back."""

from hypothesis import given
from hypothesis import strategies as st

from speaker.api.records import MAX_MISSED, misses_read, misses_said

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=253)


@given(nodes=st.frozensets(NAMES, max_size=2 * MAX_MISSED))
def test_whom_an_agent_misses_is_read_as_it_was_said_and_of_too_many_nothing_is(nodes):
    said = misses_said(nodes)
    assert (said is None) is (not 0 < len(nodes) <= MAX_MISSED)
    assert misses_read(said or "") == (nodes if said else frozenset())


def test_text_that_no_agent_wrote_names_no_node_without_a_name():
    assert misses_read(",,a,") == {"a"}
