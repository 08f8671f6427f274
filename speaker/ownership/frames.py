"""Hello in bytes: ``split`` to an MTU, ``encode`` and ``decode``. Pure.

A frame, numbers in network order::

    Ethernet   6 broadcast · 6 source · 2 EtherType (0x88B5 unless set otherwise: IEEE 802 local experimental)
    header     4 "EIPh" · 1 major version · 1 minor version · 2 length from "EIPh" to the end of the tag · 4 key id
    fixed      8 incarnation · 8 sequence · 2 part · 4 link · 8 clock · 1 flags · 4 claims · 8 sum of their hashes
               · 1 length and node name
    sections   1 kind · 2 length · value, each kind at most once, empty ones left out
    tag        16: HMAC-SHA256 from the source address to the last section, its first half (RFC 2104 §5)

Within a major version nothing above changes: a newer minor version adds kinds and flags, which an older reader
authenticates and passes over. What must not be passed over takes a new major version.

The source address is under the tag, so a stranger who repeats a frame cannot pass off a MAC as a peer's: whoever has
decoded a frame may believe bytes 6 to 11. The destination is not: access points turn broadcasts into unicasts. The
shortest frame is longer than Ethernet's 60 bytes, so nobody pads it and every byte up to the last is accounted for.
A frame repeated on the same link is refused by its ``stamp``, on another one by the ``link`` its echo lacks.
"""

import hmac
import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Any, TypeAlias

from speaker.errors import MalformedPacket
from speaker.model import IPAddress, Mac
from speaker.ownership.hello import MAX_AGE, MAX_INCARNATION, Digest, Heard, Hello, Incarnation, Span, Terms, rank
from speaker.ownership.keys import Key, Keys

ETHERTYPE = 0x88B5
MAGIC = b"EIPh"
MAJOR, MINOR = 1, 0
MIN_MTU = 600
"""Bytes: the head of a frame and one entry of ``heard``, both with names of MAX_NAME."""
MAX_NAME = 253
"""Bytes of a node name: a Kubernetes object name is a DNS subdomain (RFC 1123)."""

_BROADCAST = b"\xff" * 6
_ETHERNET = 14
_HEADER = struct.Struct("!4sBBH4s")
_FIXED = struct.Struct("!QQHIQBIQB")
_TAG = 16
_SECTION = struct.Struct("!BH")
_SPAN = struct.Struct("!B16sB16s")
_HEARD = struct.Struct("!QIH")
_TERM4, _TERM6 = struct.Struct("!II"), struct.Struct("!16sI")
_DRAINING = 0x01

_Ordered: TypeAlias = list[tuple[IPAddress, int]]
"""EIPs and terms in the order of ``rank``."""


class Rejected(Enum):
    """Why a frame is no hello for us. The value is the metric label. All but MALFORMED can be a stranger's doing."""

    FOREIGN = "foreign"
    """Another protocol on our EtherType."""
    TRUNCATED = "truncated"
    OVERSIZED = "oversized"
    """Longer than it says."""
    VERSION = "version"
    """A major version that this release does not read."""
    WRONG_KEY = "wrong_key"
    """Signed with a key that is not ours: another cluster, or a rotation that skipped a step."""
    FORGED = "forged"
    """Names our key, and the tag is not the one that key makes."""
    MALFORMED = "malformed"
    """Authentic, and breaks the format: a peer with a bug."""


class _Kind(IntEnum):
    """Sections. Numbers are never used again for anything else."""

    COVERS = 1
    CLAIMS4 = 2
    CLAIMS6 = 3
    INTENTS4 = 4
    INTENTS6 = 5
    YIELDED4 = 6
    YIELDED6 = 7
    HEARD = 8
    PROBES = 9
    WANTS = 10


_KNOWN = frozenset(_Kind)


# ── Values to bytes ───────────────────────────────────────────────────────────────────────────────────────────


def encode(hello: Hello, keys: Keys, source: Mac, mtu: int = 1500, ethertype: int = ETHERTYPE) -> Iterator[bytes]:
    """The frames that carry ``hello`` from ``source``, the MAC of the link they leave by: the same for equal values.

    ``mtu`` is the link's: bytes without the Ethernet header. Each frame is made when it is asked for (0.2 ms), so that
    10,000 claims can be sent with other work in between. Raises ValueError as ``split`` does; a number beyond its field
    (a term of 2³²) is a bug and raises struct.error.
    """
    return (_pack(part, keys.signing, source, ethertype) for part in split(hello, mtu))


