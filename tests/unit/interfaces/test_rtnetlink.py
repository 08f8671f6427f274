"""Messages the kernel of the test machine does not send: newer selectors, foreign families, other layouts."""

import struct
from ipaddress import ip_address, ip_network

import pytest

from speaker.interfaces.rtnetlink import (
    Neighbor,
    NexthopReader,
    RouteReader,
    Signal,
    neighbors_request,
    read_address,
    read_neighbor,
    read_rule,
    read_signal,
)
from speaker.interfaces.snapshot import Gateway, NextHop, RuleAction
from speaker.netlink.messages import messages


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def rule_of(*attributes: bytes, family: int = 2, action: int = 1, tos: int = 0):
    data = struct.pack("=BBBBBBBBI", family, 0, 0, tos, 254, 0, 0, action, 0) + b"".join(attributes)
    return read_rule(data, 0, len(data))


@pytest.mark.parametrize(
    ("what", "selector", "special"),
    [
        ("iif lo: what this host sends", attribute(3, b"lo\0"), False),
        ("iif eth0", attribute(3, b"eth0\0"), True),
        ("oif eth0", attribute(17, b"eth0\0"), True),
        ("a tunnel id", attribute(12, bytes(7) + b"\1"), True),
        ("a VRF", attribute(19, b"\1"), True),
        ("no VRF", attribute(19, b"\0"), False),
        ("TCP", attribute(22, b"\6"), True),
        ("a source port", attribute(23, struct.pack("=HH", 1, 2)), True),
        ("DSCP 3", attribute(25, b"\3"), True),
        ("DSCP 0, which we have", attribute(25, b"\0"), False),
        ("flow label 5", attribute(26, b"\0\0\0\5"), True),
        ("a selector of tomorrow", attribute(77, b"\0"), True),
        ("who added it", attribute(21, b"\2"), False),
        ("a realm", attribute(11, u32(3)), False),
    ],
)
def test_a_selector_that_a_plain_packet_cannot_meet_makes_a_rule_special(what, selector, special):
    assert rule_of(selector).special is special, what


def test_a_rule_for_a_type_of_service_is_special():
    assert rule_of(tos=16).special


def test_an_unknown_action_refuses_as_in_the_kernel():
    assert rule_of(action=99).action is RuleAction.BLACKHOLE


def test_rules_of_other_families_are_left_out():
    assert rule_of(family=128) is None  # RTNL_FAMILY_IPMR


def test_an_address_on_a_point_to_point_link_is_in_the_subnet_of_its_peer():
    peer, own = ip_address("10.0.0.2"), ip_address("10.0.0.1")
    data = struct.pack("=BBBBI", 2, 30, 0, 0, 7) + attribute(1, peer.packed) + attribute(2, own.packed)
    found = read_address(data, 0, len(data))
    assert (found.link, found.address, found.subnet) == (7, own, ip_network("10.0.0.0/30"))
    assert read_address(b"\x1c" + data[1:], 0, len(data)) is None


@pytest.mark.parametrize(
    ("what", "flags", "tentative"),
    [
        ("permanent", 0x80, False),
        ("duplicate address detection runs", 0x40 | 0x80, True),
        ("and failed", 0x08 | 0x40 | 0x80, True),
        ("temporary (RFC 8981), as IPv4's secondary", 0x01, False),
    ],
)
def test_nothing_is_sent_from_an_address_that_may_be_anothers(what, flags, tentative):
    data = struct.pack("=BBBBI", 10, 64, flags, 253, 7) + attribute(1, ip_address("fe80::1").packed)
    assert read_address(data, 0, len(data)).tentative is tentative, what


def signal_of(*attributes: bytes, flags: int = 0x1) -> Signal:
    data = struct.pack("=BxHiII", 0, 1, 7, flags, 0) + b"".join(attributes)
    return read_signal(data, 0, len(data))


def kind(name: bytes) -> bytes:
    return attribute(18, attribute(1, name))


