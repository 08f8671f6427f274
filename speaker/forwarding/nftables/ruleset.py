"""nft rulesets: from a plan to the contents of its table, and the scripts that lead from one to another. Pure.

A ruleset has a fixed part (``skeletons.py``: sets, maps, and the rules that look things up in them) and a variable one:
set elements, and one small chain per virtual server. A packet costs a hash lookup no matter how many virtual servers
there are, and changing an endpoint rewrites one chain. Two rulesets are made here: the forwarder's, which does
everything, and the guard's, which stands in front of IPVS and masquerades what IPVS sends on.

Each script is one transaction. ``listing.py`` reads what is there. The same script works in nft 1.0.6 and 1.1.3, whose
listings are alike. All sets say ``typeof`` and all maps have names, since 1.0.6 crashes at anything else
(docs/decisions/0011-nft-as-text.md).
"""

import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import collapse_addresses, ip_network
from typing import Any, NamedTuple, cast

from speaker.forwarding.changes import address_of, diff, part_of
from speaker.forwarding.nftables.skeletons import ASSIST, ASSIST_TABLE, FORWARDER, GUARD, GUARD_TABLE, TABLE
from speaker.forwarding.plan import EMPTY, NUMBERS, Plan, RealServer, VirtualServer, VirtualServerKey, taken_here
from speaker.model import Family, IPAddress, IPNetwork

#: Schedulers that send a client's address to the same real server. IPVS's dh hashes the destination, which is one
#: EIP here: all of it would go to one real server, so the source decides.
BY_SOURCE = frozenset({"sh", "dh", "mh"})
#: Those that send a connection by the client's address and port: every node the same one to the same real server.
BY_FLOW = frozenset({"sh-port", "mh-port"})
IN_TURN = frozenset({"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sed", "nq", "fo", "ovf", "twos"})
SCHEDULERS = BY_SOURCE | BY_FLOW | IN_TURN
#: nft cannot count a real server's connections.
_NOT_AS_NAMED = (IN_TURN - {"rr", "wrr"}) | {"dh"}

#: Fixed, so that every node hashes a client to the same real server: a failover does not move it.
SEED = 0x0E190

#: Of what it masquerades, and lets pass: `iptables.masqueradeBit` of its configuration is 14 by default.
KUBE_PROXYS_MARK = 0x4000

#: A source no packet has (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2): how "nobody" looks as a list of networks.
_NOBODY = {Family.IPV4: ip_network("0.0.0.0/32"), Family.IPV6: ip_network("::/128")}


@dataclass(frozen=True, slots=True)
class Ruleset:
    """A table ``family`` ``table``: its fixed part, the elements of each set, and what varies.

    What varies are the rule of each varying chain, and the elements of each varying map, from a number to a real
    server.
    """

    table: str
    skeleton: str
    elements: Mapping[str, frozenset[str]]
    chains: Mapping[str, str]
    family: str = "inet"
    maps: Mapping[str, "Slots"] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.family} {self.table}"


class Slots(NamedTuple):
    """A map's declaration, and its elements: the real server of each number."""

    typeof: str
    elements: frozenset[str]


# ── From a plan to a ruleset ───────────────────────────────────────────────────────────────────────────────────


class Expressed(NamedTuple):
    """A plan and its ``expressible`` form."""

    plan: Plan
    form: Plan


NOTHING = Expressed(EMPTY, EMPTY)


def expressible(plan: Plan, known: Expressed = NOTHING) -> Plan:
    """``plan`` in the one form that survives a round trip through the kernel; it forwards the same.

    Source ranges lose the other family's and overlaps; a real server's address is local in the whole plan, or nowhere.
    What ``plan`` shares with the ``known`` one remains the same objects.
    """
    plan = taken_here(plan)
    local = local_addresses(plan)
    moved = local ^ local_addresses(known.form)

    def form(key: VirtualServerKey, server: VirtualServer) -> VirtualServer:
        if known.plan.virtual_servers.get(key) is server and not (moved and _names(server, moved)):
            return known.form.virtual_servers[key]
        return _expressible(server, local)

    return Plan(plan.eips, {key: form(key, server) for key, server in plan.virtual_servers.items()})


