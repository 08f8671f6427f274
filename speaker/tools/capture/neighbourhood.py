"""A frame from the wire → what it says, using the speaker's own reading of hellos, ARP and NDP. Pure."""

from collections.abc import Iterator, Mapping
from enum import Enum
from ipaddress import IPv4Address
from typing import NamedTuple, TypeAlias, assert_never

from speaker.errors import MalformedPacket
from speaker.model import IPAddress, Mac, format_mac, rank
from speaker.ownership.hello import Hello, Terms
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.frames import Rejected
from speaker.ownership.hellos.keys import Keys
from speaker.ownership.machine.hearing import MAX_EIPS
from speaker.ownership.machine.peers import MAX_NODES, Peer
from speaker.ownership.parameters import Parameters
from speaker.packets import HEADER_LENGTH, arp, ndp
from speaker.packets.arp import ArpPacket, Operation
from speaker.packets.ndp import NeighborAdvertisement, NeighborSolicitation
from speaker.tools.terminal import printable

Message: TypeAlias = Hello | Rejected | arp.ArpPacket | ndp.NeighborMessage | MalformedPacket

MAX_FRAME = 65536
"""Bytes; no link carries larger frames, whatever a file says."""
_VLAN = b"\x81\x00"
_ICMPV6, _NEXT_HEADER, _TYPE = 58, 20, 54


class Seen(NamedTuple):
    """``vlan``: the tag that the frame carried, or None."""

    source: Mac
    message: Message
    vlan: int | None = None


def read(frame: bytes, keys: Keys | None, ethertype: int = frames.ETHERTYPE) -> Seen | None:
    """None for frames that are not shown. ``keys``: None believes hellos as they are."""
    if not HEADER_LENGTH <= len(frame) <= MAX_FRAME:
        return None
    vlan = None
    if frame[12:14] == _VLAN:
        vlan = int.from_bytes(frame[14:16], "big") & 0xFFF
        frame = frame[:12] + frame[16:]
    message = _message(frame, keys, ethertype)
    return None if message is None else Seen(Mac(frame[6:12]), message, vlan)


def _message(frame: bytes, keys: Keys | None, ethertype: int) -> Message | None:
    kind = int.from_bytes(frame[12:14], "big")
    try:
        if kind == ethertype:
            return frames.unverified(frame) if keys is None else frames.decode(frame, keys, None)
        if kind == arp.ETHERTYPE:
            return arp.parse(frame)
        if kind == ndp.ETHERTYPE and _is_neighbour_message(frame):
            return ndp.parse(frame)
    except MalformedPacket as error:
        return error
    return None


def _is_neighbour_message(frame: bytes) -> bool:
    kinds = (ndp.SOLICITATION, ndp.ADVERTISEMENT)
    return len(frame) > _TYPE and frame[_NEXT_HEADER] == _ICMPV6 and frame[_TYPE] in kinds


# ── What was noticed, and the sentence that says it ─────────────────────────────────────────────────────────
#
# Names come from the LAN: a sentence never contains anything that a terminal would obey.

SHOWN = 4
"""EIPs and names in one sentence; the rest are counted. JSON has all of them."""


class What(Enum):
    """The value is the event's name in JSON."""

    HELLO = "hello"
    """The first hello of a node's life; with ``--all``, every one."""
    STATE = "state"
    CLAIMS = "claims"
    RELEASES = "releases"
    SILENT = "silent"
    CLASH = "name clash"
    REJECTED = "rejected hello"
    ASKS = "asks"
    PROBES = "probes"
    ANSWERS = "answers"
    ANNOUNCES = "announces"
    USES = "uses"
    """Sends from an EIP as its own address."""
    MALFORMED = "malformed"


