"""A pool may say how many of its addresses a namespace gets: what it has it keeps, and what is shared counts once."""

import pytest

from speaker.model import Family


@pytest.fixture
def two_each(lan):
    lan.pool("lan", "192.0.2.1-192.0.2.9 2001:db8::1-2001:db8::9", per_namespace=2)
    assert [lan.ask(f"red/s{n}") for n in (1, 2)] == ["192.0.2.1", "192.0.2.2"]
    return lan


def test_each_namespace_gets_no_more_than_it_may_of_each_family(two_each):
    assert two_each.ask("red/s3") == "namespace_full"
    assert (
        two_each.said[-1] == "namespace red has all IPv4 addresses that it may have, 2 of pool lan: free or share one"
    )
    assert two_each.ask("red/s3", addresses="192.0.2.9") == "namespace_full"
    assert two_each.ask("red/s3", families="6") == "2001:db8::1"
    assert two_each.ask("blue/s1") == "192.0.2.3"
    two_each.gone("red/s1")
    assert two_each.ask("red/s4") == "192.0.2.4"


def test_another_pool_is_tried_as_if_that_one_were_full(two_each):
    two_each.pool("spare", "198.51.100.1", priority=-1)
    assert two_each.ask("red/s3") == "198.51.100.1"
    assert two_each.ask("red/s4", pool="lan spare") == "namespace_full"


def test_whoever_has_more_when_that_is_lowered_keeps_it_and_gets_nothing_new(two_each):
    two_each.pool("lan", "192.0.2.1-192.0.2.9", per_namespace=1)
    assert [two_each.ask(f"red/s{n}") for n in (1, 2)] == ["192.0.2.1", "192.0.2.2"]
    two_each.restart()
    assert [two_each.ask(f"red/s{n}") for n in (1, 2)] == ["192.0.2.1", "192.0.2.2"]
    two_each.gone("red/s1")
    assert two_each.ask("red/s3") == "namespace_full"
    assert two_each.allocator.usage("lan")[Family.IPV4].full == (("red", 1),)


def test_an_eip_counts_once_for_each_namespace_that_shares_it(lan):
    lan.pool("lan", "192.0.2.1-192.0.2.9", per_namespace=1)
    both = {"share": "k", "share_with": "red blue"}
    assert lan.ask("red/s1", ports="80", **both) == "192.0.2.1"
    assert lan.ask("red/s2", ports="81", **both) == "192.0.2.1"
    assert lan.ask("blue/s1", ports="82", **both) == "192.0.2.1"
    assert lan.ask("blue/s2") == "namespace_full"
    lan.gone("red/s1")
    assert lan.ask("red/s3") == "namespace_full"
    lan.gone("blue/s1")
    assert lan.ask("blue/s2") == "192.0.2.2"
    assert lan.ask("blue/s3", ports="83", addresses="192.0.2.1", **both) == "namespace_full"


def test_whoever_has_all_it_may_can_still_exchange_what_it_has(two_each):
    assert two_each.ask("red/s2", addresses="192.0.2.9") == "192.0.2.9"
    assert two_each.ask("red/s2", addresses="192.0.2.8 192.0.2.9") == "192.0.2.9 (namespace_full)"
    assert two_each.used("lan")[1] == 2
    two_each.pool("dmz", "198.51.100.1", disabled=True)
    assert two_each.ask("red/s2", pool="lan dmz", addresses="192.0.2.7") == "192.0.2.7 (pool_disabled)"
    assert two_each.used("lan")[1] == 2


def test_what_is_released_and_renumbered_counts_by_the_pool_that_it_is_from(lan):
    lan.pool("old", "192.0.2.1-192.0.2.9")
    lan.ask("red/s1")
    lan.ask("red/s2")
    lan.delete_pool("old")
    lan.pool("new", "198.51.100.1-198.51.100.9", per_namespace=1)
    assert lan.ask("red/s1", release=True) == "198.51.100.1"
    assert lan.ask("red/s2", release=True) == "192.0.2.2 (namespace_full)"


def test_a_pool_that_takes_over_an_eip_counts_it(lan):
    lan.pool("lan", "192.0.2.1-192.0.2.9")
    lan.ask("red/s1")
    lan.delete_pool("lan")
    lan.pool("renamed", "192.0.2.1-192.0.2.9", per_namespace=1)
    assert lan.ask("red/s2") == "namespace_full"
