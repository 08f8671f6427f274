"""Packet, claims, now → reply | Ignored. Pure; never raises, whatever the bytes.

One call per packet on the hot path: bytes are sliced, not parsed into objects. ``arp.parse`` and ``ndp.parse`` do the
same in full, and tests compare the two.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol

from speaker.errors import MalformedPacket
from speaker.model import Mac
from speaker.packets import PACKET_MULTICAST, PACKET_OTHERHOST, arp, is_station, ndp


class Mirror(Protocol):
    """The responder in the kernel, which is told the same about each EIP as ``Claims``."""

    def answer(self, address: bytes) -> None: ...

    def watch(self, address: bytes) -> None: ...

    def discard(self, address: bytes) -> None: ...

    def extend(self, deadline: float) -> None: ...


class Claims:
    """The EIPs this link's ``mac`` answers for, and those it is about to.

    ``deadline``, in seconds of the clock that ``now`` is read from (CLOCK_BOOTTIME), is the same for all of them: from
    that instant on nothing is answered or announced until the owner moves it. It starts in the past. ``peers`` are the
    MACs of other speakers, which may hold our EIPs in turn. Addresses are as in packets, 4 or 16 bytes; ``arp`` and
    ``ndp`` map them to the prepared part of a reply, or to None as long as an address is only watched: it is not
    answered, but whoever claims it is reported. ``mirror`` is told of all changes.
    """

    __slots__ = ("arp", "deadline", "mac", "mirror", "ndp", "peers")

    def __init__(self, mac: Mac) -> None:
        self.mac = mac
        self.deadline = float("-inf")
        self.peers: frozenset[Mac] = frozenset()
        self.arp: dict[bytes, bytes | None] = {}
        self.ndp: dict[bytes, ndp.AdvertisementPart | None] = {}
        self.mirror: Mirror | None = None

    def extend(self, deadline: float) -> None:
        self.deadline = deadline
        if self.mirror is not None:
            self.mirror.extend(deadline)

    def add(self, address: bytes) -> None:
        """Answer for it."""
        if len(address) == 4:
            self.arp[address] = arp.reply_part(self.mac, address)
        else:
            self.ndp[address] = ndp.advertisement_part(self.mac, address)
        if self.mirror is not None:
            self.mirror.answer(address)

    def watch(self, address: bytes) -> None:
        """Do not answer for it, but notice who else does."""
        if len(address) == 4:
            self.arp[address] = None
        else:
            self.ndp[address] = None
        if self.mirror is not None:
            self.mirror.watch(address)

    def discard(self, address: bytes) -> None:
        if self.mirror is not None:
            self.mirror.discard(address)
        (self.arp if len(address) == 4 else self.ndp).pop(address, None)

    def clear(self) -> None:
        self.arp.clear()
        self.ndp.clear()

    def answered(self, address: bytes) -> bool:
        part = self.arp.get(address) if len(address) == 4 else self.ndp.get(address)
        return part is not None

    def expired(self, now: float) -> bool:
        return now >= self.deadline

    def __contains__(self, address: bytes) -> bool:
        return address in self.arp or address in self.ndp

    def __len__(self) -> int:
        return len(self.arp) + len(self.ndp)


_ARP_REQUEST = arp.FIXED + arp.REQUEST
"""Bytes 12 to 22 of the frame: EtherType, hardware and protocol type and length, operation."""
_NOBODY = bytes(4)
"""The sender address of an ARP probe (RFC 5227 §2.1.1)."""


class Ignored(Enum):
    """Why a packet got no answer. The value is the metric label.

    Unrelated traffic is dropped by the kernel's filter before anyone could count it (see ``filter``): these count
    packets about our EIPs, or near them.
    """

    OTHER_HOST = "other_host"
    """Not addressed to this host: a frame of a VLAN that this link is not part of, or one overheard in promiscuous
    mode. A tagged frame looks untagged here; only the kernel's packet type shows it."""
    OUTGOING = "outgoing"
    """This host sent it."""
    MALFORMED = "malformed"
    """Not a well-formed packet of the protocol."""
    HOP_LIMIT = "hop_limit"
    """A neighbour message that has passed a router: forged from outside the link."""
    CHECKSUM = "checksum"
    """A neighbour message whose ICMPv6 checksum is wrong."""
    NOT_OURS = "not_ours"
    """About an address this link does not answer for."""
    CLAIM_EXPIRED = "claim_expired"
    """Ours, but the owner did not move the deadline in time: another node may answer by now."""
    FROM_US = "from_us"
    """Its sender has our MAC: our own packet came back, over a loop or a mirror port."""
    TOO_OLD = "too_old"
    """A request that waited so long that the asker may already have its answer from another node."""
    CONFLICT = "conflict"
    """Another host says that one of our EIPs is its own: another MAC with our address as the sender (RFC 5227 §2.4), or
    another's advertisement of it; or it probes for one that we are probing for ourselves (§2.1.1)."""
    PEER = "peer"
    """Like ``CONFLICT``, by the MAC of another speaker: two of them are about to agree on one holder. If that speaker's
    hellos do not say that it holds the EIP, this is reported and fought as a conflict too. An EIP that we probe for is
    not answered as long as another speaker answers for it, whatever its hellos say."""
    INTERNAL_ERROR = "internal_error"
    """It met a bug of ours."""
    NOT_A_REQUEST = "not_a_request"
    """ARP about our EIP that asks nothing: a reply to somebody, or an operation other than RFC 826's two."""
    BAD_SENDER = "bad_sender"
    """The asker's MAC is a group's or zero, or its IPv6 address a group's: a reply would reach many, or none."""


