"""Which pool serves a Service that does not name an address."""

import pytest

from speaker.model import Family


def test_the_lowest_free_address_comes_first_and_holes_are_filled(lan):
    lan.pool("lan", "192.0.2.0/29")
    assert [lan.ask(f"s{n}") for n in (1, 2, 3)] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    lan.gone("s1")
    lan.gone("s2")
    lan.wait(60)
    assert [lan.ask(f"s{n}") for n in (4, 5, 6)] == ["192.0.2.1", "192.0.2.2", "192.0.2.4"]


def test_asking_again_changes_nothing(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    revision = lan.allocator.revision
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.ask("s1", ports="443", label="app=web") == "192.0.2.1"
    assert lan.allocator.revision == revision


def test_the_higher_priority_comes_first_then_the_name(lan):
    lan.pool("c", "192.0.2.3")
    lan.pool("b", "192.0.2.2")
    lan.pool("a", "192.0.2.1", priority=-1)
    lan.pool("d", "192.0.2.4", priority=10)
    assert [lan.ask(f"s{n}") for n in (1, 2, 3, 4)] == ["192.0.2.4", "192.0.2.2", "192.0.2.3", "192.0.2.1"]


def test_a_full_pool_falls_through_to_the_next_and_the_service_stays_put_afterwards(lan):
    """OpenELB alternates A→B→A once the preferred pool was full (peers.md §1d defect 1)."""
    lan.pool("preferred", "192.0.2.1", priority=1)
    lan.pool("other", "198.51.100.1")
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.ask("s2") == "198.51.100.1"
    assert lan.ask("s2") == "198.51.100.1"
    lan.gone("s1")
    lan.wait(60)
    assert lan.ask("s2") == "198.51.100.1"
    assert lan.ask("s3") == "192.0.2.1"


def test_when_every_pool_is_full_the_refusal_names_them(lan):
    lan.pool("a", "192.0.2.1")
    lan.pool("b", "192.0.2.2")
    lan.ask("s1")
    lan.ask("s2")
    assert lan.ask("s3") == "pool_full"
    assert lan.said == ["pools have no free IPv4 address: a, b: add addresses or free some"]
    lan.gone("s1")
    assert lan.ask("s3") == "192.0.2.1"  # s1 frees its address, s3 can grab it


def test_the_pool_asked_for_serves_even_without_auto_assign(lan):
    lan.pool("lan", "192.0.2.1")
    lan.pool("reserved", "198.51.100.1", auto_assign=False, priority=9)
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.ask("s2") == "pool_full"
    assert lan.ask("s2", pool="reserved") == "198.51.100.1"


def test_a_full_pool_that_was_asked_for_does_not_fall_through(lan):
    lan.pool("a", "192.0.2.1")
    lan.pool("b", "192.0.2.2")
    lan.ask("s1")
    assert lan.ask("s2", pool="a") == "pool_full"


def test_selectors_decide_who_may_use_a_pool(lan):
    lan.label_namespaces(red="tier=gold", blue="tier=tin")
    lan.pool("red", "192.0.2.0/29", namespaces="red", priority=3)
    lan.pool("gold", "192.0.2.16/29", namespace_label="tier=gold", priority=2)
    lan.pool("web", "192.0.2.32/29", service_label="app=web", priority=1)
    lan.pool("rest", "192.0.2.48/29")
    assert lan.pools_of("red/s1") == ("red",)
    assert lan.pools_of("blue/s1", label="app=web") == ("web",)
    assert lan.pools_of("blue/s2", label="app=db") == ("rest",)
    lan.delete_pool("red")
    assert lan.pools_of("red/s2", label="app=web") == ("gold",)


def test_a_namespace_list_and_a_namespace_selector_let_in_whoever_matches_either(lan):
    lan.label_namespaces(red="tier=gold", blue="tier=tin", green="tier=tin")
    lan.pool("some", "192.0.2.0/29", namespaces="blue", namespace_label="tier=gold")
    assert lan.ask("red/s1") == "192.0.2.1"
    assert lan.ask("blue/s1") == "192.0.2.2"
    assert lan.ask("green/s1") == "no_pool_fits"


def test_of_a_list_of_selectors_any_one_lets_in(lan):
    lan.label_namespaces(red="tier=gold", blue="tier=tin", green="tier=lead")
    lan.pool("some", "192.0.2.0/29", namespace_label="tier=gold|tier=tin", service_label="app=web|app=dns")
    assert lan.ask("red/s1", label="app=web") == "192.0.2.1"
    assert lan.ask("blue/s1", label="app=dns") == "192.0.2.2"
    assert lan.ask("green/s1", label="app=web") == "no_pool_fits"
    assert lan.ask("red/s2", label="app=db") == "no_pool_fits"
    assert "its serviceSelector wants the label app=web or app=dns" in lan.said[-1]


def test_every_namespace_carries_its_own_name_as_a_label(lan):
    lan.pool("red", "192.0.2.0/29", namespace_label="kubernetes.io/metadata.name=red")
    assert lan.ask("red/s1") == "192.0.2.1"
    assert lan.ask("blue/s1") == "no_pool_fits"


def test_a_namespace_that_gains_a_label_gains_the_pool(lan):
    lan.pool("gold", "192.0.2.0/29", namespace_label="tier=gold")
    assert lan.ask("red/s1") == "no_pool_fits"
    lan.label_namespaces(red="tier=gold")
    assert lan.ask("red/s1") == "192.0.2.1"
    lan.label_namespaces()
    assert lan.ask("red/s1") == "192.0.2.1"  # and keeps what it has when it loses the label
    assert lan.flagged == "192.0.2.1"


def test_asking_for_another_pool_moves_the_service_and_dropping_the_wish_does_not_move_it_back(lan):
    lan.pool("a", "192.0.2.1")
    lan.pool("b", "192.0.2.2")
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.ask("s1", pool="b") == "192.0.2.2"
    assert lan.ask("s1") == "192.0.2.2"
    assert lan.used("a") == (1, 0, 1)


def test_a_wish_that_cannot_be_met_leaves_the_service_where_it_is(lan):
    lan.pool("a", "192.0.2.1")
    lan.pool("b", "192.0.2.2")
    lan.ask("s1")
    lan.ask("s2")
    assert lan.ask("s1", pool="b") == "192.0.2.1 (pool_full)"
    assert lan.ask("s1", pool="c") == "192.0.2.1 (no_such_pool)"
    lan.gone("s2")
    assert lan.ask("s1", pool="b") == "192.0.2.2"


@pytest.mark.parametrize(
    ("fields", "reason", "sentence"),
    [
        ({"pool": "nope"}, "no_such_pool", "there is no pool nope"),
        ({"pool": "off"}, "pool_disabled", "enable it"),
        ({"pool": "blue-only"}, "pool_not_allowed", "do not allow namespace default"),
        ({"pool": "web-only"}, "pool_not_allowed", "serviceSelector wants the label app=web"),
        ({"pool": "six"}, "no_address_of_family", "pool six has no IPv4 addresses"),
        ({}, "no_address_of_family", "no pool that serves this Service has IPv4 addresses"),
        ({"addresses": "192.0.2.2"}, "pool_not_allowed", "do not allow namespace default"),
        ({"addresses": "192.0.2.1"}, "pool_disabled", "gives nothing new"),
    ],
)
def test_a_refusal_names_its_reason_and_what_to_change(lan, fields, reason, sentence):
    lan.pool("off", "192.0.2.1", disabled=True)
    lan.pool("blue-only", "192.0.2.2", namespaces="blue")
    lan.pool("web-only", "192.0.2.3", service_label="app=web")
    lan.pool("six", "2001:db8::1")
    assert lan.ask("s1", **fields) == reason
    assert sentence in lan.said[-1]


def test_when_no_pool_fits_each_says_why(lan):
    assert lan.ask("s1") == "no_pool_fits"
    assert lan.said[-1] == "there is no pool: create an Eip"
    lan.pool("off", "192.0.2.1", disabled=True)
    lan.pool("blue-only", "192.0.2.2", namespaces="blue")
    lan.pool("named", "192.0.2.3", auto_assign=False)
    assert lan.ask("s1") == "no_pool_fits"
    assert lan.said[-1] == (
        "no pool serves this Service (off: it is disabled; named: its autoAssign is false, so it must be asked for by "
        "name) (blue-only: its namespaces and namespaceSelector do not allow namespace default)"
    )


def test_use_is_counted_per_pool_and_family(lan):
    lan.pool("lan", "192.0.2.0/29 2001:db8::/64")
    lan.ask("s1", families="46", policy="require")
    lan.ask("s2")
    lan.gone("s2")
    assert lan.used("lan") == (6, 1, 1)
    assert lan.used("lan", Family.IPV6) == (2**64 - 1, 1, 0)
    with pytest.raises(KeyError):
        lan.used("nope")
