"""A restart changes nothing (peers.md §3, complaint 16)."""

import pytest

from speaker.allocator.assign import Allocator
from speaker.allocator.book import HeldAddresses, Ledger, Resting
from speaker.model import ServiceKey


def test_a_restart_yields_the_same_assignment_in_whatever_order_the_services_are_read(lan):
    lan.pool("a", "192.0.2.1", priority=1)
    lan.pool("b", "192.0.2.8/29 2001:db8::/64")
    asks = {
        "s1": {},
        "s2": {"families": "64", "policy": "prefer"},
        "s3": {"addresses": "192.0.2.12"},
        "s4": {"share": "k", "ports": "1"},
        "s5": {"share": "k", "ports": "2"},
    }
    before = {name: lan.ask(name, **fields) for name, fields in asks.items()}
    lan.restart()
    assert {name: lan.ask(name, **asks[name]) for name in reversed(asks)} == before


def test_what_was_not_read_again_yet_is_not_given_to_anybody(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    lan.restart()
    assert lan.ask("s2", addresses="192.0.2.1") == "address_in_use"
    assert lan.ask("s2", ports="81", share="k", addresses="192.0.2.1") == "address_in_use", "its ports are unknown"
    assert lan.ask("s2", ports="81") == "192.0.2.2"
    lan.ask("s1", share="k")
    assert lan.ask("s2", ports="81", share="k", addresses="192.0.2.1") == "192.0.2.1"


def test_a_restart_without_the_pool_keeps_the_holding_flagged(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.delete_pool("lan")
    lan.restart()
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.flagged == "192.0.2.1"


def test_rest_goes_on_after_a_restart_on_a_clock_that_began_anew(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.ask("s2")
    lan.gone("s2")
    lan.wait(50)
    lan.gone("s1")
    lan.restart(now=0.0)
    lan.wait(9)
    assert lan.used("lan") == (6, 0, 2)
    assert lan.ask("s3") == "192.0.2.3"
    lan.wait(1)
    assert lan.ask("s4") == "192.0.2.2", "fifty of its sixty seconds were over"
    assert lan.ask("s1") == "192.0.2.1", "the ledger knows who may come back"


def test_a_ledger_rests_no_longer_than_the_setting(lan):
    allocator = Allocator(rest=5.0)
    allocator.restore(Ledger(resting=(Resting("192.0.2.1", ServiceKey("d", "s1"), 3600.0),)), 100.0)
    assert allocator.ledger(100.0).resting[0].seconds == 5.0
    assert allocator.ledger(105.0).resting == ()


def test_what_is_held_does_not_rest_whatever_the_ledger_says():
    allocator = Allocator()
    held = HeldAddresses(ServiceKey("d", "s1"), ("192.0.2.1",), ("lan",))
    allocator.restore(Ledger((held,), (Resting("192.0.2.1", ServiceKey("d", "s2"), 9.0),)), 0.0)
    assert allocator.ledger(0.0).held == (held,)
    assert allocator.ledger(0.0).resting == ()


def test_the_revision_says_when_there_is_something_new_to_save(lan):
    lan.pool("lan", "192.0.2.0/29")
    seen = [lan.allocator.revision]

    def changed():
        seen.append(lan.allocator.revision)
        return seen[-1] != seen[-2]

    lan.ask("s1", share="k")
    assert changed()
    lan.ask("s1", share="k")
    lan.ask("s1", ports="81", share="k")
    lan.pool("lan", "192.0.2.0/28")
    assert not changed()
    lan.ask("s2", share="k")
    assert changed()
    lan.ask("s2", ports="81", share="k")
    assert changed(), "suspended"
    lan.gone("s2")
    assert changed()
    lan.gone("s1")
    assert changed(), "resting"
    lan.wait(60)
    lan.ask("nobody", families="6")
    assert changed(), "rested"


KEY = ServiceKey("default", "s1")


@pytest.mark.parametrize(
    ("ledger", "complaint"),
    [
        (Ledger(held=(HeldAddresses(KEY, ("192.0.2.1",), ("a", "b")),)), "1 addresses of 2 pools"),
        (Ledger(held=(HeldAddresses(KEY, ("192.0.2.1", "192.0.2.1"), ("a", "a")),)), "an address twice"),
        (
            Ledger(held=(HeldAddresses(KEY, ("192.0.2.1",), ("a",)), HeldAddresses(KEY, ("192.0.2.2",), ("a",)))),
            "twice",
        ),
        (Ledger(held=(HeldAddresses(KEY, ("elsewhere",), ("a",)),)), "elsewhere"),
        (Ledger(resting=(Resting("", KEY, 1.0),)), "''"),
    ],
)
def test_a_damaged_ledger_is_refused_whole(ledger, complaint):
    allocator = Allocator()
    with pytest.raises(ValueError, match=complaint):
        allocator.restore(ledger, 0.0)
    assert allocator.ledger(0.0) == Ledger()


def test_only_a_fresh_allocator_takes_a_ledger(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    with pytest.raises(ValueError, match="fresh"):
        lan.allocator.restore(Ledger(), 0.0)
