"""Hello in bytes: ``encode``, ``peek`` and ``decode``. Pure.

A frame, numbers in network order::

    Ethernet   6 broadcast · 6 source · 2 EtherType (0x88B5 unless set otherwise: IEEE 802 local experimental)
    header     4 "EIPh" · 1 major version · 1 minor version · 2 length from "EIPh" to the end of the tag · 4 key id
    fixed      8 incarnation · 8 sequence · 2 part · 4 link · 8 clock · 1 flags · 4 claims · 8 sum of their hashes
               · 1 length and node name
    sections   1 kind · 2 length · value; those of one kind add up
    tag        16: HMAC-SHA256 from the source address to the last section, its first half (RFC 2104 §5)

Values, by kind (``_Kind``)::

    COVERS     first and last EIP, each 1 IP version · 16 address, an IPv4 one behind twelve zeros; one such section
    CLAIMS, INTENTS, YIELDED
               1 IP version · entries, by EIP, of 4 bits: a - 1 · 4 bits: b - 1
               · a step from the EIP before it in its section, the first from 0 · b term (1 to 4), at most 2³¹
    HEARD      2 entries (n) · 1 bytes of an age (1 or 2: a) · 1 bytes of a link (1 to 4: b) · n times a age
               · n entries of name · 8 incarnation · b link
    PROBES, WANTS
               names
    MOVES      entries of 1 IP version · 4 or 16 EIP · name
    REVISION   4; left out where it is 0
    ADDRESSES  4 IPv4 · 16 IPv6, either alone or both; one such section (since 1.1)
    OWN        entries of 1 IP version · 4 or 16 address (since 1.2)
    WEAK       a bit for each entry of the CLAIMS of this frame, in their order, 1 for a weak one: the first is the
               lowest bit of the first byte, those beyond the last are 0; one such section (since 1.3)
    INTERVAL   2; left out where it is 0 (since 1.3)

    name       1 bytes it begins with like the name before it in its section · 1 bytes it ends with like that one
               · 1 length and the bytes between; the two likenesses do not overlap, the first name has neither

Flags: 1 draining · 2 deaf · 4 demoted · 8 recalled (the last three since 1.3).

Within a major version nothing above changes: a newer minor version adds kinds and flags, which an older reader
authenticates and passes over. What must not be passed over takes a new major version.

The source address is under the tag, so a stranger who repeats a frame cannot pass off a MAC as a peer's: whoever has
decoded a frame may believe bytes 6 to 11. The destination is not: access points turn broadcasts into unicasts. The
shortest frame is longer than Ethernet's 60 bytes, so nobody pads it and every byte up to the last is accounted for.
A frame repeated on the same link is refused by its stamp (``peek``), on another one by the ``link`` its echo lacks.
"""

import hmac
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar, TypeVarTuple

from speaker.errors import MalformedPacket
from speaker.model import MAX_TERM, IPAddress, Mac, rank
from speaker.ownership.hello import (
    MAX_AGE,
    MAX_INCARNATION,
    Addresses,
    Digest,
    Heard,
    Hello,
    Incarnation,
    Listed,
    Span,
    Terms,
)
from speaker.ownership.hellos.keys import ID_SIZE, Key, Keys

ETHERTYPE = 0x88B5
MAGIC = b"EIPh"
MAJOR, MINOR = 1, 3
MAX_NAME = 253
"""Bytes of a node name: a Kubernetes object name is a DNS subdomain (RFC 1123)."""

ETHERTYPE_AT = 12
"""Bytes from the start of the frame: where a kernel filter finds the EtherType (2 bytes)."""
MAGIC_AT = 14
"""MAGIC."""
MAJOR_AT = 18
"""MAJOR (1 byte)."""
KEY_ID_AT = 22
"""``Key.id`` (``keys.ID_SIZE`` bytes)."""

