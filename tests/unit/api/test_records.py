"""What session Leases say in text, and back."""

import re
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from speaker.api.kinds import FullMetadata
from speaker.api.records import (
    MAX_MISSED,
    MAX_OF_GROUPS,
    OTHER_GROUPS,
    LeaseObject,
    groups_read,
    groups_said,
    misses_read,
    misses_said,
)

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=253)


@given(nodes=st.frozensets(NAMES, max_size=2 * MAX_MISSED))
def test_whom_an_agent_misses_is_read_as_it_was_said_and_of_too_many_nothing_is(nodes):
    said = misses_said(nodes)
    assert (said is None) is (not 0 < len(nodes) <= MAX_MISSED)
    assert misses_read(said or "") == (nodes if said else frozenset())


def test_text_that_no_agent_wrote_names_no_node_without_a_name():
    assert misses_read(",,a,") == {"a"}


def lease(node, said):
    annotations = {} if said is None else {OTHER_GROUPS: said}
    return LeaseObject(FullMetadata(name=node, annotations=annotations))


@given(eips=st.frozensets(st.ip_addresses(), max_size=2 * MAX_OF_GROUPS))
def test_what_other_groups_hold_is_read_as_it_was_said_and_of_too_much_a_part(eips):
    said = groups_said(eips)
    found = groups_read([lease("n1", said)])
    assert found.keys() <= eips
    assert len(found) == min(len(eips), MAX_OF_GROUPS)
    assert said is None or re.fullmatch(r"[a-f0-9.:,]{1,4000}", said), "as the admission policy has it"


def test_no_text_of_a_lease_keeps_the_others_from_being_read():
    texts = [",,", "call me", "192.0.2.300,192.0.2.1", ",".join(["x"] * 200), None, "2001:db8::1"]
    found = groups_read([lease(f"n{number}", text) for number, text in enumerate(texts)])
    assert found == {
        ip_address("192.0.2.1"): "another group of speakers, as node n2 hears",
        ip_address("2001:db8::1"): "another group of speakers, as node n5 hears",
    }
