"""What a pool offers, as arithmetic: nothing here grows with the number of addresses.

A pool offers the union of what its ranges offer, less ``exclude`` and the addresses that hosts have. While
``avoid_network_and_broadcast`` holds,

- a CIDR of /30 or wider leaves out its first and last address; in IPv6 (/126 or wider) only the first, which is the
  subnet-router anycast address (RFC 4291 section 2.6.1), as there is no broadcast;
- an IPv4 range ``a-b`` leaves out every address that ends in .0 or .255: it says nothing about subnets, so each of
  them may be a network or broadcast address of one;
- a single address is offered as it stands: whoever writes it means it.

The .0 and .255 of a long range are never listed (a-b over all of IPv4 has 33 million): a segment carries a flag and
steps over them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from speaker.intervals import merged, subtracted
from speaker.model import AddressRange, Family, IPAddress, Pool


class Segment(NamedTuple):
    """Addresses ``first`` to ``last`` inclusive, as integers; ``steps_over`` those ending in .0 and .255."""

    first: int
    last: int
    steps_over: bool = False

    @property
    def size(self) -> int:
        size = self.last - self.first + 1
        if self.steps_over:
            size -= _multiples_of_256(self.first, self.last)  # .0
            size -= _multiples_of_256(self.first + 1, self.last + 1)  # .255 is one below a .0
        return size

    def at_or_after(self, number: int) -> int:
        """The first address from ``number`` on that is not stepped over; may lie behind ``last``."""
        if self.steps_over:
            ending = number & 255
            return number + (2 if ending == 255 else 1 if ending == 0 else 0)
        return number


def _multiples_of_256(first: int, last: int) -> int:
    return last // 256 - (first - 1) // 256


class Offer:
    """The addresses of one family that a pool offers. Immutable; costs what the ranges cost to write down."""

    def __init__(self, family: Family, segments: Iterable[Segment]) -> None:
        self.family = family
        self.segments = tuple(sorted(segment for segment in segments if segment.size > 0))
        self.size = sum(segment.size for segment in self.segments)
        self._firsts = [segment.first for segment in self.segments]

    def at_or_after(self, number: int) -> int | None:
        """The lowest address offered that is not below ``number``; None behind the last."""
        index = max(bisect_right(self._firsts, number) - 1, 0)
        for segment in self.segments[index : index + 2]:
            found = segment.at_or_after(max(number, segment.first))
            if found <= segment.last:
                return found
        return None

    def __contains__(self, number: int) -> bool:
        return self.at_or_after(number) == number

    def address(self, number: int) -> IPAddress:
        return IPv4Address(number) if self.family is Family.IPV4 else IPv6Address(number)


def offers(pool: Pool, reserved: Iterable[IPAddress] = ()) -> Mapping[Family, Offer]:
    """What the pool offers in each family it has addresses of. ``reserved``: nobody offers these."""
    holes = [(address, address) for address in reserved]
    holes += [(each.first, each.last) for each in pool.exclude]
    found = {family: _offer(pool, family, holes) for family in Family}
    return {family: offer for family, offer in found.items() if offer.size}


def names(ranges: Iterable[AddressRange], address: IPAddress) -> bool:
    """Whether one of the ranges, taken literally, contains the address."""
    return any(
        written.first.version == address.version and int(written.first) <= int(address) <= int(written.last)
        for written in ranges
    )


def _offer(pool: Pool, family: Family, holes: Iterable[tuple[IPAddress, IPAddress]]) -> Offer:
    written = [
        _segment(each, pool.avoid_network_and_broadcast) for each in pool.addresses if Family.of(each.first) is family
    ]
    excluded = merged((int(first), int(last)) for first, last in holes if Family.of(first) is family)
    whole = merged((each.first, each.last) for each in written if not each.steps_over)
    stepping = merged((each.first, each.last) for each in written if each.steps_over)
    # What one range offers is offered, whatever another leaves out.
    stepping = subtracted(stepping, whole)
    return Offer(
        family,
        [Segment(*interval) for interval in subtracted(whole, excluded)]
        + [Segment(*interval, steps_over=True) for interval in subtracted(stepping, excluded)],
    )


def _segment(written: AddressRange, avoid: bool) -> Segment:
    first, last = int(written.first), int(written.last)
    if not avoid:
        return Segment(first, last)
    if written.network is None:
        return Segment(first, last, steps_over=written.first.version == 4 and first != last)
    if written.network.prefixlen > written.network.max_prefixlen - 2:
        return Segment(first, last)
    return Segment(first + 1, last - 1 if written.first.version == 4 else last)
