"""Who held what when the last leader stopped, from the Services' statuses and, after them, their record annotations.

An address in a status counts as held if our condition is beside it, or if one of our pools offers it and no host has
it: what another controller gave a Service that now is ours is not taken for an EIP, and takes from nobody what we gave.
Which pool it is from says our other condition.

The annotation holds what a status cannot: the place of a Service that is suspended at a shared EIP, and everything
where a restored backup brought Services back without their statuses. Whoever may edit a Service may edit it, so it is
worth what a wish for that address is worth: it takes nothing from anybody, and nothing that could not be asked for. Of
Services that come back while one leads ``Settling`` sees to it.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from speaker.allocator.book import HeldAddresses, Ledger
from speaker.allocator.choose import MAX_SHARING, asked_for
from speaker.allocator.pools import Catalogue
from speaker.allocator.refusals import in_use, objection
from speaker.api.kinds import ASSIGNED_FROM, ServiceObject, condition_of, has_ours, pools_of, pools_read, readable
from speaker.api.service import MAX_HELD, RECORD
from speaker.model import Family, IPAddress, Pool, Service, ServiceKey

RELEASED = "released"
"""The last word of an annotation: the Service's wish to release was fulfilled."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """``address`` stands in the status of Service ``loser``, and in that of an older one that keeps it."""

    loser: ServiceKey
    address: IPAddress
    keeper: ServiceKey

    def __str__(self) -> str:
        """For the owner of ``loser``."""
        return in_use(self.loser, self.keeper, self.address, "also held by", ", which is older and keeps it").told


@dataclass(frozen=True, slots=True)
class Restored:
    ledger: Ledger
    duplicates: tuple[Duplicate, ...] = ()


def restored(
    services: Iterable[tuple[ServiceObject, Service]],
    catalogue: Catalogue,
    refused: Catalogue | None = None,
    hosts: Container[IPAddress] = (),
) -> Restored:
    """``services``: ours, each as it stands in the API and as it was read. Whom we gave something comes first; then
    age decides, then the name. ``refused``: pools that must not be used, and may have been when their EIPs were given.
    ``hosts``: their own addresses."""
    draft = _Draft(catalogue, refused or Catalogue({}))
    by_age = sorted(services, key=lambda each: (each[1].created, each[1].key))
    for found, service in sorted(by_age, key=lambda each: not has_ours(each[0].status.conditions)):
        for address, pool in _in_status(found, service, catalogue, hosts):
            draft.take_status(service, address, pool)
    for found, service in by_age:
        for address in in_annotation(found):
            draft.take_annotation(service, address)
    done = [service.key for found, service in by_age if _annotation(found).endswith(f",{RELEASED}")]
    return draft.restored(tuple(done))