class Event(NamedTuple):
    """``at``: seconds since 1970, by the capturing host. ``node``: of ``mac``, according to its hellos."""

    at: float
    what: What
    mac: Mac
    node: str | None = None
    verified: bool = False
    """Its tag was verified; only for hellos."""
    eips: Terms | None = None
    """Of claims and releases, with their terms."""
    address: IPAddress | None = None
    """The address that is asked about, or answered for."""
    sender: IPAddress | None = None
    """The address in the message of whoever asks; None if it has none."""
    to: IPAddress | None = None
    """Who is answered."""
    holders: Mapping[str, int] | None = None
    """Living nodes that claim ``address``, with their terms."""
    alarm: bool = False
    """This does not happen on a healthy LAN."""
    detail: str = ""
    vlan: int | None = None

    def as_json(self) -> dict[str, object]:
        found = {
            "time": round(self.at, 6),
            "event": self.what.value,
            "mac": format_mac(self.mac),
            "node": self.node,
            "verified": self.verified if self.what in _OF_HELLOS else None,
            "eips": None if self.eips is None else {str(eip): term for eip, term in self.eips.items()},
            "address": _text(self.address),
            "sender": _text(self.sender),
            "to": _text(self.to),
            "holders": None if self.holders is None else dict(self.holders),
            "alarm": self.alarm,
            "vlan": self.vlan,
            "sentence": sentence(self),
        }
        return {name: value for name, value in found.items() if value is not None}


_OF_HELLOS = frozenset({What.HELLO, What.STATE, What.CLAIMS, What.RELEASES, What.CLASH, What.REJECTED})
_CLAIMING = frozenset({What.ANSWERS, What.ANNOUNCES, What.USES})


def _text(address: IPAddress | None) -> str | None:
    return None if address is None else str(address)


def sentence(event: Event) -> str:
    """One line, of printable characters only."""
    words = f"{_who(event)} {_does(event)}"
    if event.vlan is not None:
        words += f" [VLAN {event.vlan}]"
    if event.what in _OF_HELLOS and event.what is not What.REJECTED and not event.verified:
        words += " [unverified]"
    return words


def _who(event: Event) -> str:
    mac = format_mac(event.mac)
    if event.node is not None:
        return printable(event.node)
    if event.what in _CLAIMING:
        return f"a stranger ({mac})" if event.alarm else "a host"
    return mac if event.sender is None else f"{event.sender} ({mac})"


def _does(event: Event) -> str:
    match event.what:
        case What.CLAIMS | What.RELEASES:
            return f"{'claims' if event.what is What.CLAIMS else 'gives up'} {_listed(event.eips or {})}{event.detail}"
        case What.SILENT:
            held = f"; it held {_listed(event.eips)}" if event.eips else ""
            return f"has sent no hello for {event.detail}{held}"
        case What.CLASH:
            return f"is the name of two hosts: {format_mac(event.mac)} uses it too, and the first host is still alive"
        case What.ASKS:
            return f"asks who has {event.address}"
        case What.PROBES:
            return f"probes whether {event.address} is in use"
        case What.ANSWERS:
            whom = "" if event.to is None else f" {event.to}"
            return f"answers{whom}: {event.address} is at {format_mac(event.mac)}{_against(event)}"
        case What.ANNOUNCES:
            return f"announces {event.address} at {format_mac(event.mac)}{_against(event)}"
        case What.USES:
            return f"uses {event.address} as its own address{_against(event)}"
        case What.HELLO | What.STATE | What.REJECTED | What.MALFORMED:
            return event.detail


def _against(event: Event) -> str:
    """Says who else has the address, if it is another's."""
    holders = event.holders or {}
    if not holders or event.node in holders:
        return ""
    claims = [f"{printable(node)} claims it (term {term})" for node, term in holders.items()]
    return f", but {' and '.join(_few(claims))}"


def _listed(terms: Terms) -> str:
    return ", ".join(_few([f"{eip} (term {term})" for eip, term in terms.items()]))


def _few(texts: list[str]) -> Iterator[str]:
    yield from texts[:SHOWN]
    if len(texts) > SHOWN:
        yield f"and {len(texts) - SHOWN} more"


def names(nodes: list[str]) -> str:
    return ", ".join(_few([printable(node) for node in nodes]))


REJECTIONS: Mapping[Rejected, str] = {
    Rejected.FOREIGN: "sends another protocol under the EtherType of hellos",
    Rejected.TRUNCATED: "sends a truncated hello",
    Rejected.OVERSIZED: "sends a hello that is longer than its header says",
    Rejected.VERSION: "sends a hello of a version that this release cannot read",
    Rejected.WRONG_KEY: "sends a hello that is signed with another key",
    Rejected.FORGED: "sends a forged hello: it names our key, but its signature is wrong",
    Rejected.MALFORMED: "sends a malformed hello",
}


# ── Who is who on a link ────────────────────────────────────────────────────────────────────────────────────
#
# ``ownership/machine/peers.py`` decides what hellos mean, as it does for the speaker.

_STATES = ("draining", "deaf", "demoted")


