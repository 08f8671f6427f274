"""nft rulesets: from a plan to the script that makes it so. Pure.

A ruleset has a fixed part (the skeleton: sets, maps, and the rules that look things up in them) and what varies: set
elements, and one small chain per virtual server. A packet costs a hash lookup however many virtual servers there are,
and changing an endpoint rewrites one chain. Two rulesets are made here: the forwarder's, which does everything, and
the guard's, which stands in front of IPVS and masquerades what IPVS sends on.

``listing.py`` goes the other way. The same script works in nft 1.0.6 and 1.1.3, whose listings are alike. Both may be
at work in one network namespace, ours and the node's, and 1.0.6 crashes at the sight of what 1.1.3 declares with
``type``, and at its maps without a name (kubernetes issue 136786). So all sets say ``typeof``, and all maps have names.
"""

import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import collapse_addresses, ip_network
from typing import Any, cast

from speaker.forwarding.plan import (
    EMPTY,
    AddEip,
    AddRealServer,
    AddVirtualServer,
    Change,
    ChangeRealServer,
    ChangeVirtualServer,
    Plan,
    RealServer,
    RemoveEip,
    RemoveRealServer,
    RemoveVirtualServer,
    VirtualServer,
    VirtualServerKey,
    diff,
)
from speaker.model import Family, IPAddress, IPNetwork, Protocol

TABLE = "eip-speaker"
GUARD_TABLE = "eip-speaker-guard"

NUMBERS = {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}

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

#: A source no packet has (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2): how "nobody" looks as a list of networks.
_NOBODY = {Family.IPV4: ip_network("0.0.0.0/32"), Family.IPV6: ip_network("::/128")}

_SETS = """
  set eips4 { typeof ip daddr; }
  set eips6 { typeof ip6 daddr; }
  # virtual servers that only some may reach, and who
  set restricted4 { typeof ip daddr . meta l4proto . th dport; }
  set restricted6 { typeof ip6 daddr . meta l4proto . th dport; }
  set sources4 { typeof ip daddr . meta l4proto . th dport . ip saddr; flags interval; }
  set sources6 { typeof ip6 daddr . meta l4proto . th dport . ip6 saddr; flags interval; }
  # EIP, client, real server: client and real server are one host
  set hairpin4 { typeof ip daddr . ip saddr . ip daddr; }
  set hairpin6 { typeof ip6 daddr . ip6 saddr . ip6 daddr; }
  # real servers on this node
  set local4 { typeof ip daddr; }
  set local6 { typeof ip6 daddr; }
  # EIP, real server, its port (nft 1.0.6 cannot look up `ct original proto-dst` together with an address)
  set masquerade4 { typeof ip daddr . ip daddr . meta l4proto . th dport; }
  set masquerade6 { typeof ip6 daddr . ip6 daddr . meta l4proto . th dport; }
"""

_SOURCES = """
    ip daddr . meta l4proto . th dport @restricted4 \
ip daddr . meta l4proto . th dport . ip saddr != @sources4 drop comment "not a source range"
    ip6 daddr . meta l4proto . th dport @restricted6 \
ip6 daddr . meta l4proto . th dport . ip6 saddr != @sources6 drop comment "not a source range"
"""

# Where an EIP is bound, only this host speaks as the EIP: whoever else did could have what he then sends to it taken
# for replies, which the guard lets pass. Behind the kernel's martian check, which counts what it drops, and which IPv6
# has not. What he began before the EIP was here is stopped by its first packet, which is no reply to anything.
_SPOOFED = """
  chain spoofed_input {
    type filter hook input priority filter - 6; policy accept;
    iif != "lo" ip saddr @eips4 ct state new drop comment "nobody else speaks as an EIP"
    iif != "lo" ip6 saddr @eips6 ct state new drop comment "nobody else speaks as an EIP"
  }
  chain spoofed_forward {
    type filter hook forward priority filter - 6; policy accept;
    iif != "lo" ip saddr @eips4 ct state new drop comment "nobody else speaks as an EIP"
    iif != "lo" ip6 saddr @eips6 ct state new drop comment "nobody else speaks as an EIP"
  }
"""

_REPLIES = """
    ct state established,related ct direction reply meta l4proto != tcp return \
comment "to what the EIP itself began"
    ct state established,related ct direction reply tcp flags & (syn | ack) != syn return \
comment "to a connection the EIP itself opened"
"""

