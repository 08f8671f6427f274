"""What other groups hold: learnt of their hellos, kept for an hour, and who gives way where two hold one EIP."""

from ipaddress import ip_address

import pytest

from speaker.model import NO_GROUP, Group
from speaker.ownership.groups import LASTING, MOST, PAUSE, OtherGroups
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.machine.peers import FORGOTTEN

X, Y, SIX = map(ip_address, ("192.0.2.10", "192.0.2.11", "2001:db8::10"))
CONTROL_PLANE = Group("control-plane")
WORDS = "group control-plane"


def said(*eips, group=CONTROL_PLANE, weak=()):
    return Hello("n1", Incarnation(1), 1, 1, claims=dict.fromkeys(eips, 1), weak=frozenset(weak), group=group.name)


def nothing(eip):
    return False


def everything(eip):
    return True


@pytest.mark.parametrize(("ours", "theirs"), [(NO_GROUP, CONTROL_PLANE), (CONTROL_PLANE, NO_GROUP)])
def test_what_another_group_holds_is_learnt_at_once_whichever_of_the_two_it_is(ours, theirs):
    others = OtherGroups(ours)
    others.hear([said(X, SIX, group=theirs)], nothing, 0.0)
    assert others.held == dict.fromkeys((X, SIX), str(theirs))


def test_it_stays_theirs_through_their_failovers_and_reboots_for_an_hour():
    others = OtherGroups(NO_GROUP)
    others.hear([said(X)], nothing, 0.0)
    others.hear([said()], nothing, 1.0)
    others.hear([], nothing, FORGOTTEN - 1)
    assert others.held == {X: WORDS}
    others.hear([], nothing, FORGOTTEN)
    assert others.held == {}


def test_what_nothing_changed_of_is_the_same_object():
    others = OtherGroups(NO_GROUP)
    others.hear([said(X)], nothing, 0.0)
    before = others.held
    others.hear([said(X)], nothing, PAUSE)
    assert others.held is before


def test_a_claim_in_name_holds_nothing():
    """Of a group that probes, and is answered by whoever has it."""
    others = OtherGroups(NO_GROUP)
    others.hear([said(X, weak=[X])], nothing, 0.0)
    assert others.held == {}


def looks(ours, theirs, count=5):
    """What is held after so many looks, while we answer for X and they claim it all the time."""
    others = OtherGroups(ours)
    for look in range(count):
        others.hear([said(X, group=theirs)], everything, look * PAUSE)
    return others.held


def test_of_two_that_hold_one_exactly_one_gives_way_and_it_is_the_one_without_a_group():
    assert looks(NO_GROUP, CONTROL_PLANE) == {X: WORDS}
    assert looks(CONTROL_PLANE, NO_GROUP) == {}
    assert looks(CONTROL_PLANE, Group("b")) == {}
    assert looks(Group("b"), CONTROL_PLANE) == {X: WORDS}


def test_who_claims_for_a_moment_what_we_answer_for_changes_nothing():
    """A group that starts claims first and probes then; a second later it says that it holds it in name."""
    assert looks(NO_GROUP, CONTROL_PLANE, count=1) == {}
    others = OtherGroups(NO_GROUP)
    for look, weak in enumerate([(), [X], [X], ()]):
        others.hear([said(X, weak=weak)], everything, look * 4.0)
    assert others.held == {}
    assert LASTING < PAUSE


def test_however_much_a_holder_of_the_key_makes_up_what_is_kept_is_bounded():
    others = OtherGroups(NO_GROUP)
    for start in range(0, 2 * MOST, 1000):
        others.hear([said(*(X + start + step for step in range(1000)))], nothing, 0.0)
    assert len(others.held) == MOST
    others.hear([], nothing, FORGOTTEN)
    others.hear([said(Y)], nothing, FORGOTTEN)
    assert others.held == {Y: WORDS}
