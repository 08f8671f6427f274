"""Which link serves an EIP, and what a user reads where none does."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.interfaces.resolve import Resolved, Unresolved, UnresolvedReason, resolve
from speaker.interfaces.snapshot import RouteKind, RuleAction
from speaker.model import CanReach, LinkNames, OwnSubnet

EIP = ip_address("192.0.2.100")
EIP6 = ip_address("2001:db8::100")
FAR = ip_address("203.0.113.7")


def chosen(answer) -> str | UnresolvedReason:
    return answer.link.name if isinstance(answer, Resolved) else answer.reason


@pytest.mark.parametrize(
    ("what", "fields", "expected"),
    [
        ("a NIC", {}, "x"),
        ("a bond", {"kind": "bond"}, "x"),
        ("a bridge", {"kind": "bridge"}, "x"),
        ("a VLAN", {"kind": "vlan"}, "x"),
        ("a macvlan", {"kind": "macvlan"}, "x"),
        ("a veth", {"kind": "veth"}, "x"),
        ("a VRF's member", {"master": 9, "master_kind": "vrf"}, "x"),
        ("lo", {"loopback": True, "ethernet": False}, UnresolvedReason.LOOPBACK),
        ("a dummy", {"kind": "dummy"}, UnresolvedReason.DUMMY),
        ("a bridge's port", {"master": 9, "master_kind": "bridge"}, UnresolvedReason.PORT),
        ("a bond's slave", {"master": 9, "master_kind": "bond"}, UnresolvedReason.PORT),
        ("a team's port", {"master": 9, "master_kind": "team"}, UnresolvedReason.PORT),
        ("a virtual function under its failover master", {"master": 9}, UnresolvedReason.PORT),
        ("a tunnel", {"kind": "wireguard", "ethernet": False, "arp": False}, UnresolvedReason.NOT_ETHERNET),
        ("a link without ARP", {"arp": False}, UnresolvedReason.NO_ARP),
        ("a link that is down", {"up": False, "carrier": False}, UnresolvedReason.LINK_DOWN),
        ("a link without a cable", {"carrier": False}, UnresolvedReason.NO_CARRIER),
        ("a port without a cable", {"carrier": False, "master": 9, "master_kind": "bond"}, UnresolvedReason.PORT),
    ],
)
def test_a_link_can_serve_or_not(snapshot, link, route, what, fields, expected):
    """Whoever points at it: a name, a route, a subnet. (A route through a dummy or `lo` counts as none.)"""
    seen = snapshot(
        links=[link(1, "x", **fields)],
        routes=[route("203.0.113.0/24", 1)],
        addresses=[(1, "192.0.2.5/24"), (1, "2001:db8::5/64")],
    )
    assert chosen(resolve(LinkNames(("x",)), EIP, seen)) == expected, what
    assert chosen(resolve(OwnSubnet(), EIP, seen)) == expected
    assert chosen(resolve(OwnSubnet(), EIP6, seen)) == expected
    nowhere = expected in (UnresolvedReason.LOOPBACK, UnresolvedReason.DUMMY)
    assert chosen(resolve(CanReach(FAR), EIP, seen)) == (UnresolvedReason.NO_ROUTE if nowhere else expected)


def test_the_first_usable_name_wins_and_the_message_names_them_all(snapshot, link):
    eth0, eth1 = link(1, "eth0"), link(2, "eth1", carrier=False)
    names = LinkNames(("eth1", "bond0", "eth0"))
    assert resolve(names, EIP, snapshot(links=[eth0, eth1])) == Resolved(eth0)
    assert resolve(names, EIP, snapshot(links=[eth1])) == Unresolved(
        UnresolvedReason.NO_CARRIER,
        "eth1: it has no carrier; bond0: there is no such link; eth0: there is no such link",
    )


def test_a_port_is_told_whose_it_is(snapshot, link):
    eth0, br0 = link(1, "eth0", master=2, master_kind="bridge"), link(2, "br0", kind="bridge")
    answer = resolve(LinkNames(("eth0",)), EIP, snapshot(links=[eth0, br0]))
    assert answer == Unresolved(UnresolvedReason.PORT, "eth0: it is a port of bridge br0: use br0")


# ── can_reach ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def node(link):
    return [
        link(1, "lo", loopback=True, ethernet=False),
        link(2, "eth0"),
        link(3, "eth1"),
        link(4, "kube-ipvs0", kind="dummy", up=True),
        link(5, "wg0", kind="wireguard", ethernet=False, arp=False),
    ]


@pytest.mark.parametrize(
    ("story", "shadow"),
    [
        ("a /128 on a dummy", ("2001:db8::100/128", 4)),
        ("a /64 on a dummy", ("2001:db8::/64", 4)),
        ("a /128 on lo", ("2001:db8::100/128", 1)),
        ("a /128 on another link", ("2001:db8::100/128", 3)),
    ],
)
def test_what_only_shows_that_an_address_is_bound_is_passed_over(snapshot, node, route, story, shadow):
    destination, index = shadow
    seen = snapshot(
        links=node,
        routes=[route(destination, index, metric=1), route("2001:db8::/64", 2, metric=256), route("::/0", 3)],
        addresses=[(index, "2001:db8::100/128")],
    )
    assert chosen(resolve(CanReach(EIP6), EIP6, seen)) == "eth0", story


def test_a_host_route_to_what_is_not_bound_here_is_followed(snapshot, node, route):
    seen = snapshot(links=node, routes=[route("203.0.113.7/32", 3), route("0.0.0.0/0", 2)])
    assert chosen(resolve(CanReach(FAR), EIP, seen)) == "eth1"


def test_a_route_that_delivers_locally_is_passed_over(snapshot, node, route):
    local = route("203.0.113.0/24", 3, kind=RouteKind.LOCAL)
    seen = snapshot(links=node, routes=[local, route("0.0.0.0/0", 2)])
    assert chosen(resolve(CanReach(FAR), EIP, seen)) == "eth0"


def test_a_route_into_a_tunnel_is_the_answer_and_not_passed_over(snapshot, node, route):
    seen = snapshot(links=node, routes=[route("203.0.113.0/24", 5), route("0.0.0.0/0", 2)])
    assert resolve(CanReach(FAR), EIP, seen) == Unresolved(
        UnresolvedReason.NOT_ETHERNET, "the route to 203.0.113.7 leads through wg0: it is not an Ethernet link"
    )


def test_of_several_next_hops_the_first_usable_link_is_taken_by_index(snapshot, link, route):
    eth0, eth1 = link(2, "eth0"), link(3, "eth1")
    routes = [route("0.0.0.0/0", 3, 2)]
    assert resolve(CanReach(FAR), EIP, snapshot(links=[eth0, eth1], routes=routes)) == Resolved(eth0)
    eth0 = link(2, "eth0", carrier=False)
    assert resolve(CanReach(FAR), EIP, snapshot(links=[eth0, eth1], routes=routes)) == Resolved(eth1)


def test_a_route_through_a_link_just_gone_is_passed_over(snapshot, node, route):
    seen = snapshot(links=node, routes=[route("203.0.113.0/24", 99), route("0.0.0.0/0", 2)])
    assert chosen(resolve(CanReach(FAR), EIP, seen)) == "eth0"


def test_refusals_are_told_from_missing_routes(snapshot, node, route, rule):
    blackhole = route("203.0.113.0/24", kind=RouteKind.BLACKHOLE)
    seen = snapshot(links=node, routes=[blackhole, route("0.0.0.0/0", 2)])
    assert resolve(CanReach(FAR), EIP, seen) == Unresolved(
        UnresolvedReason.ROUTE_REFUSES, "the route 203.0.113.0/24, which applies to 203.0.113.7, says blackhole"
    )
    seen = snapshot(links=node, rules=[rule(7, action=RuleAction.PROHIBIT)])
    assert resolve(CanReach(FAR), EIP, seen) == Unresolved(
        UnresolvedReason.ROUTE_REFUSES, "the rule 7, which applies to 203.0.113.7, says prohibit"
    )
    assert resolve(CanReach(FAR), EIP, snapshot(links=node)) == Unresolved(
        UnresolvedReason.NO_ROUTE, "no route leads to 203.0.113.7 (can_reach)"
    )


# ── The EIP's own subnet ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("story", "addresses", "expected"),
    [
        ("no subnet holds it", [(2, "198.51.100.5/24")], UnresolvedReason.NO_SUBNET),
        ("the longest prefix wins", [(2, "192.0.2.5/24"), (3, "192.0.0.5/16")], "eth0"),
        ("whatever the order", [(3, "192.0.0.5/16"), (2, "192.0.2.5/24")], "eth0"),
        ("a bound EIP makes no subnet", [(3, "192.0.2.100/32"), (2, "192.0.2.5/24")], "eth0"),
        ("nor does it alone", [(3, "192.0.2.100/32")], UnresolvedReason.NO_SUBNET),
        ("a tunnel's subnet hides none", [(5, "192.0.2.5/28"), (5, "192.0.2.97/28"), (2, "192.0.2.5/24")], "eth0"),
        ("a tunnel's subnet alone", [(5, "192.0.2.5/24")], UnresolvedReason.NOT_ETHERNET),
        ("equal subnets: the first link", [(3, "192.0.2.6/24"), (2, "192.0.2.5/24")], "eth0"),
    ],
)
def test_the_eips_own_subnet(snapshot, node, story, addresses, expected):
    assert chosen(resolve(OwnSubnet(), EIP, snapshot(links=node, addresses=addresses))) == expected, story


def test_a_lost_cable_does_not_make_a_wider_subnet_the_right_segment(snapshot, link):
    links = [link(2, "eth0", carrier=False), link(3, "eth1")]
    seen = snapshot(links=links, addresses=[(2, "192.0.2.5/24"), (3, "192.0.0.5/16")])
    assert chosen(resolve(OwnSubnet(), EIP, seen)) is UnresolvedReason.NO_CARRIER
    seen = snapshot(links=links, addresses=[(2, "192.0.2.5/24"), (3, "192.0.2.6/24")])
    assert chosen(resolve(OwnSubnet(), EIP, seen)) == "eth1"


@pytest.mark.parametrize(
    ("what", "second", "routes", "expected"),
    [
        ("its cable is out", {"carrier": False}, [("192.0.2.0/24", 2), ("192.0.2.0/24", 1)], "answers_elsewhere"),
        ("by its metric", {"carrier": False}, [("192.0.2.0/24", 1, 9), ("192.0.2.0/24", 2, 1)], "answers_elsewhere"),
        ("the kernel ignores such routes", {"carrier": False}, [("192.0.2.0/24", -2), ("192.0.2.0/24", 1)], "eth0"),
        ("its route is the second", {"carrier": False}, [("192.0.2.0/24", 1), ("192.0.2.0/24", 2)], "eth0"),
        ("it is down, its route lives on", {"up": False}, [("192.0.2.0/24", 2)], "answers_elsewhere"),
        ("both work: either brings answers", {}, [("192.0.2.0/24", 2), ("192.0.2.0/24", 1)], "eth0"),
        ("a tunnel takes it", {"ethernet": False}, [("192.0.2.0/24", 2), ("192.0.2.0/24", 1)], "answers_elsewhere"),
        ("a tunnel takes everything else", {"ethernet": False}, [("192.0.2.0/24", 1), ("0.0.0.0/0", 2)], "eth0"),
        ("a part of the subnet is elsewhere", {"ethernet": False}, [("192.0.2.0/28", 2), ("192.0.2.0/24", 1)], "eth0"),
        ("no route at all", {"carrier": False}, [], "eth0"),
    ],
)  # fmt: skip
def test_a_link_by_which_answers_do_not_leave_serves_nothing(snapshot, link, route, what, second, routes, expected):
    seen = snapshot(
        links=[link(1, "eth0"), link(2, "eth1", **second)],
        routes=[route(to, hop, metric=more[0] if more else 0) for to, hop, *more in routes],
        addresses=[(1, "192.0.2.5/24"), (2, "192.0.2.6/24" if "tunnel" not in what else "10.9.0.2/32")],
    )
    for selector in (OwnSubnet(), LinkNames(("eth0",))):
        answer = resolve(selector, EIP, seen)
        assert (answer.link.name if isinstance(answer, Resolved) else answer.reason.value) == expected, what


def test_the_tables_of_a_vrf_and_of_rules_decide_where_answers_leave(snapshot, link, route, rule):
    eth0, eth1 = link(1, "eth0"), link(2, "eth1", carrier=False)
    both = [route("192.0.2.0/24", 2), route("192.0.2.0/24", 1, table=7)]
    bound = [(1, "192.0.2.5/24"), (2, "192.0.2.6/24")]
    names = LinkNames(("eth0",))
    rules = [rule(100, to="192.0.2.0/24", table=7), rule(32766)]
    assert (
        chosen(resolve(names, EIP, snapshot(links=[eth0, eth1], routes=both, addresses=bound, rules=rules))) == "eth0"
    )
    in_vrf = link(1, "eth0", master=9, master_kind="vrf")
    assert chosen(resolve(names, EIP, snapshot(links=[in_vrf, eth1], routes=both, addresses=bound))) == "eth0"


def test_a_link_is_found_by_its_other_names(snapshot, link):
    seen = replace(snapshot(links=[link(1, "eth0"), link(2, "eth1")]), other_names={"enp1s0": 2, "lan": 3})
    assert resolve(LinkNames(("enp1s0",)), EIP, seen) == Resolved(link(2, "eth1"))
    assert chosen(resolve(LinkNames(("lan",)), EIP, seen)) is UnresolvedReason.NO_SUCH_LINK