# The last chain is the same for both: without masquerade a reply from another host would bypass us and be refused by
# the client; a real server that connects to itself through us would answer itself directly. A socket of this host
# that talks to a bound EIP does so from that EIP: a real server would not know it for this node.
_POSTROUTING = """
  chain postrouting {
    type nat hook postrouting priority srcnat - 5; policy accept;
    ct original ip daddr . ip saddr . ip daddr @hairpin4 masquerade comment "hairpin"
    ct original ip6 daddr . ip6 saddr . ip6 daddr @hairpin6 masquerade comment "hairpin"
    ct original ip daddr @eips4 ip saddr @eips4 masquerade comment "from this node, where the EIP is bound"
    ct original ip6 daddr @eips6 ip6 saddr @eips6 masquerade comment "from this node, where the EIP is bound"
    ip daddr @local4 return comment "replies pass here anyway"
    ip6 daddr @local6 return comment "replies pass here anyway"
    ct original ip daddr . ip daddr . meta l4proto . th dport @masquerade4 masquerade comment "bring replies back"
    ct original ip6 daddr . ip6 daddr . meta l4proto . th dport @masquerade6 masquerade comment "bring replies back"
  }
"""

# Translation happens at priority dstnat whatever a nat chain's own priority (net/netfilter/nf_nat_core.c); chains are
# asked in order, ours before kube-proxy's. What still has an EIP as destination afterwards was not translated: no
# virtual server, no usable real server, a broken segment, an untracked packet. It must reach neither a socket of this
# host nor the LAN again. Fragments were put together by conntrack before (priority -400).
FORWARDER = (
    _SETS
    + """
  map services4 { typeof ip daddr . meta l4proto . th dport : verdict; }
  map services6 { typeof ip6 daddr . meta l4proto . th dport : verdict; }
  chain translate {
"""
    + _SOURCES
    + """
    ip daddr . meta l4proto . th dport vmap @services4 comment "one chain per virtual server"
    ip6 daddr . meta l4proto . th dport vmap @services6 comment "one chain per virtual server"
    ip daddr @eips4 icmp type echo-request redirect comment "an EIP can be pinged"
    ip6 daddr @eips6 icmpv6 type echo-request redirect comment "an EIP can be pinged"
  }
  chain prerouting {
    type nat hook prerouting priority dstnat - 5; policy accept;
    jump translate comment "from outside"
  }
  chain output {
    type nat hook output priority -105; policy accept;
    jump translate comment "from this node"
  }
  chain refuse {
"""
    + _REPLIES
    + """
    ct state invalid drop comment "a reset would let strangers end connections"
    meta l4proto { icmp, icmpv6 } drop comment "errors and neighbour discovery are never answered with errors"
    meta l4proto tcp reject with tcp reset comment "no such service"
    reject with icmpx type port-unreachable comment "no such service"
  }
  chain guard_prerouting {
    type filter hook prerouting priority dstnat + 5; policy accept;
    ip daddr @eips4 goto refuse comment "guard"
    ip6 daddr @eips6 goto refuse comment "guard"
  }
  chain guard_output {
    type filter hook output priority -95; policy accept;
    ct state untracked tcp flags & syn == 0 return comment "a stray, handed over"
    ip daddr @eips4 goto refuse comment "guard"
    ip6 daddr @eips6 goto refuse comment "guard"
  }
"""
    + _POSTROUTING
)

