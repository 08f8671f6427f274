"""rtnetlink messages to values, and the requests that bring them.

Numbers and layouts are those of include/uapi/linux/{rtnetlink,if_link,if_addr,fib_rules,nexthop}.h.
pyroute2 takes 39 µs a route where this takes 3, and misreads newer rules (docs/decisions/0002-own-netlink.md).
"""

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from struct import Struct
from typing import NamedTuple

from speaker.interfaces.snapshot import (
    LOCAL_TABLE,
    Gateway,
    LinkAddress,
    NextHop,
    Route,
    RouteKind,
    Rule,
    RuleAction,
    Version,
)
from speaker.model import IPAddress, IPNetwork, Link, Mac
from speaker.netlink import messages as nl
from speaker.netlink.messages import ATTRIBUTE, NLM_F_DUMP, S32, U32, attribute, attributes, request, u32

RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
RTM_NEWNETCONF = 80
RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP = 104, 105, 106

_VERSIONS: Mapping[int, Version] = {nl.AF_INET: 4, nl.AF_INET6: 6}

_UIDS = Struct("=II")

_RTMSG = Struct("=BBBBBBBBI")
_NDMSG = Struct("=BxxxiHBB")
_NEXTHOP = Struct("=HBBi")  # rtnexthop
_NHMSG = Struct("=BBBxI")
_GROUP_MEMBER = Struct("=IBBH")  # nexthop_grp

_ARPHRD_ETHER = 1
_IFLA_ADDRESS, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER = 1, 4, 5, 10
_IFLA_GROUP, _IFLA_EXT_MASK, _IFLA_CARRIER, _IFLA_LINK_NETNSID = 27, 29, 33, 37
_IFLA_PROP_LIST, _IFLA_ALT_IFNAME = 52, 53
_IFLA_INFO_SLAVE_KIND = 4
_RTEXT_FILTER_SKIP_STATS = 8
_STACKED = frozenset({"vlan", "macvlan", "macvtap", "ipvlan"})

_IFA_F_DADFAILED, _IFA_F_TENTATIVE = 0x08, 0x40

_NDA_DST, _NDA_LLADDR, _NDA_IFINDEX = 1, 2, 8
_DOUBTS = {0x02: 0, 0x80: 1, 0x08: 2, 0x10: 2, 0x04: 3}
"""NUD_*: reachable, permanent, delay, probe, stale. The others say that nobody was found, or that nobody is asked."""

_RTA_DST, _RTA_SRC, _RTA_IIF, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY = 1, 2, 3, 4, 5, 6
_RTA_MULTIPATH, _RTA_TABLE, _RTA_MARK = 9, 15, 16
_RTA_CACHEINFO, _RTA_VIA, _RTA_PREF, _RTA_NH_ID = 12, 18, 20, 30
_EXPIRES = Struct("=8xi")
"""struct rta_cacheinfo: what is left of a route's time, in clock ticks; below 0 when it is over, 0 for ever."""
_TICKS = os.sysconf("SC_CLK_TCK")
_RTNH_F_DEAD, _RTM_F_CLONED = 0x1, 0x200
_PREFERENCES = {1: 1, 3: -1}  # RFC 4191, 2.1: two bits, signed
_KINDS = {kind.value: kind for kind in RouteKind}

_NHA_ID, _NHA_GROUP, _NHA_OIF, _NHA_GATEWAY = 1, 2, 5, 6

_FRA_DST, _FRA_SRC, _FRA_IIFNAME, _FRA_GOTO, _FRA_PRIORITY, _FRA_FWMARK = 1, 2, 3, 4, 6, 10
_FRA_SUPPRESS_IFGROUP, _FRA_SUPPRESS_PREFIXLEN, _FRA_TABLE, _FRA_FWMASK = 13, 14, 15, 16
_FRA_L3MDEV, _FRA_UID_RANGE, _FRA_IP_PROTO, _FRA_DSCP = 19, 20, 22, 25
_FRA_FLOWLABEL, _FRA_FLOWLABEL_MASK, _FRA_DSCP_MASK = 26, 27, 30
_FRA_NO_SELECTORS = frozenset({0, 5, 7, 8, 9, 11, 18, 21})  # unused numbers, FRA_FLOW, FRA_PAD, FRA_PROTOCOL
_FIB_RULE_INVERT = 0x2
_ACTIONS = {
    1: RuleAction.LOOKUP,
    2: RuleAction.GOTO,
    3: RuleAction.NOP,
    7: RuleAction.UNREACHABLE,
    8: RuleAction.PROHIBIT,
}


