"""Reads addresses as peers write them, and writes the same addresses as ours."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_network, summarize_address_range

from speaker.allocator.pools import names
from speaker.api.addresses import Span, Together, parse_range, span, without
from speaker.model import AddressRange, IPAddress


def parse_block(text: str) -> AddressRange:
    """A CIDR, whose host bits are ignored as in Go; ``a-b``; or a single address. The ValueError says the rule."""
    text = text.strip()
    if "-" in text or "/" not in text:
        return parse_range(text)
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError("must be a CIDR such as 192.0.2.0/24, or a range a-b") from None
    return parse_range(str(network))


def between(first: IPAddress, last: IPAddress) -> AddressRange:
    return parse_range(f"{first}-{last}")


def without_ends(block: AddressRange) -> AddressRange:
    """A CIDR without its first and last address; one with one or two addresses is unchanged."""
    if block.network is None or int(block.last) - int(block.first) < 2:
        return block
    return AddressRange(block.first + 1, block.last - 1)


def joined(blocks: Iterable[AddressRange]) -> list[AddressRange]:
    """The same addresses, each once, in order. Neighbouring ranges stay apart."""
    return [AddressRange(*_ends(piece)) for piece in pieces(blocks)]


def less(blocks: Iterable[AddressRange], holes: Iterable[AddressRange]) -> list[AddressRange]:
    spans = without(pieces(blocks), (span(hole, 0) for hole in holes))
    return [AddressRange(*_ends(piece)) for piece in sorted(spans)]


def common(blocks: Iterable[AddressRange], others: Iterable[AddressRange]) -> list[AddressRange]:
    """The addresses that are in both."""
    blocks = list(blocks)
    return less(blocks, less(blocks, others))


def within(blocks: Iterable[AddressRange], address: IPAddress) -> bool:
    return names(blocks, address)


def spelled(blocks: Iterable[AddressRange], steps_over: bool) -> list[str]:
    """For ``spec.addresses``. ``steps_over``: the pool leaves out .0 and .255 of IPv4 ranges, and the ends of CIDRs, so
    no CIDRs are written, and nothing that would be left out altogether."""
    return [
        text for block in joined(blocks) for text in ([_range(block)] if steps_over else [_shortest(block)]) if text
    ]


def _shortest(block: AddressRange) -> str:
    if block.first == block.last:
        return str(block.first)
    networks = list(summarize_address_range(block.first, block.last))
    return str(networks[0]) if len(networks) == 1 else f"{block.first}-{block.last}"


def _range(block: AddressRange) -> str:
    first, last = block.first, block.last
    while first.version == 4 and first <= last and int(first) & 255 in (0, 255):  # type: ignore[operator]
        first += 1
    while first.version == 4 and first <= last and int(last) & 255 in (0, 255):  # type: ignore[operator]
        last -= 1
    if first > last:  # type: ignore[operator]
        return ""
    return str(first) if first == last else f"{first}-{last}"


def pieces(blocks: Iterable[AddressRange]) -> list[Span]:
    """In order, without overlaps."""
    together = Together(span(block, 0) for block in blocks)
    return [found for version in (4, 6) for found in together.meeting(Span(version, 0, 2**128, 0))]


def _ends(piece: Span) -> tuple[IPAddress, IPAddress]:
    kind = IPv4Address if piece.version == 4 else IPv6Address
    return kind(piece.first), kind(piece.last)