def local_addresses(plan: Plan) -> set[IPAddress]:
    """If Services disagree, an address is not local: otherwise whoever claims it for another's backend would keep its
    replies from coming back this way."""
    known = [real for server in plan.virtual_servers.values() for real in server.real_servers]
    return {real.address for real in known if real.local} - {real.address for real in known if not real.local}


def _names(server: VirtualServer, addresses: set[IPAddress]) -> bool:
    return any(real.address in addresses for real in server.real_servers)


def _expressible(server: VirtualServer, local: set[IPAddress]) -> VirtualServer:
    return replace(
        server,
        sources=_expressible_sources(server.sources, Family.of(server.address)),
        real_servers=tuple(sorted(replace(real, local=real.address in local) for real in server.real_servers)),
    )


def _expressible_sources(sources: tuple[IPNetwork, ...], family: Family) -> tuple[IPNetwork, ...]:
    if not sources:
        return ()
    ours = collapsed(network for network in sources if Family.of(network) is family)
    if any(network.prefixlen == 0 for network in ours):
        return ()
    return ours or (_NOBODY[family],)


def collapsed(networks: Iterable[IPNetwork]) -> tuple[IPNetwork, ...]:
    return tuple(cast(Iterator[IPNetwork], collapse_addresses(cast(Any, networks))))  # typed for one family at a time


def forwarder_ruleset(plan: Plan) -> Ruleset:
    """Everything: translation, masquerade, source ranges, pings and the guard. ``plan`` is ``expressible``."""
    return _translating(TABLE, FORWARDER, plan)


def assist_ruleset(plan: Plan) -> Ruleset:
    """Translation and masquerade in front of kube-proxy, with its mark. ``plan`` is ``expressible``."""
    return _translating(ASSIST_TABLE, ASSIST, plan, f"meta mark set meta mark | {KUBE_PROXYS_MARK:#x} ")


def _translating(table: str, skeleton: str, plan: Plan, before: str = "") -> Ruleset:
    elements = _elements(plan)
    chains: dict[str, str] = {}
    maps: dict[str, Slots] = {}
    for key, server in plan.virtual_servers.items():
        name = chain_name(key)
        chains[name] = before + _rule(server)
        if server.real_servers:
            maps[name] = _slots(server)
        elements[f"services{key[0].version}"].add(f"{_element(key)} : goto {name}")
    return replace(assemble(table, skeleton, elements, chains), maps=maps)


def guard_ruleset(plan: Plan) -> Ruleset:
    """What IPVS does not do itself: the guard, source ranges, masquerade. ``plan`` is ``expressible``."""
    elements = _elements(plan)
    for key in plan.virtual_servers:
        elements[f"ports{key[0].version}"].add(_element(key))
    return assemble(GUARD_TABLE, GUARD, elements, {})


def assemble(
    table: str, skeleton: str, elements: dict[str, set[str]], chains: dict[str, str], family: str = "inet"
) -> Ruleset:
    names = re.findall(r"(?:set|map) (\w+) {", skeleton)
    # A newer speaker's rules may differ although names and comments do not: the mark shows that.
    mark = f"  chain made_of_{zlib.crc32(skeleton.encode()):08x} {{ }}\n"
    return Ruleset(table, skeleton + mark, {name: frozenset(elements.get(name, ())) for name in names}, chains, family)


class Elements(dict[str, set[str]]):
    def __missing__(self, name: str) -> set[str]:
        return self.setdefault(name, set())


def _elements(plan: Plan) -> Elements:
    """The elements that both rulesets have."""
    elements = Elements()
    for eip in plan.eips:
        elements[f"eips{eip.version}"].add(str(eip))
    for server in plan.virtual_servers.values():
        _add_elements(server, elements)
    for address in local_addresses(plan):
        elements[f"local{address.version}"].add(str(address))
    return elements


