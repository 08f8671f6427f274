"""What a capture of claims tells: who answered twice, what moved, who was first."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.lab.capture import Move, Reply, duplicates, first_after, moves, relapses

EIP, OTHER = ip_address("192.0.2.200"), ip_address("2001:db8::200")
MACS = {name: bytes(5) + name.encode() for name in "ABC"}


def said(story: str, eip=EIP) -> list[Reply]:
    """``"A0 B100 a105"``: who, at which millisecond; a small letter for what came unasked."""
    return [
        Reply(int(word[1:]) / 1000, eip, MACS[word[0].upper()], unasked=word[0].islower()) for word in story.split()
    ]


def told(found) -> str:
    """The other way round, for moves and replies."""
    names = {mac: name for name, mac in MACS.items()}
    return " ".join(f"{names[one.mac]}{one.at * 1000:.0f}" for one in found)


@pytest.mark.parametrize(
    ("story", "twice", "again"),
    [
        pytest.param("A0 A50 A100", "", "", id="one holder"),
        pytest.param("A0 A50 B400 B450", "", "", id="a failover: silence between the two"),
        pytest.param("A0 A50 B60 B110", "B60", "", id="a handover: both answers, once"),
        pytest.param("A0 B1 A50 B51", "B1 A50 B51", "A50 B51", id="both answer every request"),
        pytest.param("A0 b10 A20", "", "", id="an announcement is no answer"),
        pytest.param("A0 B90 A180", "B90 A180", "", id="there and back, slower than the limit"),
        pytest.param("A0 B60 A90", "B60 A90", "A90", id="the old one answers after the new one"),
        pytest.param("A0 B60 C90", "B60 C90", "", id="two handovers"),
    ],
)
def test_two_answers_within_the_limit_are_duplicates(story, twice, again):
    assert told(duplicates(said(story), within=0.1)) == twice
    assert told(relapses(said(story), within=0.1)) == again


def test_answers_for_different_addresses_have_nothing_to_do_with_each_other():
    replies = [*said("A0 A50"), *said("B1 B51", eip=OTHER)]
    assert not duplicates(replies, within=1.0)
    assert not moves(replies)


def test_a_move_says_from_whom_to_whom_and_after_how_long():
    assert moves(said("A0 A50 b400 B410")) == (Move(0.4, EIP, MACS["A"], MACS["B"], pytest.approx(0.35)),)


@given(st.lists(st.tuples(st.sampled_from("ABCabc"), st.integers(0, 500)), max_size=20), st.integers(0, 500))
def test_every_relapse_is_a_duplicate_and_every_duplicate_of_answers_alone_is_a_move(events, within):
    replies = said(" ".join(f"{who}{at}" for who, at in sorted(events, key=lambda event: event[1])))
    twice = {(one.at, one.mac) for one in duplicates(replies, within / 1000)}
    assert {(one.at, one.mac) for one in relapses(replies, within / 1000)} <= twice
    assert twice <= {(one.at, one.mac) for one in moves(reply for reply in replies if not reply.unasked)}


def test_the_first_after_an_instant_may_have_to_be_somebody_else():
    replies = [*said("A0 A50 A120 b400 B410"), *said("A90 A110", eip=OTHER)]
    assert told(first_after(replies, 0.1).values()) == "A110 A120"
    assert told(first_after(replies, 0.1, {MACS["A"]}).values()) == "B400"
