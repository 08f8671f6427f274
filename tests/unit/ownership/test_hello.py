"""The small arithmetic of a hello: spans, incarnations, stamps."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.ownership.hello import EVERYTHING, MAX_INCARNATION, Hello, Incarnation, Span, above, incarnation
from speaker.ownership.score import claim_hash

eips = st.ip_addresses()


@pytest.mark.parametrize(
    ("span", "inside", "outside"),
    [
        (("192.0.2.1", "192.0.2.3"), ["192.0.2.1", "192.0.2.2", "192.0.2.3"], ["192.0.2.0", "192.0.2.4", "::c000:202"]),
        (("2001:db8::", "2001:db8::f"), ["2001:db8::", "2001:db8::f"], ["2001:db8::10", "32.1.13.184"]),
        (("192.0.2.1", "::5"), ["192.0.2.1", "255.255.255.255", "::", "::5"], ["192.0.2.0", "::6"]),
    ],
)
def test_a_span_holds_both_its_ends_and_ipv4_lies_below_ipv6(span, inside, outside):
    it = Span(*map(ip_address, span))
    assert [ip_address(a) in it for a in inside] == [True] * len(inside)
    assert [ip_address(a) in it for a in outside] == [False] * len(outside)


@given(eips)
def test_everything_holds_every_address(address):
    assert address in EVERYTHING


@given(st.integers(0, 2**32 - 2), st.integers(0, 2**64), st.integers(0, 2**64))
def test_a_later_start_has_a_higher_incarnation_that_fits_an_int64(second, one, other):
    early, late = incarnation(second, one), incarnation(second + 1, other)
    assert 0 <= early < late <= MAX_INCARNATION


@pytest.mark.parametrize("second", [2**32 - 1, 2**32, 2**60])
def test_a_clock_beyond_2106_makes_an_incarnation_that_can_still_be_sent(second):
    assert incarnation(second, 2**31 - 1) == MAX_INCARNATION


@given(st.integers(0, MAX_INCARNATION - 2**31), st.integers(0, 2**64))
def test_a_refused_node_finds_a_higher_incarnation(known, randomness):
    assert known < above(Incarnation(known), randomness) <= MAX_INCARNATION


def test_a_restart_within_the_same_second_is_told_apart_by_chance_alone():
    assert incarnation(7, 5) != incarnation(7, 6)
    assert incarnation(7, 5) >> 31 == incarnation(7, 6) >> 31 == 7


def test_the_hashes_that_a_digest_sums_are_part_of_the_wire_format():
    assert claim_hash(ip_address("192.0.2.1"), 1) == 0x623586138C2BA5E4
    assert claim_hash(ip_address("2001:db8::1"), 7) == 0xCC4A724B285686CA


def test_stamps_grow_by_part_then_sequence_then_incarnation():
    last = Hello("n1", Incarnation(4), sequence=9, clock=0, part=2)
    for newer in (last._replace(part=3), last._replace(sequence=10, part=0), last._replace(incarnation=5, sequence=0)):
        assert newer.stamp > last.stamp
    for older in (last, last._replace(part=1), last._replace(sequence=8, part=9), last._replace(incarnation=3)):
        assert older.stamp <= last.stamp