def _add_elements(server: VirtualServer, elements: Elements) -> None:
    eip, version = str(server.address), server.address.version
    if server.sources:
        elements[f"restricted{version}"].add(_element(server.key))
    for network in server.sources:
        elements[f"sources{version}"].add(f"{_element(server.key)} . {_network(network)}")
    for real in server.real_servers:
        address = str(real.address)
        elements[f"hairpin{version}"].add(f"{eip} . {address} . {address}")
        if server.masquerade:
            elements[f"masquerade{version}"].add(f"{eip} . {address} . {NUMBERS[server.protocol]} . {real.port}")


def _network(network: IPNetwork) -> str:
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def _element(key: VirtualServerKey) -> str:
    address, protocol, port = key
    return f"{address} . {NUMBERS[protocol]} . {port}"


def chain_name(key: VirtualServerKey) -> str:
    """nft's names have no colons."""
    address, protocol, port = key
    return f"{protocol.lower()}/{address.exploded.replace(':', '-')}/{port}"


def _rule(server: VirtualServer) -> str:
    """The one rule of a virtual server's chain; its comment keeps what the rule itself does not say."""
    comment = f'comment "{_note(server)}"'
    if not server.real_servers:
        return f"return {comment}"
    ip = ip_of(server)
    total = turns(server.real_servers)
    match chosen_by(server):
        case ChosenBy.SOURCE:
            pick = f"jhash {ip} saddr mod {total} seed {SEED:#x}"
        case ChosenBy.FLOW:
            pick = f"jhash {ip} saddr . th sport mod {total} seed {SEED:#x}"
        case ChosenBy.TURN:
            pick = f"numgen inc mod {total}"
    return f"meta l4proto {NUMBERS[server.protocol]} dnat {ip} to {pick} map @{chain_name(server.key)} {comment}"


class ChosenBy(Enum):
    """What decides which real server gets a new connection."""

    SOURCE = "source"
    FLOW = "flow"
    TURN = "turn"


def chosen_by(server: VirtualServer) -> ChosenBy:
    if server.scheduler in BY_SOURCE or server.persistence is not None:
        return ChosenBy.SOURCE
    return ChosenBy.FLOW if server.scheduler in BY_FLOW else ChosenBy.TURN


def _note(server: VirtualServer) -> str:
    if server.scheduler not in SCHEDULERS:
        raise ValueError(f"{server.scheduler!r} is no scheduler: speaker.api lets none pass")
    persistent = [] if server.persistence is None else ["persistent", str(server.persistence)]
    return " ".join([server.scheduler, *persistent, *([] if server.masquerade else ["transparent"])])


def turns(real_servers: tuple[RealServer, ...]) -> int:
    return max(1, sum(real.weight for real in real_servers))


def _slots(server: VirtualServer) -> Slots:
    """Each real server gets as many numbers as its weight. Weight 0 is above the modulus, where no number falls:
    nothing new goes there, but the next reader still sees it. A number without a slot falls through to the guard."""
    within = (real for real in server.real_servers for _ in range(real.weight))
    beyond = (real for real in server.real_servers if real.weight == 0)
    slots = itertools.chain(
        map(_slot, itertools.count(), within), map(_slot, itertools.count(turns(server.real_servers)), beyond)
    )
    # Its own protocol's port: for nft `th dport` contradicts the rule, which names a protocol.
    typeof = f"numgen inc mod 2 : {ip_of(server)} daddr . {server.protocol.lower()} dport"
    return Slots(typeof, frozenset(slots))


def ip_of(server: VirtualServer) -> str:
    return "ip" if server.address.version == 4 else "ip6"


def _slot(number: int, real: RealServer) -> str:
    return f"{number} : {real.address} . {real.port}"


