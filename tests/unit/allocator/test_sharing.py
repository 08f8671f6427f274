"""Several Services on one EIP: with everybody's consent, and never at the expense of who was there first."""

import pytest

from speaker.allocator.choose import JOIN_LOOKS, MAX_SHARING


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ({"share": "k"}, {"share": "k", "ports": "443"}, "192.0.2.1"),
        ({"share": "k"}, {"share": "k", "ports": "80/udp"}, "192.0.2.1"),
        ({"share": "k", "ports": "53/udp 53/tcp"}, {"share": "k", "ports": "80 443"}, "192.0.2.1"),
        ({"share": "k"}, {"share": "k"}, "shared_port_clash"),
        ({"share": "k", "ports": "443 80"}, {"share": "k", "ports": "80 81"}, "shared_port_clash"),
        ({"share": "k"}, {"share": "other", "ports": "443"}, "address_in_use"),
        ({"share": "k"}, {"ports": "443"}, "address_in_use"),
        ({}, {"share": "k", "ports": "443"}, "address_in_use"),
        ({}, {"ports": "443"}, "address_in_use"),
        ({"share": "k", "local": True, "picks": "app=a"}, {"share": "k", "ports": "1", "picks": "app=a"}, "192.0.2.1"),
        (
            {"share": "k", "local": True, "picks": "app=a"},
            {"share": "k", "ports": "1", "picks": "app=b"},
            "shared_backends",
        ),
        (
            {"share": "k", "picks": "app=a"},
            {"share": "k", "ports": "1", "picks": "app=b", "local": True},
            "shared_backends",
        ),
        ({"share": "k", "local": True}, {"share": "k", "ports": "1", "local": True}, "shared_backends"),
        ({"share": "k", "picks": "app=a"}, {"share": "k", "ports": "1", "picks": "app=b"}, "192.0.2.1"),
    ],
)
def test_one_address_is_shared_only_by_mutual_consent(lan, first, second, answer):
    lan.pool("lan", "192.0.2.0/29")
    assert lan.ask("s1", addresses="192.0.2.1", **first) == "192.0.2.1"
    assert lan.ask("s2", addresses="192.0.2.1", **second) == answer
    assert lan.ask("s1", addresses="192.0.2.1", **first) == "192.0.2.1"


@pytest.mark.parametrize(
    ("red_names", "blue_names", "answer"),
    [
        ("blue", "red", "192.0.2.1"),
        ("blue green", "green red", "192.0.2.1"),
        ("blue", "", "shared_namespace"),
        ("", "red", "shared_namespace"),
        ("", "", "shared_namespace"),
        ("red", "blue", "shared_namespace"),
    ],
)
def test_namespaces_share_only_when_each_names_the_other(lan, red_names, blue_names, answer):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("red/s1", share="k", share_with=red_names)
    asked = lan.ask("blue/s1", ports="81", share="k", share_with=blue_names, addresses="192.0.2.1")
    assert asked == answer
    # A free choice finds the same: it joins where it may, and takes an address of its own where it may not.
    free = lan.ask("blue/s2", ports="82", share="k", share_with=blue_names)
    assert free == ("192.0.2.1" if answer == "192.0.2.1" else "192.0.2.2")


def test_a_selector_selects_pods_of_its_own_namespace_alone(lan):
    lan.pool("lan", "192.0.2.0/29")
    sharing = {"share": "k", "local": True, "picks": "app=a", "addresses": "192.0.2.1"}
    assert lan.ask("red/s1", share_with="blue", **sharing) == "192.0.2.1"
    assert lan.ask("blue/s1", ports="81", share_with="red", **sharing) == "shared_backends"
    assert "in one namespace" in lan.said[-1]
    assert lan.ask("red/s2", ports="82", **sharing) == "192.0.2.1"


def test_the_same_key_means_the_same_address_where_possible(lan):
    lan.pool("lan", "192.0.2.0/29")
    assert lan.ask("other") == "192.0.2.1"
    assert lan.ask("dns-udp", ports="53/udp", share="dns") == "192.0.2.2"
    assert lan.ask("dns-tcp", ports="53/tcp", share="dns") == "192.0.2.2"
    assert lan.ask("dns-two", ports="53/tcp", share="dns") == "192.0.2.3"
    assert lan.ask("dns-tls", ports="853/tcp", share="dns") == "192.0.2.2"
    assert lan.used("lan") == (6, 3, 0)


def test_both_families_are_shared_with_the_same_partner(lan):
    lan.pool("lan", "192.0.2.0/29 2001:db8::/64")
    both = {"families": "46", "policy": "require", "share": "k"}
    assert lan.ask("s1", **both) == "192.0.2.1 2001:db8::1"
    assert lan.ask("s2", ports="81", **both) == "192.0.2.1 2001:db8::1"
    lan.gone("s1")
    assert lan.used("lan") == (6, 1, 0)


def test_nobody_joins_an_eip_of_a_pool_that_it_may_not_use(lan):
    lan.pool("web", "192.0.2.1", service_label="app=web", priority=5)
    lan.pool("lan", "198.51.100.1")
    lan.ask("s1", share="k", label="app=web")
    assert lan.ask("s2", ports="81", share="k") == "198.51.100.1"
    assert lan.ask("s3", ports="82", share="k", addresses="192.0.2.1") == "pool_not_allowed"
    assert lan.ask("s4", ports="83", share="k", label="app=web") == "192.0.2.1"


def test_nobody_joins_an_eip_of_a_pool_that_gives_nothing_new(lan):
    lan.pool("lan", "192.0.2.1")
    lan.ask("s1", share="k")
    lan.pool("lan", "192.0.2.1", disabled=True)
    assert lan.ask("s2", ports="81", share="k") == "no_pool_fits"
    assert lan.ask("s2", ports="81", share="k", addresses="192.0.2.1") == "pool_disabled"


