"""Pools as the allocator uses them: what each offers, what is free in it, which serve a Service or offer an address.

A pool offers the union of its ranges, less ``exclude`` and the addresses of hosts. This is arithmetic: nothing grows
with the number of addresses. If ``avoid_network_and_broadcast`` is set,

- a CIDR of /30 or wider leaves out its first and last address; in IPv6 (/126 or wider) only the first, which is the
  subnet-router anycast address (RFC 4291 section 2.6.1), because there is no broadcast;
- an IPv4 range ``a-b`` leaves out every address that ends in .0 or .255: it says nothing about subnets, so each of
  them may be a network or broadcast address of one;
- a single address is always offered, because whoever writes it means it.

The .0 and .255 of a long range are never listed (a-b over all of IPv4 has 33 million): a segment carries a flag and
steps over them.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from ipaddress import IPv4Address, IPv6Address
from itertools import chain, groupby
from typing import NamedTuple

from speaker.api.addresses import merged, subtracted
from speaker.model import AddressRange, Family, IPAddress, LabelRule, LabelSelector, Pool, Service

BLOCK, ROW = 256, 32
"""Addresses in one map of a pool, and in one row of it."""


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


class Places(NamedTuple):
    """What each address of one family in one pool was at one moment."""

    written: tuple[AddressRange, ...]
    offer: Offer
    used: frozenset[int]
    resting: frozenset[int]

    def blocks(self) -> list[int]:
        """Its /24s, by number; of a larger pool those in which an address is used or resting. Of IPv6 none."""
        if self.offer.family is Family.IPV6:
            return []
        small = self.offer.segments if self.offer.size <= BLOCK else ()
        whole = (range(each.first // BLOCK, each.last // BLOCK + 1) for each in small)
        return sorted({number // BLOCK for number in self.used | self.resting}.union(*whole))

    def map(self, block: int) -> tuple[str, list[tuple[str, int]]]:
        """Where it begins, and how many addresses in a row are what; without rows that are outside the pool."""
        first, last = block * BLOCK, (block + 1) * BLOCK - 1
        near = [each for each in self.written if int(each.first) <= last and first <= int(each.last)]
        states = {number: self._state(number, near) for number in range(first, last + 1)}
        inside = [number for number, state in states.items() if state != "outside"]
        rows = range(min(inside) // ROW * ROW, max(inside) // ROW * ROW + ROW)
        runs = groupby(states[number] for number in rows)
        return str(self.offer.address(rows[0])), [(state, len([*run])) for state, run in runs]

    def _state(self, number: int, near: Iterable[AddressRange]) -> str:
        if number in self.used:
            return "used"
        if number in self.resting:
            return "resting"
        if number in self.offer:
            return "free"
        return "excluded" if names(near, self.offer.address(number)) else "outside"


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


# ── Pools ───────────────────────────────────────────────────────────────────────────────────────────────────

#: Every namespace carries this label with its own name (KEP-2161), whether or not it was read.
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


class Space:
    """The addresses of one family in one pool, each of them free, used or resting.

    Every offered address below ``_cursor`` is used, resting, or listed in ``_freed``; nothing else is stored, so the
    cost is that of the addresses ever used, never of the pool's size. A choice takes O(log used), amortised.
    """

    def __init__(self, pool: Pool, offer: Offer) -> None:
        self.pool = pool
        self.offer = offer
        self._used: set[int] = set()
        self._resting: OrderedDict[int, None] = OrderedDict()  # longest-resting first
        self._cursor = 0
        self._freed: list[int] = []  # a heap; entries that were taken meanwhile are dropped when they surface
        self._listed: set[int] = set()  # what is in the heap, so that nothing gets in twice

    @property
    def used(self) -> int:
        return len(self._used)

    @property
    def resting(self) -> int:
        return len(self._resting)

    @property
    def places(self) -> Places:
        return Places(self.pool.addresses, self.offer, frozenset(self._used), frozenset(self._resting))

    def choose(self, but: Container[IPAddress | None] = ()) -> IPAddress | None:
        """The lowest free address, else the one that rested longest, else None: the pool is full. Takes nothing.
        ``but``: none of these, which are free only where pools overlap."""
        number = self._lowest_free()
        while number is not None and self.offer.address(number) in but:
            number = self.offer.at_or_after(number + 1)
            while number is not None and not self._is_free(number):
                number = self.offer.at_or_after(number + 1)
        if number is None:
            number = next((each for each in self._resting if self.offer.address(each) not in but), None)
        return None if number is None else self.offer.address(number)

    def use(self, address: IPAddress) -> None:
        self._resting.pop(int(address), None)
        self._used.add(int(address))

    def rest(self, address: IPAddress) -> None:
        self._used.discard(int(address))
        self._resting[int(address)] = None

    def free(self, address: IPAddress) -> None:
        number = int(address)
        self._resting.pop(number, None)
        if number < self._cursor and number not in self._listed:
            self._listed.add(number)
            heappush(self._freed, number)

    def _lowest_free(self) -> int | None:
        while self._freed:
            if self._is_free(self._freed[0]):
                return self._freed[0]
            self._listed.discard(heappop(self._freed))
        while (number := self.offer.at_or_after(self._cursor)) is not None:
            if self._is_free(number):
                return number
            self._cursor = number + 1
        return None

    def _is_free(self, number: int) -> bool:
        return number not in self._used and number not in self._resting


class Catalogue:
    """All pools of one reading. A new reading of the pools makes a new catalogue; namespaces may change in place.

    ``reserved``: as in ``World``. ``withheld``: names of pools that are there and must not be used; they offer nothing,
    and what they gave is theirs.
    """

    def __init__(
        self, pools: Mapping[str, Pool], reserved: Mapping[IPAddress, str] | None = None, withheld: Collection[str] = ()
    ) -> None:
        self.pools = dict(pools)
        self.reserved = dict(reserved or {})
        self.withheld = frozenset(withheld)
        self.spaces = {
            pool.name: {family: Space(pool, offer) for family, offer in offers(pool, self.reserved).items()}
            for pool in sorted(self.pools.values(), key=lambda each: (-each.priority, each.name))
        }
        self._by_address = {
            family: _AddressIndex([spaces[family] for spaces in self.spaces.values() if family in spaces])
            for family in Family
        }
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._all_known = False
        self._labels: dict[str, Mapping[str, str]] = {}
        """As ``namespace_labels`` gave them: one for all Services of a namespace."""
        self._by_namespace: dict[str, tuple[str, ...]] = {}

    def is_of(self, pools: Mapping[str, Pool], reserved: Mapping[IPAddress, str], withheld: Collection[str]) -> bool:
        return pools == self.pools and reserved == self.reserved and self.withheld == frozenset(withheld)

    def set_namespaces(self, namespaces: Mapping[str, Mapping[str, str]], *, all_known: bool = False) -> None:
        """``all_known``: a namespace that is not among them was not read yet, and may have any labels; otherwise it has
        none."""
        if namespaces == self._namespaces and all_known is self._all_known:
            return
        for name in self._namespaces.keys() | namespaces.keys():
            if self._namespaces.get(name) != namespaces.get(name):
                self._by_namespace.pop(name, None)
                self._labels.pop(name, None)
        if all_known is not self._all_known:
            self._by_namespace.clear()
        self._namespaces, self._all_known = dict(namespaces), all_known

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        if namespace not in self._labels:
            self._labels[namespace] = {**self._namespaces.get(namespace, {}), NAMESPACE_NAME_LABEL: namespace}
        return self._labels[namespace]

    def offering(self, address: IPAddress) -> Sequence[Space]:
        """The spaces that offer the address, by priority, then name (more than one where pools overlap)."""
        return self._by_address[Family.of(address)].find(int(address))

    def serving_namespace(self, namespace: str) -> Sequence[str]:
        """Names of the pools whose namespace rules let the namespace in, by priority, then name."""
        if namespace not in self._by_namespace:
            self._by_namespace[namespace] = tuple(
                name for name in self.spaces if self._lets_in(self.pools[name], namespace)
            )
        return self._by_namespace[namespace]

    def open_to(self, service: Service, family: Family, first: str | None = None) -> Iterator[Space]:
        """Where a free choice may be made, best first; ``first`` goes to the front if it is among them."""
        if service.pools:
            names: Iterable[str] = service.pools
        else:
            names = served = self.serving_namespace(service.key.namespace)
            if first is not None:
                names = chain((first,), (name for name in served if name != first))
        for name in names:
            space = self.spaces.get(name, {}).get(family)
            if space is not None and self.chooses(space.pool, service):
                yield space

    def chooses(self, pool: Pool, service: Service) -> bool:
        """Whether the pool may give the Service an address the Service did not name."""
        asked = pool.name in service.pools if service.pools else pool.auto_assign
        return asked and not pool.disabled and self.objection(pool, service) is None

    def objection(self, pool: Pool, service: Service) -> str | None:
        """Which of the pool's selectors keeps the Service out, in words; None when it may use the pool."""
        namespace = service.key.namespace
        if not self._lets_in(pool, namespace):
            return f"its namespaces and namespaceSelector do not allow namespace {namespace}"
        if not pool.service_selectors or any(each.matches(service.labels) for each in pool.service_selectors):
            return None
        failed = (
            next(rule for rule in each.rules if not rule.matches(service.labels)) for each in pool.service_selectors
        )
        return f"its serviceSelector wants the label {' or '.join(map(_rule_text, failed))}"

    def offers(self, address: IPAddress, pool: str, service: Service) -> bool:
        """Whether the pool would give the address to the Service today, were it to ask for it and the pool enabled."""
        spaces = (space.pool for space in self.offering(address) if not space.pool.terminating)
        return any(each.name == pool and self.objection(each, service) is None for each in spaces)

    def _lets_in(self, pool: Pool, namespace: str) -> bool:
        if not pool.namespaces and not pool.namespace_selectors:
            return True
        return namespace in pool.namespaces or any(self._selects(each, namespace) for each in pool.namespace_selectors)

    def _selects(self, selector: LabelSelector, namespace: str) -> bool:
        """A label that it must not have may be among those that were not read yet."""
        told = namespace in self._namespaces or not self._all_known
        return selector.matches(self.namespace_labels(namespace)) and (
            told or all(rule.key == NAMESPACE_NAME_LABEL for rule in selector.rules)
        )


