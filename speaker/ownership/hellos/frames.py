"""Hello in bytes: ``encode``, ``peek`` and ``decode``. Pure.

A frame, numbers in network order::

    Ethernet   6 broadcast, or the MAC of one peer · 6 source
               · 2 EtherType (0x88B5 unless set otherwise: IEEE 802 local experimental)
    header     4 "EIPh", or of a group "EG" and the first 2 bytes of ``Group.id`` · 1 major version · 1 minor version
               · 2 length from the header to the end of the tag · 4 key id
    fixed      8 incarnation · 8 sequence · 2 part · 4 link · 8 clock · 1 flags · 4 claims · 8 sum of their hashes
               · 1 length and node name
    sections   1 kind · 2 length · value; those of one kind add up
    tag        16: HMAC-SHA256 from the source address to the last section, its first half (RFC 2104 §5)

Values, by kind (``Kind``)::

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
    UNANSWERED entries of 1 IP version · name (since 1.5)
    LOSS       entries of 1 percent, at most 100 · name (since 1.5)
    LINKS      1; left out where it is 0, or more than 255 (since 1.5)
    GROUP      its name; left out where it has none (since 1.6)
    WEIGHTS    entries of 8 number of a preference · 2 weight, at least 1 (since 1.6)

    name       1 bytes it begins with like the name before it in its section · 1 bytes it ends with like that one
               · 1 length and the bytes between; the two likenesses do not overlap, the first name has neither

Flags: 1 draining · 2 deaf · 4 demoted · 8 recalled (the last three since 1.3) · 16 routine (since 1.4)
 · 32 headless · 64 direct (since 1.5).

Within a major version nothing above changes: a newer minor version adds kinds and flags, which an older reader
authenticates and passes over. What must not be passed over takes a new major version.

The source address is under the tag, so a stranger who repeats a frame cannot pass off a MAC as a peer's: whoever has
decoded a frame may believe bytes 6 to 11. The destination is not: access points turn broadcasts into unicasts. So what
was sent by unicast says so itself (``direct``). The
shortest frame is longer than Ethernet's 60 bytes, so nobody pads it and every byte up to the last is accounted for.
A frame repeated on the same link is refused by its stamp (``peek``), on another one by the ``link`` its echo lacks.
"""

import hmac
import struct
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from speaker.errors import MalformedPacket
from speaker.model import NO_GROUP, Group, Mac
from speaker.ownership.hello import MAX_AGE, MAX_INCARNATION, Digest, Heard, Hello, Incarnation, Listed
from speaker.ownership.hellos.keys import ID_SIZE, Key, Keys
from speaker.ownership.hellos.layout import (
    AGES,
    ALIKE,
    HEARD,
    INTERVAL,
    LINKS,
    MAX_NAME,
    REVISION,
    SECTION,
    Kind,
    coded_name,
)
from speaker.ownership.hellos.packing import size_of_ages, split
from speaker.ownership.hellos.reading import Memory, ages_of, demand, read_fields
from speaker.packets import BROADCAST

ETHERTYPE = 0x88B5
MAGIC = b"EIPh"
"""For speakers without a group. A group has its own (``magic``), so that kernels can tell its frames apart."""
OF_GROUPS = b"EG"
"""The first bytes of each group's magic."""
MAJOR, MINOR = 1, 6
_WEIGHS = 6
"""The first minor version whose speakers heed preferences."""

MAGIC_AT, MAJOR_AT = 14, 18
"""Bytes from the start of the frame: where a kernel filter finds MAGIC, and MAJOR (1 byte)."""

_SOURCE_AT = 6
_HEADER = struct.Struct(f"!4sBBH{ID_SIZE}s")
_FIXED_AT = MAGIC_AT + _HEADER.size
_FIXED = struct.Struct("!QQHIQBIQB")
_SEQUENCE, _PART, _CLOCK, _BEHIND = 8, 16, 22, 30
"""Offsets in what ``_FIXED`` packs, after the incarnation: the sequence, the part with the link, the clock, and
everything else."""
_STAMP = struct.Struct("!QQHI")
_NAME_AT = _FIXED_AT + _FIXED.size
_TAG = 16
_DRAINING, _DEAF, _DEMOTED, _RECALLED, ROUTINE = 0x01, 0x02, 0x04, 0x08, 0x10
_HEADLESS, _DIRECT = 0x20, 0x40
FLAGS_AT = _FIXED_AT + struct.calcsize("!QQHIQ")
"""Where a kernel filter finds ROUTINE."""

_HEAD = _NAME_AT - MAGIC_AT + MAX_NAME + REVISION.size + INTERVAL.size + LINKS.size
MIN_MTU = _HEAD + SECTION.size + HEARD.size + 2 + ALIKE.size + MAX_NAME + 8 + 4 + _TAG
"""Bytes: the head of a frame and the longest entry there is, one of ``heard``, both with names of MAX_NAME; with a
group, ``_said_group`` is added."""

