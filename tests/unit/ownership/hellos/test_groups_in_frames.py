"""Hellos of groups: whoever is in the group reads them, and nobody else takes them for anything."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_hellos import hellos

from speaker.model import NO_GROUP, Group, Mac
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.frames import Rejected, decode, encode, magic, peek, unverified
from speaker.ownership.hellos.keys import Key, Keys

MAC = Mac(b"\x02\x00\x00\x00\x00\x01")
KEYS, OTHER_KEYS = Keys(Key(bytes(range(32)))), Keys(Key(bytes(range(100, 140))))
SAID = Hello("n1", Incarnation(1), 1, 1)
CONTROL_PLANE = Group("control-plane")

groups = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True).map(Group)


def framed(group, keys=KEYS, said=SAID, mtu=1500):
    return [*encode(said._replace(group=group.name), keys, MAC, mtu)]


@given(hellos, groups, st.integers(0, 2000))
def test_what_a_group_says_is_read_in_the_group_and_fits_the_link(said, group, more):
    mtu = frames.least_mtu(group.name) + more
    for part, frame in enumerate(framed(group, said=said, mtu=mtu)):
        heard = decode(frame, KEYS, group)
        assert (heard.group, heard.node, heard.part) == (group.name, said.node, part)
        assert len(frame) <= 14 + mtu
        assert peek(frame, group) == ((said.node, said.link), heard.stamp)


@given(groups, groups)
def test_no_other_group_reads_it_whatever_its_key(group, other):
    (frame,) = framed(group)
    for reader in {other, NO_GROUP} - {group}:
        for keys in (KEYS, OTHER_KEYS):
            assert decode(frame, keys, reader) is Rejected.OTHER_GROUP
        assert decode(framed(reader)[0], KEYS, group) is Rejected.OTHER_GROUP


def alike():
    """Two groups with the same magic: there are 65,536."""
    seen = {}
    for number in range(100_000):
        group = Group(f"g{number}")
        if (other := seen.setdefault(magic(group), group)) is not group:
            return group, other
    raise AssertionError("no two groups have one magic")


def test_two_groups_whose_magic_is_alike_are_told_apart_by_their_names():
    one, other = alike()
    assert decode(framed(one)[0], KEYS, other) is Rejected.OTHER_GROUP
    assert decode(framed(one)[0], KEYS, one).group == one.name


def test_a_frame_cannot_be_passed_off_as_anothers_groups():
    (frame,) = framed(CONTROL_PLANE)
    for group in (NO_GROUP, Group("other")):
        forged = frame[:14] + magic(group) + frame[18:]
        assert decode(forged, KEYS, group) is Rejected.FORGED


def test_a_name_under_the_magic_of_none_is_of_that_group_all_the_same():
    """Only who has the key can say so."""
    (frame,) = framed(CONTROL_PLANE)
    signed = frame[6:14] + magic(NO_GROUP) + frame[18:-16]
    lying = frame[:6] + signed + hmac.digest(bytes(range(32)), signed, "sha256")[:16]
    assert decode(lying, KEYS) is Rejected.OTHER_GROUP


def test_within_a_group_a_wrong_key_is_told_of():
    (frame,) = framed(CONTROL_PLANE, OTHER_KEYS)
    assert decode(frame, KEYS, CONTROL_PLANE) is Rejected.WRONG_KEY


@pytest.mark.parametrize("group", [NO_GROUP, CONTROL_PLANE])
def test_whoever_looks_at_all_of_them_reads_every_group(group):
    (frame,) = framed(group)
    assert decode(frame, KEYS, None).group == unverified(frame).group == group.name


def test_without_a_group_the_bytes_are_those_of_ever():
    """Beside the golden frames of ``test_hello_frames``: nothing in it speaks of groups."""
    (frame,) = framed(NO_GROUP)
    assert frame[14:18] == b"EIPh"
    assert frames.least_mtu("") == frames.MIN_MTU
    assert frame == next(encode(SAID, KEYS, MAC))