def split(hello: Hello, mtu: int = 1500) -> Iterator[Hello]:
    """The parts of ``hello``, numbered from 0, each of which fits one frame; one part where everything fits.

    Claims inside ``covers`` come last and in order, and every part covers the stretch it lists, so that a lost part
    leaves a gap and never a wrong absence. Raises ValueError for an MTU below MIN_MTU or a name that is empty or
    longer than MAX_NAME.
    """
    if mtu < MIN_MTU:
        raise ValueError(f"an MTU of {mtu}: must be at least {MIN_MTU}")
    room = mtu - _HEADER.size - _FIXED.size - len(_name(hello.node)) - _TAG
    draft, number = _Draft(room), 0
    inside, outside = _parted(_ordered(hello.claims), hello.covers)
    for kind, into, key, value, size in _said_outright(hello, outside):
        if not draft.takes(kind, into, key, value, size):
            yield draft.part(hello, number, None)
            draft, number = _Draft(room), number + 1
            draft.takes(kind, into, key, value, size)
    if hello.covers is None:
        yield draft.part(hello, number, None)
        return
    spared = _SECTION.size + _SPAN.size
    if not draft.spares(spared):
        yield draft.part(hello, number, None)
        draft, number = _Draft(room), number + 1
        draft.spares(spared)
    first = hello.covers.first
    for address, term in inside:
        kind, size = _kind(_Kind.CLAIMS4, address)
        if not draft.takes(kind, "claims", address, term, size):
            yield draft.part(hello, number, Span(first, _before(address)) if first != address else None)
            draft, number, first = _Draft(room), number + 1, address
            draft.spares(spared)
            draft.takes(kind, "claims", address, term, size)
    yield draft.part(hello, number, Span(first, hello.covers.last))


