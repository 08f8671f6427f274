"""What the running speaker finds wrong: ``speaker status``, the status file, /healthz and the doctor list it. Pure.

Times are seconds of CLOCK_MONOTONIC.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Generic, NamedTuple, TypeVar

from speaker.checks import Finding, said
from speaker.model import IPAddress, Link, Mac, format_mac, rank
from speaker.wire.messages import PeerSeen

SHOWN = 50
"""How many mistakes in manifests, and unreadable values, are named; the rest are only counted."""
RIVAL_SECONDS = 30.0
"""After so much silence a rival is no longer a problem, where this node cannot ask for it."""
UNANSWERED = 2
"""A rival is gone after so many questions in a row that nobody else answers."""
UNHEARD_SECONDS = 5.0
"""A peer must say for so long that it does not hear this node before that is reported."""
LOSSY, LOSSLESS = 20, 5
"""Percentage of lost hellos at which a problem begins, and below which it is over."""
HOLDER_SECONDS = 12.0
"""Like RIVAL_SECONDS, but for a holder that this node waits for."""
EIPS_NAMED = 20
"""How many EIPs one sentence names."""


class Area(Enum):
    """Where problems are looked for, in the order in which they are listed."""

    MANIFESTS = "manifests"
    API_OBJECTS = "API objects"
    SET_ASIDE = "set aside"
    ENVIRONMENT = "environment"
    LIMITS = "limits"
    LINKS = "links"
    HEALTH_CHECKS = "health checks"
    KUBE_PROXY = "kube-proxy"


class Change(NamedTuple):
    """How the problems of one area changed. ``any``: they differ from before, even if only in their order."""

    appeared: tuple[Finding, ...]
    over: tuple[Finding, ...]
    any: bool


_What = TypeVar("_What")


def new(found: Iterable[_What], known: Collection[_What]) -> tuple[_What, ...]:
    """Those ``found`` that are not ``known``, in their order."""
    return tuple(each for each in found if each not in known)


def first(sentences: Sequence[str], rest: str) -> tuple[str, ...]:
    """At most SHOWN of them. ``rest`` ("{} more …") then says how many were left out."""
    more = [rest.format(len(sentences) - SHOWN)] if len(sentences) > SHOWN else []
    return (*sentences[:SHOWN], *more)


_Key = TypeVar("_Key", bound=Hashable)


class Heard(Generic[_Key, _What]):
    """What is reported about each one that was heard within ``seconds``, longest silence first."""

    def __init__(self, seconds: float = RIVAL_SECONDS) -> None:
        self._seconds = seconds
        self._heard: dict[_Key, tuple[_What, float]] = {}

    def hear(self, key: _Key, what: _What, now: float) -> None:
        self._heard.pop(key, None)
        self._heard[key] = what, now

    def forget(self, key: _Key) -> None:
        self._heard.pop(key, None)

    def of(self, key: _Key, now: float) -> _What | None:
        what, heard_at = self._heard.get(key, (None, now))
        return what if now < heard_at + self._seconds else None

    def all(self, now: float) -> dict[_Key, _What]:
        return {key: what for key, (what, heard_at) in self._heard.items() if now < heard_at + self._seconds}

    def fades_at(self, now: float) -> float:
        """When the next of them will have been silent for too long. Those that already were are forgotten."""
        for key, (_, heard_at) in tuple(self._heard.items()):
            if now < heard_at + self._seconds:
                return heard_at + self._seconds
            del self._heard[key]
        return inf


class Rival(NamedTuple):
    """``name``: MAC and link. ``place``: the address to ask for, and the index of the link."""

    name: str
    finding: Finding
    place: tuple[IPAddress, int]


_EDGES_OF_THE_API = "api", "session", "records", "nodes", "/api"
_LOOK = "speaker status; journalctl -u eip-speaker -n 50"


class Problems:
    """All problems there are. Nothing reads them back: they are for people."""

    def __init__(self) -> None:
        self._found: dict[Area, tuple[Finding, ...]] = {}
        self._failing: dict[str, str] = {}
        """Edge → its last error."""
        self._rivals: Heard[str, Rival] = Heard()
        """By EIP."""
        self._unanswered: dict[IPAddress, int] = {}
        """EIP with a rival → how many questions in a row nobody else answered."""
        self._holders: Heard[str, str] = Heard(HOLDER_SECONDS)
        """By EIP: another load balancer's nodes, which this one waits for."""
        self._filtered: Heard[tuple[str, str], Finding] = Heard()
        """By link and node."""
        self._sick: dict[str, Finding] = {}
        self._late: dict[str, Finding] = {}
        self._lossy: dict[str, Finding] = {}
        """By link, and by peer and link."""
        self._unheard: dict[tuple[str, str], float] = {}
        """Peer and link → since when the peer says that it does not hear this node."""
        self._name_clash: tuple[Finding, ...] = ()
        self._peers_addresses: dict[IPAddress, Finding] = {}
        self.others: int | None = None
        """How many other nodes the cluster has; None: unknown."""
        self.groups: Mapping[IPAddress, str] = {}
        """What other groups hold: address → the group, in words."""

    def all(self, now: float, internal: Iterable[str] = ()) -> list[Finding]:
        """``internal``: unexpected errors (``telemetry/logs.py``)."""
        return [
            *(finding for area in Area for finding in self._found.get(area, ())),
            *(
                Finding("api_silent" if edge.startswith(_EDGES_OF_THE_API) else "edge_fails", words, _LOOK)
                for edge, words in self._failing.items()
            ),
            *said("internal_error", internal, _LOOK),
            *(rival.finding for rival in self._rivals.all(now).values()),
            *self._filtered.all(now).values(),
            *self._name_clash,
            *self._peers_addresses.values(),
        ]

    # ── looked for ──

    def found(self, area: Area, findings: tuple[Finding, ...]) -> Change:
        """``findings`` are all problems that this area has now."""
        before, self._found[area] = self._found.get(area, ()), findings
        return Change(new(findings, before), new(before, findings), any=findings != before)

    def known(self, area: Area) -> tuple[str, ...]:
        return tuple(finding.what for finding in self._found.get(area, ()))

    # ── edges ──

    def failing(self, edge: str, words: str) -> bool:
        """Returns whether that is news."""
        before, self._failing[edge] = self._failing.get(edge), words
        return before != words

    def works(self, edge: str) -> bool:
        """Returns whether that is news."""
        return self._failing.pop(edge, None) is not None

    def fails(self, edges: Iterable[str]) -> bool:
        """Whether any of them failed when it was last tried."""
        return not self._failing.keys().isdisjoint(edges)

    # ── others on the LAN ──

    def rival(self, link: Link, address: IPAddress, mac: Mac, held: bool, now: float) -> str:
        """A stranger, or a peer that does not claim it, says that one of our EIPs is its own."""
        fate = (
            "this node keeps answering for it, and defends it"
            if held
            else "this node does not answer for it until that stops"
        )
        named = f"{format_mac(mac)} on {link.name}"
        group = f" for {self.groups[address]}" if address in self.groups else ""
        sentence = f"{address}: {named} uses it too{group}, but no hello claims it from there: {fate}"
        finding = Finding("stranger", sentence, find_mac(str(address), link.name, format_mac(mac)), str(address))
        self._rivals.hear(str(address), Rival(named, finding, (address, link.index)), now)
        self._unanswered.pop(address, None)
        return sentence

    def rivals_places(self, now: float) -> list[tuple[IPAddress, int]]:
        """EIPs that have a rival, each with the index of the link on which the rival was heard."""
        return [rival.place for rival in self._rivals.all(now).values()]

    def asked(self, address: IPAddress, answered: bool, now: float) -> bool:
        """Somebody asked for the EIP to see whether its rival is still there. Returns whether the rival is gone."""
        if (rival := self._rivals.of(str(address), now)) is None:
            return False
        self._unanswered[address] = 0 if answered else self._unanswered.get(address, 0) + 1
        if answered:
            self._rivals.hear(str(address), rival, now)
        elif self._unanswered[address] >= UNANSWERED:
            self._rivals.forget(str(address))
            return True
        return False

    def let_go(self, address: IPAddress) -> None:
        """The EIP is no longer ours, so it has no rival here."""
        self._rivals.forget(str(address))
        self._holders.forget(str(address))

    def holder(self, link: Link, address: IPAddress, mac: Mac, now: float) -> str | None:
        """Another load balancer answers for it, which is not a problem. Returns None if that is not news."""
        sentence = f"waits until {format_mac(mac)} on {link.name}, which still answers for it, falls silent"
        news = self._holders.of(str(address), now) != sentence
        self._holders.hear(str(address), sentence, now)
        return sentence if news else None

    def holders(self, now: float) -> dict[str, str]:
        """EIP → which holder this node waits for."""
        return self._holders.all(now)

    def rivals(self, now: float) -> dict[str, str]:
        """EIP → what is reported about its rival."""
        return {eip: rival.finding.what for eip, rival in self._rivals.all(now).items()}

    def named_rivals(self, now: float) -> dict[str, str]:
        """EIP → MAC and link of its rival."""
        return {eip: rival.name for eip, rival in self._rivals.all(now).items()}

    def fade_at(self, now: float) -> float:
        """When the next of those heard on the LAN will have been silent long enough to be forgotten."""
        return min(each.fades_at(now) for each in (self._rivals, self._holders, self._filtered))

    def filtered(self, link: Link, node: str, mac: Mac, eips: Collection[IPAddress], now: float) -> str | None:
        """A node answers for EIPs although none of its hellos arrives here. Returns None if that is not news."""
        one = link.name, node
        if (known := self._filtered.of(one, now)) is not None:
            self._filtered.hear(one, known, now)
            return None
        what = (
            f"{node} ({format_mac(mac)}) on {link.name} answers for {', '.join(named(eips))}, but none of its hellos "
            "arrives here: their EtherType is filtered on the way, or its speaker has ended and its kernel still "
            "answers. This node leaves these EIPs to it"
        )
        self._filtered.hear(one, Finding("hellos_filtered", what, FIND_FILTER, eips=len(eips)), now)
        return what

    def links(self, peers: Collection[PeerSeen], now: float) -> tuple[Finding, ...]:
        """Our links on which hellos are lost, late or unheard. The words stay the same as long as that lasts. A node
        whose hellos arrive is no longer "filtered"."""
        for peer in peers:
            if peer.heard or not peer.alive:
                self._filtered.forget((peer.link, peer.node))
        heard = [peer for peer in peers if peer.heard]
        lost = {each: [max(peer.loss or 0, peer.loses) for peer in heard if peer.sick and peer.link == each]
                for each in {peer.link for peer in heard if peer.sick}}  # fmt: skip
        late = {peer.link: max(each.patience_ms for each in peers if each.link == peer.link)
                for peer in peers if peer.patience_ms}  # fmt: skip
        lossy = {f"{peer.node} on {peer.link}": peer for peer in heard if not peer.sick and self._loses(peer)}
        self._sick = {link: self._sick.get(link) or _sick(link, sorted(shares)) for link, shares in lost.items()}
        self._late = {link: self._late.get(link) or _late(link, longest) for link, longest in late.items()}
        self._lossy = {name: self._lossy.get(name) or _lossy(peer) for name, peer in lossy.items()}
        deaf = [_no_broadcasts(link) for link in sorted({peer.link for peer in heard if peer.deaf})]
        alone = self.others != 0 and not any(peer.alive for peer in peers)
        of_all = [_silent(peers)] if alone else []
        lasting = (*self._sick.values(), *self._late.values(), *self._lossy.values())
        return (*lasting, *self._mute(heard, now), *deaf, *of_all)

    def _loses(self, peer: PeerSeen) -> bool:
        least = LOSSLESS if f"{peer.node} on {peer.link}" in self._lossy else LOSSY
        return max(peer.loss or 0, peer.loses) >= least

    def _mute(self, heard: Collection[PeerSeen], now: float) -> Iterator[Finding]:
        """Links on which peers are heard that do not hear this node."""
        deaf = [(peer.node, peer.link) for peer in heard if not peer.hears_us]
        self._unheard = {each: self._unheard.get(each, now) for each in deaf}
        lasting = [each for each, since in self._unheard.items() if now >= since + UNHEARD_SECONDS]
        for link in dict.fromkeys(link for _, link in lasting):
            nodes = sorted(node for node, on in lasting if on == link)
            if 1 < len(nodes) == sum(peer.link == link for peer in heard):
                what = f"no peer hears this node on {link}, though it hears {', '.join(nodes[:EIPS_NAMED])}"
                mend = f"ip -s link show dev {link}   # what drops its frames? Check its switch port too"
                yield Finding("mute", what, mend)
            else:
                what = f"this node hears {', '.join(nodes[:EIPS_NAMED])} on {link}, but is not heard in return"
                yield Finding("deaf_peer", what, "speaker doctor   # on those nodes")

    def peers_address(self, address: IPAddress, node: str) -> str:
        """``node`` says that this EIP is its own address, or another group holds it."""
        whose = f"{node} holds it" if " " in node else f"node {node} says that this is its own address"
        sentence = f"{address}: {whose}, so it is not claimed here. Exclude it from its pool"
        mend = f"kubectl get eip -o wide   # add {address} to spec.exclude of the pool that has it"
        self._peers_addresses[address] = Finding("host_address", sentence, mend, str(address))
        return sentence

    def no_peers_address(self, address: IPAddress) -> None:
        self._peers_addresses.pop(address, None)

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> str:
        """Another live host has this node's name and key. ``silent``: that host keeps the name."""
        where = f"{format_mac(mac)} on {link.name}" if link is not None and mac is not None else "it renews our Lease"
        fate = "it keeps the name, and nothing is held here until it stops" if silent else "this node keeps the name"
        what = f"another host has this node's name ({where}); {fate}. Give each host a --node of its own"
        mend = "systemctl edit eip-speaker   # --node with another name on each host"
        self._name_clash = said("name_clash", [what], mend)
        return what

    def name_free(self) -> None:
        self._name_clash = ()


