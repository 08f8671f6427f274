"""What a hello says → the sections of its frames. Pure."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from speaker.model import IPAddress, rank
from speaker.ownership.hello import MAX_AGE, Accused, Addresses, Heard, Hello, Listed, Span, Terms
from speaker.ownership.hellos.layout import ADDRESS, AGES, ALIKE, HEARD, SECTION, SPAN, WEIGHT, Kind, coded_name, octets

_Entry: TypeAlias = tuple[int, int, int]
"""IP version, EIP and term: sorts like ``rank``."""


def split(hello: Hello, room: int) -> Iterator[bytes]:
    """The sections of each frame, at most ``room`` bytes each; only one frame if everything fits."""
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
    """Entries, in order, that wait for a frame. ``pack`` makes a value of at most so many bytes from the first of them,
    and says how many it contains."""

    kind: Kind
    pack: Callable[[Sequence[Any], int], tuple[bytes, int]]
    entries: Sequence[Any]


class _Part:
    """A frame that is being filled; ``room`` is how many bytes of sections still fit. A claim in ``weak`` is in the
    same frame as the mark that says so."""

    def __init__(self, room: int, weak: Collection[IPAddress]) -> None:
        self._room, self._weak = room, weak
        self._marks: list[bool] = []
        """Of the claims taken."""
        self._first: IPAddress | None = None
        self._sections: list[bytes] = []

    def begins(self, first: IPAddress) -> bool:
        """Reserves room for the span that begins there. If there is none, changes nothing and returns False."""
        if self._room < SECTION.size + SPAN.size:
            return False
        self._room -= SECTION.size + SPAN.size
        self._first = first
        return True

    def takes(self, queue: _Queue) -> _Queue:
        """Takes as many entries as fit, and returns the rest."""
        room = self._room - SECTION.size
        value, count = queue.pack(queue.entries, room)
        marked = bool(self._weak) and queue.kind is Kind.CLAIMS
        if marked and count:
            room -= self._room_for_marks(count)
            value, count = queue.pack(queue.entries[:count], room)
        if count:
            self._room = room - len(value)
            self._sections += SECTION.pack(queue.kind, len(value)), value
            if marked:
                self._marks += [_address(claim) in self._weak for claim in queue.entries[:count]]
        return queue._replace(entries=queue.entries[count:])

    def _room_for_marks(self, more: int) -> int:
        """In addition to the room reserved for the marks so far."""
        now = len(self._marks)
        return octets(now + more) - octets(now) + (0 if now else SECTION.size)

    def sections(self, last: IPAddress | None = None) -> bytes:
        """``last``: the end of the span that was begun; None if it remained empty."""
        if self._first is not None and last is not None:
            span = SPAN.pack(*_end(self._first), *_end(last))
            self._sections += SECTION.pack(Kind.COVERS, len(span)), span
        if any(self._marks):
            marks = sum(1 << at for at, weak in enumerate(self._marks) if weak)
            value = marks.to_bytes(octets(len(self._marks)), "little")
            self._sections += SECTION.pack(Kind.WEAK, len(value)), value
        return b"".join(self._sections)


def _said_outright(hello: Hello, claims: Iterable[_Queue]) -> Iterator[_Queue]:
    """Everything that does not depend on ``covers``, urgent things first."""
    if hello.weights:
        yield _Queue(Kind.WEIGHTS, _pack_weights, sorted(hello.weights.items()))
    if hello.probes:
        yield _Queue(Kind.PROBES, _pack_names, sorted(hello.probes))
    if hello.wants:
        yield _Queue(Kind.WANTS, _pack_names, sorted(hello.wants))
    if hello.moves:
        yield _Queue(Kind.MOVES, _pack_moves, sorted(hello.moves.items(), key=lambda move: rank(move[0])))
    if hello.unanswered:
        yield _Queue(Kind.UNANSWERED, _pack_accused, sorted(hello.unanswered))
    if hello.lost:
        yield _Queue(Kind.LOSS, _pack_lost, sorted(hello.lost.items()))
    if hello.intents:
        yield from _runs(Kind.INTENTS, _ordered(hello.intents))
    if hello.yielded:
        yield from _runs(Kind.YIELDED, _ordered(hello.yielded))
    yield from claims
    if hello.heard:
        yield _Queue(Kind.HEARD, _pack_heard, sorted(hello.heard.items()))
    if hello.addresses:
        yield _Queue(Kind.ADDRESSES, _pack_addresses, [hello.addresses])
    if hello.own:
        yield _Queue(Kind.OWN, _pack_own, sorted(hello.own, key=rank))


def _claim_queues(claims: Terms, span: Span | None) -> tuple[list[_Queue], list[_Queue]]:
    """The claims inside ``span`` and those outside. A list that is used again and again is sorted only once."""
    if not isinstance(claims, Listed):
        inside, outside = _parted(_ordered(claims), span)
        return list(_runs(Kind.CLAIMS, inside)), list(_runs(Kind.CLAIMS, outside))
    if not isinstance(claims.written, _Written) or claims.written.span != span:
        parts = _parted(_ordered(claims), span)
        kept = [[queue._replace(pack=_Kept(queue)) for queue in _runs(Kind.CLAIMS, part)] for part in parts]
        claims.written = _Written(span, kept[0], kept[1])
    return claims.written.inside, claims.written.outside


@dataclass(slots=True)
class _Written:
    """What ``hello.Listed`` keeps."""

    span: Span | None
    inside: list[_Queue]
    outside: list[_Queue]


class _Kept:
    """Packs a queue of claims, and keeps the bytes of all of them."""

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue
        self._bytes: bytes | None = None

    def __call__(self, entries: Sequence[_Entry], room: int) -> tuple[bytes, int]:
        if entries is not self._queue.entries:
            return _pack_terms(entries, room)
        if self._bytes is not None and len(self._bytes) <= room:
            return self._bytes, len(entries)
        value, count = _pack_terms(entries, room)
        if count == len(entries):
            self._bytes = value
        return value, count


def _ordered(terms: Terms) -> list[_Entry]:
    return sorted([(address.version, int(address), term) for address, term in terms.items()])


def _address(claim: _Entry) -> IPAddress:
    return ADDRESS[claim[0]][0](claim[1])


def _parted(claims: list[_Entry], span: Span | None) -> tuple[list[_Entry], list[_Entry]]:
    """The claims inside ``span`` and those outside, still in order."""
    if span is None:
        return [], claims
    start = bisect_left(claims, rank(span.first))
    end = bisect_right(claims, rank(span.last), key=lambda claim: claim[:2])
    return claims[start:end], claims[:start] + claims[end:]


def _runs(kind: Kind, terms: list[_Entry]) -> Iterator[_Queue]:
    """One queue for IPv4 and one for IPv6."""
    middle = bisect_left(terms, (6,))
    for run in (terms[:middle], terms[middle:]):
        if run:
            yield _Queue(kind, _pack_terms, run)


def _pack_terms(terms: Sequence[_Entry], room: int) -> tuple[bytes, int]:
    """Of one IP version."""
    steps = pairwise([0, *(address for _, address, _ in terms[:room])])
    entries = _filled((_step(to - at, term) for (at, to), (_, _, term) in zip(steps, terms, strict=False)), room - 1)
    return bytes((terms[0][0],)) + b"".join(entries), len(entries)


@lru_cache(maxsize=2048)
def _step(distance: int, term: int) -> bytes:
    """Cached (0.6 MB): the same steps and terms are in every hello, or every few."""
    a, b = _size(distance, 16), _size(term, 4)
    return bytes((a - 1 << 4 | b - 1,)) + distance.to_bytes(a, "big") + term.to_bytes(b, "big")


def _pack_heard(heard: Sequence[tuple[str, Heard]], room: int) -> tuple[bytes, int]:
    ages = [min(peer.age, MAX_AGE) for _, peer in heard]
    age_size = size_of_ages(ages)
    link_size = _size(max([peer.link for _, peer in heard]), 4)
    shift, step = 8 * link_size, 8 + link_size
    entries = _filled(
        (
            name + (peer.incarnation << shift | peer.link).to_bytes(step, "big")
            for name, (_, peer) in zip(_coded(name for name, _ in heard), heard, strict=True)
        ),
        room - HEARD.size,
        age_size,
    )
    count = len(entries)
    packed_ages = struct.pack(f"!{count}{AGES[age_size]}", *ages[:count])
    return HEARD.pack(count, age_size, link_size) + packed_ages + b"".join(entries), count


def size_of_ages(ages: Iterable[int]) -> int:
    """Bytes that each takes."""
    return _size(max(ages, default=0), len(AGES))


def _pack_names(names: Sequence[str], room: int) -> tuple[bytes, int]:
    entries = _filled(_coded(names), room)
    return b"".join(entries), len(entries)


def _pack_lost(lost: Sequence[tuple[str, int]], room: int) -> tuple[bytes, int]:
    names = _coded(name for name, _ in lost)
    entries = _filled((bytes((percent,)) + name for (_, percent), name in zip(lost, names, strict=True)), room)
    return b"".join(entries), len(entries)


def _pack_moves(moves: Sequence[tuple[IPAddress, str]], room: int) -> tuple[bytes, int]:
    names = _coded(name for _, name in moves)
    packed = (bytes((a.version,)) + a.packed + name for (a, _), name in zip(moves, names, strict=True))
    entries = _filled(packed, room)
    return b"".join(entries), len(entries)


def _pack_accused(accused: Sequence[Accused], room: int) -> tuple[bytes, int]:
    names = _coded(one.node for one in accused)
    entries = _filled((bytes((one.version,)) + name for one, name in zip(accused, names, strict=True)), room)
    return b"".join(entries), len(entries)


def _pack_addresses(addresses: Sequence[Addresses], room: int) -> tuple[bytes, int]:
    entries = _filled((b"".join(address.packed for address in each) for each in addresses), room)
    return b"".join(entries), len(entries)


def _pack_weights(weights: Sequence[tuple[int, int]], room: int) -> tuple[bytes, int]:
    entries = _filled((WEIGHT.pack(*each) for each in weights), room)
    return b"".join(entries), len(entries)


def _pack_own(own: Sequence[IPAddress], room: int) -> tuple[bytes, int]:
    entries = _filled((bytes((address.version,)) + address.packed for address in own), room)
    return b"".join(entries), len(entries)


def _filled(entries: Iterable[bytes], room: int, extra: int = 0) -> list[bytes]:
    """The first entries that fit into ``room`` if each takes ``extra`` additional bytes."""
    taken = []
    for entry in entries:
        room -= len(entry) + extra
        if room < 0:
            break
        taken.append(entry)
    return taken


def _coded(names: Iterable[str]) -> Iterator[bytes]:
    """Each name as it is written after the one before."""
    previous = ""
    for name in names:
        yield _name_after(previous, name)
        previous = name


@lru_cache(maxsize=1024)
def _name_after(previous: str, name: str) -> bytes:
    """Cached (0.4 MB, 0.8 with the longest names): every hello has the same neighbours."""
    one, other = previous.encode(), coded_name(name)
    prefix = _alike(one, other)
    suffix = _alike(one[prefix:][::-1], other[prefix:][::-1])
    between = other[prefix : len(other) - suffix]
    return ALIKE.pack(prefix, suffix, len(between)) + between


def _alike(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _size(number: int, most: int) -> int:
    """Bytes that ``number`` takes, at least one. Raises ValueError if that is more than ``most``."""
    size = number.bit_length() + 7 >> 3 or 1
    if size > most:
        raise ValueError(f"{number}: must take at most {most} bytes")
    return size


def _before(address: IPAddress) -> IPAddress:
    return IPv4Address(2**32 - 1) if address == IPv6Address(0) else address - 1


def _end(address: IPAddress) -> tuple[int, bytes]:
    return address.version, address.packed.rjust(16, b"\0")