Sender: TypeAlias = tuple[str, int]
"""Node, and its own number of the link that the frame was sent on (``Hello.link``). Each pair counts separately, so
that frames a stranger replays from another of its links make nothing here outdated."""
Stamp: TypeAlias = tuple[int, int, int]
"""Incarnation, sequence and part, as in ``Hello.stamp``."""


class Rejected(Enum):
    """Why a frame is not a hello for us. The value is the metric label. All but MALFORMED can be caused by a
    stranger."""

    OTHER_GROUP = "other_group"
    """Of another group than ours: its speakers are not our peers."""
    FOREIGN = "foreign"
    """Another protocol on our EtherType."""
    TRUNCATED = "truncated"
    OVERSIZED = "oversized"
    """Longer than its header says."""
    VERSION = "version"
    """A major version that this release cannot read."""
    WRONG_KEY = "wrong_key"
    """Signed with a key that is not ours: another cluster, or a rotation that skipped a step."""
    FORGED = "forged"
    """It names our key, but the tag does not match that key."""
    MALFORMED = "malformed"
    """Authentic, but breaks the format: a peer with a bug."""


def magic(group: Group) -> bytes:
    return _magic(group.name) if group.name else MAGIC


@lru_cache(maxsize=16)
def _magic(name: str) -> bytes:
    return OF_GROUPS + Group(name).id[:2]


# ── Values to bytes ───────────────────────────────────────────────────────────────────────────────────────────


def encode(
    hello: Hello, keys: Keys, source: Mac, mtu: int = 1500, ethertype: int = ETHERTYPE, to: Mac = BROADCAST
) -> Iterator[bytes]:
    """The frames that carry ``hello`` from ``source``, the MAC of the link they leave by: the same for equal values.

    ``mtu`` is the link's: bytes without the Ethernet header. Each frame is a hello of its own with its number as
    ``part``, and made when it is asked for (0.2 ms), so that 10,000 claims can be sent with other work in between.
    Claims inside ``covers`` come last and in order, and every frame covers the stretch it lists, so that a lost one
    leaves a gap and never a wrong absence.

    Raises ValueError for an MTU below ``least_mtu`` or a name that is empty or longer than MAX_NAME. A number beyond
    its field (a term of 2³²) is a bug and raises ValueError or struct.error.
    """
    if not hello.routine or not isinstance(hello.claims, Listed):
        return (to + frame for frame in _frames(hello, keys.signing, source, mtu, ethertype))
    how = keys.signing, source, mtu, ethertype
    if (again := _say_again(hello, how)) is not None:
        return iter((to + again,))
    new = list(_frames(hello, *how))
    hello.claims.framed = _framed(hello, how, new[0]) if len(new) == 1 else None
    return (to + frame for frame in new)


class _Framed(NamedTuple):
    """What was said in one frame, and the bytes that stay the same while it is repeated."""

    said: Hello
    """Without what is new each time."""
    who: list[tuple[str, Incarnation, int]]
    """The peers in ``heard``."""
    how: tuple[Key, Mac, int, int]
    """Key, source, MTU and EtherType."""
    ages: str
    """struct's letters for the ages."""
    parts: tuple[bytes, bytes, bytes, bytes]
    """The bytes before the sequence, before the clock, before the ages, and after them."""


def _framed(hello: Hello, how: tuple[Key, Mac, int, int], frame: bytes) -> _Framed | None:
    at, body = _FIXED_AT - _SOURCE_AT, frame[_FIXED_AT - _SOURCE_AT : -_TAG]
    if (found := ages_of(body, _FIXED.size + body[_FIXED.size - 1], len(hello.heard))) is None:
        return None
    begin, end, ages = found
    parts = frame[:at] + body[:_SEQUENCE], body[_PART:_CLOCK], body[_BEHIND:begin], body[end:]
    return _Framed(hello._replace(sequence=0, clock=0, heard={}), _who(hello), how, ages, parts)


def _who(hello: Hello) -> list[tuple[str, Incarnation, int]]:
    return [(node, heard.incarnation, heard.link) for node, heard in sorted(hello.heard.items())]


def _say_again(hello: Hello, how: tuple[Key, Mac, int, int]) -> bytes | None:
    """The frame from the source address on; None if anything else is new."""
    framed = hello.claims.framed if isinstance(hello.claims, Listed) else None
    if not isinstance(framed, _Framed) or framed.how != how or framed.who != _who(hello):
        return None
    ages = [min(hello.heard[node].age, MAX_AGE) for node, _, _ in framed.who]
    if AGES[size_of_ages(ages)] not in framed.ages or hello._replace(sequence=0, clock=0, heard={}) != framed.said:
        return None
    head, link, before, behind = framed.parts
    sequence, clock = hello.sequence.to_bytes(8, "big"), hello.clock.to_bytes(8, "big")
    signed = b"".join((head, sequence, link, clock, before, struct.pack(framed.ages, *ages), behind))
    return signed + _tag(how[0], signed)


