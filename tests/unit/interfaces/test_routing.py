"""Rules and routes, one at a time; how they play together is asked of the kernel (tests/netns/interfaces)."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.interfaces.routing import Found, Refused, lookup
from speaker.interfaces.snapshot import NextHop, Route, RouteKind, RouteTables, RuleAction

THERE = ip_address("198.18.0.7")
THERE6 = ip_address("2001:db8::7")


def links(decision) -> list[int] | str | None:
    match decision:
        case Found(_, hops):
            return [hop.link for hop in hops]
        case Refused(how, _):
            return how.value
    return None


@pytest.mark.parametrize(
    ("story", "routes", "expected"),
    [
        ("nothing leads there", [("10.0.0.0/8", 1)], None),
        ("the longest prefix wins", [("0.0.0.0/0", 1), ("198.18.0.0/24", 2), ("198.18.0.0/16", 3)], [2]),
        ("then the lowest metric", [("0.0.0.0/0", 1, {"metric": 20}), ("0.0.0.0/0", 2, {"metric": 10})], [2]),
        ("then the first listed", [("0.0.0.0/0", 1), ("0.0.0.0/0", 2)], [1]),
        ("all live next hops count", [("0.0.0.0/0", 1, -2, 3)], [1, 3]),
        ("a dead route is passed over", [("198.18.0.0/24", -1), ("0.0.0.0/0", 2)], [2]),
        ("a route for another tos is passed over", [("198.18.0.0/24", 1, {"tos": 16}), ("0.0.0.0/0", 2)], [2]),
        ("throw leaves the table", [("198.18.0.0/24", {"kind": RouteKind.THROW}), ("0.0.0.0/0", 2)], None),
        ("blackhole", [("198.18.0.0/24", {"kind": RouteKind.BLACKHOLE}), ("0.0.0.0/0", 2)], "blackhole"),
        ("unreachable", [("198.18.0.0/24", {"kind": RouteKind.UNREACHABLE}), ("0.0.0.0/0", 2)], "unreachable"),
        ("prohibit", [("198.18.0.0/24", {"kind": RouteKind.PROHIBIT}), ("0.0.0.0/0", 2)], "prohibit"),
        ("a bound address is not looked at", [("198.18.0.7/32", 1, {"table": 255}), ("0.0.0.0/0", 2)], [2]),
    ],
)
def test_a_route_is_chosen(snapshot, route, story, routes, expected):
    made = []
    for destination, *rest in routes:
        fields = rest.pop() if isinstance(rest[-1], dict) else {}
        made.append(route(destination, *rest, **fields))
    assert links(lookup(THERE, snapshot(routes=made))) == expected, story


@pytest.mark.parametrize(
    ("story", "rules", "expected"),
    [
        ("rules in order", [{"table": 1}, {"table": 2}], [1]),
        ("an empty table decides nothing", [{"table": 99}, {"table": 2}], [2]),
        ("no rule, no route", [], None),
        ("to somewhere else", [{"table": 1, "to": "10.0.0.0/8"}, {"table": 2}], [2]),
        ("not to somewhere else", [{"table": 1, "to": "10.0.0.0/8", "invert": True}, {"table": 2}], [1]),
        ("from an address we do not have yet", [{"table": 1, "source": "10.0.0.0/8"}, {"table": 2}], [2]),
        ("from what 0.0.0.0 is in", [{"table": 1, "source": "0.0.0.0/8"}, {"table": 2}], [1]),
        ("for marked packets", [{"table": 1, "mark": 1, "mask": 1}, {"table": 2}], [2]),
        ("for unmarked packets", [{"table": 1, "mark": 0, "mask": 1}, {"table": 2}], [1]),
        ("for root", [{"table": 1, "uids": (0, 0)}, {"table": 2}], [1]),
        ("for users", [{"table": 1, "uids": (1000, 2000)}, {"table": 2}], [2]),
        ("for something special", [{"table": 1, "special": True}, {"table": 2}], [2]),
        ("for nothing special", [{"table": 1, "special": True, "invert": True}, {"table": 2}], [1]),
        ("nop", [{"action": RuleAction.NOP}, {"table": 2}], [2]),
        ("blackhole", [{"action": RuleAction.BLACKHOLE}, {"table": 2}], "blackhole"),
        ("goto", [{"action": RuleAction.GOTO, "target": 2}, {"table": 1}, {"table": 2}], [2]),
        ("goto nowhere", [{"action": RuleAction.GOTO, "target": 9}, {"table": 1}, {"table": 2}], [1]),
        (
            "goto a rule that does not match",
            [{"action": RuleAction.GOTO, "target": 1}, {"to": "::/0"}, {"table": 2}],
            [2],
        ),
        ("suppressed by length", [{"table": 1, "suppress_length": 0}, {"table": 2}], [2]),
        ("not suppressed by length", [{"table": 2, "suppress_length": 0}, {"table": 1}], [2]),
        ("suppressed by group", [{"table": 1, "suppress_group": 7}, {"table": 2}], [2]),
        ("not suppressed by group", [{"table": 1, "suppress_group": 0}, {"table": 2}], [1]),
    ],
)
def test_a_rule_decides(snapshot, route, rule, story, rules, expected):
    """Table 1 has a default route through link 1, of group 7; table 2 a longer one through link 2."""
    routes = [route("0.0.0.0/0", 1, table=1), route("198.18.0.0/24", 2, table=2)]
    made = [rule(priority, **fields) for priority, fields in enumerate(rules)]
    assert links(lookup(THERE, snapshot(routes=routes, rules=made, groups={1: 7}))) == expected, story


def test_a_refusal_is_not_suppressed(snapshot, route, rule):
    routes = [route("0.0.0.0/0", table=1, kind=RouteKind.PROHIBIT)]
    rules = [rule(1, table=1, suppress_length=0), rule(2, action=RuleAction.NOP)]
    assert links(lookup(THERE, snapshot(routes=routes, rules=rules))) == "prohibit"


def test_the_families_have_rules_and_tables_of_their_own(snapshot, route, rule):
    routes = [route("0.0.0.0/0", 4), route("::/0", 6)]
    assert links(lookup(THERE, snapshot(routes=routes))) == [4]
    assert links(lookup(THERE6, snapshot(routes=routes))) == [6]
    assert links(lookup(THERE6, snapshot(routes=routes, rules=[rule(1)]))) is None


def test_ipv6_has_no_match_for_a_source_before_there_is_one(snapshot, route, rule):
    rules = [rule(1, source="::/8", version=6, table=1), rule(2, version=6)]
    routes = [route("::/0", 1, table=1), route("::/0", 2)]
    assert links(lookup(THERE6, snapshot(routes=routes, rules=rules))) == [2]


def test_of_two_ipv6_routers_the_preferred_one_is_taken(snapshot, route):
    routes = [route("::/0", 1, metric=1024), route("::/0", 2, metric=1024, preference=1), route("::/0", 3, metric=2000)]
    assert links(lookup(THERE6, snapshot(routes=routes))) == [2]


def test_a_next_hop_passed_over_leaves_the_others_then_the_next_route(snapshot, route):
    routes = [route("198.18.0.0/24", 1, 2), route("0.0.0.0/0", 3)]
    seen = snapshot(routes=routes)
    assert links(lookup(THERE, seen, lambda _, hop: hop.link != 1)) == [2]
    assert links(lookup(THERE, seen, lambda _, hop: hop.link == 3)) == [3]
    assert lookup(THERE, seen, lambda _, hop: False) is None


networks = st.builds(
    lambda address, length: ip_network((address, length), strict=False),
    st.integers(0, 255).map(lambda low: 0xC6120000 | low << 8 | low),
    st.integers(0, 32),
)


@given(st.lists(st.tuples(networks, st.integers(0, 3)), max_size=20), st.integers(0, 255))
def test_filed_routes_are_found_as_if_all_were_walked(routes, low):
    made = [
        Route(4, 254, int(network.network_address), network.prefixlen, (NextHop(number),), metric=metric)
        for number, (network, metric) in enumerate(routes, start=1)
    ]
    address = ip_address(0xC6120000 | low << 8 | low)
    holding = [route for route in made if address in route.destination]
    expected = sorted(holding, key=lambda route: (-route.length, route.metric))
    tables = RouteTables(made)
    assert list(tables.holding(254, address)) == expected
    assert list(tables.holding(255, address)) == []
    assert len(tables) == len(made)
    assert tables == RouteTables(made)
    assert not made or tables != RouteTables(made[1:])
