"""Two families: in the order asked for, independently kept, together or not at all where that is required."""

import pytest

DUAL = "192.0.2.1 2001:db8::1"


@pytest.mark.parametrize(
    ("families", "policy", "answer"),
    [
        ("4", "single", "192.0.2.1"),
        ("6", "single", "2001:db8::1"),
        ("46", "single", "192.0.2.1"),
        ("64", "single", "2001:db8::1"),
        ("46", "prefer", "192.0.2.1 2001:db8::1"),
        ("64", "prefer", "2001:db8::1 192.0.2.1"),
        ("4", "prefer", "192.0.2.1"),
        ("46", "require", "192.0.2.1 2001:db8::1"),
        ("64", "require", "2001:db8::1 192.0.2.1"),
        ("6", "require", "2001:db8::1 192.0.2.1"),
    ],
)
def test_families_come_in_the_order_asked_for(lan, families, policy, answer):
    lan.pool("lan", "192.0.2.0/29 2001:db8::/64")
    assert lan.ask("s1", families=families, policy=policy) == answer


@pytest.mark.parametrize(
    ("pool", "families", "policy", "answer"),
    [
        ("192.0.2.1", "46", "prefer", "192.0.2.1 (no_address_of_family)"),
        ("192.0.2.1", "64", "prefer", "192.0.2.1 (no_address_of_family)"),
        ("192.0.2.1", "46", "require", "no_address_of_family"),
        ("192.0.2.1", "64", "require", "no_address_of_family"),
        ("2001:db8::1", "46", "prefer", "2001:db8::1 (no_address_of_family)"),
        ("2001:db8::1", "64", "prefer", "2001:db8::1 (no_address_of_family)"),
    ],
)
def test_preferred_means_what_there_is_and_required_means_both_or_nothing(lan, pool, families, policy, answer):
    lan.pool("lan", pool)
    assert lan.ask("s1", families=families, policy=policy) == answer
    if "(" not in answer:
        assert not lan.allocator.holders, "nothing may be held back for a Service that was refused"


def test_the_second_family_comes_from_the_same_pool_where_it_has_both(lan):
    lan.pool("a", "192.0.2.0/29")
    lan.pool("b", "198.51.100.0/29 2001:db8:b::/64")
    lan.pool("c", "2001:db8:c::/64", priority=5)
    assert lan.pools_of("s1", families="46", policy="require") == ("a", "c")
    assert lan.pools_of("s2", families="46", policy="require", addresses="198.51.100.1") == ("b", "b")
    assert lan.pools_of("s3", families="46", policy="require", pool="b") == ("b", "b")
    assert lan.ask("s4", families="46", policy="require", pool="c") == "no_address_of_family"


def test_an_address_that_was_named_opens_no_other_family_of_a_pool_that_serves_by_name_only(lan):
    lan.pool("lan", "2001:db8::/64")
    lan.pool("reserved", "192.0.2.0/29 2001:db8:1::/64", auto_assign=False, priority=5)
    assert lan.pools_of("s1", families="46", policy="require", addresses="192.0.2.1") == ("reserved", "lan")


def test_a_family_is_added_and_dropped_without_touching_the_other(lan):
    lan.pool("lan", "192.0.2.0/29 2001:db8::/64")
    lan.ask("s1")
    assert lan.ask("s2") == "192.0.2.2"
    assert lan.ask("s2", families="46", policy="prefer") == "192.0.2.2 2001:db8::1"
    assert lan.ask("s2", families="64", policy="prefer") == "2001:db8::1 192.0.2.2"
    assert lan.ask("s2", families="6") == "2001:db8::1"
    assert lan.used("lan") == (6, 1, 1)
    assert lan.ask("s2", families="46", policy="require") == "192.0.2.2 2001:db8::1"  # it comes back in time


def test_the_family_added_later_prefers_the_pool_of_the_first(lan):
    lan.pool("a", "192.0.2.1 2001:db8:a::1")
    assert lan.ask("s1") == "192.0.2.1"
    lan.pool("b", "2001:db8:b::1", priority=9)
    assert lan.pools_of("s1", families="46", policy="prefer") == ("a", "a")


def test_a_family_that_is_added_but_not_to_be_had_takes_nothing_away(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    assert lan.ask("s1", families="46", policy="require") == "192.0.2.1 (no_address_of_family)"
    assert lan.ask("s1", families="64", policy="prefer") == "192.0.2.1 (no_address_of_family)"
    lan.pool("lan", "192.0.2.0/29 2001:db8::1")
    assert lan.ask("s1", families="46", policy="require") == DUAL


def test_replacing_one_family_by_another_gives_the_first_one_up(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    assert lan.ask("s1", families="6") == "no_address_of_family"
    assert lan.used("lan") == (6, 0, 1)


def test_a_required_address_that_is_taken_keeps_the_other_family_free_too(lan):
    lan.pool("lan", "192.0.2.0/29 2001:db8::/64")
    lan.ask("s1", families="6", addresses="2001:db8::5")
    wish = {"families": "46", "addresses": "192.0.2.1 2001:db8::5"}
    assert lan.ask("s2", policy="require", **wish) == "address_in_use"
    assert lan.used("lan") == (6, 0, 0)
    assert lan.ask("s2", policy="prefer", **wish) == "192.0.2.1 (address_in_use)"


def test_where_only_the_primary_family_is_full_the_other_one_is_given_and_the_primary_follows_when_it_can(lan):
    lan.pool("lan", "192.0.2.1 2001:db8::/64")
    lan.ask("first")
    wish = {"families": "46", "policy": "prefer"}
    assert lan.ask("s1", **wish) == "2001:db8::1 (pool_full)"
    lan.gone("first")
    assert lan.ask("s1", **wish) == "192.0.2.1 2001:db8::1"


def test_who_names_an_address_of_its_primary_family_does_not_want_just_another(lan):
    lan.pool("lan", "192.0.2.1 2001:db8::/64")
    lan.ask("first")
    assert lan.ask("s1", families="46", policy="prefer", addresses="192.0.2.1") == "address_in_use"
    assert lan.ask("s2", families="46", policy="prefer", addresses="2001:db8::5") == "2001:db8::5 (pool_full)"
