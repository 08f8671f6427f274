"""Netlink in bytes: what is written is read again, whatever stands around it; what is cut short is told as such."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.netlink.messages import attribute, attributes, errno_of, messages, nested, request

VALUES = st.dictionaries(st.integers(0, 0x3FFF), st.binary(max_size=40), max_size=6)


def test_messages_are_aligned_to_four_bytes():
    datagram = struct.pack("=IHHII", 18, 24, 0, 1, 0) + b"ab\0\0" + struct.pack("=IHHII", 16, 3, 0, 1, 0)
    assert [(found.kind, datagram[found.start : found.end]) for found in messages(datagram)] == [(24, b"ab"), (3, b"")]


@given(VALUES, st.binary(max_size=12), st.binary(max_size=12))
def test_attributes_are_read_as_they_are_written_from_where_they_start_to_where_they_end(values, before, after):
    written = b"".join(attribute(kind, value) for kind, value in values.items())
    data = before + written + after
    assert attributes(data, len(before), len(before) + len(written)) == values
    assert attributes(nested(7, written))[7] == written
    assert attributes(written) == values


def test_of_a_repeated_attribute_the_last_counts_and_the_nested_flag_is_no_part_of_its_number():
    assert attributes(attribute(3, b"one") + nested(3, b"two")) == {3: b"two"}


@given(st.binary(max_size=80))
def test_whatever_the_bytes_attributes_raise_nothing_and_end(data):
    attributes(data)


@given(st.lists(st.tuples(st.integers(16, 99), st.binary(max_size=30)), max_size=4))
def test_requests_follow_each_other_in_one_datagram(asked):
    datagram = b"".join(request(kind, number, body) for number, (kind, body) in enumerate(asked))
    read = [(found.kind, found.sequence, datagram[found.start : found.end]) for found in messages(datagram)]
    assert read == [(kind, number, body) for number, (kind, body) in enumerate(asked)]


@pytest.mark.parametrize("cut", [1, 15, struct.pack("=IHHII", 15, 3, 0, 1, 0)])
def test_a_message_that_is_cut_short_is_told_as_such(cut):
    datagram = request(2, 1, struct.pack("=i", -17))
    broken = datagram[:cut] if isinstance(cut, int) else cut
    with pytest.raises((struct.error, ValueError)):
        list(messages(broken))
    (message,) = messages(datagram)
    assert errno_of(datagram, message) == 17
