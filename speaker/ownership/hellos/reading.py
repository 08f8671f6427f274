"""The sections of a frame → what its hello says, or MalformedPacket. Pure."""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple

from speaker.errors import MalformedPacket
from speaker.model import MAX_TERM, IPAddress
from speaker.ownership.hello import MAX_INCARNATION, Accused, Addresses, Heard, Incarnation, Span, Terms
from speaker.ownership.hellos.layout import ADDRESS, AGES, ALIKE, HEARD, MAX_NAME, SECTION, SPAN, WEIGHT, Kind, octets

RUNS_REMEMBERED = 1 << 16
"""Bytes of claims whose reading is remembered: of 20,000 claims, which take 4 MB as values."""
PEERS_REMEMBERED = 1 << 18
"""Bytes of entries of ``heard``: of 20,000, which take 3 MB."""
SPANS_REMEMBERED = 1 << 16
"""Bytes of spans: of 1,900, which take 1 MB."""
OWN_REMEMBERED = 1 << 15
"""Bytes of peers' own addresses, of either kind: of 2,000 and more, which take 1 MB."""

_P = TypeVarTuple("_P")
_K = TypeVar("_K")
_T = TypeVar("_T")


def demand(right: bool, otherwise: str) -> None:
    if not right:
        raise MalformedPacket(otherwise)