_BROADCAST = b"\xff" * 6
_SOURCE_AT = 6
_HEADER = struct.Struct(f"!4sBBH{ID_SIZE}s")
_FIXED_AT = MAGIC_AT + _HEADER.size
_FIXED = struct.Struct("!QQHIQBIQB")
_STAMP = struct.Struct("!QQHI")
_NAME_AT = _FIXED_AT + _FIXED.size
_TAG = 16
_SECTION = struct.Struct("!BH")
_SPAN = struct.Struct("!B16sB16s")
_HEARD = struct.Struct("!HBB")
_ALIKE = struct.Struct("!BBB")
_OURS = MAGIC + bytes((MAJOR,))
_REVISION, _INTERVAL = struct.Struct("!BHI"), struct.Struct("!BHH")
"""Whole sections: the kind, the bytes of the number, the number."""
_DRAINING, _DEAF, _DEMOTED, _RECALLED = 0x01, 0x02, 0x04, 0x08
_AGES = {1: "B", 2: "H"}
"""struct's letter for the bytes of an age."""
_ADDRESS: Mapping[int, tuple[type[IPv4Address] | type[IPv6Address], int]] = {4: (IPv4Address, 4), 6: (IPv6Address, 16)}
"""By IP version: its addresses and their bytes."""

_HEAD = _NAME_AT - MAGIC_AT + MAX_NAME + _REVISION.size + _INTERVAL.size
MIN_MTU = _HEAD + _SECTION.size + _HEARD.size + 2 + _ALIKE.size + MAX_NAME + 8 + 4 + _TAG
"""Bytes: the head of a frame and the longest entry there is, one of ``heard``, both with names of MAX_NAME."""

Sender: TypeAlias = tuple[str, int]
"""Node, and its own number of the link that the frame left by (``Hello.link``): each counts for itself, so that what a
stranger brings from another of its links puts nothing here out of date."""
Stamp: TypeAlias = tuple[int, int, int]
"""Incarnation, sequence and part, as in ``Hello.stamp``."""

RUNS_REMEMBERED = 1 << 16
"""Bytes of claims whose reading is remembered: of 20,000 claims, which take 4 MB as values."""
PEERS_REMEMBERED = 1 << 18
"""Bytes of entries of ``heard``: of 20,000, which take 3 MB."""
SPANS_REMEMBERED = 1 << 16
"""Bytes of spans: of 1,900, which take 1 MB."""
OWN_REMEMBERED = 1 << 15
"""Bytes of peers' own addresses, of either kind: of 2,000 and more, which take 1 MB."""

_P = TypeVarTuple("_P")
_T = TypeVar("_T")

_Claim: TypeAlias = tuple[int, int, int]
"""IP version, EIP and term: sorts like ``rank``."""


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
    CLAIMS = 2
    INTENTS = 3
    YIELDED = 4
    HEARD = 5
    PROBES = 6
    WANTS = 7
    MOVES = 8
    REVISION = 9
    ADDRESSES = 10
    OWN = 11
    WEAK = 12
    INTERVAL = 13


# ── Values to bytes ───────────────────────────────────────────────────────────────────────────────────────────


def encode(hello: Hello, keys: Keys, source: Mac, mtu: int = 1500, ethertype: int = ETHERTYPE) -> Iterator[bytes]:
    """The frames that carry ``hello`` from ``source``, the MAC of the link they leave by: the same for equal values.

    ``mtu`` is the link's: bytes without the Ethernet header. Each frame is a hello of its own with its number as
    ``part``, and made when it is asked for (0.2 ms), so that 10,000 claims can be sent with other work in between.
    Claims inside ``covers`` come last and in order, and every frame covers the stretch it lists, so that a lost one
    leaves a gap and never a wrong absence.

    Raises ValueError for an MTU below MIN_MTU or a name that is empty or longer than MAX_NAME. A number beyond its
    field (a term of 2³²) is a bug and raises ValueError or struct.error.
    """
    if mtu < MIN_MTU:
        raise ValueError(f"an MTU of {mtu}: must be at least {MIN_MTU}")
    first = _in_every_frame(hello)
    room = mtu - (_NAME_AT - MAGIC_AT) - len(_name(hello.node)) - len(first) - _TAG
    return (
        _frame(hello, number, first + sections, keys.signing, source, ethertype)
        for number, sections in enumerate(_split(hello, room))
    )


