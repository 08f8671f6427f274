"""Addresses as people write them, and those that never are a service's or a backend's."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from itertools import takewhile

from speaker.api.ranges import NoNotation, parse_range
from speaker.intervals import subtracted
from speaker.model import AddressRange, IPAddress, IPNetwork

# An endpoint here would aim the node's forwarding at the node itself or its neighbours (CVE-2021-25737; Kubernetes:
# ValidateNonSpecialIP in pkg/apis/core/validation).
NEVER_ANOTHER_HOST = tuple(
    (ip_network(network), f"{network} {what}")
    for network, what in (
        ("0.0.0.0/8", "means 'this network' (RFC 1122)"),
        ("127.0.0.0/8", "is loopback"),
        ("169.254.0.0/16", "is link-local"),
        ("224.0.0.0/4", "is multicast"),
        ("255.255.255.255/32", "is the limited broadcast address"),
        ("::/128", "is the unspecified address"),
        ("::1/128", "is loopback"),
        ("::ffff:0:0/96", "is IPv4 mapped into IPv6"),
        ("fe80::/10", "is link-local"),
        ("ff00::/8", "is multicast"),
    )
)
_NEVER_ANOTHER_HOST = [
    (network.version, int(network.network_address), int(network.broadcast_address), what)
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
    if not (slash and length.isascii() and length.isdigit() and "%" not in address):
        raise ValueError("must be a CIDR, such as 10.0.0.0/8 or 2001:db8::/32")
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be a CIDR, such as 10.0.0.0/8 or 2001:db8::/32") from None


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
