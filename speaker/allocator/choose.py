"""What one Service is to hold, decided from the book: reads everything, changes nothing."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from speaker.allocator.book import Book, Eip, NotServed
from speaker.allocator.refusals import (
    Refusal,
    RefusalReason,
    closed,
    hosts_own,
    in_use,
    no_such_pool,
    not_offered,
    nothing_free,
    objection,
)
from speaker.model import Family, FamilyPolicy, IPAddress, Service

#: How many EIPs of its share key a Service looks at before it takes one of its own: it bounds the cost where
#: thousands of Services carry one key and one port.
JOIN_LOOKS = 64
MAX_SHARING = 256
"""Services that join one EIP: each of them is asked whether the next one may."""


@dataclass(frozen=True, slots=True)
class Decision:
    """For one family: the address to hold from now on (None: none), and what was refused on the way."""

    address: IPAddress | None
    pool: str = ""
    refusal: Refusal | None = None
    suspended: bool = False


def decide(book: Book, service: Service) -> tuple[Mapping[Family, Decision], Refusal | None]:
    """What the Service is to hold, by family in its order (nothing else), and what it was refused."""
    held = book.held_by(service.key)
    wanted = _families(service)
    newcomer = held.keys().isdisjoint(wanted)
    misfit = _address_of_unwanted_family(service, wanted)
    if misfit is not None and newcomer:
        return {}, misfit
    decisions = _decide_families(book, service, wanted, held)
    refusal = misfit or next((each.refusal for each in decisions.values() if each.refusal is not None), None)
    missing = {family for family, each in decisions.items() if each.address is None}
    if newcomer and not _suffices(service, wanted, missing):
        return {}, refusal
    return decisions, refusal


def _suffices(service: Service, wanted: tuple[Family, ...], missing: Collection[Family]) -> bool:
    """Whether a Service that has nothing takes what there is. Who names an address does not want just another one."""
    match service.family_policy:
        case FamilyPolicy.REQUIRE_DUAL:
            return not missing
        case FamilyPolicy.PREFER_DUAL if _requested(service, wanted[0]) is None:
            return len(missing) < len(wanted)
        case _:
            return wanted[0] not in missing


def _decide_families(
    book: Book, service: Service, wanted: tuple[Family, ...], held: Mapping[Family, IPAddress]
) -> dict[Family, Decision]:
    """What is held or named is settled first: its pool is where the other family is looked for first."""
    decided: dict[Family, Decision] = {}
    near: str | None = None
    for family in sorted(wanted, key=lambda each: each not in held and _requested(service, each) is None):
        decided[family] = _decide_family(book, service, family, held.get(family), near)
        near = near or decided[family].pool or None
    return {family: decided[family] for family in wanted}


def _decide_family(book: Book, service: Service, family: Family, held: IPAddress | None, near: str | None) -> Decision:
    if held is None:
        return _find(book, service, family, near)
    if _is_as_asked(book, service, family, held):
        return _stay(book, service, held)
    found = _find(book, service, family, near)
    if found.address is not None:
        return found
    return replace(_stay(book, service, held), refusal=found.refusal)


def _is_as_asked(book: Book, service: Service, family: Family, held: IPAddress) -> bool:
    right_pool = service.pool is None or service.pool == book.eips[held].pool
    return right_pool and _requested(service, family) in (None, held)


def _stay(book: Book, service: Service, address: IPAddress) -> Decision:
    eip = book.eips[address]
    if address in book.catalogue.reserved:
        return Decision(address, eip.pool, hosts_own(service, book.catalogue, address), suspended=True)
    was_suspended = eip.holders.get(service.key) is NotServed.SUSPENDED
    for key, other in eip.holders.items():
        if key == service.key or other is NotServed.SUSPENDED:
            continue
        if other is NotServed.UNSEEN:
            # It was legal when the ledger was written; only who was out of favour then has to wait for it.
            unread = in_use(service.key, key, address, "shared with", ", which was not read yet")
            trouble = unread if was_suspended else None
        else:
            trouble = objection(service, other, address)
        if trouble is not None:
            return Decision(address, eip.pool, trouble, suspended=True)
    return Decision(address, eip.pool)


def _find(book: Book, service: Service, family: Family, near: str | None) -> Decision:
    """An address that the Service does not hold yet."""
    if service.pool is not None and service.pool not in book.catalogue.pools:
        return Decision(None, refusal=no_such_pool(service, book.catalogue))
    address = _requested(service, family)
    if address is not None:
        return _find_requested(book, service, address)
    found = (
        _find_shared(book, service, family)
        or _find_left(book, service, family)
        or _find_free(book, service, family, near)
    )
    return found or Decision(None, refusal=nothing_free(service, book.catalogue, family))


def _find_requested(book: Book, service: Service, address: IPAddress) -> Decision:
    pools = [space.pool for space in book.catalogue.offering(address)]
    if service.pool is not None:
        pools = [pool for pool in pools if pool.name == service.pool]
    if not pools:
        return Decision(None, refusal=not_offered(service, book.catalogue, address))
    eip = book.eips.get(address)
    if eip is not None and eip.pool not in {pool.name for pool in pools}:
        # Only where pools overlap: it is offered by the pool asked for, and held from another.
        told = f"{address} is held from another pool: ask for that pool or for another address"
        more = f"from pool {eip.pool}"
        return Decision(None, refusal=Refusal(service.key, RefusalReason.ADDRESS_IN_USE, told, more))
    pools = [pool for pool in pools if eip is None or pool.name == eip.pool]
    allowed = [pool for pool in pools if book.catalogue.objection(pool, service) is None]
    pool = next((pool for pool in allowed if not pool.disabled), None)
    if pool is None:
        return Decision(None, refusal=closed(service, book.catalogue, (allowed or pools)[0], address))
    if eip is not None and (trouble := _objection_to_joining(service, address, eip)):
        return Decision(None, refusal=trouble)
    return Decision(address, pool.name)


def _find_shared(book: Book, service: Service, family: Family) -> Decision | None:
    if service.share is None:
        return None
    for namespace in (service.key.namespace, *sorted(service.share_namespaces - {service.key.namespace})):
        for address in book.shared_under(service.share, namespace, family, JOIN_LOOKS):
            eip = book.eips[address]
            if _gives(book, service, address, eip.pool) and not _objection_to_joining(service, address, eip):
                return Decision(address, eip.pool)
    return None


def _find_left(book: Book, service: Service, family: Family) -> Decision | None:
    address = book.left_by(service.key, family)
    if address is None:
        return None
    for space in book.catalogue.offering(address):
        if book.catalogue.chooses(space.pool, service):
            return Decision(address, space.pool.name)
    return None


def _find_free(book: Book, service: Service, family: Family, near: str | None) -> Decision | None:
    for space in book.catalogue.open_to(service, family, near):
        if (address := space.choose()) is not None:
            return Decision(address, space.pool.name)
    return None


def _gives(book: Book, service: Service, address: IPAddress, pool: str) -> bool:
    return any(
        space.pool.name == pool and book.catalogue.chooses(space.pool, service)
        for space in book.catalogue.offering(address)
    )


def _objection_to_joining(service: Service, address: IPAddress, eip: Eip) -> Refusal | None:
    """Nobody joins an EIP without the consent of all that are served there, of whom there must be one."""
    if len(eip.holders) - (service.key in eip.holders) >= MAX_SHARING:
        told = f"{address} is shared by {MAX_SHARING} Services already: ask for another address"
        return Refusal(service.key, RefusalReason.ADDRESS_IN_USE, told)
    then = ": ask for another address"
    others = {key: holder for key, holder in eip.holders.items() if key != service.key}
    consent = not others
    for key, other in others.items():
        if isinstance(other, Service):
            if trouble := objection(service, other, address):
                return trouble
            consent = True
        elif other is NotServed.UNSEEN:
            return in_use(service.key, key, address, "held by", then)
    if consent:
        return None
    return in_use(service.key, min(others), address, "kept for", then)


def _families(service: Service) -> tuple[Family, ...]:
    """The families to serve, primary first. An API server completes ``ipFamilies`` for RequireDualStack; where there
    is none, the missing one is still required. PreferDualStack takes what is listed: its list is short on purpose in
    a cluster whose pods have one family."""
    match service.family_policy:
        case FamilyPolicy.SINGLE:
            return service.families[:1]
        case FamilyPolicy.PREFER_DUAL:
            return service.families
        case FamilyPolicy.REQUIRE_DUAL:
            return tuple(dict.fromkeys((*service.families, *Family)))


def _requested(service: Service, family: Family) -> IPAddress | None:
    return next((address for address in service.addresses if Family.of(address) is family), None)


def _address_of_unwanted_family(service: Service, wanted: tuple[Family, ...]) -> Refusal | None:
    for address in service.addresses:
        if Family.of(address) not in wanted:
            message = f"{address} is asked for, but the Service is {'/'.join(wanted)} only: change one or the other"
            return Refusal(service.key, RefusalReason.ADDRESS_OF_OTHER_FAMILY, message)
    return None