def dump_request(kind: int, sequence: int) -> bytes:
    """Ask for all objects of a kind (RTM_GET…), of every family."""
    return request(kind, sequence, _DUMP_BODIES[kind], NLM_F_DUMP)


def link_question(index: int) -> bytes:
    """The body of nl.RTM_GETLINK, for one link."""
    return nl.IFINFO.pack(0, 0, index, 0, 0) + _WITHOUT_STATISTICS


_WITHOUT_STATISTICS = attribute(_IFLA_EXT_MASK, u32(_RTEXT_FILTER_SKIP_STATS))
_DUMP_BODIES = {
    nl.RTM_GETLINK: bytes(nl.IFINFO.size) + _WITHOUT_STATISTICS,
    nl.RTM_GETADDR: bytes(nl.IFADDR.size),
    RTM_GETROUTE: bytes(_RTMSG.size),
    RTM_GETRULE: bytes(_RTMSG.size),
    RTM_GETNEXTHOP: bytes(_NHMSG.size),
}


# ── Links and addresses ───────────────────────────────────────────────────────────────────────────────────────


def read_link(data: bytes, start: int, end: int) -> tuple[Link, int, tuple[str, ...]]:
    """A link, its group, and its other names."""
    _, hardware, index, flags, _ = nl.IFINFO.unpack_from(data, start)
    found = attributes(data, start + nl.IFINFO.size, end)
    info = found.get(nl.IFLA_LINKINFO, b"")
    kinds = attributes(info, 0, len(info))
    mac = found.get(_IFLA_ADDRESS, b"")
    link = Link(
        index=index,
        name=_text(found[nl.IFLA_IFNAME]),
        mac=Mac(mac),
        kind=_text(kinds.get(nl.IFLA_INFO_KIND, b"")),
        up=bool(flags & nl.IFF_UP),
        carrier=found.get(_IFLA_CARRIER) != b"\0",
        loopback=bool(flags & nl.IFF_LOOPBACK),
        arp=not flags & nl.IFF_NOARP,
        ethernet=hardware == _ARPHRD_ETHER and len(mac) == 6,
        master=_u32(found[_IFLA_MASTER]) if _IFLA_MASTER in found else None,
        master_kind=_text(kinds.get(_IFLA_INFO_SLAVE_KIND, b"")),
        mtu=_u32(found[_IFLA_MTU]),
    )
    return link, _u32(found.get(_IFLA_GROUP, bytes(4))), tuple(_other_names(found.get(_IFLA_PROP_LIST, b"")))


def _other_names(properties: bytes) -> Iterator[str]:
    at = 0
    while at + ATTRIBUTE.size <= len(properties):
        length, kind = ATTRIBUTE.unpack_from(properties, at)
        if kind == _IFLA_ALT_IFNAME:
            yield _text(properties[at + ATTRIBUTE.size : at + length])
        at += max((length + 3) & ~3, ATTRIBUTE.size)


class Signal(NamedTuple):
    """``carrier``: the link is up and has one; ``below`` is the link it is stacked on (a VLAN's parent), if any."""

    carrier: bool
    below: int | None


def read_signal(data: bytes, start: int = 0, end: int | None = None) -> Signal:
    """A link that says nothing about a carrier has one. What is stacked on a link of another namespace stands alone."""
    _, _, _, flags, _ = nl.IFINFO.unpack_from(data, start)
    found = attributes(data, start + nl.IFINFO.size, end)
    info = found.get(nl.IFLA_LINKINFO, b"")
    kind = _text(attributes(info, 0, len(info)).get(nl.IFLA_INFO_KIND, b""))
    stacked = kind in _STACKED and _IFLA_LINK in found and _IFLA_LINK_NETNSID not in found
    carrier = bool(flags & nl.IFF_UP) and found.get(_IFLA_CARRIER) != b"\0"
    return Signal(carrier, _u32(found[_IFLA_LINK]) if stacked else None)


