"""All Services at once: the answer does not depend on the order in which they were read."""

import itertools


def test_who_holds_an_address_keeps_it_from_who_asks_for_it_in_the_same_batch(lan, service):
    lan.pool("lan", "192.0.2.0/29")
    lan.settle([service("z")])
    answers = lan.settle([service("a", addresses="192.0.2.1"), service("z")])
    assert answers == {"a": "address_in_use", "z": "192.0.2.1"}


def test_who_names_an_address_goes_before_who_takes_any(lan, service):
    lan.pool("lan", "192.0.2.0/30")
    answers = lan.settle([service("a"), service("b"), service("z", addresses="192.0.2.1")])
    assert answers == {"a": "192.0.2.2", "b": "pool_full", "z": "192.0.2.1"}


def test_the_older_goes_first_then_the_key_in_any_order_of_reading(lan, service):
    lan.pool("lan", "192.0.2.0/29")
    services = [
        service("new", created="2026-02-01T00:00:00Z"),
        service("old", created="2025-01-01T00:00:00Z"),
        service("a", created="2026-01-01T00:00:00Z"),
        service("b", created="2026-01-01T00:00:00Z"),
    ]
    expected = {"old": "192.0.2.1", "a": "192.0.2.2", "b": "192.0.2.3", "new": "192.0.2.4"}
    for order in itertools.permutations(services):
        assert type(lan)(60.0).settle([]) == {}
        fresh = type(lan)(60.0)
        fresh.pool("lan", "192.0.2.0/29")
        assert fresh.settle(order) == expected


def test_what_is_gone_is_released_before_anybody_asks(lan, service):
    lan.pool("lan", "192.0.2.1")
    lan.settle([service("s1")])
    assert lan.settle([service("s2")]) == {"s2": "192.0.2.1"}
    assert lan.settle([]) == {}
    assert lan.used("lan") == (1, 0, 1)


def test_a_chain_of_holders_each_asking_for_the_next_ones_address_moves_in_one_go(lan, service):
    lan.pool("lan", "192.0.2.0/29")
    lan.settle([service(name) for name in "abc"])
    chain = {"a": "192.0.2.2", "b": "192.0.2.3", "c": "192.0.2.4"}
    assert lan.settle([service(name, addresses=address) for name, address in chain.items()]) == chain


def test_two_holders_that_want_to_swap_both_stay(lan, service):
    lan.pool("lan", "192.0.2.0/29")
    lan.settle([service("a"), service("b")])
    answers = lan.settle([service("a", addresses="192.0.2.2"), service("b", addresses="192.0.2.1")])
    assert answers == {"a": "192.0.2.1 (address_in_use)", "b": "192.0.2.2 (address_in_use)"}


def test_two_sharers_that_swap_ports_are_both_served(lan, service):
    lan.pool("lan", "192.0.2.0/29")
    lan.settle([service("a", share="k", ports="1"), service("b", share="k", ports="2")])
    answers = lan.settle([service("a", share="k", ports="2"), service("b", share="k", ports="1")])
    assert answers == {"a": "192.0.2.1", "b": "192.0.2.1"}


def test_after_a_restart_the_suspended_do_not_take_over(lan, service):
    lan.pool("lan", "192.0.2.0/29")
    lan.settle([service("z", share="k")])
    lan.settle([service("z", share="k"), service("a", share="k", ports="81")])
    clashing = [service("z", share="k"), service("a", share="k", ports="80")]
    expected = {"a": "shared_port_clash", "z": "192.0.2.1"}
    assert lan.settle(clashing) == expected
    lan.restart()
    assert lan.settle(clashing) == expected
    assert lan.settle(clashing) == expected


def test_a_service_served_in_part_is_among_the_assignments_and_the_refusals(lan, service):
    lan.pool("lan", "192.0.2.0/29")
    answers = lan.settle([service("s1", families="46", policy="prefer")])
    assert answers == {"s1": "192.0.2.1 (no_address_of_family)"}


def test_whoever_was_asked_before_another_changed_is_asked_again(lan, service):
    lan.pool("lan", "192.0.2.1")
    early = {"share": "k", "created": "1"}
    late = {"share": "k", "created": "2"}
    assert lan.settle([service("a", ports="80", **early), service("b", ports="81", **late)]) == {
        "a": "192.0.2.1",
        "b": "192.0.2.1",
    }
    clashing = lan.settle([service("a", ports="81", **early), service("b", ports="81", **late)])
    assert clashing == {"a": "shared_port_clash", "b": "192.0.2.1"}
    assert lan.settle([service("a", ports="81", **early), service("b", ports="82", **late)]) == {
        "a": "192.0.2.1",
        "b": "192.0.2.1",
    }


def test_what_is_told_is_what_holds_when_all_have_been_asked(lan, service):
    lan.pool("lan", "192.0.2.1")
    both = service("a", families="46", policy="require", addresses="192.0.2.1 2001:db8::9", created="1")
    taker = service("b", addresses="192.0.2.1", created="2")
    assert lan.settle([both, taker]) == {"a": "address_in_use", "b": "192.0.2.1"}
    assert lan.settle([both, taker]) == {"a": "address_in_use", "b": "192.0.2.1"}
