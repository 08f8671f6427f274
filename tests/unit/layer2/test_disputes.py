"""How often a conflict is acted upon."""

from hypothesis import given
from hypothesis import strategies as st

from speaker.layer2.holdings import DEFEND_INTERVAL, Disputes

EIP, OTHER = b"\xc0\x00\x02\x0a", b"\xc0\x00\x02\x0b"


def test_once_in_ten_seconds_for_each_eip():
    disputes = Disputes()
    assert [disputes.act(EIP, now) for now in (0.0, 0.1, 9.9, 10.0, 10.1, 25.0)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert disputes.act(OTHER, 25.1)


def test_an_eip_that_was_let_go_and_taken_again_starts_afresh():
    disputes = Disputes()
    assert disputes.act(EIP, 0.0)
    disputes.forget(EIP)
    disputes.forget(OTHER)
    assert disputes.act(EIP, 0.1)


@given(st.lists(st.tuples(st.sampled_from([EIP, OTHER]), st.floats(0.0, 3.0)), max_size=200))
def test_no_flood_makes_it_act_more_often_and_none_keeps_it_quiet(heard):
    disputes, now, acted = Disputes(), 0.0, {}
    for address, pause in heard:
        now += pause
        due = address not in acted or now >= acted[address] + DEFEND_INTERVAL
        assert disputes.act(address, now) == due
        if due:
            acted[address] = now
