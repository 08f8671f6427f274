"""What a node remembers to tell: the last change of each EIP, and hellos it could not read."""

from ipaddress import ip_address

import pytest

from speaker.node.decide import MayNotHold
from speaker.node.known import noted
from speaker.node.known.noted import Noted
from speaker.ownership.hellos.frames import Rejected

EIP = ip_address("192.0.2.10")


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lambda found: None, ""),
        (lambda found: found.claimed(EIP, None), "claimed; nobody had it before"),
        (lambda found: found.claimed(EIP, "n2"), "claimed; n2 had it before"),
        (lambda found: found.yielded(EIP, "better_claim", "n2"), "let go (better_claim), to n2"),
        (lambda found: found.yielded(EIP, "deaf", None), "let go (deaf)"),
        (lambda found: (found.yielded(EIP, "deaf", None), found.claimed(EIP, "n2")), "claimed; n2 had it before"),
    ],
)
def test_how_it_came_by_an_eip_is_the_last_that_happened(happens, told):
    found = Noted(lambda: 0.0)
    happens(found)
    assert found.history(EIP) == told


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lambda found: None, None),
        (lambda found: found.claimed(EIP, "n2"), None),
        (lambda found: found.claimed(EIP, "n2", 0.231), ("n2", 0.231)),
        (lambda found: found.claimed(EIP, None, 0.231), ("", 0.231)),
        (lambda found: (found.claimed(EIP, "n2", 0.231), found.yielded(EIP, "deaf", None)), None),
        (lambda found: (found.claimed(EIP, "n2", 0.231), found.claimed(EIP, "n3")), None),
    ],
)
def test_a_failover_is_one_for_as_long_as_the_eip_is_held(happens, told):
    found = Noted(lambda: 0.0)
    happens(found)
    assert found.failover(EIP) == told


def test_hellos_that_cannot_be_read_are_told_with_their_age_and_others_are_not():
    now = [5.0]
    found = Noted(lambda: now[0])
    found.hello("eth0", None)
    found.hello("eth0", Rejected.WRONG_KEY)
    now[0] = 7.5
    assert found.rejected() == [("eth0", "wrong_key", 2.5)]


def test_of_eips_without_end_those_are_remembered_of_which_anything_happened_last(monkeypatch):
    monkeypatch.setattr(noted, "MOST", 2)
    found = Noted(lambda: 0.0)
    for number in range(3):
        found.claimed(EIP + number, "n2", 0.2)
    assert [found.failover(EIP + number) for number in range(3)] == [None, ("n2", 0.2), ("n2", 0.2)]
    assert [bool(found.history(EIP + number)) for number in range(3)] == [False, True, True]


def test_why_this_node_does_not_hold_an_eip_is_what_was_decided_or_else_what_happened():
    found, eip = Noted(lambda: 0.0), ip_address("192.0.2.10")
    assert found.why_not(eip) == ""
    found.claimed(eip, None)
    assert found.why_not(eip) == ""
    found.yielded(eip, "drained", "n2")
    assert found.why_not(eip) == "drained"
    found.decided = {eip: MayNotHold(eip, "lan", (), "no_carrier", "eth0: it has no carrier")}
    assert found.why_not(eip) == "no_carrier"