def _frame(hello: Hello, part: int, sections: bytes, key: Key, source: Mac, ethertype: int) -> bytes:
    node = _name(hello.node)
    fixed = _FIXED.pack(
        hello.incarnation,
        hello.sequence,
        part,
        hello.link,
        hello.clock,
        hello.draining * _DRAINING | hello.deaf * _DEAF | hello.demoted * _DEMOTED | hello.recalled * _RECALLED,
        hello.digest.count,
        hello.digest.sum,
        len(node),
    )
    header = _HEADER.pack(MAGIC, MAJOR, MINOR, _HEADER.size + len(fixed) + len(node) + len(sections) + _TAG, key.id)
    signed = b"".join((source, ethertype.to_bytes(2, "big"), header, fixed, node, sections))
    return _BROADCAST + signed + _tag(key, signed)


def _in_every_frame(hello: Hello) -> bytes:
    revision = _REVISION.pack(_Kind.REVISION, 4, hello.revision) if hello.revision else b""
    return revision + (_INTERVAL.pack(_Kind.INTERVAL, 2, hello.interval) if hello.interval else b"")


def _tag(key: Key, signed: bytes) -> bytes:
    return hmac.digest(key.secret, signed, "sha256")[:_TAG]


def _split(hello: Hello, room: int) -> Iterator[bytes]:
    """The sections of each frame, at most ``room`` bytes; those of one frame where everything fits."""
    part = _Part(room, hello.weak)
    inside, outside = _claim_queues(hello.claims, hello.covers)
    for queue in _said_outright(hello, outside):
        while (queue := part.takes(queue)).entries:
            yield part.sections()
            part = _Part(room, hello.weak)
    if hello.covers is None:
        yield part.sections()
        return
    first = hello.covers.first
    if not part.begins(first):
        yield part.sections()
        part = _Part(room, hello.weak)
        part.begins(first)
    for queue in inside:
        while (queue := part.takes(queue)).entries:
            following = _address(queue.entries[0])
            yield part.sections(_before(following) if following != first else None)
            part, first = _Part(room, hello.weak), following
            part.begins(first)
    yield part.sections(hello.covers.last)


class _Queue(NamedTuple):
    """Entries in order that wait for a frame. ``pack`` makes a value of at most so many bytes from the first of them,
    and says how many it holds."""

    kind: _Kind
    pack: Callable[[Sequence[Any], int], tuple[bytes, int]]
    entries: Sequence[Any]


class _Part:
    """A frame being filled; ``room`` is how many bytes of sections still fit. A claim in ``weak`` travels in one frame
    with the mark that says so."""

    def __init__(self, room: int, weak: Collection[IPAddress]) -> None:
        self._room, self._weak = room, weak
        self._marks: list[bool] = []
        """Of the claims taken."""
        self._first: IPAddress | None = None
        self._sections: list[bytes] = []

    def begins(self, first: IPAddress) -> bool:
        """Sets room aside for the span that begins there; False, and nothing changed, where there is none."""
        if self._room < _SECTION.size + _SPAN.size:
            return False
        self._room -= _SECTION.size + _SPAN.size
        self._first = first
        return True

    def takes(self, queue: _Queue) -> _Queue:
        """As many entries as fit; what is left of them."""
        room = self._room - _SECTION.size
        value, count = queue.pack(queue.entries, room)
        marked = bool(self._weak) and queue.kind is _Kind.CLAIMS
        if marked and count:
            room -= self._room_for_marks(count)
            value, count = queue.pack(queue.entries[:count], room)
        if count:
            self._room = room - len(value)
            self._sections += _SECTION.pack(queue.kind, len(value)), value
            if marked:
                self._marks += [_address(claim) in self._weak for claim in queue.entries[:count]]
        return queue._replace(entries=queue.entries[count:])

    def _room_for_marks(self, more: int) -> int:
        """Beyond what is set aside for those that there are."""
        now = len(self._marks)
        return _octets(now + more) - _octets(now) + (0 if now else _SECTION.size)

    def sections(self, last: IPAddress | None = None) -> bytes:
        """``last``: where the span that began ends; None where it came to nothing."""
        if self._first is not None and last is not None:
            span = _SPAN.pack(*_end(self._first), *_end(last))
            self._sections += _SECTION.pack(_Kind.COVERS, len(span)), span
        if any(self._marks):
            marks = sum(1 << at for at, weak in enumerate(self._marks) if weak)
            value = marks.to_bytes(_octets(len(self._marks)), "little")
            self._sections += _SECTION.pack(_Kind.WEAK, len(value)), value
        return b"".join(self._sections)