def approximations(plan: Plan) -> tuple[str, ...]:
    """What nft does differently from what the manifest says, one sentence per virtual server."""
    return tuple(
        sentence for server in plan.virtual_servers.values() for sentence in _approximations(server, str(server))
    )


def _approximations(server: VirtualServer, name: str) -> Iterator[str]:
    if server.persistence is not None:
        yield f"{name}: nftables hashes the client's address, so session affinity has no timeout"
    elif server.scheduler in _NOT_AS_NAMED:
        way = "hashes the client's address" if server.scheduler in BY_SOURCE else "takes turns by weight"
        yield f"{name}: nftables has no scheduler {server.scheduler} and {way} instead"


# ── From one ruleset to another ───────────────────────────────────────────────────────────────────────────────


def rebuild_script(want: Ruleset) -> str:
    """One transaction that makes the table what it should be, whatever it was."""
    nothing = replace(want, elements={name: frozenset() for name in want.elements}, chains={}, maps={})
    return (
        f"table {want.name}\ndelete table {want.name}\n"
        f"table {want.name} {{{want.skeleton}}}\n{change_script(nothing, want)}"
    )


def change_script(have: Ruleset, want: Ruleset) -> str:
    """One transaction from ``have`` to ``want`` that names only the differences; '' if there are none."""
    table = want.name
    changed = [name for name, rule in want.chains.items() if have.chains.get(name) != rule]
    gone = sorted(have.chains.keys() - want.chains.keys())
    lines = [f"add chain {table} {name}" for name in changed]
    lines += [f"flush chain {table} {name}" for name in changed if name in have.chains]
    lines += _map_lines(have, want)
    lines += [f"add rule {table} {name} {want.chains[name]}" for name in changed]
    for name, wanted in want.elements.items():
        # A map's element goes by its key alone.
        removed = sorted(element.split(" : ")[0] for element in have.elements[name] - wanted)
        lines += _element_lines("delete", table, name, removed)
        lines += _element_lines("add", table, name, sorted(wanted - have.elements[name]))
    lines += [f"{verb} chain {table} {name}" for name in gone for verb in ("flush", "delete")]
    lines += [f"delete map {table} {name}" for name in sorted(have.maps.keys() - want.maps.keys())]
    return "".join(line + "\n" for line in lines)


def _map_lines(have: Ruleset, want: Ruleset) -> Iterator[str]:
    for name, slots in want.maps.items():
        known = have.maps.get(name)
        if known == slots:
            continue
        if known is None:
            yield f"add map {want.name} {name} {{ typeof {slots.typeof}; }}"
        else:
            yield f"flush map {want.name} {name}"
        yield from _element_lines("add", want.name, name, sorted(slots.elements))


def step_script(have: Plan, want: Plan, ruleset_of: Callable[[Plan], Ruleset]) -> str:
    """The ``change_script`` between the rulesets of two ``expressible`` plans, made only from what differs."""
    eips = {address_of(part_of(change)) for change in diff(have, want)}
    here, there = local_addresses(have), local_addresses(want)
    return change_script(
        _with_local(ruleset_of(_narrowed(have, eips)), here - there),
        _with_local(ruleset_of(_narrowed(want, eips)), there - here),
    )


def _narrowed(plan: Plan, eips: set[IPAddress]) -> Plan:
    """An EIP's elements belong to no other EIP, except real servers on this node."""
    servers = {key: server for key, server in plan.virtual_servers.items() if server.address in eips}
    return Plan(plan.eips & eips, servers)


def _with_local(ruleset: Ruleset, addresses: set[IPAddress]) -> Ruleset:
    local = Elements()
    for address in addresses:
        local[f"local{address.version}"].add(str(address))
    own = {"local4": frozenset(local["local4"]), "local6": frozenset(local["local6"])}
    return replace(ruleset, elements={**ruleset.elements, **own})


def _element_lines(verb: str, table: str, name: str, elements: list[str]) -> list[str]:
    return [f"{verb} element {table} {name} {{ {', '.join(elements)} }}"] if elements else []
