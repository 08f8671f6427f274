"""Turns what nft lists back into the plan that it came from. Pure.

The kernel is the only memory, so a restarted speaker compares with what is there. Anything unexpected is not trusted: a
table that somebody else has edited is treated as unknown, and rebuilt.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple, TypeAlias

from speaker.forwarding.nftables import ruleset
from speaker.forwarding.nftables.ruleset import ChosenBy, Ruleset
from speaker.forwarding.nftables.skeletons import FORWARDER, GUARD
from speaker.forwarding.plan import NUMBERS, PROTOCOLS, Plan, RealServer, VirtualServer, VirtualServerKey
from speaker.model import IPNetwork

Listing: TypeAlias = Iterable[Mapping[str, Any]]
"""The objects of ``nft --json --numeric list table``."""


class _Foreign(Exception):
    """Raised when a listing holds something that we did not make, or lacks something that we did."""


_NOT_OURS = (_Foreign, LookupError, TypeError, ValueError, AttributeError)
"""Includes what reading JSON of another shape than nft's may raise."""


class _Found(NamedTuple):
    elements: Mapping[str, frozenset[str]]
    rules: Mapping[str, Mapping[str, Any]]
    """The rules of every varying chain."""
    maps: Mapping[str, frozenset[str]]


def read_plan(listing: Listing) -> Plan | None:
    """The plan that made the forwarder's table; None unless the table is exactly as that plan would make it."""
    try:
        found = _found(listing, FORWARDER)
        plan = _plan(found)
    except _NOT_OURS:
        return None
    # Rules are compared as read: the text of a rule is ours, but the kernel keeps only its meaning.
    made = ruleset.forwarder_ruleset(plan)
    maps = {name: slots.elements for name, slots in made.maps.items()}
    return plan if (made.elements, maps) == (found.elements, found.maps) else None


def read_guard(listing: Listing, want: Ruleset) -> Ruleset | None:
    """The guard's ruleset as it is; None if its fixed part is not ours."""
    try:
        found = _found(listing, GUARD)
    except _NOT_OURS:
        return None
    return None if found.rules or found.maps else replace(want, elements=found.elements)


def _found(listing: Listing, skeleton: str) -> _Found:
    made = ruleset.assemble("", skeleton, {}, {})
    fixed = _fixed_chains(made.skeleton)
    elements: dict[str, frozenset[str]] = {}
    chains: dict[str, list[Mapping[str, Any]]] = {}
    for item in listing:
        ((kind, thing),) = item.items()
        match kind:
            case "set" | "map":
                elements[thing["name"]] = frozenset(map(_listed_element, thing.get("elem", ())))
            case "chain" if thing.get("policy", "accept") == "accept":
                chains.setdefault(thing["name"], [])
            case "rule":
                chains.setdefault(thing["chain"], []).append(thing)
            case "metainfo" | "table":
                pass
            case _:
                raise _Foreign(item)
    for name, comments in fixed.items():
        # Nobody who changes a rule keeps our comment, as nft cannot edit, but only add and delete.
        if [rule.get("comment") for rule in chains.pop(name, [{}])] != list(comments):
            raise _Foreign(name)
    maps = {name: elements.pop(name) for name in elements.keys() - made.elements.keys()}
    if elements.keys() != made.elements.keys() or any(len(rules) != 1 for rules in chains.values()):
        raise _Foreign
    return _Found(elements, {name: rules[0] for name, rules in chains.items()}, maps)