def _said_outright(hello: Hello, claims: Iterable[_Queue]) -> Iterator[_Queue]:
    """All that does not lean on ``covers``, the urgent things first."""
    if hello.probes:
        yield _Queue(_Kind.PROBES, _pack_names, sorted(hello.probes))
    if hello.wants:
        yield _Queue(_Kind.WANTS, _pack_names, sorted(hello.wants))
    if hello.moves:
        yield _Queue(_Kind.MOVES, _pack_moves, sorted(hello.moves.items(), key=lambda move: rank(move[0])))
    if hello.intents:
        yield from _runs(_Kind.INTENTS, _ordered(hello.intents))
    if hello.yielded:
        yield from _runs(_Kind.YIELDED, _ordered(hello.yielded))
    yield from claims
    if hello.heard:
        yield _Queue(_Kind.HEARD, _pack_heard, sorted(hello.heard.items()))
    if hello.addresses:
        yield _Queue(_Kind.ADDRESSES, _pack_addresses, [hello.addresses])
    if hello.own:
        yield _Queue(_Kind.OWN, _pack_own, sorted(hello.own, key=rank))


def _claim_queues(claims: Terms, span: Span | None) -> tuple[list[_Queue], list[_Queue]]:
    """The claims inside ``span`` and those outside. What is listed again and again is put in order once."""
    if not isinstance(claims, Listed):
        inside, outside = _parted(_ordered(claims), span)
        return list(_runs(_Kind.CLAIMS, inside)), list(_runs(_Kind.CLAIMS, outside))
    if not isinstance(claims.written, _Written) or claims.written.span != span:
        parts = _parted(_ordered(claims), span)
        kept = [[queue._replace(pack=_Kept(queue)) for queue in _runs(_Kind.CLAIMS, part)] for part in parts]
        claims.written = _Written(span, kept[0], kept[1])
    return claims.written.inside, claims.written.outside


class _Written(NamedTuple):
    """What ``hello.Listed`` keeps."""

    span: Span | None
    inside: list[_Queue]
    outside: list[_Queue]


class _Kept:
    """Packs a queue of claims, and keeps the bytes of all of them."""

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue
        self._bytes: bytes | None = None

    def __call__(self, entries: Sequence[_Claim], room: int) -> tuple[bytes, int]:
        if entries is not self._queue.entries:
            return _pack_terms(entries, room)
        if self._bytes is not None and len(self._bytes) <= room:
            return self._bytes, len(entries)
        value, count = _pack_terms(entries, room)
        if count == len(entries):
            self._bytes = value
        return value, count


def _ordered(terms: Terms) -> list[_Claim]:
    return sorted([(address.version, int(address), term) for address, term in terms.items()])


def _address(claim: _Claim) -> IPAddress:
    return _ADDRESS[claim[0]][0](claim[1])


def _parted(claims: list[_Claim], span: Span | None) -> tuple[list[_Claim], list[_Claim]]:
    """The claims inside ``span`` and those outside, still in order."""
    if span is None:
        return [], claims
    start = bisect_left(claims, rank(span.first))
    end = bisect_right(claims, rank(span.last), key=lambda claim: claim[:2])
    return claims[start:end], claims[:start] + claims[end:]


def _runs(kind: _Kind, terms: list[_Claim]) -> Iterator[_Queue]:
    """One of IPv4 and one of IPv6."""
    middle = bisect_left(terms, (6,))
    for run in (terms[:middle], terms[middle:]):
        if run:
            yield _Queue(kind, _pack_terms, run)


def _pack_terms(terms: Sequence[_Claim], room: int) -> tuple[bytes, int]:
    """Of one IP version."""
    steps = pairwise([0, *(address for _, address, _ in terms[:room])])
    entries = _filled((_step(to - at, term) for (at, to), (_, _, term) in zip(steps, terms, strict=False)), room - 1)
    return bytes((terms[0][0],)) + b"".join(entries), len(entries)


