"""What one Service is to hold, decided from the book: reads everything, changes nothing."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

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
from speaker.model import Family, FamilyPolicy, IPAddress, Service, rank

#: How many EIPs of its share key a Service looks at before it takes one of its own: it bounds the cost where
#: thousands of Services carry one key and one port.
JOIN_LOOKS = 64
_But: TypeAlias = Collection[IPAddress | None]
MAX_SHARING = 256
"""Services that join one EIP: each of them is asked whether the next one may."""


@dataclass(frozen=True, slots=True)
class Decision:
    """For one of the addresses that are asked for: what to hold from now on (None: nothing), and what was refused on
    the way."""

    address: IPAddress | None
    pool: str = ""
    refusal: Refusal | None = None
    suspended: bool = False


def decide(book: Book, service: Service) -> tuple[Sequence[Decision], Refusal | None]:
    """What the Service is to hold, in the order of its families (nothing else), and what it was refused."""
    held = book.held_by(service.key)
    wanted = _families(service)
    newcomer = not any(Family.of(address) in wanted for address in held)
    misfit = _address_of_unwanted_family(service, wanted)
    if misfit is not None and newcomer:
        return (), misfit
    decisions = _decide_all(book, service, wanted, held)
    refusal = misfit or next((each.refusal for each in decisions if each.refusal is not None), None)
    missing = set(wanted) - {Family.of(each.address) for each in decisions if each.address is not None}
    if newcomer and not _suffices(service, wanted, missing):
        return (), refusal
    return decisions, refusal


def _suffices(service: Service, wanted: tuple[Family, ...], missing: Collection[Family]) -> bool:
    """Whether a Service that has nothing takes what there is. Who names an address does not want just another one."""
    match service.family_policy:
        case FamilyPolicy.REQUIRE_DUAL:
            return not missing
        case FamilyPolicy.PREFER_DUAL if not _requested(service, wanted[0]):
            return len(missing) < len(wanted)
        case _:
            return wanted[0] not in missing


def _decide_all(
    book: Book, service: Service, wanted: tuple[Family, ...], held: Collection[IPAddress]
) -> Sequence[Decision]:
    """What is held as it is asked for stays. Then what is named is settled: its pool is where others are looked for
    first. Whatever else is held stays in place of what cannot be had."""
    asks = [(family, ask) for family in wanted for ask in _asks(book, service, family)]
    suspended = {each for each in held if book.eips[each].holders[service.key] is NotServed.SUSPENDED}
    spare, kept = sorted(held, key=lambda each: (each in suspended, rank(each))), dict[int, IPAddress]()
    for i, (family, ask) in enumerate(asks):
        if (fits := next((each for each in spare if _is_as_asked(book, ask, family, each)), None)) is not None:
            kept[i] = fits
            spare.remove(fits)
    decided: dict[int, Decision] = {}
    near: str | None = None
    for i in sorted(range(len(asks)), key=lambda i: i not in kept and not _requested(asks[i][1], asks[i][0])):
        family, ask = asks[i]
        if i in kept:
            found = _stay(book, service, kept[i])
        else:
            found = _find(book, ask, family, near, {*held, *(each.address for each in decided.values())})
            other = next((each for each in spare if Family.of(each) is family), None)
            if found.address is None and other is not None:
                spare.remove(other)
                found = replace(_stay(book, service, other), refusal=found.refusal)
        decided[i] = found
        near = near or found.pool or None
    return [decided[i] for i in range(len(asks))]


def _asks(book: Book, service: Service, family: Family) -> list[Service]:
    """The Service as it would ask for one address of the family, for each that it asks for: those that it names, and
    one of each further pool of several."""
    named = _requested(service, family)
    if asked_for(service, family) == 1:
        return [service]
    own = {pool for address in named for pool in _sources(book, service, address)}
    pools = service.pools if len(service.pools) > 1 else ()
    return [
        *(replace(service, addresses=(address,)) for address in named),
        *(replace(service, addresses=(), pools=(pool,)) for pool in pools if pool not in own),
    ]


def asked_for(service: Service, family: Family) -> int:
    """How many addresses of a family it asks for at most."""
    return max(1, len(_requested(service, family)) + (len(service.pools) if len(service.pools) > 1 else 0))


def _sources(book: Book, service: Service, address: IPAddress) -> Iterator[str]:
    """The pools that a named address is from."""
    if address in book.held_by(service.key):
        yield book.eips[address].pool
    yield from (space.pool.name for space in book.catalogue.offering(address))


def _is_as_asked(book: Book, ask: Service, family: Family, held: IPAddress) -> bool:
    right_pool = not ask.pools or book.eips[held].pool in ask.pools
    stays = Family.of(held) is family and not book.is_to_release(ask, held)
    return stays and right_pool and _requested(ask, family) in ((), (held,))


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


def _find(book: Book, service: Service, family: Family, near: str | None, but: _But) -> Decision:
    """An address that the Service does not hold yet, none of ``but``: it asks for one alone."""
    if service.pools and book.catalogue.pools.keys().isdisjoint(service.pools):
        return Decision(None, refusal=no_such_pool(service, book.catalogue))
    if named := _requested(service, family):
        return _find_requested(book, service, named[0])
    found = (
        _find_shared(book, service, family, but)
        or _find_left(book, service, family, but)
        or _find_free(book, service, family, near, but)
    )
    return found or Decision(None, refusal=nothing_free(service, book.catalogue, family))


def _find_requested(book: Book, service: Service, address: IPAddress) -> Decision:
    pools = [space.pool for space in book.catalogue.offering(address)]
    if service.pools:
        pools = [pool for pool in pools if pool.name in service.pools]
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


def _find_shared(book: Book, service: Service, family: Family, but: _But) -> Decision | None:
    if service.share is None:
        return None
    for namespace in (service.key.namespace, *sorted(service.share_namespaces - {service.key.namespace})):
        for address in book.shared_under(service.share, namespace, family, JOIN_LOOKS):
            eip = book.eips[address]
            if (
                address not in but
                and _gives(book, service, address, eip.pool)
                and not _objection_to_joining(service, address, eip)
            ):
                return Decision(address, eip.pool)
    return None


def _find_left(book: Book, service: Service, family: Family, but: _But) -> Decision | None:
    for address in islice(book.left_by(service.key), JOIN_LOOKS):
        if Family.of(address) is family and address not in but:
            for space in book.catalogue.offering(address):
                if book.catalogue.chooses(space.pool, service):
                    return Decision(address, space.pool.name)
    return None


def _find_free(book: Book, service: Service, family: Family, near: str | None, but: _But) -> Decision | None:
    for space in book.catalogue.open_to(service, family, near):
        if (address := space.choose(but)) is not None:
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


def _requested(service: Service, family: Family) -> tuple[IPAddress, ...]:
    return tuple(address for address in service.addresses if Family.of(address) is family)


def _address_of_unwanted_family(service: Service, wanted: tuple[Family, ...]) -> Refusal | None:
    for address in service.addresses:
        if Family.of(address) not in wanted:
            message = f"{address} is asked for, but the Service is {'/'.join(wanted)} only: change one or the other"
            return Refusal(service.key, RefusalReason.ADDRESS_OF_OTHER_FAMILY, message)
    return None
