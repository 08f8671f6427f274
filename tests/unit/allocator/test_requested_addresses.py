"""A Service that names its address."""

import pytest


def test_the_pool_that_has_the_address_serves_it_whatever_its_priority_or_auto_assign(lan):
    lan.pool("lan", "192.0.2.0/24", priority=9)
    lan.pool("reserved", "198.51.100.0/24", auto_assign=False)
    assert lan.ask("s1", addresses="198.51.100.7") == "198.51.100.7"
    assert lan.pools_of("s1", addresses="198.51.100.7") == ("reserved",)


def test_a_free_choice_passes_over_addresses_that_were_asked_for(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", addresses="192.0.2.1")
    lan.ask("s2", addresses="192.0.2.3")
    assert [lan.ask(f"s{n}") for n in (3, 4)] == ["192.0.2.2", "192.0.2.4"]


def test_an_address_in_use_is_never_given_to_a_stranger(lan):
    """OpenELB grants it to any namespace (peers.md §1d defect 2)."""
    lan.pool("lan", "192.0.2.0/29")
    assert lan.ask("red/s1") == "192.0.2.1"
    assert lan.ask("blue/s1", addresses="192.0.2.1") == "address_in_use"
    assert "held by a Service of another namespace: ask for another address" in lan.said[-1]
    assert "(by red/s1)" in lan.said[-1]
    lan.gone("red/s1")
    assert lan.ask("blue/s1", addresses="192.0.2.1") == "192.0.2.1"


def test_asking_for_another_address_moves_the_service(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    assert lan.ask("s1", addresses="192.0.2.5") == "192.0.2.5"
    assert lan.ask("s1") == "192.0.2.5"  # it no longer insists, and stays
    assert lan.used("lan") == (6, 1, 1)


def test_asking_for_what_another_holds_leaves_the_service_where_it_is(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.ask("s2")
    assert lan.ask("s1", addresses="192.0.2.2") == "192.0.2.1 (address_in_use)"
    lan.gone("s2")
    assert lan.ask("s1", addresses="192.0.2.2") == "192.0.2.2"


@pytest.mark.parametrize(
    ("fields", "answer", "sentence"),
    [
        ({"addresses": "203.0.113.1"}, "address_not_in_pool", "no pool that it may use has it"),
        ({"addresses": "198.51.100.1", "pool": "lan"}, "address_not_in_pool", "pool lan does not have it"),
        ({"addresses": "192.0.2.1", "pool": "nope"}, "no_such_pool", "it may use: dmz, lan"),
        ({"addresses": "192.0.2.5"}, "address_excluded", "pool lan excludes 192.0.2.5"),
        ({"addresses": "192.0.2.7"}, "address_avoided", "avoidNetworkAndBroadcast"),
        ({"addresses": "192.0.2.0"}, "address_avoided", "avoidNetworkAndBroadcast"),
        ({"addresses": "192.0.2.255"}, "address_avoided", "list it singly"),
        ({"addresses": "192.0.2.255", "pool": "lan"}, "address_avoided", "pool lan avoids"),
        ({"addresses": "2001:db8::"}, "address_of_other_family", "IPv4 only"),
        ({"addresses": "2001:db8::", "families": "6"}, "address_avoided", "anycast"),
        ({"addresses": "192.0.2.1", "families": "6"}, "address_of_other_family", "IPv6 only"),
        ({"addresses": "2001:db8::1", "families": "46"}, "address_of_other_family", "IPv4 only"),
        ({"addresses": "192.0.2.1", "pool": "lan"}, "192.0.2.1", None),
        ({"addresses": "2001:db8::1 192.0.2.1", "families": "46", "policy": "require"}, "192.0.2.1 2001:db8::1", None),
        ({"addresses": "2001:db8::9", "families": "46", "policy": "require"}, "192.0.2.1 2001:db8::9", None),
    ],
)
def test_what_may_be_asked_for(lan, fields, answer, sentence):
    lan.pool("lan", "192.0.2.0/29 192.0.2.250-192.0.3.5 2001:db8::/64", exclude="192.0.2.5")
    lan.pool("dmz", "198.51.100.0/29")
    assert lan.ask("s1", **fields) == answer
    assert sentence is None or sentence in lan.said[-1]


def test_an_avoided_address_can_be_asked_for_where_the_pool_says_so(lan):
    lan.pool("lan", "192.0.2.0/29", avoid_network_and_broadcast=False)
    lan.pool("dmz", "198.51.100.0/29 198.51.100.0")
    assert lan.ask("s1", addresses="192.0.2.7") == "192.0.2.7"
    assert lan.ask("s2", addresses="198.51.100.0") == "198.51.100.0"


def test_where_pools_overlap_an_address_has_one_pool_and_one_holder(lan):
    """It is announced on one link; the first pool by priority, then name, is it."""
    lan.pool("b", "192.0.2.0/29")
    lan.pool("a", "192.0.2.0/28")
    assert lan.pools_of("s1", addresses="192.0.2.1") == ("a",)
    assert lan.ask("s2", addresses="192.0.2.1", pool="b") == "address_in_use"
    assert lan.ask("s3", pool="b") == "192.0.2.2"
    assert lan.ask("s1", addresses="192.0.2.1", pool="b") == "192.0.2.1 (address_in_use)"
    assert "(from pool a)" in lan.said[-1]
    assert (lan.used("a"), lan.used("b")) == ((14, 2, 0), (6, 2, 0))