@lru_cache(maxsize=2048)
def _step(distance: int, term: int) -> bytes:
    """Cached (0.6 MB): the same steps and terms in every hello, or every few."""
    a, b = _size(distance, 16), _size(term, 4)
    return bytes((a - 1 << 4 | b - 1,)) + distance.to_bytes(a, "big") + term.to_bytes(b, "big")


def _pack_heard(heard: Sequence[tuple[str, Heard]], room: int) -> tuple[bytes, int]:
    ages = [min(peer.age, MAX_AGE) for _, peer in heard]
    age_size = _size(max(ages), len(_AGES))
    link_size = _size(max([peer.link for _, peer in heard]), 4)
    shift, step = 8 * link_size, 8 + link_size
    entries = _filled(
        (
            name + (peer.incarnation << shift | peer.link).to_bytes(step, "big")
            for name, (_, peer) in zip(_coded(name for name, _ in heard), heard, strict=True)
        ),
        room - _HEARD.size,
        age_size,
    )
    count = len(entries)
    packed_ages = struct.pack(f"!{count}{_AGES[age_size]}", *ages[:count])
    return _HEARD.pack(count, age_size, link_size) + packed_ages + b"".join(entries), count


def _pack_names(names: Sequence[str], room: int) -> tuple[bytes, int]:
    entries = _filled(_coded(names), room)
    return b"".join(entries), len(entries)


def _pack_moves(moves: Sequence[tuple[IPAddress, str]], room: int) -> tuple[bytes, int]:
    names = _coded(name for _, name in moves)
    packed = (bytes((a.version,)) + a.packed + name for (a, _), name in zip(moves, names, strict=True))
    entries = _filled(packed, room)
    return b"".join(entries), len(entries)


def _pack_addresses(addresses: Sequence[Addresses], room: int) -> tuple[bytes, int]:
    entries = _filled((b"".join(address.packed for address in each) for each in addresses), room)
    return b"".join(entries), len(entries)


def _pack_own(own: Sequence[IPAddress], room: int) -> tuple[bytes, int]:
    entries = _filled((bytes((address.version,)) + address.packed for address in own), room)
    return b"".join(entries), len(entries)


def _filled(entries: Iterable[bytes], room: int, extra: int = 0) -> list[bytes]:
    """The first entries that fit ``room`` if each takes ``extra`` bytes besides its own."""
    taken = []
    for entry in entries:
        room -= len(entry) + extra
        if room < 0:
            break
        taken.append(entry)
    return taken


def _coded(names: Iterable[str]) -> Iterator[bytes]:
    """Each as it is written behind the one before."""
    previous = ""
    for name in names:
        yield _name_after(previous, name)
        previous = name


@lru_cache(maxsize=1024)
def _name_after(previous: str, name: str) -> bytes:
    """Cached (0.4 MB, 0.8 with the longest names): the same neighbours in every hello."""
    one, other = previous.encode(), _name(name)
    prefix = _alike(one, other)
    suffix = _alike(one[prefix:][::-1], other[prefix:][::-1])
    between = other[prefix : len(other) - suffix]
    return _ALIKE.pack(prefix, suffix, len(between)) + between


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _size(number: int, most: int) -> int:
    """Bytes that ``number`` takes, at least one. Raises ValueError where these are more than ``most``."""
    size = number.bit_length() + 7 >> 3 or 1
    if size > most:
        raise ValueError(f"{number}: must take at most {most} bytes")
    return size


def _octets(bits: int) -> int:
    """Bytes that so many bits take."""
    return bits + 7 >> 3


def _before(address: IPAddress) -> IPAddress:
    return IPv4Address(2**32 - 1) if address == IPv6Address(0) else address - 1


def _name(name: str) -> bytes:
    encoded = name.encode()
    if not 1 <= len(encoded) <= MAX_NAME:
        raise ValueError(f"node name {name[:80]!r}: must take 1 to {MAX_NAME} bytes")
    return encoded


def _end(address: IPAddress) -> tuple[int, bytes]:
    return address.version, address.packed.rjust(16, b"\0")


# ── Bytes to values ───────────────────────────────────────────────────────────────────────────────────────────