class _Draft:
    """A part being filled; ``room`` is how many bytes of sections still fit."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._kinds: set[_Kind] = set()
        self._fields: defaultdict[str, dict[Any, Any]] = defaultdict(dict)

    def spares(self, size: int) -> bool:
        """Sets ``size`` bytes aside; False, and nothing changed, where there is no room for them."""
        if size > self._room:
            return False
        self._room -= size
        return True

    def takes(self, kind: _Kind, into: str, key: object, value: object, size: int) -> bool:
        cost = size if kind in self._kinds else size + _SECTION.size
        if not self.spares(cost):
            return False
        self._kinds.add(kind)
        self._fields[into][key] = value
        return True

    def part(self, hello: Hello, number: int, covers: Span | None) -> Hello:
        fields = self._fields
        return replace(
            hello,
            part=number,
            covers=covers,
            claims=fields["claims"],
            intents=fields["intents"],
            yielded=fields["yielded"],
            heard=fields["heard"],
            probes=frozenset(fields["probes"]),
            wants=frozenset(fields["wants"]),
        )


def _said_outright(hello: Hello, claims: _Ordered) -> Iterator[tuple[_Kind, str, object, object, int]]:
    """Kind, field, key, value and size of every entry that does not lean on ``covers``, the urgent ones first."""
    for kind, into, names in ((_Kind.PROBES, "probes", hello.probes), (_Kind.WANTS, "wants", hello.wants)):
        for name in sorted(names):
            yield kind, into, name, None, 1 + len(_name(name))
    for kind4, into, terms in (
        (_Kind.INTENTS4, "intents", _ordered(hello.intents)),
        (_Kind.YIELDED4, "yielded", _ordered(hello.yielded)),
        (_Kind.CLAIMS4, "claims", claims),
    ):
        for address, term in terms:
            kind, size = _kind(kind4, address)
            yield kind, into, address, term, size
    for name, heard in sorted(hello.heard.items()):
        yield _Kind.HEARD, "heard", name, heard, 1 + len(_name(name)) + _HEARD.size


def _ordered(terms: Terms) -> _Ordered:
    ranked = sorted((*rank(address), address, term) for address, term in terms.items())
    return [(address, term) for _, _, address, term in ranked]


def _parted(claims: _Ordered, span: Span | None) -> tuple[_Ordered, _Ordered]:
    """The claims inside ``span`` and those outside, still in order."""
    if span is None:
        return [], claims
    start = bisect_left(claims, rank(span.first), key=_rank_of)
    end = bisect_right(claims, rank(span.last), key=_rank_of)
    return claims[start:end], claims[:start] + claims[end:]


def _rank_of(claim: tuple[IPAddress, int]) -> tuple[int, int]:
    return rank(claim[0])


def _pack(part: Hello, key: Key, source: Mac, ethertype: int) -> bytes:
    node = _name(part.node)
    fixed = _FIXED.pack(
        part.incarnation,
        part.sequence,
        part.part,
        part.link,
        part.clock,
        _DRAINING if part.draining else 0,
        part.digest.count,
        part.digest.sum,
        len(node),
    )
    sections = b"".join(_SECTION.pack(kind, len(value)) + value for kind, value in _sections(part) if value)
    header = _HEADER.pack(MAGIC, MAJOR, MINOR, _HEADER.size + len(fixed) + len(node) + len(sections) + _TAG, key.id)
    signed = b"".join((source, ethertype.to_bytes(2, "big"), header, fixed, node, sections))
    return _BROADCAST + signed + _tag(key, signed)


def _sections(part: Hello) -> Iterator[tuple[_Kind, bytes]]:
    if part.covers is not None:
        yield _Kind.COVERS, _SPAN.pack(*_end(part.covers.first), *_end(part.covers.last))
    for kind4, terms in (
        (_Kind.CLAIMS4, part.claims),
        (_Kind.INTENTS4, part.intents),
        (_Kind.YIELDED4, part.yielded),
    ):
        yield kind4, b"".join([_TERM4.pack(int(a), term) for a, term in terms.items() if a.version == 4])
        yield _Kind(kind4 + 1), b"".join([_TERM6.pack(a.packed, term) for a, term in terms.items() if a.version == 6])
    yield (
        _Kind.HEARD,
        b"".join(
            _counted(name) + _HEARD.pack(heard.incarnation, heard.link, min(heard.age, MAX_AGE))
            for name, heard in part.heard.items()
        ),
    )
    yield _Kind.PROBES, b"".join(map(_counted, sorted(part.probes)))
    yield _Kind.WANTS, b"".join(map(_counted, sorted(part.wants)))


def _kind(kind4: _Kind, address: IPAddress) -> tuple[_Kind, int]:
    """The section for this address, and what one entry takes: the kind for IPv6 follows the one for IPv4."""
    return (kind4, _TERM4.size) if address.version == 4 else (_Kind(kind4 + 1), _TERM6.size)


def _before(address: IPAddress) -> IPAddress:
    return IPv4Address(2**32 - 1) if address == IPv6Address(0) else address - 1


def _name(name: str) -> bytes:
    encoded = name.encode()
    if not 1 <= len(encoded) <= MAX_NAME:
        raise ValueError(f"node name {name[:80]!r}: must take 1 to {MAX_NAME} bytes")
    return encoded


def _counted(name: str) -> bytes:
    encoded = _name(name)
    return bytes((len(encoded),)) + encoded


def _end(address: IPAddress) -> tuple[int, bytes]:
    return address.version, address.packed.rjust(16, b"\0")


def _tag(key: Key, signed: bytes) -> bytes:
    return hmac.digest(key.secret, signed, "sha256")[:_TAG]


# ── Bytes to values ───────────────────────────────────────────────────────────────────────────────────────────


def decode(frame: bytes, keys: Keys) -> Hello | Rejected:
    """One frame from its Ethernet header on. Raises nothing, whatever the bytes; the cheap checks come first."""
    if frame[_ETHERNET : _ETHERNET + len(MAGIC)] != MAGIC:
        return Rejected.TRUNCATED if len(frame) < _ETHERNET + len(MAGIC) else Rejected.FOREIGN
    if len(frame) < _ETHERNET + _HEADER.size:
        return Rejected.TRUNCATED
    _, major, _, length, key_id = _HEADER.unpack_from(frame, _ETHERNET)
    if major != MAJOR:
        return Rejected.VERSION
    key = keys.accepted.get(key_id)
    if key is None:
        return Rejected.WRONG_KEY
    if len(frame) != _ETHERNET + length:
        return Rejected.TRUNCATED if len(frame) < _ETHERNET + length else Rejected.OVERSIZED
    if not hmac.compare_digest(_tag(key, frame[6:-_TAG]), frame[-_TAG:]):
        return Rejected.FORGED
    try:
        return _read(frame[_ETHERNET + _HEADER.size : -_TAG])
    except (MalformedPacket, struct.error, UnicodeDecodeError):
        return Rejected.MALFORMED


def _read(body: bytes) -> Hello:
    incarnation, sequence, part, link, clock, flags, count, total, _ = _FIXED.unpack_from(body)
    _demand(incarnation <= MAX_INCARNATION, "an incarnation of 64 bits")
    node, at = _read_name(body, _FIXED.size - 1)
    sections = _read_sections(body[at:])

    def terms(kind4: _Kind) -> Terms:
        return _read_terms(sections.get(kind4, b""), sections.get(kind4 + 1, b""))

    return Hello(
        node=node,
        incarnation=Incarnation(incarnation),
        sequence=sequence,
        clock=clock,
        digest=Digest(count, total),
        draining=bool(flags & _DRAINING),
        claims=terms(_Kind.CLAIMS4),
        covers=_read_span(sections[_Kind.COVERS]) if _Kind.COVERS in sections else None,
        intents=terms(_Kind.INTENTS4),
        yielded=terms(_Kind.YIELDED4),
        heard=_read_heard(sections.get(_Kind.HEARD, b"")),
        probes=_read_names(sections.get(_Kind.PROBES, b"")),
        wants=_read_names(sections.get(_Kind.WANTS, b"")),
        link=link,
        part=part,
    )


def _demand(right: bool, otherwise: str) -> None:
    if not right:
        raise MalformedPacket(otherwise)


def _read_sections(body: bytes) -> dict[int, bytes]:
    """Value by kind; kinds that this release does not know are left out."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(body):
        kind, size = _SECTION.unpack_from(body, at)
        at += _SECTION.size + size
        _demand(at <= len(body), "a section that ends beyond the frame")
        if kind in _KNOWN:
            _demand(kind not in found, "a section twice")
            found[kind] = body[at - size : at]
    return found