def _silent(peers: Collection[PeerSeen]) -> Finding:
    """``peers``: those that were heard before."""
    nodes, links = {peer.node for peer in peers}, sorted({peer.link for peer in peers})
    if len(nodes) < 2:
        what = "this node hears no other node: it is deaf, or there is nobody to take over from it"
        return Finding("no_peers", what, "speaker doctor   # on another node")
    on = ", ".join(links)
    what = f"all {len(nodes)} peers on {on} fell silent: this node is deaf and gives up its EIPs, or they all ended"
    return Finding("no_peers", what, f"ip -s link show dev {links[0]}   # does anything arrive? Check cable and port")


def _no_broadcasts(link: str) -> Finding:
    what = f"no broadcast reaches this node on {link}, only unicast: it gives up its EIPs there"
    return Finding("no_broadcasts", what, f"bridge -d link show   # flood settings of the switch port of {link}")


def _lossy(peer: PeerSeen) -> Finding:
    mine = (peer.loss or 0) >= peer.loses
    whose, where = (f"of {peer.node}'s hellos", "here") if mine else ("of this node's hellos", f"at {peer.node}")
    what = (
        f"{max(peer.loss or 0, peer.loses)} % {whose} on {peer.link} do not arrive {where}: a switch port may have a "
        "storm limit, or a link may be overloaded"
    )
    there = f"on {peer.node}; also check" if mine else "also check"
    return Finding("hellos_lost", what, f"ip -s link show dev {peer.link}   # {there} the limits of its switch port")


