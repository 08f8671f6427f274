"""What other programs' firewall chains do with a packet: it passes, is dropped, or a rule that is not understood
decides. Pure.

Every rule that the packet may meet is followed, through jumps, gotos and verdict maps. If a match is not understood,
both cases are followed: that it matches, and that it does not. A result that is the same either way is certain.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from ipaddress import ip_address, ip_network
from operator import or_
from typing import Any, Final

from speaker.diagnosis.facts import Chain

_ETHERTYPES = {"arp": 0x0806, "ip": 0x0800, "ip6": 0x86DD}
_FAMILIES = {"ip": {4}, "ip6": {6}, "inet": {4, 6}, "netdev": {4, 6}, "bridge": {4, 6}, "arp": set[int]()}
_PASSING = frozenset(
    {
        "counter",
        "log",
        "comment",
        "flow",
        "last",
        "dup",
        "ct helper",
        "ct timeout",
        "ct expectation",
        "secmark",
        "reset",
    }
)
CONDITIONS = frozenset({"limit", "quota", "ct count", "meter", "xt"})
"""They may let a rule count, or not."""
_KEEPS = frozenset({"dscp", "ecn", "flowlabel"})
"""Fields that may be changed without changing the packet's way."""
_XT_PASSING = frozenset(
    {"AUDIT", "CHECKSUM", "CLASSIFY", "CONNMARK", "DSCP", "LOG", "MARK", "NFLOG", "SET", "TCPMSS", "TRACE"}
    | {"comment"}
)
"""Targets that do not affect whether a packet passes."""
_NUMBERS: Final = (
    {**_ETHERTYPES, "ipv4": 2, "ipv6": 10}
    | {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "ipv6-icmp": 58, "sctp": 132}
    | {"request": 1, "original": 0, "reply": 1, "fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32}
    | {"invalid": 1, "established": 2, "related": 4, "new": 8, "untracked": 64, "snat": 16, "dnat": 32}
    | {"unicast": 1, "local": 2, "nd-neighbor-solicit": 135, "nd-neighbor-advert": 136}
)
"""Values that nft names, and lists as numbers when asked to."""
_UNREADABLE = AttributeError, KeyError, TypeError, ValueError
"""Raised by a rule that nft prints in an unknown form."""
NEW, FURTHER, ANSWER = "new", "further", "established"
"""Of a connection: its first packet, a later one of its client, and an answer."""
_CONNTRACK = -200
"""Priority at which the kernel finds a packet's connection; before that, ``ct state`` is invalid."""
_MODULES = frozenset({"tcp", "udp", "comment", "conntrack", "state", "multiport", "addrtype", "icmp6", "hl", "rt"})
"""Matches of iptables that do nothing but what their options say."""
DNAT = 32
"""A bit of ``ct status``: IPS_DST_NAT."""
_ACCEPT, _DROP, _RETURN, _NEXT = "accept", "drop", "return", "next"
_LISTED = 5
KUBE = "KUBE-"
"""kube-proxy's chains begin so; what its translating chains do is known."""
_LOSES: Final = dict.fromkeys(("drop", "reject"), "drops") | {
    "notrack": "leaves untracked, and so untranslated,",
    **dict.fromkeys(("dnat", "redirect", "fwd"), "diverts"),
}
"""Verdict → what becomes of the packet."""
DEEP = 16
"""The longest row of nested chains, as in the kernel (NFT_JUMP_STACK_SIZE)."""
_LACKS: Final = object()
"""The packet has no such field: the match is false."""
_Outcomes = frozenset[str]
_ANY = frozenset({_DROP, _ACCEPT, _NEXT})


class _Wide(int):
    """Of two bytes: asked for numbers, nft 1.0.6 prints some in the wrong order of bytes."""

    def either(self) -> tuple[int, int]:
        return int(self), (self & 0xFF) << 8 | self >> 8


@dataclass(frozen=True, slots=True)
class Packet:
    """``fields``: by nft's names, such as ``ip daddr``, ``tcp dport`` and ``meta iifname``; numbers where nft has them.
    A field that is None or missing is unknown, unless the packet has no field of that protocol. ``translated``: it has
    to be translated, which never happens to an untracked packet. ``sure``: it meets the chain that it is made for."""

    words: str
    ethertype: str
    fields: Mapping[str, str | int | None]
    translated: bool = False
    sure: bool = True

    def protocols(self) -> frozenset[str]:
        """The protocols whose fields the packet has."""
        found = {name.split()[0] for name in self.fields}
        return frozenset(found | {"ether", "meta", "ct", "th" if found & {"tcp", "udp", "sctp"} else "ether"})


@dataclass(frozen=True, slots=True)
class Judged:
    """``drops``: the rule or policy that does. ``unseen``: rules that decide and are not understood. ``how``: what the
    rule does with the packet."""

    drops: str = ""
    unseen: tuple[str, ...] = ()
    how: str = "drops"


@dataclass(frozen=True, slots=True)
class Ruleset:
    """``chains`` by family, table and name. ``sets``, and maps, by the same in one string. ``endpoints``: address and
    port where the packet may be sent on to; None if not all are known. ``bound``: the EIP is bound here.
    ``kube_proxy``: kube-proxy translates it."""

    chains: Mapping[tuple[str, str, str], Chain]
    sets: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    endpoints: frozenset[tuple[str, int]] | None = None
    bound: bool = False
    kube_proxy: bool = False

    @classmethod
    def of(
        cls,
        chains: Iterable[Chain],
        sets: Mapping[str, tuple[Any, ...]],
        endpoints: frozenset[tuple[str, int]] | None = None,
        **more: bool,
    ) -> "Ruleset":
        return cls({(each.family, each.table, each.name): each for each in chains}, sets, endpoints, **more)

    def judge(self, chain: Chain, packet: Packet) -> Judged:
        """What becomes of it in the base chain ``chain``, including the policy."""
        if not _concerned(chain, packet):
            return Judged()
        walk = _Walk(self, _as_met(chain, packet))
        found = walk.through(chain)
        if _RETURN in found:
            found = found - {_RETURN} | {chain.policy}
            if chain.policy == _DROP:
                walk.dropping.append(("drops", "its policy"))
        if found == {_DROP}:
            how, rule = walk.dropping[0]
            return Judged(rule, how=how)
        return Judged(unseen=tuple(walk.doubtful)[:_LISTED]) if _DROP in found else Judged()


def arp_request(eip: str, link: str) -> Packet:
    return _arp("ARP questions for it", 1, {"arp daddr ip": eip, "meta iifname": link, "meta iif": link})


def arp_answer(eip: str, link: str) -> Packet:
    return _arp("its ARP answers", 2, {"arp saddr ip": eip, "meta oifname": link, "meta oif": link})


def _arp(words: str, operation: int, fields: Mapping[str, str | int]) -> Packet:
    plain = {"arp htype": _Wide(1), "arp ptype": _Wide(_ETHERTYPES["ip"]), "arp hlen": 6, "arp plen": 4}
    return Packet(words, "arp", {**plain, "arp operation": _Wide(operation), **fields})


def resolving(version: int, link: str, whom: str, *, leaving: bool) -> Packet:
    """What this host's kernel asks its neighbours on the link (``leaving``), or their answers: without them it sends
    them nothing."""
    name = "ARP" if version == 4 else "NDP"
    words = f"this host's {name} questions to {whom}" if leaving else f"{name} answers of {whom} to this host"
    way = "oifname" if leaving else "iifname"
    if version == 4:
        return _arp(words, 1 if leaving else 2, {f"meta {way}": link, f"meta {way[:3]}": link})
    return ndp(words, None, 135 if leaving else 136, {way: link})


def ndp(words: str, to: str | None, kind: int, link: Mapping[str, str]) -> Packet:
    """``kind``: 135 for a question, 136 for an answer. ``link``: its field's name → the link. NDP is not tracked."""
    untracked = {"icmpv6 type": kind, "ip6 hoplimit": 255, "ct state": _NUMBERS["untracked"], "ct direction": None}
    return ip_packet(words, None, to, "icmpv6", {**untracked, **link}, version=6)


def ip_packet(
    words: str,
    source: str | None,
    destination: str | None,
    protocol: str,
    fields: Mapping[str, str | int | None],
    state: str = NEW,
    version: int = 0,
) -> Packet:
    """``fields``: sport and dport, iifname and oifname, and others by nft's names, if known. ``state``: of its
    connection. ``version``: needed without an address."""
    address = destination if destination is not None else source
    family = "ip6" if version == 6 or (address is not None and ip_address(address).version == 6) else "ip"
    number = _NUMBERS[protocol]
    own: dict[str, str | int | None] = {"meta l4proto": number, "meta nfproto": 10 if family == "ip6" else 2}
    own |= {"ip6 nexthdr" if family == "ip6" else "ip protocol": number}
    own |= {"ct state": _NUMBERS[NEW if state == NEW else ANSWER], "ct direction": 1 if state == ANSWER else 0}
    if protocol == "tcp":
        own["tcp flags"] = {NEW: 2, FURTHER: 16, ANSWER: 18}[state]
    for name, value in (("saddr", source), ("daddr", destination)):
        if value is not None:
            own[f"{family} {name}"] = value
    for name, known in fields.items():
        match name:
            case "sport" | "dport":
                own[f"{protocol} {name}"] = own[f"th {name}"] = known
            case "iifname" | "oifname":
                own[f"meta {name}"] = own[f"meta {name.removesuffix('name')}"] = known
            case _:
                own[name] = known
    return Packet(words, family, own)


def _as_met(chain: Chain, packet: Packet) -> Packet:
    """Without its connection, where the chain comes before the kernel finds that."""
    own = chain.hook == "output" and packet.fields.get("ct direction") != 0
    if chain.priority >= _CONNTRACK or not (chain.hook == "prerouting" or own):
        return packet
    fields = {name: None if name.startswith("ct ") else value for name, value in packet.fields.items()}
    return replace(packet, fields={**fields, "ct state": _NUMBERS["invalid"]})


def _concerned(chain: Chain, packet: Packet) -> bool:
    if packet.ethertype == "arp":
        return chain.family in ("arp", "netdev", "bridge")
    version = 4 if packet.ethertype == "ip" else 6
    return version in _FAMILIES.get(chain.family, set())


class _Walk:
    """One packet's way. ``dropping``: rules that drop it on one of its possible ways; ``doubtful``: rules not
    understood."""

    def __init__(self, ruleset: Ruleset, packet: Packet) -> None:
        self._ruleset, self._packet = ruleset, packet
        self._known: dict[tuple[str, str, str], _Outcomes] = {}
        self.dropping: list[tuple[str, str]] = []
        """What each does with it, and the rule."""
        self.doubtful: dict[str, None] = {}

    def through(self, chain: Chain, depth: int = 0) -> _Outcomes:
        """Its possible outcomes there; ``return`` if it reaches the end."""
        key = chain.family, chain.table, chain.name
        if key not in self._known:
            self._known[key] = self._through(chain, depth)
        return self._known[key]

    def _through(self, chain: Chain, depth: int) -> _Outcomes:
        outcomes = frozenset[str]()
        for at, rule in enumerate(chain.rules):
            text = chain.texts[at] if at < len(chain.texts) else str(rule)
            try:
                found = self._rule(chain, rule, text, depth)
            except _UNREADABLE:
                found = self._doubt(text, _ANY)
            outcomes |= found - {_NEXT}
            if _NEXT not in found:
                return outcomes
        return outcomes | {_RETURN}

    def _rule(self, chain: Chain, rule: Any, text: str, depth: int) -> _Outcomes:
        certain = True
        for expression in rule if isinstance(rule, list) else []:
            kind, value = next(iter(expression.items()), ("", None)) if isinstance(expression, dict) else ("", None)
            if kind in ("match", "vmap") and not isinstance(value, dict):
                return self._doubt(text, _ANY)
            if kind in _PASSING or (kind == "xt" and _of_xt(value, "name") in _XT_PASSING):
                continue
            if kind == "mangle" and _turns(value):
                return self._doubt(text, frozenset({_DROP, _NEXT}))
            if kind in ("mangle", "set"):
                certain &= kind == "mangle" or self._simply_adds(chain, value)
                continue
            if kind == "notrack" and "icmpv6 type" in self._packet.fields:
                continue  # NDP is not tracked in any case
            if kind == "notrack" and not self._packet.translated:
                return self._doubt(text, frozenset({_DROP, _NEXT}))
            if kind == "match":
                known = self._matches(chain, value)
                if known is False:
                    return frozenset({_NEXT})
                certain &= known is not None
            elif kind == "vmap":
                return self._mapped(chain, value, text, depth, certain)
            elif (found := self._verdict(chain, _as_verdict(kind, value), text, depth)) is not None:
                return found if certain else self._doubt(text, found | {_NEXT})
            elif kind not in CONDITIONS or (kind == "xt" and _of_xt(value, "type") != "match"):
                return self._doubt(text, _ANY)
            else:
                certain = False
        return frozenset({_NEXT})

    def _doubt(self, text: str, outcomes: _Outcomes) -> _Outcomes:
        self.doubtful[text] = None
        return outcomes

    def _verdict(self, chain: Chain, verdict: Any, text: str, depth: int) -> _Outcomes | None:
        """None if the statement is not a verdict."""
        kind = next(iter(verdict), "") if isinstance(verdict, dict) else ""
        if kind in ("dnat", "redirect") and (known := self._sends_on(kind, verdict[kind])) is not False:
            return frozenset({_ACCEPT}) if known else self._doubt(text, _ANY)
        if kind in _LOSES:
            self.dropping.append((_LOSES[kind], text))
            return frozenset({_DROP})
        if kind in ("snat", "masquerade"):
            return frozenset({_ACCEPT})
        if kind in ("accept", "return", "continue"):
            return frozenset({_NEXT if kind == "continue" else kind})
        if kind not in ("jump", "goto"):
            return None
        name = str((verdict[kind] or {}).get("target"))
        if chain.nat and name.startswith(KUBE):
            return frozenset({_ACCEPT if self._ruleset.kube_proxy else _NEXT})
        target = self._ruleset.chains.get((chain.family, chain.table, name))
        if target is None or depth >= DEEP:
            return self._doubt(text, _ANY)
        found = self.through(target, depth + 1)
        return found - {_RETURN} | {_NEXT} if kind == "jump" and _RETURN in found else found

    def _sends_on(self, kind: str, to: Any) -> bool | None:
        """Whether it is sent to an endpoint. None: unknown."""
        address = to.get("addr") if isinstance(to, dict) else None
        if kind == "redirect" or not isinstance(address, str):
            return False if kind == "redirect" else None
        endpoints, port = self._ruleset.endpoints, to.get("port")
        if endpoints is None or not isinstance(port, int | None):
            return None
        if port is not None and any(address == each for each, _ in endpoints):
            return (address, port) in endpoints or None  # the same pod may serve it there as well
        return any(address == each for each, _ in endpoints)

    def _mapped(self, chain: Chain, vmap: Any, text: str, depth: int, certain: bool) -> _Outcomes:
        key = self._value(vmap.get("key"))
        elements = self._elements(chain, vmap.get("data"))
        if elements is None:
            return self._doubt(text, _ANY)
        outcomes, open_ = frozenset[str](), not certain
        for element, verdict in (each for each in elements if isinstance(each, list) and len(each) == 2):
            equal = None if key is None else False if key is _LACKS else self._equal(chain, key, element, numbers=True)
            if equal is not False:
                outcomes |= self._verdict(chain, verdict, text, depth) or {_NEXT}
                open_ |= equal is None
            if equal:
                return self._doubt(text, outcomes | {_NEXT}) if open_ else outcomes
        return self._doubt(text, outcomes | {_NEXT}) if open_ else frozenset({_NEXT})

    def _elements(self, chain: Chain, data: Any) -> tuple[Any, ...] | None:
        if isinstance(data, str) and data.startswith("@"):
            return self._set(chain, data)
        return tuple(data["set"]) if isinstance(data, dict) and isinstance(data.get("set"), list) else None

    def _simply_adds(self, chain: Chain, to: Any) -> bool:
        """To a set that was read: one with a limit for each element was not."""
        return not to.get("stmt") and self._set(chain, to["set"]) is not None

    def _set(self, chain: Chain, name: str) -> tuple[Any, ...] | None:
        return self._ruleset.sets.get(f"{chain.family} {chain.table} {name[1:]}")

    def _matches(self, chain: Chain, match: Any) -> bool | None:
        """None: unknown."""
        left, right, op = match.get("left"), match.get("right"), match.get("op")
        found = self._value(left)
        if found is _LACKS:
            return False
        if found is None or op not in ("==", "!=", "in", "!"):
            return None
        open_ = left == {"ct": {"key": "status"}}  # other bits may be set as well
        asked = _bits(right)
        if op == "!" or (op == "in" and asked is not None):
            shares = _shares(found, asked, open_)
            return shares if op == "in" or shares is None else not shares
        if open_:
            return None
        numbers = not _is_name(left)
        equal = self._equal(chain, found, right, numbers=numbers)
        return None if equal is None else equal is (op != "!=")

    def _value(self, left: Any) -> Any:
        """A number, text, or a tuple of these; ``_LACKS``; None if unknown."""
        match left:
            case {"concat": list(parts)}:
                values = [self._value(part) for part in parts]
                return _LACKS if _LACKS in values else None if None in values else tuple(values)
            case {"&": [of, mask]}:
                value = self._value(of)
                known = _bits(mask)
                if value is _LACKS:
                    return value
                return value & known if isinstance(value, int) and known is not None else None
            case {"payload": {"protocol": str(protocol), "field": str(name)}}:
                return self._field(f"{protocol} {name}")
            case {"exthdr": {"field": _}}:
                return _LACKS
            case {"meta": {"key": "protocol"}}:
                return _Wide(_ETHERTYPES[self._packet.ethertype])
            case {"meta": {"key": str(key)}}:
                return self._field(f"meta {key}")
            case {"fib": {"result": "type", "flags": "daddr" | ["daddr"]}}:
                return self._local()
            case {"ct": {"key": str(key), **rest}}:
                return self._field(" ".join(["ct", *filter(None, [str(rest.get("dir", ""))]), key]))
        return None

    def _local(self) -> int | None:
        """RTN_LOCAL or RTN_UNICAST for a packet to the EIP; unknown for others."""
        fields = self._packet.fields
        if fields.get("ct direction") != 0 or any(name.startswith("ct original") for name in fields):
            return None
        return 2 if self._ruleset.bound else 1

    def _field(self, name: str) -> Any:
        if name == "ether type":
            return _Wide(_ETHERTYPES[self._packet.ethertype])
        if name.split()[0] not in self._packet.protocols():
            return _LACKS  # nft asks for the protocol before it looks at its fields
        return self._packet.fields.get(name)

    def _equal(self, chain: Chain, found: Any, right: Any, *, numbers: bool) -> bool | None:
        match right:
            case "*":  # of a set or map: whatever no other element holds
                return True
            case {"prefix": {"addr": str(address), "len": int(length)}}:
                return _in(found, f"{address}/{length}")
            case {"range": [low, high]}:
                return _between(found, low, high)
            case list() | {"|": list()}:
                known = _bits(right)
                return None if known is None else _same(found, known)
            case {"elem": {"val": value}}:
                return self._equal(chain, found, value, numbers=numbers)
            case {"concat": list(parts)} if isinstance(found, tuple) and len(parts) == len(found):
                return _all(self._equal(chain, f, part, numbers=numbers) for f, part in zip(found, parts, strict=True))
            case {"set": _} | str() if not isinstance(right, str) or right.startswith("@"):
                members = self._elements(chain, right)
                if members is None:
                    return None
                equal = [self._equal(chain, found, each, numbers=numbers) for each in members]
                return True if True in equal else None if None in equal else False
            case int() | str():
                return _same(found, _NUMBERS.get(right, right) if numbers and isinstance(right, str) else right)
        return None


def _turns(mangle: Any) -> bool:
    """Whether what is changed may give the packet another way."""
    match mangle.get("key") if isinstance(mangle, dict) else None:
        case {"payload": written}:
            return not isinstance(written, dict) or written.get("field") not in _KEEPS
        case {"ct": {"key": "zone"}} | {"meta": {"key": "pkttype"}}:
            return True
    return False


def _is_name(left: Any) -> bool:
    return isinstance(left, dict) and str(left.get("meta", {}).get("key", "")).startswith(("iif", "oif"))


def _of_xt(xt: Any, key: str) -> str:
    return str(xt.get(key, "")) if isinstance(xt, dict) else ""


def _as_verdict(kind: str, value: Any) -> dict[str, Any]:
    """A target of iptables as nft's own verdict, if there is one."""
    name = _of_xt(value, "name").lower() if kind == "xt" else ""
    return {name: None} if name.upper() in _VERDICTS.keys() - {"CT"} else {kind: value}


def _bits(given: Any) -> int | None:
    """All bits together; None if one of them is unknown. nft 1.0 lists the bits of a mask, 1.1 also writes ``|``."""
    match given:
        case int():
            return given
        case str():
            return _NUMBERS.get(given)
        case list(parts) | {"|": list(parts)}:
            known = [_bits(part) for part in parts]
            return None if None in known else reduce(or_, known, 0)
    return None


def _shares(found: Any, asked: int | None, open_: bool) -> bool | None:
    """Whether one of the bits in ``asked`` is set. ``open_``: more bits may be set than are known."""
    if asked is None or not isinstance(found, int):
        return None
    return True if found & asked else None if open_ else False


def _all(each: Iterator[bool | None]) -> bool | None:
    found = [*each]
    return False if False in found else None if None in found else True


def _same(found: Any, right: str | int) -> bool | None:
    if isinstance(found, int) and isinstance(right, int):
        return right in (found.either() if isinstance(found, _Wide) else (found,))
    if isinstance(found, str) and isinstance(right, str):
        return found.startswith(right[:-1]) if right.endswith("*") else found == right
    return None


def _in(found: Any, network: str) -> bool | None:
    try:
        return ip_address(str(found)) in ip_network(network, strict=False)
    except ValueError:
        return None


def _between(found: Any, low: Any, high: Any) -> bool | None:
    try:
        if isinstance(found, int):
            return int(low) <= found <= int(high)
        first, last, it = (ip_address(str(each)) for each in (low, high, found))
        return first.version == it.version and int(first) <= int(it) <= int(last)
    except (TypeError, ValueError):
        return None


# ── Rules as iptables-save prints them, made into what nft would list ─────────────────────────────────────────
#
# nft lists only the name of an iptables extension; this knows what it compares. An unknown one stays an
# extension that is not understood.

OLD = "legacy "
"""Prefix for the tables of old iptables, which have the same names as those of iptables-nft."""
_CHAIN = re.compile(r":(\S+) (\S+) ")
_HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
_VERDICTS = {
    "ACCEPT": "accept",
    "DROP": "drop",
    "REJECT": "reject",
    "RETURN": "return",
    "CT": "notrack",
    "NOTRACK": "notrack",
}
_VERDICTS |= {name: name.lower() for name in ("MASQUERADE", "SNAT", "REDIRECT")}
_PRIORITIES = {"raw": -300, "mangle": -150, "nat": -100, "security": 50}
_WITHOUT_MEANING = frozenset({"--comment", "--reject-with", "--log-prefix", "--log-level"})
"""Options with one value each, without effect on the packet."""


def chains(family: str, table: str, text: str) -> Iterator[Chain]:
    """``family``: ip or ip6. The kernel's own chains have a hook."""
    rules: dict[str, list[str]] = {}
    policies: dict[str, str] = {}
    nat = table.removeprefix(OLD) == "nat"
    for line in text.splitlines():
        if nat and line.startswith(f":{KUBE}"):
            continue
        if (chain := _CHAIN.match(line)) is not None:
            policies[chain[1]] = chain[2]
            rules.setdefault(chain[1], [])
        elif line.startswith("-A ") and not (nat and line.startswith(f"-A {KUBE}")):
            rules.setdefault(line.split()[1], []).append(line)
    for name, lines in rules.items():
        hook = name.lower() if name in _HOOKS else ""
        policy = "drop" if policies.get(name) == "DROP" else "accept"
        made = tuple(_rule(family, line, policies) for line in lines)
        priority = 100 if nat and hook == "postrouting" else _PRIORITIES.get(table.removeprefix(OLD), 0)
        yield Chain(family, table, name, hook, policy, "", made, tuple(lines), priority, nat)


def completed(listed: Iterable[Chain], saved: Iterable[Chain]) -> Iterator[Chain]:
    """``listed`` by nft, which knows only its own rules; those of iptables are from ``saved``."""
    known = {each.name: each for each in saved}
    for chain in listed:
        own = known.get(chain.name, chain)
        both = [*zip(chain.rules, chain.texts, strict=True)]
        if len(own.rules) == len(both):
            theirs = zip(own.rules, own.texts, strict=True)
            both = [other if _has_xt(one[0]) else one for one, other in zip(both, theirs, strict=True)]
        yield replace(chain, rules=tuple(rule for rule, _ in both), texts=tuple(text for _, text in both))


def _has_xt(rule: Any) -> bool:
    return any("xt" in each for each in rule)


def _rule(family: str, line: str, chains: Mapping[str, str]) -> list[Any]:
    try:
        words = shlex.split(line)[2:]
    except ValueError:
        return [{"xt": {"type": "target", "name": line}}]
    found, verdict, protocol, negated = [], [], "", False
    for option, value in _options(words):
        if option == "-p":
            protocol = value
        if option in ("-j", "-g"):
            way = "jump" if option == "-j" else "goto"
            verdict = [_target(value, way, chains, dict(_options(words[words.index(option) + 2 :])))]
            break  # what follows are a target's own options
        if option != "!" and option not in _WITHOUT_MEANING and not (option == "-m" and value in _MODULES):
            found.append(_match(family, option, value, protocol, negated))
        negated = option == "!"
    return [*found, *verdict]


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Options, each with its values: none, one, or several."""
    at = 0
    while at < len(words):
        end = at + 1 + (words[at] in _WITHOUT_MEANING)  # a comment may begin as it likes
        while end < len(words) and words[end][:1] not in ("-", "!"):
            end += 1
        yield words[at], " ".join(words[at + 1 : end])
        at = end


def _target(name: str, way: str, chains: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    if name == "DNAT":
        address, port = _and_port(options.get("--to-destination", ""))
        return {"dnat": {"addr": address, "port": int(port) if port.isdigit() else port or None}}
    if name == "CT" and "--notrack" not in options:
        return {"mangle": {"key": {"ct": {"key": "zone" if any("--zone" in each for each in options) else ""}}}}
    if name in _VERDICTS:
        return {_VERDICTS[name]: None}
    return (
        {way: {"target": name}} if name in chains or name.startswith(KUBE) else {"xt": {"type": "target", "name": name}}
    )


def _and_port(to: str) -> tuple[str, str]:
    if to.startswith("["):
        address, _, port = to[1:].partition("]")
        return address, port.removeprefix(":")
    address, _, port = to.partition(":")
    return (address, port) if to.count(":") < 2 else (to, "")


def _match(family: str, option: str, value: str, protocol: str, negated: bool) -> dict[str, Any]:
    """``protocol``: the one that ``-p`` named before."""
    left: dict[str, Any] | None = None
    right: Any = value
    match option:
        case "-s" | "-d" if (length := value.partition("/")[2]).isdigit() or not length:
            address = value.partition("/")[0]
            left = {"payload": {"protocol": family, "field": "saddr" if option == "-s" else "daddr"}}
            right = {"prefix": {"addr": address, "len": int(length)}} if length.isdigit() else address
        case "-i" | "-o":
            left = {"meta": {"key": "iifname" if option == "-i" else "oifname"}}
            right = re.sub(r"\+$", "*", value)
        case "-p":
            left, right = {"meta": {"key": "l4proto"}}, int(value) if value.isdigit() else value
        case "--dport" | "--sport" | "--dports" | "--sports" | "--destination-ports" | "--source-ports" if protocol:
            left = {"payload": {"protocol": protocol, "field": f"{option[2]}port"}}
            right = {"set": [_port(each) for each in value.split(",")]}
        case "--ctstate" | "--state" if not set(value.split(",")) & {"DNAT", "SNAT"}:
            left, right = {"ct": {"key": "state"}}, {"set": [each.lower() for each in value.split(",")]}
        case "--icmpv6-type" if value.isdigit():
            left, right = {"payload": {"protocol": "icmpv6", "field": "type"}}, int(value)
        case "--hl-eq":
            left, right = {"payload": {"protocol": "ip6", "field": "hoplimit"}}, int(value)
        case "--rt-type":
            left = {"exthdr": {"name": "rt", "field": "type"}}
        case "--dst-type":
            left, right = {"fib": {"result": "type", "flags": "daddr"}}, {"set": value.lower().split(",")}
        case "--ctstate" if value in ("DNAT", "SNAT") and not negated:
            return {"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": value.lower()}}
    if left is None:
        return {"xt": {"type": "match", "name": option}}
    return {"match": {"op": "!=" if negated else "==", "left": left, "right": right}}


def _port(written: str) -> Any:
    first, colon, last = written.partition(":")
    if not colon:
        return int(first) if first.isdigit() else first
    return {"range": [int(first or 0), int(last or 65535)]}