@lru_cache(maxsize=256)
def _read_terms(four: bytes, six: bytes) -> Terms:
    """Cached: a peer repeats the same claims ten times a second, and authenticated frames alone come this far."""
    terms: dict[IPAddress, int] = {IPv4Address(address): term for address, term in _TERM4.iter_unpack(four)}
    terms.update({IPv6Address(address): term for address, term in _TERM6.iter_unpack(six)})
    _demand(len(terms) == len(four) // _TERM4.size + len(six) // _TERM6.size, "an EIP twice")
    return MappingProxyType(terms)


def _read_span(value: bytes) -> Span:
    first_version, first, last_version, last = _SPAN.unpack(value)
    span = Span(_read_end(first_version, first), _read_end(last_version, last))
    _demand(span.first in span, "a span that ends before it begins")
    return span


def _read_end(version: int, address: bytes) -> IPAddress:
    if version == 6:
        return IPv6Address(address)
    _demand(version == 4 and address.startswith(bytes(12)), "the end of a span that is no address")
    return IPv4Address(address[12:])


def _read_heard(value: bytes) -> dict[str, Heard]:
    found: dict[str, Heard] = {}
    at = 0
    while at < len(value):
        name, at = _read_name(value, at)
        incarnation, link, age = _HEARD.unpack_from(value, at)
        at += _HEARD.size
        _demand(incarnation <= MAX_INCARNATION and name not in found, "an incarnation of 64 bits, or a peer twice")
        found[name] = Heard(Incarnation(incarnation), age, link)
    return found


def _read_names(value: bytes) -> frozenset[str]:
    found: set[str] = set()
    at = 0
    while at < len(value):
        name, at = _read_name(value, at)
        found.add(name)
    return frozenset(found)


def _read_name(value: bytes, at: int) -> tuple[str, int]:
    """The name whose length stands at ``at``, and where it ends."""
    end = at + 1 + value[at]
    _demand(at + 1 < end <= len(value) and value[at] <= MAX_NAME, "a name that is empty, too long or cut off")
    return value[at + 1 : end].decode(), end