@cache
def _fixed_chains(skeleton: str) -> Mapping[str, tuple[str, ...]]:
    """Each chain of a skeleton with its rules' comments; every rule has one."""
    _, *parts = re.split(r"^  chain (\w+) {", skeleton, flags=re.MULTILINE)
    return {
        name: tuple(re.findall(r'comment "([^"]*)"', body)) for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _listed_element(element: Any) -> str:
    match element:
        case str(address) if ":" in address:
            return str(ip_address(address))  # nft and Python abbreviate some addresses differently
        case str(word):
            return word
        case int(number):
            return str(number)
        case {"concat": list(parts)}:
            return " . ".join(map(_listed_element, parts))
        case [key, {"goto": {"target": str(target)}}]:
            return f"{_listed_element(key)} : goto {target}"
        case [int(slot), target]:
            return f"{slot} : {_listed_element(target)}"
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            return f"{_listed_element(address)}/{length}"
        case _:
            raise _Foreign(element)


def _plan(found: _Found) -> Plan:
    sources: dict[VirtualServerKey, list[IPNetwork]] = {}
    for element in found.elements["sources4"] | found.elements["sources6"]:
        text, network = element.rsplit(" . ", 1)
        sources.setdefault(_listed_key(text), []).append(ip_network(network))
    local = found.elements["local4"] | found.elements["local6"]
    servers: dict[VirtualServerKey, VirtualServer] = {}
    for element in found.elements["services4"] | found.elements["services6"]:
        text, chain = element.split(" : goto ")
        key = _listed_key(text)
        if chain not in found.rules:
            raise _Foreign(element)
        server = _listed_server(key, found.rules[chain], found.maps.get(chain, frozenset()), local)
        servers[key] = replace(server, sources=ruleset.collapsed(sources.get(key, ())))
    if found.rules.keys() != {ruleset.chain_name(key) for key in servers}:
        raise _Foreign
    eips = frozenset(map(ip_address, found.elements["eips4"] | found.elements["eips6"]))
    return Plan(eips, servers)


def _listed_key(element: str) -> VirtualServerKey:
    address, number, port = element.split(" . ")
    protocol = PROTOCOLS.get(int(number))
    if protocol is None:
        raise _Foreign(element)
    return ip_address(address), protocol, int(port)


def _listed_server(
    key: VirtualServerKey, rule: Mapping[str, Any], slots: frozenset[str], local: frozenset[str]
) -> VirtualServer:
    """The virtual server that this rule belongs to (``ruleset._rule``). Raises _Foreign if there is none."""
    scheduler, persistence, masquerade = _listed_note(rule.get("comment", ""))
    server = VirtualServer(*key, scheduler, persistence, masquerade=masquerade)
    match _without_protocol(rule["expr"], server):
        case [{"return": None}]:
            return server
        case [{"dnat": {"family": ip, "addr": {"map": {"key": choice, "data": name}}}}] if (
            slots and ip == ruleset.ip_of(server) and name == f"@{ruleset.chain_name(key)}"
        ):
            server = replace(server, real_servers=_listed_real_servers(slots, _modulus(choice), local))
            if choice == _listed_choice(server):
                return server
    raise _Foreign(rule)


def _without_protocol(expressions: list[Any], server: VirtualServer) -> list[Any]:
    """nft lists the match on the protocol only if no field name, such as ``tcp sport``, implies it."""
    number = NUMBERS[server.protocol]
    match expressions:
        case [{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": listed}}, *rest] if (
            listed == number
        ):
            return rest
        case [{"return": None}]:
            return expressions
    return expressions if ruleset.chosen_by(server) is ChosenBy.FLOW else []


def _listed_note(note: str) -> tuple[str, int | None, bool]:
    found = re.fullmatch(r"([a-z-]+)(?: persistent (\d+))?( transparent)?", note)
    if found is None or found[1] not in ruleset.SCHEDULERS:
        raise _Foreign(note)
    return found[1], None if found[2] is None else int(found[2]), found[3] is None


def _modulus(choice: Any) -> int:
    match choice:
        case {"numgen": {"mod": int(total)}} | {"jhash": {"mod": int(total)}}:
            return int(total)
    raise _Foreign(choice)


def _listed_choice(server: VirtualServer) -> Mapping[str, Any]:
    """How nft lists the choice of a slot that ``ruleset._rule`` makes."""
    total = ruleset.turns(server.real_servers)
    source = {"payload": {"protocol": ruleset.ip_of(server), "field": "saddr"}}
    port = {"payload": {"protocol": server.protocol.lower(), "field": "sport"}}
    match ruleset.chosen_by(server):
        case ChosenBy.SOURCE:
            return {"jhash": {"mod": total, "seed": ruleset.SEED, "expr": source}}
        case ChosenBy.FLOW:
            return {"jhash": {"mod": total, "seed": ruleset.SEED, "expr": {"concat": [source, port]}}}
        case ChosenBy.TURN:
            return {"numgen": {"mode": "inc", "mod": total, "offset": 0}}


def _listed_real_servers(slots: frozenset[str], total: int, local: frozenset[str]) -> tuple[RealServer, ...]:
    weights: Counter[tuple[str, int]] = Counter()
    for slot in slots:
        number, target = slot.split(" : ")
        address, port = target.split(" . ")
        weights[address, int(port)] += int(number) < total
    found = (RealServer(ip_address(at), port, weight, at in local) for (at, port), weight in weights.items())
    return tuple(sorted(found))
