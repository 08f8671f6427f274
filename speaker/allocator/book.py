"""Who holds what, and which addresses rest: the allocator's state, which changes only through ``enter`` and ``leave``.

It keeps these in step: the EIPs, the Services that hold them, the resting addresses, the pools' counts, and the two
indexes that make a choice cheap. A ``Ledger`` is the same as plain values for JSON, for what a restart must not lose.
Addresses are text in it because a ledger comes from outside (a file, or the statuses of Services). Its seconds are the
time left, not points in time, because the allocator's clock starts again with the machine. Time spent switched off does
not count as rest, so an address may rest a little too long.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from itertools import islice

from speaker.allocator.pools import Catalogue
from speaker.api.eip import parse_interface
from speaker.model import (
    CanReach,
    Family,
    Gratuitous,
    IPAddress,
    LabelRule,
    LabelSelector,
    LinkNames,
    OwnSubnet,
    Pool,
    Selector,
    Service,
    ServiceKey,
)


@dataclass(frozen=True, slots=True)
class HeldAddresses:
    """What one Service holds: ``pools[i]`` is where ``addresses[i]`` came from.

    ``suspended`` are those of its addresses that it may not use for now, because it clashes with Services it shares
    them with (see ``Allocator``).
    """

    service: ServiceKey
    addresses: tuple[str, ...]
    pools: tuple[str, ...]
    suspended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resting:
    """A released address that is not given to anybody but ``service``, its last holder, for ``seconds`` more."""

    address: str
    service: ServiceKey
    seconds: float


@dataclass(frozen=True, slots=True)
class Rules:
    """What it takes of a pool to serve its EIPs: they outlive it. ``interface`` as in an ``Eip``; '' for none there."""

    pool: str
    interface: str = ""
    nodes: tuple[LabelRule, ...] = ()
    gratuitous: Gratuitous = field(default_factory=Gratuitous)

    @classmethod
    def of(cls, pool: Pool) -> "Rules":
        return cls(pool.name, _written(pool.interface), pool.node_selector.rules, pool.gratuitous)

    def as_pool(self) -> Pool:
        """A pool that offers nothing. Raises ValueError if ``interface`` is not valid."""
        interface = parse_interface(self.interface) if self.interface else OwnSubnet()
        return Pool(
            self.pool, (), interface=interface, node_selector=LabelSelector(self.nodes), gratuitous=self.gratuitous
        )


def _written(selector: Selector) -> str:
    match selector:
        case LinkNames(names):
            return ",".join(names)
        case CanReach(target):
            return f"can_reach:{target}"
        case OwnSubnet():
            return ""


@dataclass(frozen=True, slots=True)
class Ledger:
    held: tuple[HeldAddresses, ...] = ()
    resting: tuple[Resting, ...] = ()
    """In the order of their release."""
    pools: tuple[Rules, ...] = ()
    """Of the EIPs in use. Earlier releases wrote none: an EIP of a pool that is not here, nor anywhere else, is
    announced wherever a link's own subnet holds it."""
    released: tuple[ServiceKey, ...] = ()
    """Whose wish to release what their pools do not offer any more was fulfilled."""


# ── The book ────────────────────────────────────────────────────────────────────────────────────────────────


class NotServed(Enum):
    """A holder that is not served at its EIP."""

    UNSEEN = "unseen"
    """Restored from a ledger, and its Service not read since: what it would clash with is unknown."""
    SUSPENDED = "suspended"
    """Clashes with the others there, and keeps its place (see ``assign.py``)."""