UP, NO_CARRIER, CARRIER = 0x1, attribute(33, b"\0"), attribute(33, b"\1")


@pytest.mark.parametrize(
    ("what", "signal", "expected"),
    [
        ("a cable", signal_of(CARRIER), Signal(True, None)),
        ("no cable", signal_of(NO_CARRIER), Signal(False, None)),
        ("no word about a carrier", signal_of(), Signal(True, None)),
        ("taken down with the cable in", signal_of(CARRIER, flags=0), Signal(False, None)),
        ("a VLAN", signal_of(CARRIER, attribute(5, u32(3)), kind(b"vlan\0")), Signal(True, 3)),
        ("a macvlan", signal_of(CARRIER, attribute(5, u32(3)), kind(b"macvlan\0")), Signal(True, 3)),
        (
            "a macvlan whose parent is in another namespace",
            signal_of(CARRIER, attribute(5, u32(3)), attribute(37, u32(0)), kind(b"macvlan\0")),
            Signal(True, None),
        ),
        ("a veth names its peer", signal_of(CARRIER, attribute(5, u32(3)), kind(b"veth\0")), Signal(True, None)),
    ],
)
def test_a_link_says_whether_it_has_a_carrier_and_what_it_is_stacked_on(what, signal, expected):
    assert signal == expected, what


def route_of(*attributes: bytes, family=2, length=24, source=0, table=254, kind=1, flags=0, reader=None):
    data = struct.pack("=BBBBBBBBI", family, length, source, 0, table, 0, 0, kind, flags) + b"".join(attributes)
    return (reader or RouteReader(NexthopReader())).read(data, 0, len(data))


PLAIN = (attribute(1, ip_address("10.0.0.0").packed), attribute(4, u32(3)))


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("the local table", {"table": 255}),
        ("one source only", {"source": 64}),
        ("a clone", {"flags": 0x200}),
        ("another family", {"family": 129}),
        ("a kind nobody knows", {"kind": 11}),
    ],
)
def test_what_no_lookup_comes_to_is_left_out(what, fields):
    assert route_of(*PLAIN) is not None
    assert route_of(*PLAIN, **fields) is None, what


def test_a_route_that_only_names_a_nexthop_object_has_its_hops():
    reader = NexthopReader()
    for body in (
        attribute(1, u32(9)) + attribute(2, struct.pack("=IBBHIBBH", 1, 0, 0, 0, 2, 4, 0, 0)),
        attribute(1, u32(1)) + attribute(5, u32(3)),
        attribute(1, u32(2)) + attribute(5, u32(4)),
        attribute(1, u32(5)) + attribute(4, b""),
    ):
        data = struct.pack("=BBBxI", 2, 0, 0, 0) + body
        reader.read(data, 0, len(data))
    nexthops = reader.nexthops()
    assert nexthops == {1: (NextHop(3),), 2: (NextHop(4),), 9: (NextHop(3), NextHop(4))}
    routes = RouteReader(reader)
    assert route_of(PLAIN[0], attribute(30, u32(9)), reader=routes).hops == (NextHop(3), NextHop(4))
    assert route_of(PLAIN[0], attribute(30, u32(8)), reader=routes).hops == ()


VIA_1, VIA_2 = attribute(5, ip_address("192.0.2.1").packed), attribute(5, ip_address("192.0.2.2").packed)
LINK_3 = attribute(4, u32(3))


def hop(link: int, *attributes: bytes) -> bytes:
    data = b"".join(attributes)
    return struct.pack("=HBBi", 8 + len(data), 0, 0, link) + data