def peek(frame: bytes) -> tuple[Sender, Stamp] | None:
    """Sender and stamp that a frame claims to have, nothing of it authenticated. None: it cannot be a hello.

    A frame whose stamp is not above that of an authenticated one of the same sender and incarnation is worthless,
    whether replayed, doubled, overtaken or forged: it can be dropped for a fraction of what its tag costs. One that is
    above, or of another incarnation, has to be decoded before its stamp may be believed and remembered.
    """
    if frame[MAGIC_AT : MAJOR_AT + 1] != _OURS or len(frame) <= _NAME_AT:
        return None
    try:
        node = str(frame[_NAME_AT : _NAME_AT + frame[_NAME_AT - 1]], "utf-8")
    except UnicodeDecodeError:
        return None
    incarnation, sequence, part, link = _STAMP.unpack_from(frame, _FIXED_AT)
    return (node, link), (incarnation, sequence, part)


def decode(frame: bytes, keys: Keys) -> Hello | Rejected:
    """One frame from its Ethernet header on. Raises nothing, whatever the bytes.

    Nothing behind the header is read before the tag is found right, and no tag is computed for a frame that is not of
    our version, key and length.
    """
    if frame[MAGIC_AT:MAJOR_AT] != MAGIC:
        return Rejected.TRUNCATED if len(frame) < MAJOR_AT else Rejected.FOREIGN
    if len(frame) < _FIXED_AT:
        return Rejected.TRUNCATED
    _, major, _, length, key_id = _HEADER.unpack_from(frame, MAGIC_AT)
    if major != MAJOR:
        return Rejected.VERSION
    key = keys.accepted.get(key_id)
    if key is None:
        return Rejected.WRONG_KEY
    if len(frame) != MAGIC_AT + length:
        return Rejected.TRUNCATED if len(frame) < MAGIC_AT + length else Rejected.OVERSIZED
    if not hmac.compare_digest(_tag(key, frame[_SOURCE_AT:-_TAG]), frame[-_TAG:]):
        return Rejected.FORGED
    try:
        return _read(frame[_FIXED_AT:-_TAG])
    except (MalformedPacket, struct.error, UnicodeDecodeError):
        return Rejected.MALFORMED


def _read(body: bytes) -> Hello:
    incarnation, sequence, part, link, clock, flags, count, total, name_size = _FIXED.unpack_from(body)
    _demand(incarnation <= MAX_INCARNATION, "an incarnation of 64 bits")
    end = _FIXED.size + name_size
    _demand(1 <= name_size <= MAX_NAME and end <= len(body), "a name that is empty, too long or cut off")
    sections = _read_sections(body, end)
    said: dict[str, Any] = {}
    for kind, values in sections.items():
        if (reader := _READERS.get(kind)) is not None:
            said[reader.field] = reader.read(values)
    if _Kind.WEAK in sections:
        said["weak"] = _read_weak(sections[_Kind.WEAK], said.get("claims", {}))
    return Hello(
        node=body[_FIXED.size : end].decode(),
        incarnation=Incarnation(incarnation),
        sequence=sequence,
        clock=clock,
        digest=Digest(count, total),
        draining=bool(flags & _DRAINING),
        deaf=bool(flags & _DEAF),
        demoted=bool(flags & _DEMOTED),
        recalled=bool(flags & _RECALLED),
        link=link,
        part=part,
        **said,
    )


def _demand(right: bool, otherwise: str) -> None:
    if not right:
        raise MalformedPacket(otherwise)


def _read_sections(body: bytes, at: int) -> dict[int, list[bytes]]:
    """Values by kind."""
    found: dict[int, list[bytes]] = {}
    while at < len(body):
        kind, size = _SECTION.unpack_from(body, at)
        at += _SECTION.size + size
        _demand(at <= len(body), "a section that ends beyond the frame")
        found.setdefault(kind, []).append(body[at - size : at])
    return found


def _read_span(values: list[bytes]) -> Span:
    _demand(len(values) == 1, "two spans")
    return _read_ends(values[0])


def _read_end(version: int, address: bytes) -> IPAddress:
    if version == 6:
        return IPv6Address(address)
    _demand(version == 4 and address.startswith(bytes(12)), "the end of a span that is no address")
    return IPv4Address(address[12:])