def read_address(data: bytes, start: int, end: int) -> LinkAddress | None:
    """None for an address of another family than IPv4 and IPv6."""
    family, length, flags, _, index = nl.IFADDR.unpack_from(data, start)
    if family not in _VERSIONS:
        return None
    found = attributes(data, start + nl.IFADDR.size, end)
    subnet = found.get(nl.IFA_ADDRESS) or found[nl.IFA_LOCAL]
    tentative = bool(flags & (_IFA_F_TENTATIVE | _IFA_F_DADFAILED))
    return LinkAddress(index, ip_address(found.get(nl.IFA_LOCAL, subnet)), _network(subnet, length), tentative)


class Neighbor(NamedTuple):
    """``doubt``: how little the kernel relies on it; 0 where it answered lately."""

    link: int
    address: IPAddress
    mac: Mac
    doubt: int


def neighbors_request(link: int, family: int, sequence: int) -> bytes:
    """Ask for all of one family on one link."""
    wanted = attribute(_NDA_IFINDEX, u32(link))
    return request(RTM_GETNEIGH, sequence, _NDMSG.pack(family, 0, 0, 0, 0) + wanted, NLM_F_DUMP)


def read_neighbor(data: bytes, start: int, end: int) -> Neighbor | None:
    """None for an entry that is not a neighbour at present, or has no Ethernet address."""
    family, link, state, _, _ = _NDMSG.unpack_from(data, start)
    found = attributes(data, start + _NDMSG.size, end)
    mac = found.get(_NDA_LLADDR, b"")
    if family not in _VERSIONS or state not in _DOUBTS or len(mac) != 6 or _NDA_DST not in found:
        return None
    return Neighbor(link, ip_address(found[_NDA_DST]), Mac(mac), _DOUBTS[state])


# ── Rules ─────────────────────────────────────────────────────────────────────────────────────────────────────


def read_rule(data: bytes, start: int, end: int) -> Rule | None:
    """None for a rule of another family than IPv4 and IPv6. A selector this code does not know makes it special."""
    family, to, source, tos, table, _, _, action, flags = _RTMSG.unpack_from(data, start)
    if family not in _VERSIONS:
        return None
    found = attributes(data, start + _RTMSG.size, end)
    mark = _u32(found.get(_FRA_FWMARK, bytes(4)))
    return Rule(
        version=_VERSIONS[family],
        priority=_u32(found.get(_FRA_PRIORITY, bytes(4))),
        action=_ACTIONS.get(action, RuleAction.BLACKHOLE),  # as fib4_rule_action does
        table=_u32(found[_FRA_TABLE]) if _FRA_TABLE in found else table,
        target=_u32(found.get(_FRA_GOTO, bytes(4))),
        source=_network(found[_FRA_SRC], source) if _FRA_SRC in found else None,
        destination=_network(found[_FRA_DST], to) if _FRA_DST in found else None,
        mark=mark,
        mask=_u32(found[_FRA_FWMASK]) if _FRA_FWMASK in found else 0,
        uids=_UIDS.unpack(found[_FRA_UID_RANGE]) if _FRA_UID_RANGE in found else None,
        special=bool(tos) or any(_is_special(kind, found) for kind in found),
        invert=bool(flags & _FIB_RULE_INVERT),
        suppress_length=_s32(found.get(_FRA_SUPPRESS_PREFIXLEN)),
        suppress_group=_s32(found.get(_FRA_SUPPRESS_IFGROUP)),
    )


