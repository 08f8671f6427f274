"""What a node remembers to tell: the last change of each EIP, and hellos it could not read."""

from ipaddress import ip_address

import pytest

from speaker.model import Gratuitous, Link, Mac, Placement
from speaker.model.events import Counts, EipClaimed, EipYielded, HellosReceived
from speaker.node import standing
from speaker.node.decide import MayNotHold
from speaker.node.standing import Noted
from speaker.ownership.hellos.frames import Rejected

EIP = ip_address("192.0.2.10")
HERE = Placement(Link(2, "eth0", Mac(bytes(6))), Gratuitous())
DEAF = EipYielded(EIP, "deaf", None)


def claimed(before, unanswered=None, eip=EIP):
    return EipClaimed(eip, HERE, 1, before, unanswered)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lambda found: None, ""),
        (lambda found: found.hear(claimed(None)), "claimed; nobody had it before"),
        (lambda found: found.hear(claimed("n2")), "claimed; n2 had it before"),
        (lambda found: found.hear(EipYielded(EIP, "better_claim", "n2")), "let go (better_claim), to n2"),
        (lambda found: found.hear(DEAF), "let go (deaf)"),
        (
            lambda found: (found.hear(DEAF), found.hear(claimed("n2"))),
            "claimed; n2 had it before",
        ),
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
        (lambda found: found.hear(claimed("n2")), None),
        (lambda found: found.hear(claimed("n2", 0.231)), ("n2", 0.231)),
        (lambda found: found.hear(claimed(None, 0.231)), ("", 0.231)),
        (
            lambda found: (
                found.hear(claimed("n2", 0.231)),
                found.hear(DEAF),
            ),
            None,
        ),
        (
            lambda found: (
                found.hear(claimed("n2", 0.231)),
                found.hear(claimed("n3")),
            ),
            None,
        ),
    ],
)
def test_a_failover_is_one_for_as_long_as_the_eip_is_held(happens, told):
    found = Noted(lambda: 0.0)
    happens(found)
    assert found.failover(EIP) == told


def test_hellos_that_cannot_be_read_are_told_with_their_age_and_others_are_not():
    now = [5.0]
    found = Noted(lambda: now[0])
    found.hear(Counts({HellosReceived("eth0", None): 3, HellosReceived("eth0", Rejected.WRONG_KEY): 1}, []))
    now[0] = 7.5
    assert found.rejected() == [("eth0", "wrong_key", 2.5)]


def test_of_eips_without_end_those_are_remembered_of_which_anything_happened_last(monkeypatch):
    monkeypatch.setattr(standing, "MOST", 2)
    found = Noted(lambda: 0.0)
    for number in range(3):
        found.hear(EipClaimed(EIP + number, HERE, 1, "n2", 0.2))
    assert [found.failover(EIP + number) for number in range(3)] == [None, ("n2", 0.2), ("n2", 0.2)]
    assert [bool(found.history(EIP + number)) for number in range(3)] == [False, True, True]


def test_why_this_node_does_not_hold_an_eip_is_what_was_decided_or_else_what_happened():
    found, eip = Noted(lambda: 0.0), ip_address("192.0.2.10")
    assert found.why_not(eip) == ""
    found.hear(EipClaimed(eip, HERE, 1, None))
    assert found.why_not(eip) == ""
    found.hear(EipYielded(eip, "drained", "n2"))
    assert found.why_not(eip) == "drained"
    found.decided = {eip: MayNotHold(eip, "lan", (), "no_carrier", "eth0: it has no carrier")}
    assert found.why_not(eip) == "no_carrier"