@dataclass(slots=True)
class Eip:
    """One address in use. It is announced on one link, so it belongs to one pool, even if it is shared."""

    pool: str
    holders: dict[ServiceKey, Service | NotServed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    holder: ServiceKey
    """Who had it last."""


class Book:
    """``rest`` in seconds; ``now`` never goes backwards."""

    def __init__(self, rest: float) -> None:
        self.catalogue = Catalogue({})
        self.pools: dict[str, Pool] = {}
        """Those of the catalogue, and of those that are gone the ones that EIPs in use came from, as they were last."""
        self.eips: dict[IPAddress, Eip] = {}
        self.holdings: dict[ServiceKey, dict[IPAddress, None]] = {}
        """Whose addresses are in the order in which it got them."""
        self.released: set[ServiceKey] = set()
        """Holders whose wish to release what their pools do not offer any more was fulfilled, while they wish it."""
        self.shares: dict[str, Counter[tuple[str, Family]]] = {}
        """By pool: how many of its EIPs of a family the Services of a namespace hold."""
        self.revision = 0
        self._rest = rest
        self._resting: OrderedDict[IPAddress, _Rest] = OrderedDict()  # soonest free first
        self._left: dict[ServiceKey, dict[IPAddress, None]] = {}  # these are among the resting
        self._shared: dict[tuple[str, str, Family], dict[IPAddress, int]] = {}  # (key, namespace) → EIP → holders

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────

    def held_by(self, key: ServiceKey) -> Collection[IPAddress]:
        return self.holdings.get(key, {}).keys()

    def left_by(self, key: ServiceKey) -> Iterable[IPAddress]:
        """The resting addresses that this Service had, the last one first."""
        return reversed(self._left.get(key, {}))

    def shared_under(self, share: str, namespace: str, family: Family, limit: int) -> Iterable[IPAddress]:
        """EIPs at which Services of the namespace with that share key are served, oldest first."""
        return islice(self._shared.get((share, namespace, family), ()), limit)

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────

    def stock(self, catalogue: Catalogue) -> None:
        """New pools: what is used and resting in them, and whose EIPs are whose."""
        self.catalogue = catalogue
        for address in self.eips:
            for space in catalogue.offering(address):
                space.use(address)
            self.account(address)
        for address in self._resting:
            for space in catalogue.offering(address):
                space.rest(address)
        self._follow_pools()

    def account(self, address: IPAddress, asking: Service | None = None) -> bool:
        """An EIP whose pool lost it goes to one that has it: whether it does now. It does not where its own is only
        withheld, or is there and named by a Service that holds the EIP, which would be given another address then.
        ``asking``: one of them as it is now; any that was not read yet may name it."""
        eip, there = self.eips[address], self.catalogue
        having = [space.pool.name for space in there.offering(address)]
        if not having or eip.pool in having or eip.pool in there.withheld:
            return False
        current = {**eip.holders, **({asking.key: asking} if asking is not None else {})}
        if eip.pool in there.pools and any(_names(eip.pool, each) for each in current.values()):
            return False
        self.move(address, having[0])
        return True

    def move(self, address: IPAddress, pool: str) -> None:
        """From now on the EIP is of this pool."""
        eip = self.eips[address]
        for namespace in {key.namespace for key in eip.holders}:
            self._count_share(eip.pool, namespace, address, -1)
            self._count_share(pool, namespace, address, +1)
        eip.pool = pool
        self.revision += 1

    def _follow_pools(self) -> None:
        before, in_use = self._rules(), {eip.pool for eip in self.eips.values()}
        former = {name: pool for name, pool in self.pools.items() if name in in_use}
        self.pools = {**former, **self.catalogue.pools}
        if self._rules() != before:
            self.revision += 1

    def _rules(self) -> tuple[Rules, ...]:
        in_use = {eip.pool for eip in self.eips.values()}
        return tuple(Rules.of(self.pools[name]) for name in sorted(in_use & self.pools.keys()))

    def enter(self, key: ServiceKey, address: IPAddress, pool: str, holder: Service | NotServed) -> None:
        """From now on ``key`` holds the address as ``holder`` says; ``pool`` counts if it is the first to do so."""
        if address not in self.eips:
            self.eips[address] = Eip(pool)
            self._end_rest(address)
            for space in self.catalogue.offering(address):
                space.use(address)
        eip = self.eips[address]
        before = eip.holders.get(key)
        if not (before is holder or (isinstance(before, Service) and isinstance(holder, Service))):
            self.revision += 1
        self._count_shared(key, address, before, -1)
        if not self.has_namespace(address, key.namespace):
            self._count_share(eip.pool, key.namespace, address, +1)
        eip.holders[key] = holder
        self._count_shared(key, address, holder, +1)
        self.holdings.setdefault(key, {})[address] = None

    def leave(self, key: ServiceKey, address: IPAddress, now: float) -> None:
        """``key`` no longer holds the address, which rests if nobody else does."""
        self.revision += 1
        del self.holdings[key][address]
        if not self.holdings[key]:
            del self.holdings[key]
            self.released.discard(key)
        eip = self.eips[address]
        self._count_shared(key, address, eip.holders.pop(key), -1)
        if not self.has_namespace(address, key.namespace):
            self._count_share(eip.pool, key.namespace, address, -1)
        if not eip.holders:
            del self.eips[address]
            self._start_rest(address, _Rest(now + self._rest, key))

    def is_to_release(self, service: Service, address: IPAddress) -> bool:
        """Whether the Service, which holds it, wishes to be rid of it."""
        asks = service.release and service.key not in self.released
        return asks and not self.catalogue.offers(address, self.eips[address].pool, service)

    def note_released(self, service: Service) -> None:
        """After it was decided what it holds: whatever it had to give up is gone, or cannot be replaced."""
        key, held = service.key, self.held_by(service.key)
        fulfilled = service.release and bool(held) and not any(self.is_to_release(service, each) for each in held)
        if fulfilled != (key in self.released):
            self.revision += 1
            self.released ^= {key}

    def note_left(self, key: ServiceKey, address: IPAddress, now: float) -> None:
        """As if ``key`` had held the address until now, unless somebody holds it."""
        if address not in self.eips:
            self.revision += 1
            self._end_rest(address)
            self._start_rest(address, _Rest(now + self._rest, key))

    def wake(self, now: float) -> None:
        """Free what has rested."""
        while self._resting:
            address, rest = next(iter(self._resting.items()))
            if rest.until > now:
                return
            self._end_rest(address)
            for space in self.catalogue.offering(address):
                space.free(address)

    def _start_rest(self, address: IPAddress, rest: _Rest) -> None:
        self._resting[address] = rest
        self._left.setdefault(rest.holder, {})[address] = None
        for space in self.catalogue.offering(address):
            space.rest(address)

    def _end_rest(self, address: IPAddress) -> None:
        rest = self._resting.pop(address, None)
        if rest is None:
            return
        self.revision += 1
        del self._left[rest.holder][address]
        if not self._left[rest.holder]:
            del self._left[rest.holder]

    def has_namespace(self, address: IPAddress, namespace: str) -> bool:
        """Whether a Service of it holds the address."""
        return address in self.eips and any(key.namespace == namespace for key in self.eips[address].holders)

    def _count_share(self, pool: str, namespace: str, address: IPAddress, by: int) -> None:
        shares, place = self.shares.setdefault(pool, Counter()), (namespace, Family.of(address))
        shares[place] += by
        if not shares[place]:
            del shares[place]
        if not shares:
            del self.shares[pool]

    def _count_shared(self, key: ServiceKey, address: IPAddress, holder: Service | NotServed | None, by: int) -> None:
        if not isinstance(holder, Service) or holder.share is None:
            return
        index = (holder.share, key.namespace, Family.of(address))
        eips = self._shared.setdefault(index, {})
        eips[address] = eips.get(address, 0) + by
        if not eips[address]:
            del eips[address]
        if not eips:
            del self._shared[index]

    # ── Writing down and reading back ─────────────────────────────────────────────────────────────────────────

    def ledger(self, now: float) -> Ledger:
        return Ledger(
            held=tuple(self._written(key) for key in sorted(self.holdings)),
            resting=tuple(
                Resting(str(address), rest.holder, rest.until - now) for address, rest in self._resting.items()
            ),
            pools=self._rules(),
            released=tuple(sorted(self.released)),
        )

    def restore(self, ledger: Ledger, now: float) -> None:
        entries = [(held.service, _places(held)) for held in ledger.held]
        resting = [(ip_address(each.address), each) for each in ledger.resting]
        unsaid = [Rules(name) for held in ledger.held for name in held.pools]
        pools = {each.pool: each.as_pool() for each in (*unsaid, *ledger.pools)}
        if len({key for key, _ in entries}) < len(entries):
            raise ValueError("the ledger names a Service twice")
        for key, places in entries:
            for address, (pool, not_served) in places.items():
                self.enter(key, address, pool, not_served)
        self.released = {*ledger.released} & self.holdings.keys()
        for address, rest in sorted(resting, key=lambda pair: pair[1].seconds):
            if address not in self.eips:
                self._start_rest(address, _Rest(now + min(rest.seconds, self._rest), rest.service))
        self.pools = {**pools, **self.pools}
        self.stock(self.catalogue)

    def _written(self, key: ServiceKey) -> HeldAddresses:
        addresses = self.holdings[key]
        return HeldAddresses(
            key,
            addresses=tuple(map(str, addresses)),
            pools=tuple(self.eips[address].pool for address in addresses),
            suspended=tuple(
                str(address) for address in addresses if self.eips[address].holders[key] is NotServed.SUSPENDED
            ),
        )


def _names(pool: str, holder: Service | NotServed) -> bool:
    return holder is NotServed.UNSEEN or (isinstance(holder, Service) and pool in holder.pools)


def _places(held: HeldAddresses) -> Mapping[IPAddress, tuple[str, NotServed]]:
    if len(held.addresses) != len(held.pools):
        raise ValueError(f"the ledger gives {held.service} {len(held.addresses)} addresses of {len(held.pools)} pools")
    places = {
        ip_address(address): (pool, NotServed.SUSPENDED if address in held.suspended else NotServed.UNSEEN)
        for address, pool in zip(held.addresses, held.pools, strict=True)
    }
    if len(places) < len(held.addresses):
        raise ValueError(f"the ledger gives {held.service} an address twice")
    return places