_FRA_UNDERSTOOD = _FRA_NO_SELECTORS | {
    *(_FRA_DST, _FRA_SRC, _FRA_GOTO, _FRA_PRIORITY, _FRA_FWMARK, _FRA_FWMASK, _FRA_TABLE, _FRA_UID_RANGE),
    *(_FRA_SUPPRESS_IFGROUP, _FRA_SUPPRESS_PREFIXLEN, _FRA_DSCP_MASK, _FRA_FLOWLABEL_MASK),
}


def _is_special(kind: int, found: Mapping[int, bytes]) -> bool:
    if kind == _FRA_IIFNAME:
        return _text(found[kind]) != "lo"
    if kind in (_FRA_L3MDEV, _FRA_IP_PROTO, _FRA_DSCP, _FRA_FLOWLABEL):
        return any(found[kind])
    return kind not in _FRA_UNDERSTOOD


# ── Routes ────────────────────────────────────────────────────────────────────────────────────────────────────


class RouteReader:
    """Routes of one dump. Most of them share a few next hops, which are made once.

    ``nexthops`` are the kernel's nexthop objects: where ``net.ipv4.nexthop_compat_mode`` is 0, routes only name them.
    ``gateways`` gathers those of the default routes read so far; ``expires_in``: seconds until the first of the routes
    that have a lifetime is over. One that is over leads nowhere: the kernel lists it for up to half a minute more.
    """

    def __init__(self, nexthops: "NexthopReader") -> None:
        self.gateways: set[Gateway] = set()
        self.expires_in = float("inf")
        self._objects = nexthops
        self._nexthops = nexthops.nexthops()
        self._single: dict[tuple[int, int], tuple[NextHop, ...]] = {}

    def read(self, data: bytes, start: int, end: int) -> Route | None:
        """None for what no lookup of ours comes to: the local table, clones, routes for one source only."""
        family, length, source, tos, table, _, _, kind, flags = _RTMSG.unpack_from(data, start)
        if table == LOCAL_TABLE or source or flags & _RTM_F_CLONED or family not in _VERSIONS or kind not in _KINDS:
            return None
        found = attributes(data, start + _RTMSG.size, end)
        if _RTA_CACHEINFO in found and self._is_over(found[_RTA_CACHEINFO]):
            return None
        if _RTA_TABLE in found:
            table = _u32(found[_RTA_TABLE])
        prefix = int.from_bytes(found.get(_RTA_DST, b""), "big")
        metric = _u32(found[_RTA_PRIORITY]) if _RTA_PRIORITY in found else 0
        preference = _PREFERENCES.get(found[_RTA_PREF][0], 0) if _RTA_PREF in found else 0
        hops = self._hops(found, flags)
        if length == 0 and kind == RouteKind.UNICAST:
            self.gateways.update(self._named_gateways(found))
        return Route(_VERSIONS[family], table, prefix, length, hops, _KINDS[kind], metric, tos, preference)

    def _is_over(self, cacheinfo: bytes) -> bool:
        (left,) = _EXPIRES.unpack_from(cacheinfo)
        if left > 0:
            self.expires_in = min(self.expires_in, left / _TICKS)
        return bool(left < 0)

    def _hops(self, found: Mapping[int, bytes], flags: int) -> tuple[NextHop, ...]:
        if _RTA_OIF in found:
            key = (_u32(found[_RTA_OIF]), flags & _RTNH_F_DEAD)
            if key not in self._single:
                self._single[key] = (NextHop(key[0], bool(key[1])),)
            return self._single[key]
        if _RTA_MULTIPATH in found:
            parts = _multipath_parts(found[_RTA_MULTIPATH])
            return tuple(NextHop(link, bool(flags & _RTNH_F_DEAD)) for flags, link, _, _ in parts)
        return self._nexthops.get(_u32(found[_RTA_NH_ID]), ()) if _RTA_NH_ID in found else ()

    def _named_gateways(self, found: Mapping[int, bytes]) -> Iterator[Gateway]:
        if _RTA_OIF in found:
            yield from _gateway(_u32(found[_RTA_OIF]), found)
        elif _RTA_MULTIPATH in found:
            for _, link, start, end in _multipath_parts(found[_RTA_MULTIPATH]):
                yield from _gateway(link, attributes(found[_RTA_MULTIPATH], start, end))
        elif _RTA_NH_ID in found:
            yield from self._objects.gateways(_u32(found[_RTA_NH_ID]))


