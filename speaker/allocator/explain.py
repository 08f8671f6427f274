"""Refusals in words: which rule it was, and what the Service's owner (or the pool's) can change."""

from itertools import islice

from speaker.allocator.pools import Catalogue
from speaker.allocator.ranges import names
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.model import Family, IPAddress, Pool, Service

#: How many pools a sentence names before it gets too long to read.
_NAMED = 5


def no_such_pool(service: Service, catalogue: Catalogue) -> Refusal:
    known = ", ".join(sorted(catalogue.pools)[:_NAMED]) or "none"
    message = f"there is no pool {service.pool}: name another in eip-speaker.io/pool (the pools are: {known})"
    return Refusal(service.key, RefusalReason.NO_SUCH_POOL, message)


def hosts_own(service: Service, catalogue: Catalogue, address: IPAddress) -> Refusal:
    message = (
        f"{address} is an address of {catalogue.reserved[address]} itself, which nobody else may answer for: ask for "
        f"another address, and exclude this one in the pool"
    )
    return Refusal(service.key, RefusalReason.HOST_ADDRESS, message)


def not_offered(service: Service, catalogue: Catalogue, address: IPAddress) -> Refusal:
    """No pool that the Service may mean offers the address it names."""
    if address in catalogue.reserved:
        return hosts_own(service, catalogue, address)
    candidates = sorted(catalogue.pools) if service.pool is None else [service.pool]
    for pool in (catalogue.pools[name] for name in candidates):
        if not names(pool.addresses, address):
            continue
        if names(pool.exclude, address):
            message = f"pool {pool.name} excludes {address}: ask for another address, or shorten the pool's exclude"
            return Refusal(service.key, RefusalReason.ADDRESS_EXCLUDED, message)
        message = (
            f"pool {pool.name} avoids {address} as a network, broadcast or anycast address: ask for another, list it "
            f"singly in the pool's addresses, or set the pool's avoidNetworkAndBroadcast to false"
        )
        return Refusal(service.key, RefusalReason.ADDRESS_AVOIDED, message)
    where = "no pool has it" if service.pool is None else f"pool {service.pool} does not have it"
    message = f"{address} cannot be given, as {where}: ask for another address, or add it to a pool"
    return Refusal(service.key, RefusalReason.ADDRESS_NOT_IN_POOL, message)


def closed(service: Service, catalogue: Catalogue, pool: Pool) -> Refusal:
    """The pool that the Service asks for does not let it in, or lets nobody in."""
    if trouble := catalogue.objection(pool, service):
        return Refusal(service.key, RefusalReason.POOL_NOT_ALLOWED, f"pool {pool.name} may not be used here: {trouble}")
    message = f"pool {pool.name} is disabled and gives nothing new: enable it, or choose another"
    return Refusal(service.key, RefusalReason.POOL_DISABLED, message)


def nothing_free(service: Service, catalogue: Catalogue, family: Family) -> Refusal:
    """No pool could make a free choice for the Service."""
    full = [space.pool.name for space in catalogue.open_to(service, family)]
    if full:
        plural = "s have" if len(full) > 1 else " has"
        message = f"pool{plural} no free {family} address: {', '.join(full[:_NAMED])}: add addresses or free some"
        return Refusal(service.key, RefusalReason.POOL_FULL, message)
    if service.pool is not None:
        pool = catalogue.pools[service.pool]
        if not catalogue.chooses(pool, service):
            return closed(service, catalogue, pool)
        message = f"pool {pool.name} has no {family} addresses: add some, or change the Service's ipFamilies"
        return Refusal(service.key, RefusalReason.NO_ADDRESS_OF_FAMILY, message)
    pools = catalogue.pools.values()
    if any(catalogue.chooses(pool, service) for pool in pools):
        message = f"no pool that serves this Service has {family} addresses: add some, or change its ipFamilies"
        return Refusal(service.key, RefusalReason.NO_ADDRESS_OF_FAMILY, message)
    why = "; ".join(f"{pool.name}: {_why_not(pool, service, catalogue)}" for pool in islice(pools, _NAMED))
    message = f"no pool serves this Service ({why})" if why else "there is no pool: create an Eip"
    return Refusal(service.key, RefusalReason.NO_POOL_FITS, message)


def _why_not(pool: Pool, service: Service, catalogue: Catalogue) -> str:
    if pool.disabled:
        return "it is disabled"
    return catalogue.objection(pool, service) or "its autoAssign is false, so it must be asked for by name"