def _remembering(most: int) -> Callable[[Callable[[bytes, *_P], _T]], Callable[[bytes, *_P], _T]]:
    """What was made of the last values; of these at most ``most`` bytes, since a frame may have any length."""

    def remember(make: Callable[[bytes, *_P], _T]) -> Callable[[bytes, *_P], _T]:
        known: dict[tuple[bytes, *_P], _T] = {}
        size = 0

        def remembered(value: bytes, *others: *_P) -> _T:
            nonlocal size
            key = (value, *others)
            if (made := known.pop(key, None)) is None:
                made = make(value, *others)
                size += len(value)
                while size > most and known:
                    size -= len(next(iter(known))[0])
                    del known[next(iter(known))]
            known[key] = made
            return made

        return remembered

    return remember


@_remembering(SPANS_REMEMBERED)
def _read_ends(value: bytes) -> Span:
    first_version, first, last_version, last = _SPAN.unpack(value)
    span = Span(_read_end(first_version, first), _read_end(last_version, last))
    _demand(span.first in span, "a span that ends before it begins")
    return span


def _read_terms(values: list[bytes]) -> Terms:
    if len(values) == 1:
        return _read_run(values[0])
    runs = [_read_run(value) for value in values]
    together = {address: term for run in runs for address, term in run.items()}
    _demand(len(together) == sum(map(len, runs)), "an EIP twice")
    return together


@_remembering(RUNS_REMEMBERED)
def _read_run(value: bytes) -> Terms:
    """Remembered: a peer repeats the same claims ten times a second, and authenticated frames alone come this far."""
    _demand(value[:1] in (b"\4", b"\6"), "an IP version that is neither 4 nor 6")
    address, size = _ADDRESS[value[0]]
    terms: dict[IPAddress, int] = {}
    at, eip = 1, 0
    while at < len(value):
        middle = at + 2 + (value[at] >> 4)
        end = middle + 1 + (value[at] & 0xF)
        step = int.from_bytes(value[at + 1 : middle], "big")
        eip += step
        term = int.from_bytes(value[middle:end], "big")
        _demand(end <= len(value) and end - middle <= 4, "an entry cut off, or a term that is none")
        _demand(term <= MAX_TERM, "a term that nobody comes to")
        _demand(eip < 1 << 8 * size and (step > 0 or at == 1), "an EIP beyond the last address, or twice")
        terms[address(eip)] = term
        at = end
    return MappingProxyType(terms)


def _read_heard(values: list[bytes]) -> dict[str, Heard]:
    found: dict[str, Heard] = {}
    total = 0
    for value in values:
        count, age_size, link_size = _HEARD.unpack_from(value)
        _demand(age_size in _AGES and 1 <= link_size <= 4, "an entry of a size that cannot be")
        names, incarnations, links = _read_peers(value[_HEARD.size + count * age_size :], link_size)
        _demand(len(names) == count, "more or fewer peers than ages")
        ages = struct.unpack_from(f"!{count}{_AGES[age_size]}", value, _HEARD.size)
        found.update(zip(names, map(Heard, incarnations, ages, links), strict=True))
        total += count
    _demand(len(found) == total, "a peer twice")
    return found


@_remembering(PEERS_REMEMBERED)
def _read_peers(entries: bytes, link_size: int) -> tuple[Sequence[str], Sequence[Incarnation], Sequence[int]]:
    """Names, incarnations and links. Remembered: from hello to hello only the ages change."""
    names: list[str] = []
    incarnations: list[Incarnation] = []
    links: list[int] = []
    name, at = b"", 0
    while at < len(entries):
        name, at = _read_name(name, entries, at)
        end = at + 8 + link_size
        _demand(end <= len(entries), "an entry cut off")
        incarnation = int.from_bytes(entries[at : at + 8], "big")
        _demand(incarnation <= MAX_INCARNATION, "an incarnation of 64 bits")
        names.append(name.decode())
        incarnations.append(Incarnation(incarnation))
        links.append(int.from_bytes(entries[at + 8 : end], "big"))
        at = end
    return names, incarnations, links


def _read_names(values: list[bytes]) -> frozenset[str]:
    found: set[str] = set()
    for value in values:
        name, at = b"", 0
        while at < len(value):
            name, at = _read_name(name, value, at)
            found.add(name.decode())
    return frozenset(found)