# IPVS takes its packets in the input hook at priority 99 (net/netfilter/ipvs/ip_vs_core.c, ip_vs_ops4), so what the
# guard returns there is IPVS's. ICMP passes: the kernel answers pings for a bound EIP, IPVS takes the errors. Some of
# an open port IPVS leaves to the host: what comes from port 20 (ip_vs_schedule), frames to more than our own MAC
# (ip_vs_in_hook), TCP without a SYN, and everything once somebody has cleared the virtual servers. Hence a second look;
# it resets even what conntrack finds invalid, such as the connections of the node that had the EIP before.
GUARD = (
    _SETS
    + _SPOOFED
    + """
  set ports4 { typeof ip daddr . meta l4proto . th dport; }
  set ports6 { typeof ip6 daddr . meta l4proto . th dport; }
  chain input {
    type filter hook input priority filter - 5; policy accept;
    ip daddr @eips4 goto guard comment "guard"
    ip6 daddr @eips6 goto guard comment "guard"
  }
  chain guard {
    meta l4proto { icmp, icmpv6 } return comment "pings, errors, neighbour discovery"
"""
    + _REPLIES
    + _SOURCES
    + """
    ip daddr . meta l4proto . th dport @ports4 return comment "IPVS takes it"
    ip6 daddr . meta l4proto . th dport @ports6 return comment "IPVS takes it"
    ct state invalid drop comment "a reset would let strangers end connections"
    meta l4proto tcp reject with tcp reset comment "no such service"
    reject with icmpx type port-unreachable comment "no such service"
  }
  chain input_after_ipvs {
    type filter hook input priority 110; policy accept;
    ip daddr @eips4 goto left_over comment "guard"
    ip6 daddr @eips6 goto left_over comment "guard"
  }
  chain left_over {
    meta l4proto { icmp, icmpv6 } return comment "pings, errors, neighbour discovery"
"""
    + _REPLIES
    + """
    meta l4proto tcp reject with tcp reset comment "IPVS did not take it"
    reject with icmpx type port-unreachable comment "IPVS did not take it"
  }
"""
    + _POSTROUTING
)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """A table ``family`` ``table``: its fixed part, the elements of each set, and what varies.

    That is the rule of each varying chain, and the elements of each varying map, from a number to a real server.
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


@dataclass(frozen=True, slots=True)
class Slots:
    """A map's declaration, and its elements: the real server of each number."""

    typeof: str
    elements: frozenset[str]


# ── From a plan to a script ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Expressed:
    """A plan and its ``expressible`` form."""

    plan: Plan
    form: Plan


NOTHING = Expressed(EMPTY, EMPTY)


def expressible(plan: Plan, known: Expressed = NOTHING) -> Plan:
    """``plan`` in the one form that survives the way through the kernel; forwards the same.

    Source ranges without the other family's and without overlaps; a real server's address is local to the whole plan,
    or not.
    What ``plan`` shares with the ``known`` one stays the same objects.
    """
    local = _local(plan)
    moved = local ^ _local(known.form)

    def form(key: VirtualServerKey, server: VirtualServer) -> VirtualServer:
        if known.plan.virtual_servers.get(key) is server and not (moved and _names(server, moved)):
            return known.form.virtual_servers[key]
        return _expressible(server, local)

    return Plan(plan.eips, {key: form(key, server) for key, server in plan.virtual_servers.items()})


def _local(plan: Plan) -> set[IPAddress]:
    """Where Services do not agree it is none: who says so of another's backend would keep its replies from coming back
    this way."""
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
    elements = _elements(plan)
    chains: dict[str, str] = {}
    maps: dict[str, Slots] = {}
    for key, server in plan.virtual_servers.items():
        name = chain_name(key)
        chains[name] = _rule(server)
        if server.real_servers:
            maps[name] = _slots(server)
        elements[f"services{key[0].version}"].add(f"{_element(key)} : goto {name}")
    return replace(assemble(TABLE, FORWARDER, elements, chains), maps=maps)


def guard_ruleset(plan: Plan) -> Ruleset:
    """What IPVS lacks: the guard, source ranges, masquerade. ``plan`` is ``expressible``."""
    elements = _elements(plan)
    for key in plan.virtual_servers:
        elements[f"ports{key[0].version}"].add(_element(key))
    return assemble(GUARD_TABLE, GUARD, elements, {})


def assemble(
    table: str, skeleton: str, elements: dict[str, set[str]], chains: dict[str, str], family: str = "inet"
) -> Ruleset:
    names = re.findall(r"(?:set|map) (\w+) {", skeleton)
    # A newer speaker's rules may differ where the names and comments do not: the mark tells.
    mark = f"  chain made_of_{zlib.crc32(skeleton.encode()):08x} {{ }}\n"
    return Ruleset(table, skeleton + mark, {name: frozenset(elements.get(name, ())) for name in names}, chains, family)


class _Elements(dict[str, set[str]]):
    def __missing__(self, name: str) -> set[str]:
        return self.setdefault(name, set())