class Memory(Generic[_K, _T]):
    """Remembers the latest results for their input; at most ``most`` bytes of input, since a frame may have any
    length."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._made: dict[_K, tuple[_T, int]] = {}

    def get(self, key: _K) -> _T | None:
        if (found := self._made.pop(key, None)) is None:
            return None
        self._made[key] = found
        return found[0]

    def put(self, key: _K, made: _T, size: int) -> None:
        """``size``: bytes of the input."""
        self._size += size - self._made.pop(key, (None, 0))[1]
        while self._size > self._most and self._made:
            self._size -= self._made.pop(next(iter(self._made)))[1]
        self._made[key] = made, size


def read_fields(body: bytes, at: int) -> dict[str, Any]:
    """Fields of a ``Hello``, from the sections that begin ``at`` on. What a peer repeats beat after beat is read once;
    only ``heard``, which comes early then, is new each time."""
    begin, end = _heard_section(body, at)
    rest = _read_rest(body[at:begin] + body[end:])
    if begin == end:
        return rest
    heard = _read_heard([body[begin + SECTION.size : end]])
    return {**rest, "heard": heard} if "heard" not in rest else _read(body[at:])


def ages_of(body: bytes, at: int, count: int) -> tuple[int, int, str] | None:
    """Where the ages of all ``count`` peers in ``heard`` begin and end, and struct's letters for them; None if they are
    in several sections."""
    begin, end = _heard_section(body, at)
    if begin == end:
        return (begin, end, "!0B") if not count else None
    number, size, _ = HEARD.unpack_from(body, begin + SECTION.size)
    begin += SECTION.size + HEARD.size
    return (begin, begin + number * size, f"!{number}{AGES[size]}") if number == count else None


def _heard_section(body: bytes, at: int) -> tuple[int, int]:
    """Where the first such section begins and ends; if there is none, the end of everything twice."""
    while at < len(body):
        kind, size = SECTION.unpack_from(body, at)
        begin, at = at, at + SECTION.size + size
        demand(at <= len(body), "a section that ends beyond the frame")
        if kind == Kind.HEARD:
            return begin, at
    return len(body), len(body)


def _sections(said: bytes) -> dict[int, list[bytes]]:
    """Values by kind."""
    at = 0
    found: dict[int, list[bytes]] = {}
    while at < len(said):
        kind, size = SECTION.unpack_from(said, at)
        at += SECTION.size + size
        demand(at <= len(said), "a section that ends beyond the frame")
        found.setdefault(kind, []).append(said[at - size : at])
    return found


def _read_span(values: list[bytes]) -> Span:
    demand(len(values) == 1, "two spans")
    return _read_ends(values[0])


def _read_end(version: int, address: bytes) -> IPAddress:
    if version == 6:
        return IPv6Address(address)
    demand(version == 4 and address.startswith(bytes(12)), "the end of a span that is no address")
    return IPv4Address(address[12:])


def _remembering(most: int) -> Callable[[Callable[[bytes, *_P], _T]], Callable[[bytes, *_P], _T]]:
    """Remembers the last results, as in ``Memory``."""

    def remember(make: Callable[[bytes, *_P], _T]) -> Callable[[bytes, *_P], _T]:
        memory: Memory[tuple[bytes, *_P], _T] = Memory(most)

        def remembered(value: bytes, *others: *_P) -> _T:
            key = (value, *others)
            if (made := memory.get(key)) is None:
                made = make(value, *others)
                memory.put(key, made, len(value))
            return made

        return remembered

    return remember


@_remembering(SPANS_REMEMBERED)
def _read_ends(value: bytes) -> Span:
    first_version, first, last_version, last = SPAN.unpack(value)
    span = Span(_read_end(first_version, first), _read_end(last_version, last))
    demand(span.first in span, "a span that ends before it begins")
    return span


def _read_terms(values: list[bytes]) -> Terms:
    if len(values) == 1:
        return _read_run(values[0])
    runs = [_read_run(value) for value in values]
    together = {address: term for run in runs for address, term in run.items()}
    demand(len(together) == sum(map(len, runs)), "an EIP twice")
    return together


@_remembering(RUNS_REMEMBERED)
def _read_run(value: bytes) -> Terms:
    """Remembered: a peer repeats the same claims ten times a second, and only authenticated frames come this far."""
    demand(value[:1] in (b"\4", b"\6"), "an IP version that is neither 4 nor 6")
    address, size = ADDRESS[value[0]]
    terms: dict[IPAddress, int] = {}
    at, eip = 1, 0
    while at < len(value):
        middle = at + 2 + (value[at] >> 4)
        end = middle + 1 + (value[at] & 0xF)
        step = int.from_bytes(value[at + 1 : middle], "big")
        eip += step
        term = int.from_bytes(value[middle:end], "big")
        demand(end <= len(value) and end - middle <= 4, "an entry cut off, or a term that is none")
        demand(term <= MAX_TERM, "a term that nobody comes to")
        demand(eip < 1 << 8 * size and (step > 0 or at == 1), "an EIP beyond the last address, or twice")
        terms[address(eip)] = term
        at = end
    return MappingProxyType(terms)


def _read_heard(values: list[bytes]) -> dict[str, Heard]:
    found: dict[str, Heard] = {}
    total = 0
    for value in values:
        count, age_size, link_size = HEARD.unpack_from(value)
        demand(age_size in AGES and 1 <= link_size <= 4, "an entry of a size that cannot be")
        names, incarnations, links = _read_peers(value[HEARD.size + count * age_size :], link_size)
        demand(len(names) == count, "more or fewer peers than ages")
        ages = struct.unpack_from(f"!{count}{AGES[age_size]}", value, HEARD.size)
        found.update(zip(names, map(Heard, incarnations, ages, links), strict=True))
        total += count
    demand(len(found) == total, "a peer twice")
    return found


@_remembering(PEERS_REMEMBERED)
def _read_peers(entries: bytes, link_size: int) -> tuple[Sequence[str], Sequence[Incarnation], Sequence[int]]:
    """Names, incarnations and links. Remembered: only the ages change from hello to hello."""
    names: list[str] = []
    incarnations: list[Incarnation] = []
    links: list[int] = []
    name, at = b"", 0
    while at < len(entries):
        name, at = _read_name(name, entries, at)
        end = at + 8 + link_size
        demand(end <= len(entries), "an entry cut off")
        incarnation = int.from_bytes(entries[at : at + 8], "big")
        demand(incarnation <= MAX_INCARNATION, "an incarnation of 64 bits")
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


def _read_lost(values: list[bytes]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        name, at = b"", 0
        while at < len(value):
            percent = value[at]
            name, at = _read_name(name, value, at + 1)
            demand(percent <= 100 and name.decode() not in found, "a share beyond all, or a peer twice")
            found[name.decode()] = percent
    return found


def _read_moves(values: list[bytes]) -> dict[IPAddress, str]:
    found: dict[IPAddress, str] = {}
    for value in values:
        name, at = b"", 0
        while at < len(value):
            demand(value[at] in ADDRESS, "an IP version that is neither 4 nor 6")
            address, size = ADDRESS[value[at]]
            begin, at = at + 1, at + 1 + size
            name, at = _read_name(name, value, at)
            eip = address(value[begin : begin + size])
            demand(eip not in found, "an EIP twice")
            found[eip] = name.decode()
    return found


def _read_accused(values: list[bytes]) -> frozenset[Accused]:
    found: set[Accused] = set()
    for value in values:
        name, at = b"", 0
        while at < len(value):
            demand(value[at] in ADDRESS, "an IP version that is neither 4 nor 6")
            version = value[at]
            name, at = _read_name(name, value, at + 1)
            found.add(Accused(name.decode(), version))
    return frozenset(found)


def _read_weights(values: list[bytes]) -> dict[int, int]:
    demand(not any(len(value) % WEIGHT.size for value in values), "an entry cut off")
    entries = [entry for value in values for entry in WEIGHT.iter_unpack(value)]
    found = dict(entries)
    demand(len(found) == len(entries) and all(found.values()), "a preference twice, or a weight of 0")
    return found


def _read_own(values: list[bytes]) -> frozenset[IPAddress]:
    return _read_bound(values[0]) if len(values) == 1 else frozenset().union(*map(_read_bound, values))


@_remembering(OWN_REMEMBERED)
def _read_bound(value: bytes) -> frozenset[IPAddress]:
    found: set[IPAddress] = set()
    at = 0
    while at < len(value):
        demand(value[at] in ADDRESS, "an IP version that is neither 4 nor 6")
        address, size = ADDRESS[value[at]]
        demand(at + 1 + size <= len(value), "an address cut off")
        found.add(address(value[at + 1 : at + 1 + size]))
        at += 1 + size
    return frozenset(found)


def _read_weak(values: list[bytes], claims: Terms) -> frozenset[IPAddress]:
    marks = values[0]
    demand(len(values) == 1 and len(marks) == octets(len(claims)), "marks of more or fewer claims than there are")
    demand(int.from_bytes(marks, "little") >> len(claims) == 0, "a mark of no claim")
    return frozenset(eip for at, eip in enumerate(claims) if marks[at >> 3] >> (at & 7) & 1)


def _read_number(values: list[bytes], size: int) -> int:
    demand(len(values) == 1 and len(values[0]) == size, "a number of another size, or two")
    return int.from_bytes(values[0], "big")


def _read_addresses(values: list[bytes]) -> Addresses:
    demand(len(values) == 1, "addresses twice")
    return _read_pair(values[0])


@_remembering(OWN_REMEMBERED)
def _read_pair(value: bytes) -> Addresses:
    demand(len(value) in (4, 16, 20), "addresses of another size")
    ipv4, ipv6 = value[: len(value) % 16], value[len(value) % 16 :]
    return (*map(IPv4Address, filter(None, [ipv4])), *map(IPv6Address, filter(None, [ipv6])))


def _read_name(previous: bytes, value: bytes, at: int) -> tuple[bytes, int]:
    """The name at ``at``, written relative to ``previous``, and where it ends."""
    prefix, suffix, size = ALIKE.unpack_from(value, at)
    begin = at + ALIKE.size
    end = begin + size
    demand(prefix + suffix <= len(previous) and end <= len(value), "a name cut off, or like more than there was")
    name = previous[:prefix] + value[begin:end] + previous[len(previous) - suffix :]
    demand(1 <= len(name) <= MAX_NAME, "a name that is empty or too long")
    return name, end


class _Reader(NamedTuple):
    """How the values of one kind are read."""

    field: str
    """The field of a ``Hello``."""
    read: Callable[[list[bytes]], Any]


READERS: Mapping[int, _Reader] = {
    Kind.COVERS: _Reader("covers", _read_span),
    Kind.CLAIMS: _Reader("claims", _read_terms),
    Kind.INTENTS: _Reader("intents", _read_terms),
    Kind.YIELDED: _Reader("yielded", _read_terms),
    Kind.PROBES: _Reader("probes", _read_names),
    Kind.WANTS: _Reader("wants", _read_names),
    Kind.HEARD: _Reader("heard", _read_heard),
    Kind.MOVES: _Reader("moves", _read_moves),
    Kind.UNANSWERED: _Reader("unanswered", _read_accused),
    Kind.REVISION: _Reader("revision", partial(_read_number, size=4)),
    Kind.ADDRESSES: _Reader("addresses", _read_addresses),
    Kind.OWN: _Reader("own", _read_own),
    Kind.INTERVAL: _Reader("interval", partial(_read_number, size=2)),
    Kind.LOSS: _Reader("lost", _read_lost),
    Kind.WEIGHTS: _Reader("weights", _read_weights),
    Kind.LINKS: _Reader("links", partial(_read_number, size=1)),
    Kind.GROUP: _Reader("group", lambda values: b"".join(values).decode()),
}
"""WEAK is read together with the claims that it belongs to."""


def _read(said: bytes) -> dict[str, Any]:
    """The fields of whole sections."""
    sections = _sections(said)
    fields = {
        reader.field: reader.read(values)
        for kind, values in sections.items()
        if (reader := READERS.get(kind)) is not None
    }
    if Kind.WEAK in sections:
        fields["weak"] = _read_weak(sections[Kind.WEAK], fields.get("claims", {}))
    return fields


_read_rest = _remembering(RUNS_REMEMBERED)(_read)