def _read_moves(values: list[bytes]) -> dict[IPAddress, str]:
    found: dict[IPAddress, str] = {}
    for value in values:
        name, at = b"", 0
        while at < len(value):
            _demand(value[at] in _ADDRESS, "an IP version that is neither 4 nor 6")
            address, size = _ADDRESS[value[at]]
            begin, at = at + 1, at + 1 + size
            name, at = _read_name(name, value, at)
            eip = address(value[begin : begin + size])
            _demand(eip not in found, "an EIP twice")
            found[eip] = name.decode()
    return found


def _read_own(values: list[bytes]) -> frozenset[IPAddress]:
    return _read_bound(values[0]) if len(values) == 1 else frozenset().union(*map(_read_bound, values))


@_remembering(OWN_REMEMBERED)
def _read_bound(value: bytes) -> frozenset[IPAddress]:
    found: set[IPAddress] = set()
    at = 0
    while at < len(value):
        _demand(value[at] in _ADDRESS, "an IP version that is neither 4 nor 6")
        address, size = _ADDRESS[value[at]]
        _demand(at + 1 + size <= len(value), "an address cut off")
        found.add(address(value[at + 1 : at + 1 + size]))
        at += 1 + size
    return frozenset(found)


def _read_weak(values: list[bytes], claims: Terms) -> frozenset[IPAddress]:
    marks = values[0]
    _demand(len(values) == 1 and len(marks) == _octets(len(claims)), "marks of more or fewer claims than there are")
    _demand(int.from_bytes(marks, "little") >> len(claims) == 0, "a mark of no claim")
    return frozenset(eip for at, eip in enumerate(claims) if marks[at >> 3] >> (at & 7) & 1)


def _read_number(values: list[bytes], size: int) -> int:
    _demand(len(values) == 1 and len(values[0]) == size, "a number of another size, or two")
    return int.from_bytes(values[0], "big")


def _read_addresses(values: list[bytes]) -> Addresses:
    _demand(len(values) == 1, "addresses twice")
    return _read_pair(values[0])


@_remembering(OWN_REMEMBERED)
def _read_pair(value: bytes) -> Addresses:
    _demand(len(value) in (4, 16, 20), "addresses of another size")
    ipv4, ipv6 = value[: len(value) % 16], value[len(value) % 16 :]
    return (*map(IPv4Address, filter(None, [ipv4])), *map(IPv6Address, filter(None, [ipv6])))


def _read_name(previous: bytes, value: bytes, at: int) -> tuple[bytes, int]:
    """The name written at ``at`` behind ``previous``, and where it ends."""
    prefix, suffix, size = _ALIKE.unpack_from(value, at)
    begin = at + _ALIKE.size
    end = begin + size
    _demand(prefix + suffix <= len(previous) and end <= len(value), "a name cut off, or like more than there was")
    name = previous[:prefix] + value[begin:end] + previous[len(previous) - suffix :]
    _demand(1 <= len(name) <= MAX_NAME, "a name that is empty or too long")
    return name, end


class _Reader(NamedTuple):
    """What the values of one kind say."""

    field: str
    """Of a ``Hello``."""
    read: Callable[[list[bytes]], Any]


_READERS: Mapping[int, _Reader] = {
    _Kind.COVERS: _Reader("covers", _read_span),
    _Kind.CLAIMS: _Reader("claims", _read_terms),
    _Kind.INTENTS: _Reader("intents", _read_terms),
    _Kind.YIELDED: _Reader("yielded", _read_terms),
    _Kind.HEARD: _Reader("heard", _read_heard),
    _Kind.PROBES: _Reader("probes", _read_names),
    _Kind.WANTS: _Reader("wants", _read_names),
    _Kind.MOVES: _Reader("moves", _read_moves),
    _Kind.REVISION: _Reader("revision", partial(_read_number, size=4)),
    _Kind.ADDRESSES: _Reader("addresses", _read_addresses),
    _Kind.OWN: _Reader("own", _read_own),
    _Kind.INTERVAL: _Reader("interval", partial(_read_number, size=2)),
}
"""WEAK is read with the claims that it is of."""
