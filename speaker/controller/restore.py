"""Who held what when the last leader stopped, from the Services' statuses and, after them, their record annotations.

An address in a status counts as held if our condition is beside it, or if one of our pools offers it and no host has
it. So what another controller gave to a Service that is now ours is not taken for an EIP, and takes nothing away from
others. Our other condition says which pool the address is from.

The annotation holds what a status cannot: the place of a Service that is suspended at a shared EIP, and everything if a
restored backup brought Services back without their statuses. Anybody who may edit a Service may edit the annotation, so
it counts only as a request for that address: it takes nothing from others, and gives nothing that could not be
requested. ``Settling`` handles Services that come back while a controller leads.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from speaker.allocator.book import Book, Ledger, NotServed
from speaker.allocator.choose import MAX_SHARING, asked_for
from speaker.allocator.pools import Catalogue
from speaker.allocator.refusals import in_use, objection
from speaker.api.kinds import ASSIGNED_FROM, ServiceObject, condition_of, has_ours, pools_of, pools_read, readable
from speaker.api.records import announcement_name
from speaker.api.service import MAX_HELD, RECORD
from speaker.model import Family, IPAddress, Pool, Service, ServiceKey

RELEASED = "released"
"""The last word of an annotation: the Service's request for release was fulfilled."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """``address`` is in the status of Service ``loser``, and in that of an older one, which keeps it."""

    loser: ServiceKey
    address: IPAddress
    keeper: ServiceKey

    def __str__(self) -> str:
        """A sentence for the owner of ``loser``."""
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
    """``services``: our Services, each as it is in the API and as it was read. Those that we gave something come first;
    then age decides, then the name. ``refused``: pools that must not be used now, but may have been when their EIPs
    were given. ``hosts``: the hosts' own addresses."""
    draft = _Draft(catalogue, refused or Catalogue({}))
    by_age = sorted(services, key=lambda each: (each[1].created, each[1].key))
    for found, service in sorted(by_age, key=lambda each: not has_ours(each[0].status.conditions)):
        for address, pool in in_status(found, service, catalogue, hosts):
            draft.take_status(service, address, pool)
    for found, service in by_age:
        for address in in_annotation(found):
            draft.take_annotation(service, address)
    done = [service.key for found, service in by_age if _annotation(found).endswith(f",{RELEASED}")]
    return draft.restored(tuple(done))


def missing(services: Iterable[ServiceObject], announced: Collection[str], counted: int) -> tuple[int, int, int]:
    """How many EIPs in use no Service has, how many are in use, and how many Services have. ``announced``: the names of
    Announcements; ``counted``: what all pools say is used."""
    has = {
        announcement_name(address)
        for found in services
        for address in (*found.status.load_balancer.addresses, *in_annotation(found))
    }
    return max(len({*announced} - has), counted - len(has)), max(len(announced), counted), len(has)


class _Draft:
    """A book that is filled from what is read: which Service is served where, and which one keeps a place."""

    def __init__(self, catalogue: Catalogue, refused: Catalogue) -> None:
        self._book, self._catalogue, self._refused = Book(0.0), catalogue, refused
        self._duplicates: list[Duplicate] = []
        self._recorded: dict[IPAddress, str] = {}
        """The recorded pools of Services that are served at these addresses."""

    def take_status(self, service: Service, address: IPAddress, pool: str) -> None:
        rival = self._rival(service, address)
        if rival is not None and not _are_partners(service, rival):
            self._duplicates.append(Duplicate(service.key, address, rival.key))
            return
        if pool and address not in self._recorded:
            self._recorded[address] = pool
            if address in self._book.eips:  # the earlier one had no record of it
                self._book.move(address, pool)
        self._book.enter(service.key, address, self._pool(address), service)

    def take_annotation(self, service: Service, address: IPAddress) -> None:
        has, family = self._book.held_by(service.key), Family.of(address)
        has_all = [*map(Family.of, has)].count(family) >= asked_for(service, family)
        if address in has or has_all or len(self._holders(address)) >= MAX_SHARING:
            return
        rival = self._rival(service, address)
        if rival is None and self._may_have(service, address):
            self._book.enter(service.key, address, self._pool(address), service)
        elif rival is not None and _is_invited(service, rival) and self._is_let_in(service, address):
            self._book.enter(service.key, address, self._pool(address), NotServed.SUSPENDED)

    def restored(self, released: tuple[ServiceKey, ...]) -> Restored:
        return Restored(replace(self._book.ledger(0.0), released=released), tuple(self._duplicates))

    def _holders(self, address: IPAddress) -> Mapping[ServiceKey, Service | NotServed]:
        return self._book.eips[address].holders if address in self._book.eips else {}

    def _rival(self, service: Service, address: IPAddress) -> Service | None:
        others = (other for other in self._holders(address).values() if isinstance(other, Service))
        return next((other for other in others if objection(service, other, address)), None)

    def _may_have(self, service: Service, address: IPAddress) -> bool:
        return any(
            not space.pool.disabled
            and (not service.pools or space.pool.name in service.pools)
            and self._catalogue.objection(space.pool, service) is None
            and self._has_room(service.key.namespace, space.pool, address)
            for space in self._catalogue.offering(address)
        )

    def _has_room(self, namespace: str, pool: Pool, address: IPAddress) -> bool:
        has = self._book.shares.get(pool.name, Counter())[namespace, Family.of(address)]
        return pool.per_namespace is None or has < pool.per_namespace or self._book.has_namespace(address, namespace)

    def _is_let_in(self, service: Service, address: IPAddress) -> bool:
        """Whether the pool that it is from, or else a pool that has it now, lets the Service in; False if that is
        unknown."""
        name, both = self._recorded.get(address, ""), (self._catalogue, self._refused)
        named = [(each, each.pools[name]) for each in both if name in each.pools]
        having = [(each, space.pool) for each in both for space in each.offering(address)]
        return any(each.objection(pool, service) is None for each, pool in named or having)

    def _pool(self, address: IPAddress) -> str:
        """The recorded pool, or else the one that has the address now. '' if unknown: the EIP stays with its Service
        all the same."""
        offering = chain(self._catalogue.offering(address), self._refused.offering(address))
        return self._recorded.get(address) or next((space.pool.name for space in offering), "")


def _are_partners(service: Service, other: Service) -> bool:
    """Whether they share an EIP, even if they now clash there: the allocator handles that."""
    return service.share is not None and service.share == other.share


def _is_invited(service: Service, other: Service) -> bool:
    """Whether it may have a place beside ``other``, which cannot be asked if it ever allowed that."""
    namespace = service.key.namespace
    return _are_partners(service, other) and namespace in {other.key.namespace, *other.share_namespaces}


def in_annotation(found: ServiceObject) -> tuple[IPAddress, ...]:
    """Only our addresses are read: others may have written any number of things there."""
    return readable(_annotation(found).split(",", MAX_HELD)[:MAX_HELD])


def _annotation(found: ServiceObject) -> str:
    return found.metadata.annotations.get(RECORD, "")


def in_status(
    found: ServiceObject, service: Service, catalogue: Catalogue, hosts: Container[IPAddress]
) -> Iterator[tuple[IPAddress, str]]:
    """Each address with its pool, or '' if that was not recorded. A host's own address beside our condition is one that
    we gave before the host had it, or one that another controller wrote over ours, which the annotation still names. Of
    another controller's addresses, we take only what the Service asks for."""
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
