"""An EIP that is taken from a node that died says since when that one was silent; one that was handed over does not."""

import pytest
from stepping import EIP, alone, beside, hello, of_kind

from speaker.ownership.events import Claim, Drain

TIMES = alone().times
SOON = 0.01


def silent_since(orders):
    ((_, claim),) = of_kind(orders, Claim)
    return claim.silent_since


def test_of_a_node_that_died_its_last_sign_is_told():
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}})
    orders = beside(machine, 1.0, 2.0, {"b": {}})
    ((at, claim),) = of_kind(orders, Claim)
    assert claim.silent_since == pytest.approx(0.9, abs=SOON), "its last hello"
    assert at - claim.silent_since == pytest.approx(TIMES.dead, abs=3 * TIMES.slot)


def test_what_was_let_go_or_never_held_was_not_silent():
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}})
    assert silent_since(beside(machine, 1.0, 2.0, {"a": {}, "b": {}}, yielded={EIP: 3})) is None
    fresh = alone()
    assert silent_since(beside(fresh, 0.0, 3.0, {"a": {}})) is None


def test_what_a_node_that_goes_hands_over_was_not_silent():
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}, "b": {}})
    assert silent_since(beside(machine, 1.0, 2.0, {"a": {EIP: 3}, "b": {}}, draining=True)) is None


def test_changes_of_what_others_claim_are_counted_and_nothing_else_is():
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {EIP: 3}})
    before = machine.claims_heard
    beside(machine, 1.0, 2.0, {"a": {EIP: 3}})
    assert machine.claims_heard == before
    machine.step(2.0, hello(machine, 9000, {EIP: 3, EIP + 1: 1}, "a"))
    assert machine.claims_heard == before + 1
    machine.step(2.1, Drain(True))
    assert machine.claims_heard == before + 1
