"""Who answers for an EIP, as a node knows: told apart, and none counted twice."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.model import Gratuitous, Link, Mac
from speaker.node.decide import MayHold, MayNotHold
from speaker.node.standing import WAITS, Claim, Standing, standings

A = ip_address("192.0.2.10")
MAY = MayHold(A, "lan", (), Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01")), Gratuitous())
MAY_NOT = MayNotHold(A, "lan", (), "no_endpoints", "no endpoint is ready")


@pytest.mark.parametrize(
    ("eip", "claim", "rivalled", "standing", "reason"),
    [
        (MAY, Claim(True, "us"), (), Standing.HELD, None),
        (MAY, Claim(False, "them"), (), Standing.HELD_BY_PEER, None),
        (MAY_NOT, Claim(False, "them"), (), Standing.HELD_BY_PEER, None),
        (MAY, Claim(False, None), (), Standing.BY_NOBODY, WAITS),
        (MAY_NOT, Claim(False, None), (), Standing.BY_NOBODY, "no_endpoints"),
        (MAY, Claim(True, "us"), (str(A),), Standing.CONFLICT, None),
        (MAY, Claim(False, None), (str(A),), Standing.CONFLICT, None),
        (MAY, Claim(True, "us"), ("192.0.2.99",), Standing.HELD, None),
    ],
)
def test_an_eip_stands_in_one_way(eip, claim, rivalled, standing, reason):
    states, reasons = standings({A: eip}, {A: claim}, rivalled)
    assert {state: number for state, number in states.items() if number} == {standing: 1}
    assert reasons == ({reason: 1} if reason else {})


@given(st.lists(st.tuples(st.sampled_from([MAY, MAY_NOT]), st.booleans(), st.sampled_from([None, "them"]))))
def test_the_states_add_up_to_the_eips_in_use_and_the_reasons_to_those_that_nobody_holds(found):
    eips = {A + number: eip for number, (eip, _, _) in enumerate(found)}
    claims = {A + number: Claim(mine, holder) for number, (_, mine, holder) in enumerate(found)}
    states, reasons = standings(eips, claims, [str(A)])
    assert sum(states.values()) == len(eips)
    assert sum(reasons.values()) == states[Standing.BY_NOBODY]
    assert set(states) == set(Standing), "a state that nothing is in is 0, not missing"