def answer_arp(frame: bytes, pkttype: int, claims: Claims, now: float) -> bytes | Ignored:
    """``frame`` from its Ethernet header on, ``pkttype`` as in ``sockaddr_ll``, ``now`` in the deadline's clock."""
    part = claims.arp.get(frame[38:42])
    sender_mac = frame[22:28]
    # One condition for the packets that matter, which come in thousands; the reasons are worked out for the others.
    if (
        part is not None
        and frame[12:22] == _ARP_REQUEST
        and pkttype <= PACKET_MULTICAST
        and now < claims.deadline
        and frame[28:32] not in claims.arp
        and sender_mac != claims.mac
        and is_station(sender_mac)
    ):
        return sender_mac + part + frame[22:32]
    return _why_no_reply(frame, pkttype, claims, now)


def _why_no_reply(frame: bytes, pkttype: int, claims: Claims, now: float) -> Ignored:
    if pkttype > PACKET_MULTICAST:
        return _not_for_us(pkttype)
    if len(frame) < arp.LENGTH or frame[12:20] != arp.FIXED:
        return Ignored.MALFORMED
    claimed = _claimed_by_arp(frame, claims)
    if claimed is None and frame[38:42] not in claims.arp:
        return Ignored.NOT_OURS
    # While an EIP is probed for, its other users must be noticed whether or not we may answer at the moment.
    if now >= claims.deadline and (claimed is None or claims.arp[claimed] is not None):
        return Ignored.CLAIM_EXPIRED
    sender_mac = frame[22:28]
    if sender_mac == claims.mac:
        return Ignored.FROM_US
    if claimed is not None:
        return Ignored.PEER if sender_mac in claims.peers else Ignored.CONFLICT
    if claims.arp[frame[38:42]] is None:
        return Ignored.NOT_OURS
    if frame[20:22] != arp.REQUEST:
        return Ignored.NOT_A_REQUEST
    return Ignored.BAD_SENDER


def _claimed_by_arp(frame: bytes, claims: Claims) -> bytes | None:
    """Which of our EIPs the sender of this ARP packet claims as its own, or is about to."""
    sender, target = frame[28:32], frame[38:42]
    if sender in claims.arp:
        return sender
    probes = sender == _NOBODY and frame[20:22] == arp.REQUEST
    return target if probes and target in claims.arp and claims.arp[target] is None else None