FIND_FILTER = "nft list ruleset   # on both nodes: what drops their EtherType? Also check the ACLs of the switch"


def find_mac(eip: str, link: str, mac: str) -> str:
    """A command that asks for the EIP, and what to do about a ``mac`` that has no right to it."""
    ask = f"ndisc6 -m {eip} {link}" if ":" in eip else f"arping -c 3 -I {link} {eip}"
    return f"{ask}   # find {mac} in the switch's MAC table, and take the address from that host"


def _late(link: str, patience: int) -> Finding:
    what = (
        f"hellos on {link} came late, but none was lost: the LAN delivers in bursts, or nodes stall for a moment. For "
        f"now, a peer there counts as dead only after {patience} ms of silence, so failover takes that long, until "
        "some minutes have passed without late hellos. Check the switch, and the load of the nodes"
    )
    return Finding("late_hellos", what, "uptime   # on each node; also check the counters of the switch ports")


def _sick(link: str, shares: Sequence[int]) -> Finding:
    what = (
        f"link {link} is sick: {shares[len(shares) // 2]} % of hellos between this node and most peers are lost, but "
        "those peers hear each other. EIPs that this node holds there move to peers that may hold them, and it claims "
        "last there until the link has been well for a minute. Check its cable, port, duplex mode and errors"
    )
    return Finding("sick_link", what, f"ip -s link show dev {link}   # errors? Also check its cable and switch port")


def named(eips: Collection[IPAddress]) -> list[str]:
    """The first few of them."""
    return [str(eip) for eip in sorted(eips, key=rank)[:EIPS_NAMED]]