def _frames(hello: Hello, key: Key, source: Mac, mtu: int, ethertype: int) -> Iterator[bytes]:
    """Frames, from the source address on."""
    if mtu < (least := least_mtu(hello.group)):
        raise ValueError(f"an MTU of {mtu}: must be at least {least}")
    first = _in_every_frame(hello)
    room = mtu - (_NAME_AT - MAGIC_AT) - len(coded_name(hello.node)) - len(first) - _TAG
    return (
        _frame(hello, number, first + sections, key, source, ethertype)
        for number, sections in enumerate(split(hello, room))
    )


def least_mtu(group: str) -> int:
    """Bytes that a link's MTU must have for the hellos of that group."""
    return MIN_MTU + len(_said_group(group))


def _frame(hello: Hello, part: int, sections: bytes, key: Key, source: Mac, ethertype: int) -> bytes:
    """A frame, from the source address on."""
    node = coded_name(hello.node)
    fixed = _FIXED.pack(
        hello.incarnation,
        hello.sequence,
        part,
        hello.link,
        hello.clock,
        _flags(hello),
        hello.digest.count,
        hello.digest.sum,
        len(node),
    )
    length = _HEADER.size + len(fixed) + len(node) + len(sections) + _TAG
    header = _HEADER.pack(_magic(hello.group) if hello.group else MAGIC, MAJOR, MINOR, length, key.id)
    signed = b"".join((source, ethertype.to_bytes(2, "big"), header, fixed, node, sections))
    return signed + _tag(key, signed)


def _flags(hello: Hello) -> int:
    return (
        hello.draining * _DRAINING
        | hello.deaf * _DEAF
        | hello.demoted * _DEMOTED
        | hello.recalled * _RECALLED
        | hello.routine * ROUTINE
        | hello.headless * _HEADLESS
        | hello.direct * _DIRECT
    )


def _in_every_frame(hello: Hello) -> bytes:
    revision = REVISION.pack(Kind.REVISION, 4, hello.revision) if hello.revision else b""
    interval = INTERVAL.pack(Kind.INTERVAL, 2, hello.interval) if hello.interval else b""
    links = LINKS.pack(Kind.LINKS, 1, hello.links) if 0 < hello.links < 256 else b""
    return revision + interval + links + _said_group(hello.group)


def _said_group(name: str) -> bytes:
    return SECTION.pack(Kind.GROUP, len(name.encode())) + name.encode() if name else b""


def _tag(key: Key, signed: bytes) -> bytes:
    return key.hmac(signed)[:_TAG]


# ── Bytes to values ───────────────────────────────────────────────────────────────────────────────────────────


def peek(frame: bytes, group: Group | None = NO_GROUP) -> tuple[Sender, Stamp] | None:
    """The sender and stamp that a frame claims to have, without authenticating anything. None: it cannot be a hello.

    A frame whose stamp is not above that of an authenticated one of the same sender and incarnation is worthless,
    whether replayed, doubled, overtaken or forged: it can be dropped for a fraction of the cost of its tag. One that is
    above, or of another incarnation, has to be decoded before its stamp may be believed and remembered.
    """
    ours = frame[MAGIC_AT:MAJOR_AT] if group is None else magic(group)
    if frame[MAGIC_AT : MAJOR_AT + 1] != ours + bytes((MAJOR,)) or len(frame) <= _NAME_AT:
        return None
    try:
        node = str(frame[_NAME_AT : _NAME_AT + frame[_NAME_AT - 1]], "utf-8")
    except UnicodeDecodeError:
        return None
    incarnation, sequence, part, link = _STAMP.unpack_from(frame, _FIXED_AT)
    return (node, link), (incarnation, sequence, part)


def decode(frame: bytes, keys: Keys, group: Group | None = NO_GROUP) -> Hello | Rejected:
    """One frame from its Ethernet header on; with ``group`` None, of any group. Raises nothing, whatever the bytes.

    Nothing after the header is read before the tag is verified, and no tag is computed for a frame that is not of our
    version, key and length.
    """
    if (unfit := _unfit(frame, group)) is not None:
        return unfit
    key = keys.accepted.get(frame[_FIXED_AT - ID_SIZE : _FIXED_AT])
    if key is None:
        return Rejected.WRONG_KEY
    if (unfit := _cut(frame)) is not None:
        return unfit
    if not hmac.compare_digest(_tag(key, frame[_SOURCE_AT:-_TAG]), frame[-_TAG:]):
        return Rejected.FORGED
    said = _said(frame)
    # If two groups have the same magic, by one chance in 65,536, the name tells them apart.
    return Rejected.OTHER_GROUP if isinstance(said, Hello) and group and said.group != group.name else said