class _AddressIndex:
    """Which spaces offer an address: one bisection over the places where the answer changes."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        changes: dict[int, list[tuple[int, bool]]] = {}
        for rank, space in enumerate(spaces):
            for segment in space.offer.segments:
                changes.setdefault(segment.first, []).append((rank, True))
                changes.setdefault(segment.last + 1, []).append((rank, False))
        self._starts = sorted(changes)
        self._spaces: list[tuple[Space, ...]] = []
        here: set[int] = set()
        for start in self._starts:
            # Ends before starts: two segments of one pool may touch.
            here -= {rank for rank, begins in changes[start] if not begins}
            here |= {rank for rank, begins in changes[start] if begins}
            self._spaces.append(tuple(spaces[rank] for rank in sorted(here)))

    def find(self, number: int) -> Sequence[Space]:
        index = bisect_right(self._starts, number) - 1
        return [space for space in self._spaces[index] if number in space.offer] if index >= 0 else ()


def _rule_text(rule: LabelRule) -> str:
    values = ", ".join(sorted(rule.values))
    match rule.operator:
        case "In":
            return f"{rule.key}={values}" if len(rule.values) == 1 else f"{rule.key} in ({values})"
        case "NotIn":
            return f"{rule.key} not in ({values})"
        case "Exists":
            return f"{rule.key} present"
        case "DoesNotExist":
            return f"{rule.key} absent"
