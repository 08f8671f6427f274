"""Unknown flows: TCP packets to an EIP that belong to connections of the node which had it before. Pure.

That node's kernel still has their state. So the new holder hands each packet over unchanged to that node, which treats
it as if it came from the client. Two small tables, one for IPv4 and one for IPv6 (``dup`` does not exist in ``inet``),
recognise such packets and know where those to each EIP go, before any address is translated.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from string import Template
from typing import NamedTuple

from speaker.forwarding.nftables.ruleset import Ruleset, assemble, change_script, rebuild_script
from speaker.model import NO_GROUP, Group, IPAddress, Mac, format_mac

STRAYS_TABLE = "eip-speaker-strays"
"""The names in the kernel say `stray` for a packet of an unknown flow: an upgrade finds what was made before."""

FAMILIES = {4: "ip", 6: "ip6"}
"""nft's names."""

# A connection that this node knows has state established. What conntrack takes for the middle of one that it has not
# seen begin is new, but for FINs and RSTs, which are invalid (net/netfilter/nf_conntrack_proto_tcp.c, tcp_conntracks).
# Invalid is also what of a connection that this node does know falls out of its window: that must not go to another
# node, which might answer it with a reset. With nf_conntrack_tcp_loose=0 the two cannot be told apart.
#
# From a speaker's MAC comes what was handed over already: it never goes further. Should a MAC be missing, the hop limit
# ends the round: dup takes one off (net/ipv4/netfilter/nf_dup_ipv4.c), and after 0 would come 255.
_SKELETON = Template("""
  set speakers { typeof ether saddr; }
  map strays { typeof $daddr : verdict; }
  chain prerouting {
    type filter hook prerouting priority mangle; policy accept;
    ct state new tcp flags & (syn | rst) == 0 goto stray comment "it began elsewhere"
    ct state invalid tcp flags & $invalid goto stray comment "it began elsewhere"
  }
  chain stray {
    ether saddr @speakers return comment "handed over to us"
    $limit <= 1 return comment "no further"
    $daddr vmap @strays comment "one chain per next hop"
  }
""")
_WORDS = {
    4: {"limit": "ip ttl", "daddr": "ip daddr"},
    6: {"limit": "ip6 hoplimit", "daddr": "ip6 daddr"},
}
_INVALID = {True: "(fin | rst) != 0 tcp flags & syn == 0", False: "syn == 0"}
"""The part that is invalid, by whether conntrack is loose."""


class NextHop(NamedTuple):
    """The node that had an EIP before: its own ``address``, of the EIP's family, on our link named ``link``."""

    link: str
    address: IPAddress


class Wanted(NamedTuple):
    """What the tables should hold. Unknown flows to an EIP go to its next hop; None: they are dropped. ``speakers``:
    the MACs of other speakers. ``links``: the indexes of all links that next hops name; 0 if a link does not exist, and
    then nothing is handed over by it. ``loose``: net.netfilter.nf_conntrack_tcp_loose."""

    next_hops: Mapping[IPAddress, NextHop | None]
    speakers: frozenset[Mac]
    links: Mapping[str, int]
    loose: bool = True


NOTHING = Wanted({}, frozenset(), {})


def script(have: Wanted | None, want: Wanted, there: Collection[int], group: Group = NO_GROUP) -> str:
    """One nft transaction from ``have`` (None: from whatever is there) to ``want`` in the group's tables; '' if nothing
    differs.

    ``there``: the IP versions that have a table. In the end those with EIPs have one.
    """
    return "".join(_table(version, have, want, version in there, group.table(STRAYS_TABLE)) for version in FAMILIES)


def versions(next_hops: Iterable[IPAddress]) -> frozenset[int]:
    return frozenset(eip.version for eip in next_hops)


def _table(version: int, have: Wanted | None, want: Wanted, there: bool, table: str) -> str:
    if version not in versions(want.next_hops):
        return f"delete table {FAMILIES[version]} {table}\n" if there else ""
    if have is None or not there or not _alike(have, want):
        return rebuild_script(_ruleset(version, want, want.next_hops, table))
    differ = _differing(have.next_hops, want.next_hops)
    return change_script(_ruleset(version, have, differ, table), _ruleset(version, want, differ, table))