def answer_ndp(frame: bytes, pkttype: int, claims: Claims, now: float) -> bytes | Ignored:
    """Like ``answer_arp``. A solicitation without a link-layer address is answered to the frame's source: RFC 4861
    §7.2.4 requires an answer, and unreachability detection may ask that way."""
    if pkttype > PACKET_MULTICAST:
        return _not_for_us(pkttype)
    try:
        return _answer_ndp(frame, claims, now)
    except MalformedPacket:
        return Ignored.MALFORMED


def _answer_ndp(frame: bytes, claims: Claims, now: float) -> bytes | Ignored:
    end = ndp.extent(frame)
    source, target = ndp.source(frame), ndp.target(frame)
    if target not in claims.ndp and source not in claims.ndp:
        return Ignored.NOT_OURS
    if not ndp.from_this_link(frame):
        return Ignored.HOP_LIMIT
    if not ndp.intact(frame, end):
        return Ignored.CHECKSUM
    sender_mac = ndp.link_layer(frame, end) or Mac(frame[6:12])
    claimed = _claimed_by_ndp(frame, claims)
    if now >= claims.deadline and (claimed is None or claims.ndp[claimed] is not None):
        return Ignored.CLAIM_EXPIRED
    if sender_mac == claims.mac:
        return Ignored.FROM_US
    if claimed is not None:
        return Ignored.PEER if sender_mac in claims.peers else Ignored.CONFLICT
    part = claims.ndp[target]
    if part is None:
        return Ignored.NOT_OURS
    if not is_station(sender_mac) or source[0] == ndp.MULTICAST:
        return Ignored.BAD_SENDER
    if source == ndp.UNSPECIFIED:
        return ndp.unsolicited_advertisement(part)
    return ndp.solicited_advertisement(part, sender_mac, source)


def _claimed_by_ndp(frame: bytes, claims: Claims) -> bytes | None:
    """Like ``_claimed_by_arp``."""
    source, target = ndp.source(frame), ndp.target(frame)
    if source in claims.ndp:
        return source
    if target not in claims.ndp:
        return None
    probes = source == ndp.UNSPECIFIED and claims.ndp[target] is None
    return target if probes or not ndp.is_solicitation(frame) else None


class Rival(NamedTuple):
    """A MAC that says an EIP of ours is its own. ``asks``: it only asks who has it, as we do."""

    address: bytes
    mac: Mac
    asks: bool = False


def arp_rival(frame: bytes, claims: Claims) -> Rival | None:
    """The rival in a frame that ``answer_arp`` just ignored as a ``CONFLICT``, or as a ``PEER``'s."""
    address = _claimed_by_arp(frame, claims)
    return None if address is None else Rival(address, Mac(frame[22:28]), frame[28:32] != address)


def ndp_rival(frame: bytes, claims: Claims) -> Rival | None:
    """The rival in a frame that ``answer_ndp`` just ignored as a ``CONFLICT``, or as a ``PEER``'s."""
    address = _claimed_by_ndp(frame, claims)
    mac = ndp.link_layer(frame, ndp.extent(frame)) or Mac(frame[6:12])
    asks = ndp.is_solicitation(frame) and ndp.source(frame) == ndp.UNSPECIFIED
    return None if address is None else Rival(address, mac, asks)


def in_time(outcomes: Iterable[bytes | Ignored], ages: Iterable[float], oldest: float) -> list[bytes | Ignored]:
    """Without the replies to requests that waited longer than ``oldest`` seconds (ownership rule 28)."""
    return [
        Ignored.TOO_OLD if age > oldest and isinstance(outcome, bytes) else outcome
        for outcome, age in zip(outcomes, ages, strict=True)
    ]


def _not_for_us(pkttype: int) -> Ignored:
    return Ignored.OTHER_HOST if pkttype == PACKET_OTHERHOST else Ignored.OUTGOING
