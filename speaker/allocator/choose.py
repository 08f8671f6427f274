"""What one Service is to hold, decided from the book. Reads everything and changes nothing."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from speaker.allocator import refusals
from speaker.allocator.book import Book, Eip, NotServed
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.model import Family, FamilyPolicy, IPAddress, Pool, Service, rank

#: How many EIPs of its share key a Service looks at before it takes one of its own: it bounds the cost where
#: thousands of Services carry one key and one port.
JOIN_LOOKS = 64
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
    search = _Search(book, service.key.namespace, spare, {*held})
    for i in sorted(range(len(asks)), key=lambda i: i not in kept and not _requested(asks[i][1], asks[i][0])):
        family, ask = asks[i]
        if i in kept:
            found = _stay(book, service, kept[i])
        else:
            found = _find(search, ask, family)
            other = next((each for each in spare if Family.of(each) is family), None)
            if found.address is None and other is not None:
                spare.remove(other)
                found = replace(_stay(book, service, other), refusal=found.refusal)
        decided[i] = found
        search.near = search.near or found.pool or None
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
        return Decision(address, eip.pool, refusals.hosts_own(service, book.catalogue, address), suspended=True)
    was_suspended = eip.holders.get(service.key) is NotServed.SUSPENDED
    for key, other in sorted(eip.holders.items()):
        if key == service.key or other is NotServed.SUSPENDED:
            continue
        if other is NotServed.UNSEEN or (service.share == other.share and refusals.is_unknown(service, other)):
            # It was legal when both were known; only who was out of favour then has to wait for it.
            unread = refusals.in_use(service.key, key, address, "shared with", ", which was not read yet")
            trouble = unread if was_suspended else None
        else:
            trouble = refusals.objection(service, other, address)
        if trouble is not None:
            return Decision(address, eip.pool, trouble, suspended=True)
    return Decision(address, eip.pool)


@dataclass(slots=True)
class _Search:
    """What one decision has come to so far. ``spare``: what the Service holds and is not known to keep; ``but``: what
    is not to be found, as it has it; ``near``: the pool to look in first."""

    book: Book
    namespace: str
    spare: list[IPAddress]
    but: set[IPAddress]
    near: str | None = None
    new: Counter[tuple[str, Family]] = field(default_factory=Counter)
    """Addresses found, by pool, that its namespace does not have yet."""

    def is_at_limit(self, pool: Pool, family: Family, address: IPAddress | None = None) -> bool:
        """Whether its namespace may have no other address of the pool, and the Service gives none up for it."""
        return self._over(pool, family, address) > len(self._own(pool, family))

    def take(self, found: Decision, family: Family) -> None:
        pool, address = self.book.catalogue.pools.get(found.pool), found.address
        if pool is None or address is None:
            return
        for own in self._own(pool, family)[: self._over(pool, family, address)]:
            self.spare.remove(own)
        self.but.add(address)
        self.new[pool.name, family] += not self.book.has_namespace(address, self.namespace)

    def _over(self, pool: Pool, family: Family, address: IPAddress | None) -> int:
        """By how many it would have too many."""
        if pool.per_namespace is None or (address and self.book.has_namespace(address, self.namespace)):
            return 0
        has = self.book.shares.get(pool.name, Counter())[self.namespace, family] + self.new[pool.name, family]
        return max(0, has + 1 - pool.per_namespace)

    def _own(self, pool: Pool, family: Family) -> list[IPAddress]:
        """Of the spare ones those whose end leaves its namespace one less."""
        mine = (each for each in self.spare if Family.of(each) is family and self.book.eips[each].pool == pool.name)
        holders = ((each, self.book.eips[each].holders) for each in mine)
        return [each for each, keys in holders if sum(key.namespace == self.namespace for key in keys) == 1]


def _find(search: _Search, service: Service, family: Family) -> Decision:
    """An address that the Service does not hold yet: it asks for one alone."""
    book = search.book
    if service.pools and book.catalogue.pools.keys().isdisjoint(service.pools):
        return Decision(None, refusal=refusals.no_such_pool(service, book.catalogue))
    if named := _requested(service, family):
        found: Decision | None = _find_requested(search, service, named[0])
    else:
        found = (
            _find_shared(search, service, family)
            or _find_left(search, service, family)
            or _find_free(search, service, family)
        )
    if found is None:
        spaces = book.catalogue.open_to(service, family)
        limited = [space.pool for space in spaces if search.is_at_limit(space.pool, family)]
        return Decision(None, refusal=refusals.nothing_free(service, book.catalogue, family, limited))
    search.take(found, family)
    return found


def _find_requested(search: _Search, service: Service, address: IPAddress) -> Decision:
    book = search.book
    pools = [space.pool for space in book.catalogue.offering(address)]
    if service.pools:
        pools = [pool for pool in pools if pool.name in service.pools]
    if not pools:
        return Decision(None, refusal=refusals.not_offered(service, book.catalogue, address))
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
        return Decision(None, refusal=refusals.closed(service, book.catalogue, (allowed or pools)[0], address))
    if eip is not None and (trouble := _objection_to_joining(service, address, eip)):
        return Decision(None, refusal=trouble)
    if search.is_at_limit(pool, Family.of(address), address):
        return Decision(None, refusal=refusals.namespace_full(service, Family.of(address), [pool]))
    return Decision(address, pool.name)


def _find_shared(search: _Search, service: Service, family: Family) -> Decision | None:
    if service.share is None:
        return None
    book = search.book
    for namespace in (service.key.namespace, *sorted(service.share_namespaces - {service.key.namespace})):
        for address in book.shared_under(service.share, namespace, family, JOIN_LOOKS):
            eip = book.eips[address]
            if _gives(search, service, address, eip.pool) and not _objection_to_joining(service, address, eip):
                return Decision(address, eip.pool)
    return None


def _find_left(search: _Search, service: Service, family: Family) -> Decision | None:
    for address in islice(search.book.left_by(service.key), JOIN_LOOKS):
        if Family.of(address) is family:
            for space in search.book.catalogue.offering(address):
                if _gives(search, service, address, space.pool.name):
                    return Decision(address, space.pool.name)
    return None


def _find_free(search: _Search, service: Service, family: Family) -> Decision | None:
    for space in search.book.catalogue.open_to(service, family, search.near):
        if not search.is_at_limit(space.pool, family) and (address := space.choose(search.but)) is not None:
            return Decision(address, space.pool.name)
    return None


def _gives(search: _Search, service: Service, address: IPAddress, pool: str) -> bool:
    catalogue = search.book.catalogue
    return address not in search.but and any(
        space.pool.name == pool
        and catalogue.chooses(space.pool, service)
        and not search.is_at_limit(space.pool, Family.of(address), address)
        for space in catalogue.offering(address)
    )


def _objection_to_joining(service: Service, address: IPAddress, eip: Eip) -> Refusal | None:
    """Nobody joins an EIP without the consent of all that are served there, of whom there must be one. The first by
    name is told of."""
    if len(eip.holders) - (service.key in eip.holders) >= MAX_SHARING:
        told = f"{address} is already shared by {MAX_SHARING} Services: ask for another address"
        return Refusal(service.key, RefusalReason.ADDRESS_IN_USE, told)
    then = ": ask for another address"
    others = {key: holder for key, holder in sorted(eip.holders.items()) if key != service.key}
    consent = not others
    for key, other in others.items():
        if isinstance(other, Service):
            if trouble := refusals.objection(service, other, address):
                return trouble
            consent = True
        elif other is NotServed.UNSEEN:
            return refusals.in_use(service.key, key, address, "held by", then)
    if consent:
        return None
    return refusals.in_use(service.key, next(iter(others)), address, "kept for", then)


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
