"""Where unknown flows go: dropped where another node may know them, to the one that does, and nowhere else."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.handing_over import Fate, HandingOver, NextHop, fates

A, B, C = (ip_address(f"198.51.100.{10 + number}") for number in range(3))
N1, N2 = NextHop("eth0", ip_address("198.51.100.1")), NextHop("eth0", ip_address("198.51.100.2"))


def after(*story):
    moves = HandingOver()
    for name, *arguments in story:
        getattr(moves, name)(*arguments)
    return moves


@pytest.mark.parametrize(
    ("story", "next_hops"),
    [
        ([], {A: None, B: None}),
        ([("claimed", A, N1)], {A: N1, B: None}),
        ([("claimed", A, None)], {B: None}),
        ([("claimed", A, N1), ("claimed", B, N2)], {A: N1, B: N2}),
        ([("claimed", A, N1), ("yielded", A)], {A: None, B: None}),
        ([("yielded", A)], {A: None, B: None}),
        ([("claimed", A, N1), ("claimed", B, N1), ("silent", N1)], {}),
        ([("claimed", A, N1), ("claimed", B, N2), ("silent", N1)], {B: N2}),
        ([("claimed", A, N1), ("silent", N1), ("claimed", B, N1)], {B: N1}),
        ([("claimed", A, N1), ("silent", N1), ("yielded", A), ("claimed", A, N1)], {A: N1, B: None}),
        ([("claimed", A, N1), ("yielded", A), ("silent", N1)], {A: None, B: None}),
        ([("claimed", A, N1), ("yielded", A), ("claimed", A, N2), ("silent", N1)], {A: N2, B: None}),
        ([("claimed", C, N1)], {A: None, B: None}),
    ],
    ids=[
        "nothing is held",
        "one is taken",
        "one is taken from nobody",
        "each from another",
        "given back",
        "given up twice",
        "whose holder falls silent",
        "one of two holders does",
        "he is back and loses another",
        "he is back and loses the same",
        "silent when it is not ours any more",
        "taken from another since",
        "one that this node may not hold any more",
    ],
)
def test_unknown_flows_go_to_whom_an_eip_was_taken_from_while_he_answers(story, next_hops):
    assert after(*story).next_hops([A, B]) == next_hops


def test_only_those_who_get_anything_have_to_answer():
    moves = after(("claimed", A, N1), ("claimed", B, N1), ("claimed", C, N2))
    assert moves.hops() == {N1, N2}
    assert moves.silent(N1) == 2
    assert moves.silent(N1) == 0
    assert moves.hops() == {N2}
    moves.yielded(C)
    assert moves.hops() == set()


def test_each_eip_is_counted_by_what_becomes_of_its_unknown_flows():
    moves = after(("claimed", A, N1), ("claimed", B, None))
    assert fates(4, moves.next_hops([A, B, C, ip_address("::1")])) == {
        Fate.HANDED_OVER: 1,
        Fate.RESET: 1,
        Fate.DROPPED: 2,
    }


eips, hops = st.sampled_from([A, B, C]), st.sampled_from([N1, N2])
events = st.one_of(
    st.tuples(st.just("claimed"), eips, st.none() | hops),
    st.tuples(st.just("yielded"), eips),
    st.tuples(st.just("silent"), hops),
)


@given(st.lists(events, max_size=20))
def test_whatever_happens_it_is_what_the_last_events_say(story):
    next_hops = after(*story).next_hops([A, B, C])
    for eip in (A, B, C):
        of_eip = [at for at, event in enumerate(story) if event[0] != "silent" and event[1] == eip]
        last = story[of_eip[-1]] if of_eip else ("yielded", eip)
        if last[0] == "yielded":
            assert next_hops[eip] is None
        elif last[2] is None or ("silent", last[2]) in story[of_eip[-1] :]:
            assert eip not in next_hops
        else:
            assert next_hops[eip] == last[2]