def test_a_share_key_that_is_added_later_moves_nobody(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    assert lan.ask("s2", ports="81") == "192.0.2.2"
    assert lan.ask("s2", ports="81", share="k") == "192.0.2.2"
    assert lan.ask("s2", ports="81", share="k", addresses="192.0.2.1") == "192.0.2.1"


def test_an_address_rests_only_after_its_last_holder_left(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    lan.ask("s2", ports="81", share="k")
    lan.gone("s1")
    assert lan.used("lan") == (6, 1, 0)
    assert lan.ask("s3", share="k") == "192.0.2.1"  # port 80 is free again
    lan.gone("s2")
    lan.gone("s3")
    assert lan.used("lan") == (6, 0, 1)


# ── Who changes so that it clashes is suspended ───────────────────────────────────────────────────────────────

CHANGES = pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"share": "k", "ports": "80"}, "shared_port_clash"),
        ({"share": "k", "ports": "81 80"}, "shared_port_clash"),
        ({"share": "other", "ports": "81"}, "address_in_use"),
        ({"ports": "81"}, "address_in_use"),
        ({"share": "k", "ports": "81", "local": True, "picks": "app=b"}, "shared_backends"),
    ],
)


@CHANGES
def test_a_change_that_clashes_hurts_only_who_made_it_and_is_undone_by_undoing_it(lan, change, reason):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    assert lan.ask("s2", ports="81", share="k") == "192.0.2.1"
    assert lan.ask("s2", **change) == reason
    assert lan.ask("s1", share="k") == "192.0.2.1"
    assert lan.ask("s1", share="k", ports="80 443") == "192.0.2.1", "the others may even go on changing"
    assert lan.ask("s2", ports="81", share="k") == "192.0.2.1"


@CHANGES
def test_the_suspended_service_is_served_again_when_the_other_leaves(lan, change, reason):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    lan.ask("s2", ports="81", share="k")
    assert lan.ask("s2", **change) == reason
    lan.gone("s1")
    assert lan.ask("stranger", addresses="192.0.2.1") == "address_in_use", "its place is kept for it"
    assert lan.ask("s3", share="k", ports="7", addresses="192.0.2.1") == "address_in_use"
    assert lan.ask("s2", **change) == "192.0.2.1"


@CHANGES
def test_the_suspended_service_moves_when_it_asks_to(lan, change, reason):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    lan.ask("s2", ports="81", share="k")
    assert lan.ask("s2", **change) == reason
    assert lan.ask("s2", addresses="192.0.2.5", **change) == "192.0.2.5"
    assert lan.ask("s1", share="k") == "192.0.2.1"


def test_a_suspended_service_stays_suspended_over_a_restart_whoever_is_read_first(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("z", share="k")
    lan.ask("a", ports="81", share="k")
    assert lan.ask("a", ports="80", share="k") == "shared_port_clash"
    lan.restart()
    assert lan.ask("a", ports="80", share="k") == "address_in_use"
    assert "was not read yet" in lan.said[-1]
    assert lan.ask("z", share="k") == "192.0.2.1"
    assert lan.ask("a", ports="80", share="k") == "shared_port_clash"
    assert lan.ask("a", ports="82", share="k") == "192.0.2.1"


def test_nobody_takes_the_port_of_a_sharer_that_was_not_read_again_yet(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    lan.ask("s2", ports="81", share="k")
    lan.restart()
    lan.ask("s1", share="k")
    assert lan.ask("s3", ports="81", share="k", addresses="192.0.2.1") == "address_in_use"
    assert lan.ask("s2", ports="81", share="k") == "192.0.2.1"


def test_the_suspended_is_told_why_its_way_out_failed(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1", share="k")
    lan.ask("s2", ports="81", share="k")
    assert lan.ask("s2", ports="80", share="k", addresses="203.0.113.1") == "address_not_in_pool"
    assert lan.ask("s2", ports="81", share="k") == "192.0.2.1"


def test_one_family_may_be_suspended_while_the_other_serves_on(lan):
    lan.pool("lan", "192.0.2.0/29 2001:db8::/64")
    lan.ask("s1", share="k")
    lan.ask("s2", ports="81", share="k", families="46", policy="require")
    answer = lan.ask("s2", ports="80", share="k", families="46", policy="require")
    assert answer == "2001:db8::1 (shared_port_clash)"


class CountingKey(str):
    """A share key that counts how often it is compared: once per Service looked at."""

    compared = 0

    def __ne__(self, other):
        CountingKey.compared += 1
        return str.__ne__(self, other)

    __hash__ = str.__hash__


def test_however_many_services_carry_one_key_and_one_port_the_search_for_an_eip_to_join_is_bounded(lan):
    lan.pool("lan", "10.0.0.0/16")
    assert len({lan.ask(f"s{n}", share="k") for n in range(1_000)}) == 1_000
    CountingKey.compared = 0
    assert lan.ask("late", share=CountingKey("k")) == "10.0.3.233"
    assert 1 <= CountingKey.compared <= JOIN_LOOKS


def test_more_services_than_may_share_an_eip_get_another_one(lan):
    lan.pool("lan", "192.0.2.0/29")
    for number in range(MAX_SHARING):
        assert lan.ask(f"s{number}", share="k", ports=str(number + 1)) == "192.0.2.1"
    assert lan.ask("next", share="k", ports="9000") == "192.0.2.2"
    assert lan.ask("named", share="k", ports="9001", addresses="192.0.2.1") == "address_in_use"
    assert lan.ask("s0", share="k", ports="1") == "192.0.2.1"  # who has it keeps it