def _alike(have: Wanted, want: Wanted) -> bool:
    """Whether what both have would be written alike: a link that was created again has another index."""
    same_links = all(want.links.get(link, index) == index for link, index in have.links.items())
    return same_links and have.loose == want.loose


def _differing(have: Mapping[IPAddress, NextHop | None], want: Mapping[IPAddress, NextHop | None]) -> set[IPAddress]:
    changed = {eip for eip, hop in want.items() if eip not in have or have[eip] != hop}
    return changed.union(have.keys() - want.keys())


def _ruleset(version: int, of: Wanted, eips: Iterable[IPAddress], table: str) -> Ruleset:
    """With the elements of ``eips`` only, and everything else."""
    hops = {hop for hop in of.next_hops.values() if hop and hop.address.version == version and of.links[hop.link]}
    ours = {eip: of.next_hops[eip] for eip in eips if eip.version == version and eip in of.next_hops}
    elements = {
        "speakers": {format_mac(mac) for mac in of.speakers},
        "strays": {f"{eip} : {verdict}" for eip, hop in ours.items() if (verdict := _verdict(hop, of.links))},
    }
    chains = {_chain(hop, of.links): f"dup to {hop.address} device {of.links[hop.link]} drop" for hop in hops}
    skeleton = _SKELETON.substitute(_WORDS[version], invalid=_INVALID[of.loose])
    return assemble(table, skeleton, elements, chains, FAMILIES[version])


def _verdict(hop: NextHop | None, links: Mapping[str, int]) -> str:
    if hop is None:
        return "drop"
    return f"goto {_chain(hop, links)}" if links[hop.link] else ""


def _chain(hop: NextHop, links: Mapping[str, int]) -> str:
    """nft's names have no colons."""
    return f"via/{hop.address.exploded.replace(':', '-')}/{links[hop.link]}"


# ── Which EIPs were taken from whom ───────────────────────────────────────────────────────────────────────────


class Fate(Enum):
    """What happens to the unknown flows of an EIP. The value is the metric label."""

    HANDED_OVER = "handed_over"
    RESET = "reset"
    """Held here, and no node that could know them is known or answers."""
    DROPPED = "dropped"
    """Not held here: until it is, and it is known whom to ask, no connection may be harmed."""


class HandingOver:
    """From which nodes this node took the EIPs that it holds."""

    def __init__(self) -> None:
        self._held: dict[IPAddress, NextHop | None] = {}
        """Who held it before, as long as that node answers."""

    def claimed(self, eip: IPAddress, before: NextHop | None) -> None:
        """``before``: the previous holder; None if it is unknown, or there is no way to it. A holder that fell silent
        may answer again when it is named again."""
        self._held[eip] = before

    def yielded(self, eip: IPAddress) -> None:
        self._held.pop(eip, None)

    def silent(self, hop: NextHop) -> int:
        """It does not answer, so it has no connections any more. Returns how many EIPs that concerns."""
        gone = [eip for eip, before in self._held.items() if before == hop]
        self._held.update(dict.fromkeys(gone))
        return len(gone)

    def hops(self) -> set[NextHop]:
        """The nodes that have to answer."""
        return {hop for hop in self._held.values() if hop is not None}

    def next_hops(self, eips: Iterable[IPAddress]) -> dict[IPAddress, NextHop | None]:
        """For ``UnknownFlows.bring_to``: where the flows of ``eips``, all that this node may hold, go; None: nowhere.
        Flows of an EIP that is left out are reset by the kernel, as usual."""
        held = self._held
        return {eip: held.get(eip) for eip in eips if held.get(eip) is not None or eip not in held}


def fates(eips: int, next_hops: Mapping[IPAddress, NextHop | None]) -> Counter[Fate]:
    """How many of so many EIPs meet which fate with these ``next_hops``."""
    found = Counter(Fate.DROPPED if hop is None else Fate.HANDED_OVER for hop in next_hops.values())
    return Counter({fate: found[fate] for fate in Fate} | {Fate.RESET: eips - len(next_hops)})
