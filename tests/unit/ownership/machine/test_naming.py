"""Whose name it is, by what the API server says: rule 32 of docs/ownership.md."""

import pytest
from stepping import EIP, alone, timed

from speaker.ownership.events import Event, LeaseSeen, NameClash
from speaker.ownership.hello import Incarnation
from speaker.ownership.machine.machine import Ownership

BEFORE, AFTER = Incarnation(1 << 31), Incarnation(9 << 31)
"""Lives of our name that are not ours: one that began before us, and one after."""


def holder() -> Ownership:
    machine = alone(api=True)
    timed(machine, 0.0, 1.5)
    assert machine.holding(EIP)
    return machine


def clashes(machine: Ownership, lives: list[Incarnation | None]) -> list[bool]:
    """Whether we fall silent, for each clash; the Lease is renewed by these one after the other, None is ourselves."""
    seen: list[Event] = [LeaseSeen("me", life or machine.incarnation, renewed=True) for life in lives]
    orders = [order for at, event in enumerate(seen) for order in machine.step(1.5 + at / 100, event)]
    return [order.silent for order in orders if isinstance(order, NameClash)]


@pytest.mark.parametrize(
    ("lives", "silent"),
    [
        ([BEFORE, BEFORE, BEFORE, None], []),  # our previous life's, which come late
        ([BEFORE, None, BEFORE], []),  # so does the last of them
        ([None, BEFORE, BEFORE], [True]),
        ([AFTER, AFTER], [False]),  # nobody's but another host's
    ],
)
def test_late_renewals_of_our_own_previous_life_are_no_other_host(
    lives: list[Incarnation | None], silent: list[bool]
) -> None:
    machine = holder()
    assert clashes(machine, lives) == silent
    assert machine.holding(EIP) is (True not in silent)


def test_a_node_that_never_gets_its_own_lease_renewed_believes_in_another_host_after_a_lease() -> None:
    machine = holder()
    timed(machine, 1.5, machine.times.lease)
    now = machine.times.lease
    orders = [order for at in (now, now + 0.1) for order in machine.step(at, LeaseSeen("me", BEFORE, renewed=True))]
    assert [order.silent for order in orders if isinstance(order, NameClash)] == [True]
