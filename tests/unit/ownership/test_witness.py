"""One node asks for each EIP, at a bounded rate; one lost frame makes no EIP count as silent, three do."""

from collections import Counter
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.model import Mac
from speaker.ownership.witness import IN_DOUBT, PERIOD, RATE, SURE, Place, Way, Witness, asker

A = ip_address("192.0.2.0")
LINK = 2
ARRIVING = [Way(LINK, 4)]
THEIRS, STRANGERS = Mac(b"\x02\0\0\0\0\x02"), Mac(b"\x02\0\0\0\0\x66")
NODES = st.sets(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1)


@given(st.integers(0, 255), NODES, st.sampled_from([None, "a", "b"]))
def test_whoever_knows_the_same_nodes_comes_to_the_same_asker_and_it_is_never_the_holder(number, nodes, holder):
    found = asker(A + number, holder, nodes)
    assert found == asker(A + number, holder, sorted(nodes, reverse=True))
    assert (found is None) == (nodes == {holder})
    assert found != holder
    assert found is None or found in nodes


@pytest.mark.parametrize("eips", [1, 10, 1000])
def test_each_eip_is_asked_for_by_one_node_and_all_together_ask_no_more_than_the_rate(eips):
    places = {A + number: Place(LINK, "holder") for number in range(eips)}
    nodes = ("a", "b", "c")
    witnesses = {node: Witness(node) for node in nodes}
    for witness in witnesses.values():
        witness.follow(places)
    asked = Counter()
    turns = round(max(eips / RATE, PERIOD) / PERIOD)
    for _ in range(turns):
        for witness in witnesses.values():
            due = witness.due({LINK: [*nodes, "holder"]})
            asked.update(due)
            witness.judge([(eip, THEIRS) for eip in due])
    assert asked.keys() == places.keys(), "every one"
    assert max(asked.values()) <= 2
    assert asked.total() <= turns * min(PERIOD * RATE, eips) + 1


def due(witness):
    """The next that it asks for."""
    return next(filter(None, (witness.due({LINK: ["them"]}) for _ in range(round(PERIOD / IN_DOUBT)))))


def told(*turns):
    """What is made of an EIP that each time these MACs answer for."""
    witness = Witness("us")
    witness.follow({A: Place(LINK, "them")})
    for macs in turns:
        assert due(witness) == [A]
        witness.judge([(A, mac) for mac in macs], arriving=ARRIVING)
    return witness.verdicts.get(A)


@pytest.mark.parametrize(
    ("turns", "hosts"),
    [
        ([(THEIRS,)], 1),
        ([()], None),
        ([()] * (SURE - 1), None),
        ([()] * SURE, 0),
        ([(THEIRS,), (), (), (THEIRS,)], 1),
        ([(THEIRS,), *[()] * SURE], 0),
        ([(THEIRS,), (), (THEIRS, STRANGERS), ()], 1),
        ([(THEIRS, STRANGERS)] * SURE, 2),
        ([*[(THEIRS, STRANGERS)] * SURE, (THEIRS, THEIRS)], 2),
        ([*[(THEIRS, STRANGERS)] * SURE, *[(THEIRS,)] * SURE], 1),
        ([*[()] * SURE, (THEIRS,)], 1),
    ],
)
def test_one_answer_is_believed_and_any_other_number_once_it_is_sure(turns, hosts):
    assert told(*turns) == hosts


def test_what_is_in_doubt_is_asked_again_in_the_next_turn():
    places = {A + number: Place(LINK, "them") for number in range(1000)}
    witness = Witness("us")
    witness.follow(places)
    first = witness.due({LINK: ["them"]})
    assert witness.pause == PERIOD
    witness.judge([(eip, THEIRS) for eip in first[1:]])
    assert witness.pause == IN_DOUBT
    assert witness.due({LINK: ["them"]})[0] == first[0]


def test_a_request_that_did_not_leave_proves_nothing():
    witness = Witness("us")
    witness.follow({A: Place(LINK, "them")})
    for _ in range(SURE):
        due(witness)
        witness.judge([], unasked={A})
    assert witness.verdicts == {}


def test_a_holder_is_silent_only_where_others_answer_us_meanwhile():
    witness = Witness("us")
    witness.follow({A: Place(LINK, "them")})
    for turn in range(2 * SURE):
        due(witness)
        assert witness.silent == (set(ARRIVING) if turn else set()), "shown from the first silence on"
        witness.judge([], arriving=[Way(LINK, 6), Way(LINK + 1, 4)])
    assert witness.verdicts == {}
    for _ in range(SURE):
        due(witness)
        witness.judge([], arriving=ARRIVING)
    assert witness.verdicts == {A: 0}


def test_of_an_eip_that_nobody_holds_silence_needs_no_proof():
    witness = Witness("us")
    witness.follow({A: Place(LINK, None)})
    for _ in range(SURE):
        due(witness)
        assert not witness.silent
        witness.judge([])
    assert witness.verdicts == {A: 0}


def test_an_eip_that_moved_is_asked_for_anew_and_one_that_is_held_here_no_more():
    witness = Witness("us")
    witness.follow({A: Place(LINK, "them")})
    for _ in range(SURE):
        due(witness)
        witness.judge([], arriving=ARRIVING)
    assert witness.verdicts == {A: 0}
    witness.follow({A: Place(LINK, None)})
    assert witness.verdicts == {}
    witness.follow({})
    assert witness.due({LINK: ["them"]}) == []


def test_whoever_is_not_its_turn_any_more_says_nothing_of_an_eip():
    other = next(name for name in map(str, range(99)) if asker(A, "them", ["us", name]) == name)
    witness = Witness("us")
    witness.follow({A: Place(LINK, "them")})
    witness.due({LINK: ["them"]})
    witness.judge([(A, THEIRS)])
    assert witness.verdicts == {A: 1}
    assert witness.due({LINK: ["them", other]}) == []
    assert witness.verdicts == {}


def test_of_none_of_a_thousand_eips_two_nodes_say_anything_once_one_of_them_has_come():
    witness = Witness("us")
    witness.follow({A + number: Place(LINK, "them") for number in range(1000)})
    for _ in range(round(1000 / RATE / PERIOD)):
        witness.judge([(eip, THEIRS) for eip in witness.due({LINK: ["them"]})])
    assert len(witness.verdicts) == 1000
    witness.due({LINK: ["them", "other"]})
    ours = {A + number for number in range(1000) if asker(A + number, "them", ["us", "other"]) == "us"}
    assert witness.verdicts.keys() == ours


def test_as_long_as_there_is_nothing_nothing_is_asked():
    witness = Witness("us")
    assert [witness.due({}) for _ in range(9)] == [[]] * 9
    witness.follow({A: Place(LINK, "them")})
    assert witness.due({LINK: ["them"]}) == [A], "at once"


def test_answers_for_what_was_not_asked_say_nothing():
    witness = Witness("us")
    witness.follow({A: Place(LINK, "them")})
    witness.judge([(A, STRANGERS)])
    assert witness.verdicts == {}
