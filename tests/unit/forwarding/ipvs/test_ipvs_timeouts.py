"""What becomes of the timeouts of IPVS's connections: set, kept so, and put back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.ipvs.settings import adjusted
from speaker.settings import AS_THEY_ARE, Timeouts

KERNEL = Timeouts(900, 120, 300)
WANT = Timeouts(3600, 0, 60)
SET = Timeouts(3600, 120, 60)


def test_those_wanted_are_set_and_what_was_there_is_remembered():
    goal = adjusted(KERNEL, WANT, {})
    assert goal == (SET, {"tcp": 900, "tcp set": 3600, "udp": 300, "udp set": 60})
    assert adjusted(SET, WANT, goal.remembered) == goal, "and again they stay"


def test_those_wanted_no_longer_are_put_back():
    remembered = adjusted(KERNEL, WANT, {}).remembered
    assert adjusted(SET, AS_THEY_ARE, remembered) == (KERNEL, {})


def test_another_wish_does_not_take_the_one_before_for_what_was_there():
    remembered = adjusted(KERNEL, WANT, {}).remembered
    goal = adjusted(SET, Timeouts(tcp=60), remembered)
    assert goal == (Timeouts(60, 120, 300), {"tcp": 900, "tcp set": 60})


def test_what_somebody_set_since_is_replaced_while_we_want_another_and_stays_when_we_do_not():
    remembered = adjusted(KERNEL, WANT, {}).remembered
    theirs = SET._replace(tcp=777)
    assert adjusted(theirs, WANT, remembered).timeouts == SET
    assert adjusted(theirs, AS_THEY_ARE, remembered).timeouts == Timeouts(777, 120, 300)


def test_what_is_so_already_is_not_ours_to_put_back():
    assert adjusted(KERNEL, Timeouts(900, 120, 300), {}) == (KERNEL, {})


SECONDS = st.integers(1, 1000)
WISHES = st.builds(Timeouts, *[st.just(0) | SECONDS] * 3)


@given(st.builds(Timeouts, *[SECONDS] * 3), st.lists(WISHES, max_size=5))
def test_after_any_wishes_no_wish_leaves_the_kernel_as_it_was(kernel, wishes):
    now, remembered = kernel, {}
    for wish in [*wishes, AS_THEY_ARE]:
        now, remembered = adjusted(now, wish, remembered)
        assert all(value == (wanted or before) for value, wanted, before in zip(now, wish, kernel, strict=True))
    assert remembered == {}


@pytest.mark.parametrize("crash", [KERNEL, SET])
def test_a_crash_between_remembering_and_setting_loses_nothing(crash):
    remembered = adjusted(KERNEL, WANT, {}).remembered
    assert adjusted(crash, AS_THEY_ARE, remembered).timeouts == KERNEL
