"""A Service that asks for it gives up what its pool does not offer to it any more, once."""

import pytest


@pytest.fixture
def renumbered(lan):
    """``s1`` and ``s2`` have addresses of a prefix that the pool has no more."""
    lan.pool("lan", "192.0.2.1-192.0.2.4")
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.ask("s2") == "192.0.2.2"
    lan.pool("lan", "198.51.100.1-198.51.100.2")
    assert lan.ask("s1") == "192.0.2.1"
    return lan


def test_what_is_not_offered_any_more_is_given_up_for_what_is(renumbered):
    assert renumbered.ask("s1", release=True) == "198.51.100.1"
    assert renumbered.ask("s2") == "192.0.2.2"
    assert renumbered.flagged == "192.0.2.2"


def test_what_is_offered_stays(lan):
    lan.pool("lan", "192.0.2.1-192.0.2.4")
    assert lan.ask("s1") == "192.0.2.1"
    lan.pool("lan", "192.0.2.1", disabled=True)
    lan.pool("better", "198.51.100.1", priority=9)
    assert lan.ask("s1", release=True) == "192.0.2.1"


def test_a_pool_that_is_being_deleted_offers_nothing_any_more(lan):
    lan.pool("lan", "192.0.2.1")
    assert lan.ask("s1") == "192.0.2.1"
    lan.pool("lan", "192.0.2.1", disabled=True, terminating=True)
    assert lan.ask("s1", release=True) == "192.0.2.1 (no_pool_fits)"
    lan.pool("better", "198.51.100.1")
    assert lan.ask("s1", release=True) == "198.51.100.1"


@pytest.mark.parametrize("restarted", [False, True])
def test_it_happens_once_until_it_is_asked_for_anew(renumbered, restarted):
    assert renumbered.ask("s1", release=True) == "198.51.100.1"
    renumbered.pool("lan", "203.0.113.1-203.0.113.2")
    if restarted:
        renumbered.restart()
    assert renumbered.ask("s1", release=True) == "198.51.100.1"
    assert renumbered.flagged == "198.51.100.1"
    assert renumbered.ask("s1") == "198.51.100.1"
    assert renumbered.ask("s1", release=True) == "203.0.113.1"


def test_who_asks_while_nothing_is_to_be_given_up_has_asked(lan):
    lan.pool("lan", "192.0.2.1")
    assert lan.ask("s1", release=True) == "192.0.2.1"
    lan.pool("lan", "198.51.100.1")
    assert lan.ask("s1", release=True) == "192.0.2.1"


def test_without_another_address_it_stays_and_goes_as_soon_as_there_is_one(renumbered):
    renumbered.pool("lan", "198.51.100.1")
    renumbered.ask("s3")
    assert renumbered.ask("s1", release=True) == "192.0.2.1 (pool_full)"
    assert not renumbered.left("s1")
    renumbered.delete_pool("lan")
    assert renumbered.ask("s1", release=True) == "192.0.2.1 (no_pool_fits)"
    renumbered.pool("lan", "198.51.100.1-198.51.100.2")
    assert renumbered.ask("s1", release=True) == "198.51.100.2"


def test_it_takes_nothing_from_anybody(renumbered):
    renumbered.pool("red", "203.0.113.1", namespaces="red")
    renumbered.pool("lan", "198.51.100.1")
    renumbered.ask("s3")
    assert renumbered.ask("s1", release=True) == "192.0.2.1 (pool_full)"
    assert renumbered.ask("s1", release=True, addresses="198.51.100.1") == "192.0.2.1 (address_in_use)"
    assert renumbered.ask("s1", release=True, addresses="203.0.113.1") == "192.0.2.1 (pool_not_allowed)"
    assert renumbered.ask("s1", release=True, addresses="192.0.2.1") == "192.0.2.1 (address_not_in_pool)"


def test_of_several_addresses_only_those_that_are_not_offered_go(lan):
    lan.pool("lan", "192.0.2.1")
    lan.pool("dmz", "198.51.100.1-198.51.100.2")
    assert lan.ask("s1", pool="lan dmz") == "192.0.2.1 198.51.100.1"
    lan.pool("dmz", "198.51.100.2")
    assert lan.ask("s1", pool="lan dmz", release=True) == "192.0.2.1 198.51.100.2"


def test_those_who_share_an_eip_meet_again_at_the_next(renumbered):
    renumbered.pool("lan", "192.0.2.8 198.51.100.1-198.51.100.2")
    assert renumbered.ask("s3", share="k", ports="80", addresses="192.0.2.8") == "192.0.2.8"
    assert renumbered.ask("s4", share="k", ports="81") == "192.0.2.8"
    renumbered.pool("lan", "198.51.100.1-198.51.100.2")
    assert renumbered.ask("s3", share="k", ports="80", release=True) == "198.51.100.1"
    assert renumbered.ask("s4", share="k", ports="81") == "192.0.2.8"
    assert renumbered.ask("s4", share="k", ports="81", release=True) == "198.51.100.1"


def test_a_service_that_is_gone_is_forgotten(renumbered):
    renumbered.ask("s1", release=True)
    renumbered.gone("s1")
    assert not renumbered.left("s1")
