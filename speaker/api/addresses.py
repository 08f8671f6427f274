"""Addresses and ranges as people write them, and addresses that can never belong to a service or a backend.

``spec.addresses`` and ``spec.exclude`` take four spellings, in IPv4 and IPv6: a single address, ``a-b``, a CIDR, and
``a/netmask`` (IPv4 only, because IPv6 has no netmasks). Whatever can never be an EIP is refused here, so that nothing
further in has to check.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from itertools import takewhile
from typing import TypeAlias

from speaker.model import AddressRange, IPAddress, IPNetwork

#: Blocks no EIP can come from, with what they are. Link-local IPv4 and 240.0.0.0/4 are missing on purpose: Linux
#: resolves both by ARP like any other unicast address, and some sites use them.
NEVER_AN_EIP: tuple[tuple[IPNetwork, str], ...] = (
    (IPv4Network("0.0.0.0/8"), "'this network', never a destination (RFC 1122 section 3.2.1.3)"),
    (IPv4Network("127.0.0.0/8"), "loopback"),
    (IPv4Network("224.0.0.0/4"), "multicast"),
    (IPv4Network("255.255.255.255/32"), "the limited broadcast address"),
    (IPv6Network("::/128"), "the unspecified address"),
    (IPv6Network("::1/128"), "loopback"),
    (IPv6Network("::ffff:0:0/96"), "IPv4-mapped and never on the wire (RFC 4291 section 2.5.5.2): write it as IPv4"),
    (IPv6Network("fe80::/10"), "link-local: the same address exists on every link, so routers do not forward it"),
    (IPv6Network("ff00::/8"), "multicast"),
)


class NoNotation(ValueError):
    """Raised by ``parse_range`` for what is written as nothing that it knows."""


def parse_range(text: str) -> AddressRange:
    """The addresses that ``text`` names. Raises ValueError whose message is a sentence stating the broken rule."""
    text = text.strip()
    if "%" in text:
        raise ValueError("an EIP has no scope id: drop the '%' and what follows, and choose the link with 'interface'")
    if "-" in text:
        parsed = _from_to(*text.split("-", 1))
    elif "/" in text:
        parsed = _cidr(*text.split("/", 1))
    else:
        address = _address(text)
        parsed = AddressRange(address, address)
    _refuse_what_is_never_an_eip(parsed)
    return parsed


def _from_to(first_text: str, last_text: str) -> AddressRange:
    if "/" in first_text or "/" in last_text:
        raise ValueError("a range is written a-b with two plain addresses: leave out the prefix length")
    first, last = _address(first_text), _address(last_text)
    if first.version != last.version:
        raise ValueError("both ends of a range must be of the same IP family")
    if int(first) > int(last):
        raise ValueError(f"the first address of a range must not come after the last: did you mean {last}-{first}?")
    return AddressRange(first, last)


def _cidr(address_text: str, length_text: str) -> AddressRange:
    address = _address(address_text)
    length = _prefix_length(address, length_text.strip())
    network = ip_network((int(address), length) if address.version == 4 else (address.packed, length), strict=False)
    if network.network_address != address:
        raise ValueError(
            f"the address has bits set behind its /{length}: "
            f"write {network} for the whole network or {address} for the one address"
        )
    return AddressRange(network.network_address, network.broadcast_address, network)


def _prefix_length(address: IPAddress, text: str) -> int:
    if address.version == 4 and "." in text:
        return _netmask_length(text)
    # isascii: int() also takes digits of other scripts, which nobody means here.
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= address.max_prefixlen):
        form = "or a netmask such as 255.255.255.0 " if address.version == 4 else ""
        raise ValueError(f"what follows '/' must be a prefix length from 0 to {address.max_prefixlen} {form}".rstrip())
    return int(text)


def _netmask_length(text: str) -> int:
    try:
        mask = int(IPv4Address(text))
    except AddressValueError:
        raise ValueError("what follows '/' is neither a prefix length nor a netmask such as 255.255.255.0") from None
    host_bits = mask ^ 0xFFFFFFFF
    if host_bits & (host_bits + 1):  # ones after a zero: not of the form 1…10…0
        raise ValueError("a netmask is ones followed by zeros, such as 255.255.255.0 (a wildcard mask is not one)")
    return 32 - host_bits.bit_length()


def _address(text: str) -> IPAddress:
    text = text.strip()
    try:
        return ip_address(text)
    except ValueError:
        raise NoNotation(
            "must be a single address, a range a-b with both ends in full, a CIDR such as 192.0.2.0/24 or "
            "2001:db8::/64, or an IPv4 address with a netmask"
        ) from None


def _refuse_what_is_never_an_eip(parsed: AddressRange) -> None:
    first, last = int(parsed.first), int(parsed.last)
    for block, what in NEVER_AN_EIP:
        if block.version != parsed.first.version:
            continue
        if first <= int(block.broadcast_address) and int(block.network_address) <= last:
            named = f"{block.network_address}" if block.prefixlen == block.max_prefixlen else f"{block}"
            raise ValueError(f"may not contain an address that cannot be an EIP: {named} is {what}")


# ── Hosts, EIPs and source ranges ───────────────────────────────────────────────────────────────────────────

# An endpoint here would aim the node's forwarding at the node itself or its neighbours (CVE-2021-25737; Kubernetes:
# ValidateNonSpecialIP in pkg/apis/core/validation).
NEVER_ANOTHER_HOST = (*NEVER_AN_EIP, (IPv4Network("169.254.0.0/16"), "link-local"))
_NEVER_ANOTHER_HOST = [
    (network.version, int(network.network_address), int(network.broadcast_address), f"{network} is {what}")
    for network, what in NEVER_ANOTHER_HOST
]
"""The same, to be asked often: of each address of an EndpointSlice."""


def parse_host(text: str) -> IPAddress:
    """The address of some other host, beyond this link or on it; ValueError says the rule."""
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError("must be an IP address, such as 192.0.2.10 or 2001:db8::10") from None
    if "%" in text:
        raise ValueError("must be an address without a scope id: drop the '%' and what follows")
    number = int(address)
    for version, first, last, what in _NEVER_ANOTHER_HOST:
        if version == address.version and first <= number <= last:
            raise ValueError(f"must be the unicast address of a host: {what}")
    return address


def parse_eip(text: str) -> IPAddress:
    """One address that can be an EIP; ValueError says the rule."""
    try:
        found = parse_range(text)
    except NoNotation:  # of all that it knows one alone is meant here
        raise ValueError("must be a single address, such as 192.0.2.10 or 2001:db8::10") from None
    if found.first != found.last:
        raise ValueError("must be a single address")
    return found.first


def parse_source_range(text: str) -> IPNetwork:
    """A CIDR of either family; host bits are cleared and blanks around it passed over, as Kubernetes does. ValueError
    says the rule."""
    text = text.strip()
    address, slash, length = text.partition("/")
    # `ip_network` would also take a bare address and a netmask: Kubernetes takes neither.
    with suppress(ValueError):
        if slash and length.isascii() and length.isdigit() and "%" not in address:
            return ip_network(text, strict=False)
    raise ValueError("must be a CIDR, such as 10.0.0.0/8 or 2001:db8::/32")


# ── Spans: what two lists of ranges have in common ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Addresses of one family as integers, ``first`` to ``last`` inclusive. ``index``: the entry it came from."""

    version: int
    first: int
    last: int
    index: int

    def meets(self, other: "Span") -> bool:
        return self.version == other.version and self.first <= other.last and other.first <= self.last