def _elements(plan: Plan) -> _Elements:
    """The elements that both rulesets have."""
    elements = _Elements()
    for eip in plan.eips:
        elements[f"eips{eip.version}"].add(str(eip))
    for server in plan.virtual_servers.values():
        _add_elements(server, elements)
    for address in _local(plan):
        elements[f"local{address.version}"].add(str(address))
    return elements


def _add_elements(server: VirtualServer, elements: _Elements) -> None:
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
    """The one rule of a virtual server's chain; its comment keeps what the rule itself does not tell."""
    comment = f'comment "{_note(server)}"'
    if not server.real_servers:
        return f"return {comment}"
    ip = _ip(server)
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
    """What decides on the real server of a new connection."""

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
    """Each takes as many numbers as its weight. Weight 0 sits above the modulus, where no number falls: nothing new
    goes there, and the next reader still sees it. A number without a slot falls through to the guard."""
    within = (real for real in server.real_servers for _ in range(real.weight))
    beyond = (real for real in server.real_servers if real.weight == 0)
    slots = itertools.chain(
        map(_slot, itertools.count(), within), map(_slot, itertools.count(turns(server.real_servers)), beyond)
    )
    # Its own protocol's port: to nft `th dport` contradicts the rule, which names a protocol.
    typeof = f"numgen inc mod 2 : {_ip(server)} daddr . {server.protocol.lower()} dport"
    return Slots(typeof, frozenset(slots))


def _ip(server: VirtualServer) -> str:
    return "ip" if server.address.version == 4 else "ip6"


def _slot(number: int, real: RealServer) -> str:
    return f"{number} : {real.address} . {real.port}"


def rebuild_script(want: Ruleset) -> str:
    """One transaction that makes the table what it should be, whatever it was."""
    nothing = replace(want, elements={name: frozenset() for name in want.elements}, chains={}, maps={})
    return (
        f"table {want.name}\ndelete table {want.name}\n"
        f"table {want.name} {{{want.skeleton}}}\n{change_script(nothing, want)}"
    )


def change_script(have: Ruleset, want: Ruleset) -> str:
    """One transaction from ``have`` to ``want`` that names only what differs; '' where nothing does."""
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
    """The ``change_script`` between the rulesets of two ``expressible`` plans, made from what differs."""
    eips = {_eip_of(change) for change in diff(have, want)}
    here, there = _local(have), _local(want)
    return change_script(
        _with_local(ruleset_of(_narrowed(have, eips)), here - there),
        _with_local(ruleset_of(_narrowed(want, eips)), there - here),
    )


def _narrowed(plan: Plan, eips: set[IPAddress]) -> Plan:
    """An EIP's elements are no other EIP's, but for real servers on this node."""
    servers = {key: server for key, server in plan.virtual_servers.items() if server.address in eips}
    return Plan(plan.eips & eips, servers)


def _with_local(ruleset: Ruleset, addresses: set[IPAddress]) -> Ruleset:
    local = _Elements()
    for address in addresses:
        local[f"local{address.version}"].add(str(address))
    return replace(
        ruleset,
        elements={**ruleset.elements, "local4": frozenset(local["local4"]), "local6": frozenset(local["local6"])},
    )


def _eip_of(change: Change) -> IPAddress:
    match change:
        case AddEip(eip) | RemoveEip(eip):
            return eip
        case AddVirtualServer(server) | ChangeVirtualServer(_, server) | RemoveVirtualServer(server):
            return server.address
        case AddRealServer(key, _) | ChangeRealServer(key, _, _) | RemoveRealServer(key, _):
            return key[0]


def _element_lines(verb: str, table: str, name: str, elements: list[str]) -> list[str]:
    return [f"{verb} element {table} {name} {{ {', '.join(elements)} }}"] if elements else []


def approximations(plan: Plan) -> tuple[str, ...]:
    """What nft does otherwise than the manifest says, one sentence per virtual server."""
    return tuple(
        sentence for server in plan.virtual_servers.values() for sentence in _approximations(server, str(server))
    )


def _approximations(server: VirtualServer, name: str) -> Iterator[str]:
    if server.persistence is not None:
        yield f"{name}: nftables hashes the client's address, so it sticks without a timeout"
    elif server.scheduler in _NOT_AS_NAMED:
        way = "hashes the client's address" if server.scheduler in BY_SOURCE else "takes turns by weight"
        yield f"{name}: nftables has no scheduler {server.scheduler} and {way} instead"