@pytest.mark.parametrize(
    ("what", "route", "gateways"),
    [
        ("one gateway", {"attributes": (LINK_3, VIA_1)}, {(3, "192.0.2.1")}),
        (
            "several next hops",
            {"attributes": (attribute(9, hop(3, VIA_1) + hop(5) + hop(4, VIA_2)),)},
            {(3, "192.0.2.1"), (4, "192.0.2.2")},
        ),
        (
            "IPv4 through an IPv6 router",
            {"attributes": (LINK_3, attribute(18, b"\x0a\0" + ip_address("fe80::1").packed))},
            {(3, "fe80::1")},
        ),
        ("IPv6", {"attributes": (LINK_3, attribute(5, ip_address("fe80::1").packed)), "family": 10}, {(3, "fe80::1")}),
        ("only a nexthop object", {"attributes": (attribute(30, u32(1)),)}, {(3, "192.0.2.1")}),
        ("only a group of them", {"attributes": (attribute(30, u32(9)),)}, {(3, "192.0.2.1"), (4, "fe80::1")}),
        ("straight onto the link", {"attributes": (LINK_3,)}, set()),
        ("half of everything", {"attributes": (LINK_3, VIA_1), "length": 1}, set()),
        ("an unreachable", {"attributes": (LINK_3, VIA_1), "kind": 7}, set()),
    ],
)
def test_default_routes_name_the_gateways(what, route, gateways):
    objects = NexthopReader()
    for body in (
        attribute(1, u32(1)) + attribute(5, u32(3)) + attribute(6, ip_address("192.0.2.1").packed),
        attribute(1, u32(2)) + attribute(5, u32(4)) + attribute(6, ip_address("fe80::1").packed),
        attribute(1, u32(7)) + attribute(5, u32(5)),
        attribute(1, u32(9)) + attribute(2, struct.pack("=IBBHIBBHIBBH", 1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0)),
    ):
        data = struct.pack("=BBBxI", 2, 0, 0, 0) + body
        objects.read(data, 0, len(data))
    reader = RouteReader(objects)
    route_of(*route.pop("attributes"), **{"length": 0} | route, reader=reader)
    assert reader.gateways == {Gateway(link, ip_address(address)) for link, address in gateways}, what


def test_a_dead_next_hop_is_known_by_its_flag():
    multipath = struct.pack("=HBBi", 8, 1, 0, 3) + struct.pack("=HBBi", 16, 0, 1, 4) + attribute(5, b"\x0a\0\0\1")
    assert route_of(PLAIN[0], attribute(9, multipath)).hops == (NextHop(3, dead=True), NextHop(4))
    assert route_of(*PLAIN, flags=1).hops == (NextHop(3, dead=True),)
    assert route_of(*PLAIN, flags=16).hops == (NextHop(3),)  # RTNH_F_LINKDOWN alone is used all the same


MAC = b"\x02\0\0\0\0\x02"


@pytest.mark.parametrize(
    ("state", "doubt"),
    [(0x02, 0), (0x80, 1), (0x08, 2), (0x10, 2), (0x04, 3), (0x01, None), (0x20, None), (0x40, None), (0, None)],
)
@pytest.mark.parametrize("address", ["192.0.2.1", "fe80::1"])
def test_a_neighbour_is_one_that_the_kernel_has_a_mac_of(address, state, doubt):
    there = ip_address(address)
    data = struct.pack("=BxxxiHBB", 2 if there.version == 4 else 10, 7, state, 0, 1)
    data += attribute(1, there.packed) + attribute(2, MAC)
    found = read_neighbor(data, 0, len(data))
    assert found == (None if doubt is None else Neighbor(7, there, MAC, doubt))


@pytest.mark.parametrize("attributes", [[], [attribute(1, bytes(4))], [attribute(2, MAC)]])
def test_a_neighbour_without_an_address_or_a_mac_is_none(attributes):
    data = struct.pack("=BxxxiHBB", 2, 7, 2, 0, 1) + b"".join(attributes)
    assert read_neighbor(data, 0, len(data)) is None


def test_neighbours_are_asked_for_on_one_link():
    (message,) = messages(neighbors_request(7, 10, 3))
    assert (message.kind, message.flags, message.sequence) == (30, 0x301, 3)
