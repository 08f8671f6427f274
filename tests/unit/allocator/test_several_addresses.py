"""A Service may have several addresses of a family: those that it names, and one of each pool that it names."""

import pytest


@pytest.fixture
def two(lan):
    lan.pool("lan", "192.0.2.1-192.0.2.2 2001:db8::1-2001:db8::2")
    lan.pool("dmz", "198.51.100.1-198.51.100.2 2001:db8:d::1-2001:db8:d::2")
    return lan


def test_each_pool_that_a_service_names_gives_it_an_address_in_the_order_in_which_it_names_them(two):
    assert two.ask("s1", pool="lan dmz") == "192.0.2.1 198.51.100.1"
    assert two.ask("s2", pool="dmz lan") == "198.51.100.2 192.0.2.2"
    assert two.pools_of("s2", pool="dmz lan") == ("dmz", "lan")


def test_of_each_family_that_it_asks_for(two):
    both = "192.0.2.1 198.51.100.1 2001:db8::1 2001:db8:d::1"
    assert two.ask("s1", pool="lan dmz", families="46", policy="require") == both
    assert two.ask("s1", pool="lan dmz") == "192.0.2.1 198.51.100.1"


def test_several_addresses_of_a_family_may_be_named_also_of_one_pool(two):
    assert two.ask("s1", addresses="192.0.2.2 192.0.2.1") == "192.0.2.2 192.0.2.1"
    assert two.ask("s2", addresses="198.51.100.2", pool="lan dmz") == "198.51.100.2 (pool_full)"
    assert two.ask("s2", addresses="198.51.100.2 198.51.100.1", pool="dmz") == "198.51.100.2 198.51.100.1"


def test_a_named_address_is_the_one_of_its_pool(two):
    assert two.ask("s1", addresses="198.51.100.2", pool="lan dmz") == "198.51.100.2 192.0.2.1"


def test_a_service_gets_what_there_is_and_is_told_which_pool_is_full(two):
    two.ask("s1", pool="dmz")
    two.ask("s2", pool="dmz")
    assert two.ask("s3", pool="lan dmz") == "192.0.2.1 (pool_full)"
    assert two.said[-1] == "pool has no free IPv4 address: dmz: add addresses or free some"
    assert two.ask("s3", pool="lan nope") == "192.0.2.1 (no_such_pool)"
    assert "there is no pool nope" in two.said[-1]
    two.gone("s1")
    assert two.ask("s3", pool="lan dmz") == "192.0.2.1 198.51.100.1"
    assert two.ask("s4", addresses="192.0.2.1 192.0.2.2") == "192.0.2.2 (address_in_use)"


def test_a_service_with_no_address_of_either_pool_has_none(two):
    two.pool("off", "203.0.113.1", disabled=True)
    assert two.ask("s1", pool="off nope") == "pool_disabled"


def test_more_pools_move_nothing_and_fewer_take_only_theirs_away(two):
    assert two.ask("s1") == "198.51.100.1"
    assert two.ask("s1", pool="lan dmz") == "192.0.2.1 198.51.100.1"
    assert two.ask("s1", pool="lan") == "192.0.2.1"
    assert two.used("dmz") == (2, 0, 1)
    assert two.ask("s1", pool="dmz lan") == "198.51.100.1 192.0.2.1"
    assert two.ask("s1") == "192.0.2.1"


def test_what_cannot_be_had_leaves_what_is_held(two):
    assert two.ask("s1", pool="lan dmz") == "192.0.2.1 198.51.100.1"
    assert two.ask("s1", pool="lan nope") == "192.0.2.1 198.51.100.1 (no_such_pool)"
    two.pool("dmz", "198.51.100.9")
    assert two.ask("s1", pool="lan dmz") == "192.0.2.1 198.51.100.1"
    assert two.flagged == "198.51.100.1"


def test_one_of_several_may_be_suspended_and_keeps_its_place(two):
    two.ask("s1", ports="80", addresses="192.0.2.1", share="k")
    assert two.ask("s2", ports="81", addresses="192.0.2.1 198.51.100.1", share="k") == "192.0.2.1 198.51.100.1"
    assert two.ask("s2", ports="80", addresses="192.0.2.1 198.51.100.1", share="k") == (
        "198.51.100.1 (shared_port_clash)"
    )
    two.restart()
    two.ask("s1", ports="80", addresses="192.0.2.1", share="k")
    assert two.ask("s2", ports="81", addresses="192.0.2.1 198.51.100.1", share="k") == "192.0.2.1 198.51.100.1"


def test_services_of_a_key_share_an_eip_of_each_pool(two):
    assert two.ask("s1", ports="80", pool="lan dmz", share="k") == "192.0.2.1 198.51.100.1"
    assert two.ask("s2", ports="81", pool="lan dmz", share="k") == "192.0.2.1 198.51.100.1"
    assert two.ask("s3", ports="80", pool="lan dmz", share="k") == "192.0.2.2 198.51.100.2"


def test_a_restart_forgets_none_of_them_and_all_of_them_come_back(two):
    had = two.ask("s1", pool="lan dmz", families="46", policy="prefer")
    two.restart()
    assert two.ask("s1", pool="lan dmz", families="46", policy="prefer") == had
    two.gone("s1")
    two.ask("s2", pool="lan dmz", families="46", policy="prefer")
    assert two.ask("s1", pool="lan dmz", families="46", policy="prefer") == had


def test_two_pools_that_overlap_never_give_the_same_address_twice(lan):
    lan.pool("a", "192.0.2.1-192.0.2.2")
    lan.pool("b", "192.0.2.1-192.0.2.2")
    assert lan.ask("s1", pool="a b") == "192.0.2.1 192.0.2.2"
    assert lan.ask("s2", pool="a b") == "pool_full"