def unverified(frame: bytes) -> Hello | Rejected:
    """Like ``decode``, for any group and whoever signed it: only for people to look at. Nothing may act on it."""
    return _unfit(frame, None) or _cut(frame) or _said(frame)


def _unfit(frame: bytes, group: Group | None) -> Rejected | None:
    """Why it has no header that we can read."""
    if (found := frame[MAGIC_AT:MAJOR_AT]) != (magic(group) if group else MAGIC):
        if len(frame) < MAJOR_AT:
            return Rejected.TRUNCATED
        if found != MAGIC and not found.startswith(OF_GROUPS):
            return Rejected.FOREIGN
        if group:
            return Rejected.OTHER_GROUP
    if len(frame) < _FIXED_AT:
        return Rejected.TRUNCATED
    return None if frame[MAJOR_AT] == MAJOR else Rejected.VERSION


def _cut(frame: bytes) -> Rejected | None:
    """Why it is not as long as its header says."""
    length = int.from_bytes(frame[MAJOR_AT + 2 : MAJOR_AT + 4], "big")
    if len(frame) == MAGIC_AT + length:
        return None
    return Rejected.TRUNCATED if len(frame) < MAGIC_AT + length else Rejected.OVERSIZED


def _said(frame: bytes) -> Hello | Rejected:
    try:
        return _read_again(frame[_FIXED_AT:-_TAG], frame[MAJOR_AT + 1])
    except (MalformedPacket, struct.error, UnicodeDecodeError):
        return Rejected.MALFORMED


_digest = lru_cache(maxsize=1024)(Digest)
"""Cached, as a node's digest changes only with its claims."""


_REMEMBERED = 1 << 18
"""Bytes of routine hellos that are remembered: of 600, which take 1 MB as values."""
_routine: Memory[tuple[int, int, int, bytes], tuple[Hello, str]] = Memory(_REMEMBERED)
"""By minor version, where its ages begin and end, and everything that is not new each time; with struct's letters of
the ages."""
_ages_at: Memory[bytes, tuple[int, int]] = Memory(_REMEMBERED >> 4)
"""As in the last routine hello of each life."""


def _read_again(body: bytes, minor: int) -> Hello:
    """In what a node repeats at every beat, only its sequence, its clock and the ages in ``heard`` are new."""
    at = _ages_at.get(body[:_SEQUENCE])
    if at is not None and (found := _routine.get((minor, *at, _unchanging(body, *at)))) is not None:
        said, ages = found
        known, now = said.heard.items(), struct.unpack_from(ages, body, at[0])
        heard = {node: Heard(each.incarnation, age, each.link) for (node, each), age in zip(known, now, strict=True)}
        sequence, clock = int.from_bytes(body[_SEQUENCE:_PART], "big"), int.from_bytes(body[_CLOCK:_BEHIND], "big")
        return said._replace(sequence=sequence, clock=clock, heard=heard)
    hello = _read(body, minor >= _WEIGHS)
    if hello.routine and (new := ages_of(body, _FIXED.size + body[_FIXED.size - 1], len(hello.heard))) is not None:
        begin, end, ages = new
        _ages_at.put(body[:_SEQUENCE], (begin, end), _SEQUENCE)
        _routine.put((minor, begin, end, _unchanging(body, begin, end)), (hello, ages), len(body))
    return hello


def _unchanging(body: bytes, begin: int, end: int) -> bytes:
    """Without what is new at every beat; the ages are from ``begin`` to ``end``."""
    return body[:_SEQUENCE] + body[_PART:_CLOCK] + body[_BEHIND:begin] + body[end:]


def _read(body: bytes, weighs: bool) -> Hello:
    incarnation, sequence, part, link, clock, flags, count, total, name_size = _FIXED.unpack_from(body)
    demand(incarnation <= MAX_INCARNATION, "an incarnation of 64 bits")
    end = _FIXED.size + name_size
    demand(1 <= name_size <= MAX_NAME and end <= len(body), "a name that is empty, too long or cut off")
    return Hello(
        node=body[_FIXED.size : end].decode(),
        incarnation=Incarnation(incarnation),
        sequence=sequence,
        clock=clock,
        digest=_digest(count, total),
        draining=bool(flags & _DRAINING),
        deaf=bool(flags & _DEAF),
        demoted=bool(flags & _DEMOTED),
        recalled=bool(flags & _RECALLED),
        routine=bool(flags & ROUTINE),
        headless=bool(flags & _HEADLESS),
        direct=bool(flags & _DIRECT),
        link=link,
        part=part,
        weighs=weighs,
        **read_fields(body, end),
    )