def span(range_: AddressRange, index: int) -> Span:
    return Span(range_.first.version, int(range_.first), int(range_.last), index)


def without(wanted: Iterable[Span], excluded: Iterable[Span]) -> list[Span]:
    """``wanted`` with every address of ``excluded`` cut out. O(n log n), as all here: a pool may list thousands."""
    holes = Together(excluded)
    return [piece for span in wanted for piece in _cut(span, holes.meeting(span))]


class Together:
    """What several spans cover: in order, none of them overlapping another."""

    def __init__(self, found: Iterable[Span]) -> None:
        self._spans: list[Span] = []
        for span in sorted(found):
            last = self._spans[-1] if self._spans else None
            if last is None or last.version != span.version or last.last < span.first:
                self._spans.append(span)
            elif last.last < span.last:
                self._spans[-1] = Span(last.version, last.first, span.last, last.index)
        self._ends = [(span.version, span.last) for span in self._spans]

    def add(self, span: Span) -> None:
        """One that overlaps none of them."""
        at = bisect_left(self._ends, (span.version, span.last))
        self._spans.insert(at, span)
        self._ends.insert(at, (span.version, span.last))

    def meeting(self, span: Span) -> Iterator[Span]:
        """Those that overlap it."""
        start = bisect_left(self._ends, (span.version, span.first))
        return takewhile(span.meets, (self._spans[at] for at in range(start, len(self._spans))))


def _cut(span: Span, holes: Iterable[Span]) -> Iterator[Span]:
    """``holes`` in order."""
    for first, last in subtracted([(span.first, span.last)], [(hole.first, hole.last) for hole in holes]):
        yield Span(span.version, first, last, span.index)


def overlaps(found: Iterable[Span]) -> list[tuple[int, int]]:
    """Pairs of indexes, the smaller first, whose spans overlap; of several at one place at least one pair."""
    pairs = []
    widest: Span | None = None
    for span in sorted(found):
        if widest is not None and widest.meets(span):
            pairs.append((min(widest.index, span.index), max(widest.index, span.index)))
        if widest is None or widest.version != span.version or widest.last < span.last:
            widest = span
    return pairs


# ── Runs of numbers ───────────────────────────────────────────────────────────────────────────────────────────


Interval: TypeAlias = tuple[int, int]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """What they cover, in order and disjoint; neighbours become one. Empty ones (first behind last) vanish."""
    found: list[Interval] = []
    for first, last in sorted(interval for interval in intervals if interval[0] <= interval[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def subtracted(intervals: Iterable[Interval], holes: Sequence[Interval]) -> list[Interval]:
    """``intervals`` without ``holes``; both in order and disjoint, and so is the result."""
    left: list[Interval] = []
    hole = 0
    for first, last in intervals:
        while hole < len(holes) and holes[hole][1] < first:
            hole += 1
        start, ahead = first, hole
        while ahead < len(holes) and holes[ahead][0] <= last:
            if start < holes[ahead][0]:
                left.append((start, holes[ahead][0] - 1))
            start = holes[ahead][1] + 1
            ahead += 1
        if start <= last:
            left.append((start, last))
    return left