class Neighbourhood:
    """``verified``: only hellos with a correct tag come here. ``all_hellos``: report every hello, not only changes.

    Whoever is on the LAN can invent nodes and EIPs, so at most ``most_nodes`` and ``most_eips`` are known.
    """

    def __init__(
        self, verified: bool, all_hellos: bool = False, most_nodes: int = MAX_NODES, most_eips: int = MAX_EIPS
    ) -> None:
        self._verified, self._all = verified, all_hellos
        self._most_nodes, self._most_eips = most_nodes, most_eips
        self._times = Parameters()
        self._peers: dict[str, Peer] = {}
        self._nodes: dict[Mac, str] = {}
        """Nodes, by the MACs that their hellos come from."""

    def notice(self, at: float, seen: Seen) -> Iterator[Event]:
        """What a frame captured ``at`` that time says, after those who fell silent before it."""
        yield from self.pass_time(at)
        for event in self._events(at, seen):
            yield event if seen.vlan is None else event._replace(vlan=seen.vlan)

    def pass_time(self, now: float) -> Iterator[Event]:
        """Those who have been silent for so long that their peers take them for dead."""
        for node, peer in self._peers.items():
            if peer.alive and not peer.is_alive(now, self._times):
                peer.alive = False
                mac = next((mac for mac, name in self._nodes.items() if name == node), Mac(bytes(6)))
                silence = f"{now - peer.heard_at:.1f} s"
                yield Event(now, What.SILENT, mac, node, self._verified, dict(peer.claims), detail=silence)

    def _events(self, at: float, seen: Seen) -> Iterator[Event]:
        mac, message = seen.source, seen.message
        match message:
            case Hello():
                yield from self._hello(at, mac, message)
            case Rejected():
                yield Event(at, What.REJECTED, mac, alarm=message is Rejected.FORGED, detail=REJECTIONS[message])
            case ArpPacket():
                yield from self._arp(at, message)
            case NeighborSolicitation():
                sender = None if message.source.is_unspecified else message.source
                yield from self._asks(at, message.source_link_layer or mac, sender, message.target)
            case NeighborAdvertisement():
                whom = None if message.destination.is_multicast else message.destination
                what = What.ANSWERS if message.solicited else What.ANNOUNCES
                yield self._says(at, what, message.target_link_layer or mac, message.target, whom)
            case MalformedPacket():
                detail = f"sends malformed ARP or NDP: {message}"
                yield Event(at, What.MALFORMED, mac, self._nodes.get(mac), detail=detail)
            case _:
                assert_never(message)

    # ── Hellos ──

    def _hello(self, at: float, mac: Mac, hello: Hello) -> Iterator[Event]:
        old = self._peers.get(hello.node)
        if old is not None and hello.incarnation != old.incarnation and self._lives_elsewhere(old, mac, at):
            yield Event(at, What.CLASH, mac, hello.node, self._verified, alarm=True)
        if old is not None and hello.stamp <= old.stamp:
            return  # repeated, overtaken, or from an earlier life
        peer = old
        if peer is None or hello.incarnation > peer.incarnation:
            peer = self._meet(hello, at)
            if peer is None:
                return
        was = {name: getattr(peer, name) for name in _STATES}
        before = dict(peer.claims)
        self._know(mac, hello.node)
        self._note(peer, hello, at)
        changed = peer.learn(self._within_bounds(hello, peer))
        peer.ended.clear()
        if peer is not old or self._all:
            yield Event(at, What.HELLO, mac, hello.node, self._verified, detail=_greeting(hello))
        for detail in _turns(was, peer):
            yield Event(at, What.STATE, mac, hello.node, self._verified, detail=detail)
        yield from self._moves(at, mac, peer, before, changed)

    def _moves(
        self, at: float, mac: Mac, peer: Peer, before: Mapping[IPAddress, int], changed: set[IPAddress]
    ) -> Iterator[Event]:
        after, eips = peer.claims, sorted(changed, key=rank)
        taken = {eip: after[eip] for eip in eips if eip in after and after[eip] != before.get(eip)}
        gone = {eip: before[eip] for eip in eips if eip in before and eip not in after}
        if gone:
            yield Event(at, What.RELEASES, mac, peer.node, self._verified, gone)
        if taken:
            too = sorted({node for eip in taken for node in self._claimants(eip, at) if node != peer.node})
            detail = f"; also claimed by {names(too)}" if too else ""
            yield Event(at, What.CLAIMS, mac, peer.node, self._verified, taken, detail=detail)

    def _lives_elsewhere(self, peer: Peer, mac: Mac, at: float) -> bool:
        """It was heard just now, and never from that MAC."""
        return self._nodes.get(mac) != peer.node and at - peer.heard_at < self._times.suspect

    def _meet(self, hello: Hello, at: float) -> Peer | None:
        if hello.node not in self._peers and len(self._peers) >= self._most_nodes:
            return None
        peer = self._peers[hello.node] = Peer(hello, at)
        return peer

    def _know(self, mac: Mac, node: str) -> None:
        self._nodes.pop(mac, None)
        self._nodes[mac] = node
        if len(self._nodes) > 2 * self._most_nodes:
            del self._nodes[next(iter(self._nodes))]

    def _note(self, peer: Peer, hello: Hello, at: float) -> None:
        peer.stamp, peer.heard_at, peer.alive = hello.stamp, at, True
        peer.draining, peer.deaf, peer.demoted = hello.draining, hello.deaf, hello.demoted
        peer.patience = max(1.0, hello.interval / 1000 / self._times.hello)

    def _within_bounds(self, hello: Hello, peer: Peer) -> Hello:
        """Without new EIPs, if there are too many."""
        if sum(len(each.claims) for each in self._peers.values()) + len(hello.claims) <= self._most_eips:
            return hello
        return hello._replace(claims={eip: term for eip, term in hello.claims.items() if eip in peer.claims})

    def _claimants(self, eip: IPAddress, now: float) -> dict[str, int]:
        return {
            node: peer.claims[eip]
            for node, peer in self._peers.items()
            if eip in peer.claims and peer.is_alive(now, self._times)
        }

    # ── ARP and NDP ──

    def _arp(self, at: float, packet: ArpPacket) -> Iterator[Event]:
        mac, sender, target = packet.sender_mac, packet.sender_ip, packet.target_ip
        if sender == target:
            yield self._says(at, What.ANNOUNCES, mac, sender, None)
        elif packet.operation == Operation.REQUEST:
            yield from self._asks(at, mac, None if sender == IPv4Address(0) else sender, target)
        elif packet.operation == Operation.REPLY:
            yield self._says(at, What.ANSWERS, mac, sender, target)
        else:
            detail = f"sends ARP with operation {packet.operation}"
            yield Event(at, What.MALFORMED, mac, self._nodes.get(mac), sender=sender, detail=detail)

    def _asks(self, at: float, mac: Mac, sender: IPAddress | None, target: IPAddress) -> Iterator[Event]:
        if sender is not None and (uses := self._says(at, What.USES, mac, sender, None)).alarm:
            yield uses
        what = What.PROBES if sender is None else What.ASKS
        holders = self._claimants(target, at) or None
        yield Event(at, what, mac, self._nodes.get(mac), address=target, sender=sender, holders=holders)

    def _says(self, at: float, what: What, mac: Mac, address: IPAddress, to: IPAddress | None) -> Event:
        """The host with ``mac`` says that ``address`` is its own. That is an alarm if other nodes claim it. A node may
        say so slightly earlier than its hello does."""
        node, holders = self._nodes.get(mac), self._claimants(address, at) or None
        alarm = holders is not None and node is None
        return Event(at, what, mac, node, address=address, to=to, holders=holders, alarm=alarm)


def _greeting(hello: Hello) -> str:
    heard = names(sorted(hello.heard)) if hello.heard else "no other node"
    states = [name for name in _STATES if getattr(hello, name)]
    now = f", and is {' and '.join(states)}" if states else ""
    return f"sends a hello: it holds {_eips(hello.digest.count)} and hears {heard}{now}"


def _eips(count: int) -> str:
    return "no EIP" if count == 0 else "1 EIP" if count == 1 else f"{count} EIPs"


_TURNS: Mapping[tuple[str, bool], str] = {
    ("draining", True): "is draining: it hands its EIPs over",
    ("draining", False): "is no longer draining",
    ("deaf", True): "hears no other node on this link, so its claims do not count",
    ("deaf", False): "hears other nodes again",
    ("demoted", True): "ranks last: its gateway does not answer, or the API says that it is not ready",
    ("demoted", False): "ranks like the other nodes again",
}


def _turns(was: Mapping[str, bool], peer: Peer) -> Iterator[str]:
    for name, before in was.items():
        if getattr(peer, name) is not before:
            yield _TURNS[name, not before]
