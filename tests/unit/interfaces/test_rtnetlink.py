"""Messages the kernel of the test machine does not send: newer selectors, foreign families, other layouts."""

import struct
from ipaddress import ip_address, ip_network

import pytest

from speaker.interfaces.rtnetlink import NexthopReader, RouteReader, messages, read_address, read_rule
from speaker.interfaces.snapshot import NextHop, RuleAction


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


def route_of(*attributes: bytes, family=2, length=24, source=0, table=254, kind=1, flags=0, nexthops=None):
    data = struct.pack("=BBBBBBBBI", family, length, source, 0, table, 0, 0, kind, flags) + b"".join(attributes)
    return RouteReader(nexthops or {}).read(data, 0, len(data))


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
    assert route_of(PLAIN[0], attribute(30, u32(9)), nexthops=nexthops).hops == (NextHop(3), NextHop(4))
    assert route_of(PLAIN[0], attribute(30, u32(8)), nexthops=nexthops).hops == ()


def test_a_dead_next_hop_is_known_by_its_flag():
    multipath = struct.pack("=HBBi", 8, 1, 0, 3) + struct.pack("=HBBi", 16, 0, 1, 4) + attribute(5, b"\x0a\0\0\1")
    assert route_of(PLAIN[0], attribute(9, multipath)).hops == (NextHop(3, dead=True), NextHop(4))
    assert route_of(*PLAIN, flags=1).hops == (NextHop(3, dead=True),)
    assert route_of(*PLAIN, flags=16).hops == (NextHop(3),)  # RTNH_F_LINKDOWN alone is used all the same


def test_messages_are_aligned_to_four_bytes():
    datagram = struct.pack("=IHHII", 18, 24, 0, 1, 0) + b"ab\0\0" + struct.pack("=IHHII", 16, 3, 0, 1, 0)
    assert [(found.kind, datagram[found.start : found.end]) for found in messages(datagram)] == [(24, b"ab"), (3, b"")]