class _Draft:
    def __init__(self, catalogue: Catalogue, refused: Catalogue) -> None:
        self._catalogue, self._refused = catalogue, refused
        self._served: dict[IPAddress, list[Service]] = {}
        self._places: dict[ServiceKey, dict[IPAddress, None]] = {}
        self._seen: set[tuple[str, IPAddress]] = set()
        """Which namespaces have a place where."""
        self._holders: Counter[IPAddress] = Counter()
        """How many have a place there, served or not."""
        self._shares: Counter[tuple[str, str, Family]] = Counter()
        """How many addresses a namespace has, by pool and family."""
        self._suspended: set[tuple[ServiceKey, IPAddress]] = set()
        self._duplicates: list[Duplicate] = []
        self._pools: dict[IPAddress, str] = {}
        """As it was recorded by who was served there."""

    def take_status(self, service: Service, address: IPAddress, pool: str) -> None:
        rival = self._rival(service, address)
        if rival is not None and not _are_partners(service, rival):
            self._duplicates.append(Duplicate(service.key, address, rival.key))
        else:
            if pool:
                self._pools.setdefault(address, pool)
            self._serve(service, address)

    def take_annotation(self, service: Service, address: IPAddress) -> None:
        has, family = self._places.get(service.key, {}), Family.of(address)
        has_all = [*map(Family.of, has)].count(family) >= asked_for(service, family)
        if address in has or has_all or self._holders[address] >= MAX_SHARING:
            return
        rival = self._rival(service, address)
        if rival is None and self._may_have(service, address):
            self._serve(service, address)
        elif rival is not None and _is_invited(service, rival) and self._is_let_in(service, address):
            self._place(service, address)
            self._suspended.add((service.key, address))

    def restored(self, released: tuple[ServiceKey, ...]) -> Restored:
        held = tuple(self._held(key, tuple(mine)) for key, mine in self._places.items())
        return Restored(Ledger(held, released=released), tuple(self._duplicates))

    def _serve(self, service: Service, address: IPAddress) -> None:
        self._served.setdefault(address, []).append(service)
        self._place(service, address)

    def _place(self, service: Service, address: IPAddress) -> None:
        self._places.setdefault(service.key, {})[address] = None
        if (place := (service.key.namespace, address)) not in self._seen:
            self._seen.add(place)
            self._shares[self._pool(address), service.key.namespace, Family.of(address)] += 1
        self._holders[address] += 1

    def _rival(self, service: Service, address: IPAddress) -> Service | None:
        others = self._served.get(address, ())
        return next((other for other in others if objection(service, other, address)), None)

    def _held(self, key: ServiceKey, addresses: tuple[IPAddress, ...]) -> HeldAddresses:
        return HeldAddresses(
            key,
            addresses=tuple(map(str, addresses)),
            pools=tuple(map(self._pool, addresses)),
            suspended=tuple(str(address) for address in addresses if (key, address) in self._suspended),
        )

    def _may_have(self, service: Service, address: IPAddress) -> bool:
        return any(
            not space.pool.disabled
            and (not service.pools or space.pool.name in service.pools)
            and self._catalogue.objection(space.pool, service) is None
            and self._has_room(service.key.namespace, space.pool, address)
            for space in self._catalogue.offering(address)
        )

    def _has_room(self, namespace: str, pool: Pool, address: IPAddress) -> bool:
        has = self._shares[pool.name, namespace, Family.of(address)]
        return pool.per_namespace is None or has < pool.per_namespace or (namespace, address) in self._seen

    def _is_let_in(self, service: Service, address: IPAddress) -> bool:
        """By the pool that it is from, or else by one that has it now; not where nobody knows."""
        name, both = self._pools.get(address, ""), (self._catalogue, self._refused)
        named = [(each, each.pools[name]) for each in both if name in each.pools]
        having = [(each, space.pool) for each in both for space in each.offering(address)]
        return any(each.objection(pool, service) is None for each, pool in named or having)

    def _pool(self, address: IPAddress) -> str:
        """As recorded, or else as it looks. '' where nobody knows: the EIP stays with its Service all the same."""
        if address in self._pools:
            return self._pools[address]
        offering = chain(self._catalogue.offering(address), self._refused.offering(address))
        return next((space.pool.name for space in offering), "")


def _are_partners(service: Service, other: Service) -> bool:
    """They share an EIP, even if they clash there by now: the allocator knows what to do then."""
    return service.share is not None and service.share == other.share


def _is_invited(service: Service, other: Service) -> bool:
    """To a place beside ``other``, who cannot be asked whether it ever was so."""
    namespace = service.key.namespace
    return _are_partners(service, other) and namespace in {other.key.namespace, *other.share_namespaces}


def in_annotation(found: ServiceObject) -> tuple[IPAddress, ...]:
    """What else than ours somebody wrote there may be without end."""
    return readable(_annotation(found).split(",", MAX_HELD)[:MAX_HELD])


def _annotation(found: ServiceObject) -> str:
    return found.metadata.annotations.get(RECORD, "")


def _in_status(
    found: ServiceObject, service: Service, catalogue: Catalogue, hosts: Container[IPAddress]
) -> Iterator[tuple[IPAddress, str]]:
    """Each with its pool, '' where that was not recorded. A host's own beside our condition is one that we gave before
    the host had it, or another controller wrote it over ours, which the annotation still names. Of what another one
    gave we take no more than the Service asks for."""
    addresses, conditions = found.status.load_balancer.addresses, found.status.conditions
    ours, noted = has_ours(conditions), in_annotation(found)
    said = condition_of(conditions, ASSIGNED_FROM) or {}
    room = {family: asked_for(service, family) for family in Family}
    for address, pool in zip(addresses, pools_of(addresses, pools_read(str(said.get("message", "")))), strict=True):
        family = Family.of(address)
        overwritten = address in hosts and address not in noted and family in map(Family.of, noted)
        if ours and not overwritten:
            yield address, pool
        elif address not in hosts and catalogue.offering(address) and room[family]:
            room[family] -= 1
            yield address, pool
