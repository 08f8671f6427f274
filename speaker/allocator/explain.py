"""Refusals in words: which rule it was, and what the Service's owner (or the pool's) can change.

A Service's owner may be a tenant: pools that it may not use are named to who runs the cluster alone.
"""

from collections.abc import Iterator, Sequence

from speaker.allocator.pools import Catalogue
from speaker.allocator.ranges import names
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.model import Family, IPAddress, Pool, Service

#: How many pools a sentence names before it gets too long to read.
_NAMED = 5


def no_such_pool(service: Service, catalogue: Catalogue) -> Refusal:
    its = ", ".join(sorted(pool.name for pool in _open(service, catalogue))[:_NAMED]) or "none"
    told = f"there is no pool {service.pool}: name another in eip-speaker.io/pool (it may use: {its})"
    return Refusal(service.key, RefusalReason.NO_SUCH_POOL, told)


def hosts_own(service: Service, catalogue: Catalogue, address: IPAddress) -> Refusal:
    told = f"{address} is an address of a host itself, which nobody else may answer for: ask for another address"
    more = f"of {catalogue.reserved[address]}: exclude it in the pool"
    return Refusal(service.key, RefusalReason.HOST_ADDRESS, told, more)


def not_offered(service: Service, catalogue: Catalogue, address: IPAddress) -> Refusal:
    """No pool that the Service may mean offers the address it names."""
    if address in catalogue.reserved:
        return hosts_own(service, catalogue, address)
    for pool in _open(service, catalogue):
        if service.pool not in (None, pool.name) or not names(pool.addresses, address):
            continue
        if names(pool.exclude, address):
            told = f"pool {pool.name} excludes {address}: ask for another address, or shorten the pool's exclude"
            return Refusal(service.key, RefusalReason.ADDRESS_EXCLUDED, told)
        told = (
            f"pool {pool.name} avoids {address} as a network, broadcast or anycast address: ask for another, list it "
            f"singly in the pool's addresses, or set the pool's avoidNetworkAndBroadcast to false"
        )
        return Refusal(service.key, RefusalReason.ADDRESS_AVOIDED, told)
    where = "no pool that it may use has it" if service.pool is None else f"pool {service.pool} does not have it"
    told = f"{address} cannot be given, as {where}: ask for another address, or add it to a pool"
    return Refusal(service.key, RefusalReason.ADDRESS_NOT_IN_POOL, told)


def closed(service: Service, catalogue: Catalogue, pool: Pool, address: IPAddress | None = None) -> Refusal:
    """The pool that the Service asks for, by its name or by ``address``, does not let it in, or lets nobody in."""
    if trouble := catalogue.objection(pool, service):
        asked = f"the pool of {address}" if service.pool is None else f"pool {service.pool}"
        told = f"{asked} may not be used here: it is for other namespaces or labels"
        return Refusal(service.key, RefusalReason.POOL_NOT_ALLOWED, told, f"{pool.name}: {trouble}")
    told = f"pool {pool.name} is disabled and gives nothing new: enable it, or choose another"
    return Refusal(service.key, RefusalReason.POOL_DISABLED, told)


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
    if not pools:
        return Refusal(service.key, RefusalReason.NO_POOL_FITS, "there is no pool: create an Eip")
    whys = [(pool, catalogue.objection(pool, service)) for pool in pools]
    its = [_why_not(pool) for pool, why in whys if why is None]
    others = [f"{pool.name}: {why}" for pool, why in whys if why is not None]
    told = f"no pool serves this Service ({_few(its)})" if its else "no pool serves this Service"
    return Refusal(service.key, RefusalReason.NO_POOL_FITS, told, _few(others))


def _open(service: Service, catalogue: Catalogue) -> Iterator[Pool]:
    """Those that the Service may know of, as it may use them."""
    return (pool for pool in catalogue.pools.values() if catalogue.objection(pool, service) is None)


def _why_not(pool: Pool) -> str:
    why = "it is disabled" if pool.disabled else "its autoAssign is false, so it must be asked for by name"
    return f"{pool.name}: {why}"


def _few(whys: Sequence[str]) -> str:
    return "; ".join(whys[:_NAMED])
