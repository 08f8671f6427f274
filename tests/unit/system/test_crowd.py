"""Who has to go when one more comes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from speaker.system.crowd import Crowd


def test_nobody_goes_while_there_is_room():
    crowd = Crowd(2)
    assert [crowd.enter(1), crowd.enter(2)] == [None, None]


def test_the_oldest_that_has_asked_nothing_makes_room():
    crowd = Crowd(3)
    for guest in (1, 2, 3):
        crowd.enter(guest)
    crowd.occupy(1)
    assert crowd.enter(4) == 2
    assert crowd.enter(5) == 3


def test_where_all_are_being_answered_the_oldest_goes():
    crowd = Crowd(2)
    for guest in (1, 2):
        crowd.enter(guest)
        crowd.occupy(guest)
    assert crowd.enter(3) == 1


def test_a_source_with_many_makes_room_for_one_with_few():
    crowd = Crowd(4)
    crowd.enter("prometheus", "192.0.2.1")
    for guest in range(3):
        crowd.enter(guest, "192.0.2.66")
    assert [crowd.enter(10 + guest, "192.0.2.66") for guest in range(3)] == [0, 1, 2]
    assert crowd.enter("kubelet", "192.0.2.2") == 10


def test_who_left_takes_no_room_and_who_was_shown_the_door_is_forgotten():
    crowd = Crowd(1)
    crowd.enter(1)
    crowd.leave(1)
    assert crowd.enter(2) is None
    assert crowd.enter(3) == 2
    crowd.leave(2)
    assert len(crowd) == 1


@given(
    most=st.integers(1, 8),
    steps=st.lists(st.tuples(st.sampled_from(["enter", "occupy", "leave"]), st.integers(0, 30), st.sampled_from("ab"))),
)
def test_there_are_never_more_than_said_and_the_newest_always_gets_in(most, steps):
    crowd, sources = Crowd(most), {}
    for step, guest, source in steps:
        match step:
            case "enter" if guest not in sources:
                largest = max(Counter(sources.values()).values(), default=0)
                gone = crowd.enter(guest, source)
                if gone is not None:
                    assert Counter(sources.values())[sources.pop(gone)] == largest
                sources[guest] = source
            case "occupy":
                crowd.occupy(guest)
            case "leave":
                crowd.leave(guest)
                sources.pop(guest, None)
        assert len(crowd) == len(sources) <= most