def _gateway(link: int, found: Mapping[int, bytes]) -> Iterator[Gateway]:
    if _RTA_GATEWAY in found:
        yield Gateway(link, ip_address(found[_RTA_GATEWAY]))
    elif _RTA_VIA in found:  # IPv4 through an IPv6 router (RFC 8950): the family, then the address
        yield Gateway(link, ip_address(found[_RTA_VIA][2:]))


def _multipath_parts(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Flags and link of each next hop, and where in ``data`` its attributes start and end."""
    at = 0
    while at < len(data):
        length, flags, _, link = _NEXTHOP.unpack_from(data, at)
        yield flags, link, at + _NEXTHOP.size, at + length
        at += max((length + 3) & ~3, _NEXTHOP.size)


class NexthopReader:
    """Nexthop objects (``ip nexthop``) of one dump; groups may come before their members."""

    def __init__(self) -> None:
        self._single: dict[int, NextHop] = {}
        self._groups: dict[int, list[int]] = {}
        self._gateways: dict[int, Gateway] = {}

    def read(self, data: bytes, start: int, end: int) -> None:
        *_, flags = _NHMSG.unpack_from(data, start)
        found = attributes(data, start + _NHMSG.size, end)
        number = _u32(found[_NHA_ID])
        if _NHA_GROUP in found:
            self._groups[number] = [member for member, *_ in _GROUP_MEMBER.iter_unpack(found[_NHA_GROUP])]
        elif _NHA_OIF in found:
            self._single[number] = NextHop(_u32(found[_NHA_OIF]), bool(flags & _RTNH_F_DEAD))
            if _NHA_GATEWAY in found:
                self._gateways[number] = Gateway(_u32(found[_NHA_OIF]), ip_address(found[_NHA_GATEWAY]))

    def gateways(self, number: int) -> Iterator[Gateway]:
        """Of one nexthop object, or of a group's members."""
        for member in self._groups.get(number, [number]):
            if member in self._gateways:
                yield self._gateways[member]

    def nexthops(self) -> dict[int, tuple[NextHop, ...]]:
        """By id. A blackhole has no next hop: the kernel lists its routes as blackholes already."""
        groups = {
            number: tuple(self._single[member] for member in members if member in self._single)
            for number, members in self._groups.items()
        }
        return {number: (hop,) for number, hop in self._single.items()} | groups


def route_question(to: IPAddress, source: IPAddress | None, incoming: int, mark: int) -> bytes:
    """For RTM_GETROUTE: where a packet would be sent, one of this host's (``incoming`` 0, and ``source`` its own) or
    one that came in on the link of that index."""
    bits = to.max_prefixlen
    family = nl.AF_INET if to.version == 4 else nl.AF_INET6
    header = _RTMSG.pack(family, bits, bits if source else 0, 0, 0, 0, 0, 0, 0)
    found = {_RTA_DST: to.packed, _RTA_SRC: source.packed if source else b""}
    found |= {_RTA_IIF: u32(incoming) if incoming else b"", _RTA_MARK: u32(mark) if mark else b""}
    return header + b"".join(attribute(kind, value) for kind, value in found.items() if value)


def route_answer(data: bytes) -> int:
    """The index of the link it would leave by; 0 for none."""
    return _u32(attributes(data, _RTMSG.size).get(_RTA_OIF, bytes(4)))


def is_about_local_table(data: bytes, start: int) -> bool:
    """Of RTM_NEWROUTE and RTM_DELROUTE."""
    return bool(_RTMSG.unpack_from(data, start)[4] == LOCAL_TABLE)


def _u32(data: bytes) -> int:
    number: int = U32.unpack_from(data)[0]
    return number


def _s32(data: bytes | None) -> int:
    number: int = S32.unpack(data)[0] if data is not None else -1
    return number


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def _network(data: bytes, length: int) -> IPNetwork:
    address: IPAddress = ip_address(data)
    return ip_network((address, length), strict=False)
