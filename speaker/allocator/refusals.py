"""Why a Service does not get what it asks for: which rule it was, and what its owner (or the pool's) can change.

A Service's owner may be a tenant: pools that it may not use are named only to whoever runs the cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from speaker.allocator.pools import Catalogue, names
from speaker.model import Family, IPAddress, Pool, Service, ServiceKey, TrafficPolicy


class RefusalReason(Enum):
    """The value is the metric label."""

    NO_SUCH_POOL = "no_such_pool"
    NO_POOL_FITS = "no_pool_fits"
    POOL_NOT_ALLOWED = "pool_not_allowed"
    POOL_DISABLED = "pool_disabled"
    POOL_FULL = "pool_full"
    NAMESPACE_FULL = "namespace_full"
    NO_ADDRESS_OF_FAMILY = "no_address_of_family"
    ADDRESS_OF_OTHER_FAMILY = "address_of_other_family"
    ADDRESS_NOT_IN_POOL = "address_not_in_pool"
    ADDRESS_EXCLUDED = "address_excluded"
    ADDRESS_AVOIDED = "address_avoided"
    ADDRESS_IN_USE = "address_in_use"
    HOST_ADDRESS = "host_address"
    SHARED_PORT_CLASH = "shared_port_clash"
    SHARED_NAMESPACE = "shared_namespace"
    SHARED_BACKENDS = "shared_backends"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not given. ``told`` is a sentence for the Service's owner that names what to change: of other tenants,
    and of pools and nodes that are not for it, it says nothing. ``more`` does, for who runs the cluster."""

    service: ServiceKey
    reason: RefusalReason
    told: str
    more: str = ""

    @property
    def message(self) -> str:
        """All of it: not for tenants."""
        return f"{self.told} ({self.more})" if self.more else self.told


_IN_USE = RefusalReason.ADDRESS_IN_USE


def in_use(
    service: ServiceKey, other: ServiceKey, address: IPAddress, how: str, then: str, reason: RefusalReason = _IN_USE
) -> Refusal:
    """Of an address that ``other`` has."""
    if other.namespace == service.namespace:
        return Refusal(service, reason, f"{address} is {how} Service {other}{then}")
    return Refusal(service, reason, f"{address} is {how} a Service of another namespace{then}", f"by {other}")


# ── Sharing: both agree, no packet could mean either, and one node can serve both ───────────────────────────


def objection(service: Service, other: Service, address: IPAddress) -> Refusal | None:
    """Why ``service`` may not share ``address`` with ``other``, or None if it may. The rule itself is symmetric. Only a
    Service that agrees to share is told with whom."""
    if service.share is None or service.share != other.share:
        then = ": ask for another address, or give both Services the same eip-speaker.io/share key"
        return in_use(service.key, other.key, address, "held by", then)
    if is_unknown(service, other):
        return in_use(service.key, other.key, address, "held by", ", and not both can be read now")
    if not _namespaces_agree(service, other):
        then = ": each of the two must name the other's namespace in eip-speaker.io/share-namespaces"
        return in_use(service.key, other.key, address, "held by", then, RefusalReason.SHARED_NAMESPACE)
    if clashing := _ports(service) & _ports(other):
        protocol, port = min(clashing)
        served = f"port {protocol}/{port} of {address} is served by Service {other.key}, which shares it"
        then = f"{served}: change the port, or ask for another address"
        return Refusal(service.key, RefusalReason.SHARED_PORT_CLASH, then)
    if not _backends_agree(service, other):
        told = (
            f"{address} is shared with Service {other.key}, and with externalTrafficPolicy Local both need the same "
            "(and not an empty) selector in one namespace, as one node must have endpoints of both: use Cluster, or "
            "another address"
        )
        return Refusal(service.key, RefusalReason.SHARED_BACKENDS, told)
    return None


def is_unknown(service: Service, other: Service) -> bool:
    """Whether it is not known if they clash: one of them cannot be read, or there is no room for it (``remnant``)."""
    return not (service.ports and other.ports)


def _ports(service: Service) -> set[tuple[str, int]]:
    return {(port.protocol.value, port.port) for port in service.ports}


def _namespaces_agree(service: Service, other: Service) -> bool:
    mine, theirs = service.key.namespace, other.key.namespace
    return mine == theirs or (theirs in service.share_namespaces and mine in other.share_namespaces)


def _backends_agree(service: Service, other: Service) -> bool:
    """A Service without a selector has endpoints that somebody else writes: nothing says they are the same."""
    if TrafficPolicy.LOCAL not in (service.traffic_policy, other.traffic_policy):
        return True
    same_pods = service.key.namespace == other.key.namespace and service.selector == other.selector
    return bool(service.selector) and same_pods


# ── In words ────────────────────────────────────────────────────────────────────────────────────────────────

#: How many pools a sentence names before it gets too long to read.
_NAMED = 5


def no_such_pool(service: Service, catalogue: Catalogue) -> Refusal:
    its = ", ".join(sorted(pool.name for pool in _open(service, catalogue))[:_NAMED]) or "none"
    told = f"there is no pool {_asked(service)}: name another in eip-speaker.io/pool (it may use: {its})"
    return Refusal(service.key, RefusalReason.NO_SUCH_POOL, told)


def hosts_own(service: Service, catalogue: Catalogue, address: IPAddress) -> Refusal:
    told = f"{address} is a host's own address, which nobody else may answer for: ask for another address"
    more = f"of {catalogue.reserved[address]}: exclude it in the pool"
    return Refusal(service.key, RefusalReason.HOST_ADDRESS, told, more)


def not_offered(service: Service, catalogue: Catalogue, address: IPAddress) -> Refusal:
    """No pool that the Service may mean offers the address it names."""
    if address in catalogue.reserved:
        return hosts_own(service, catalogue, address)
    for pool in _open(service, catalogue):
        if (service.pools and pool.name not in service.pools) or not names(pool.addresses, address):
            continue
        if names(pool.exclude, address):
            told = f"pool {pool.name} excludes {address}: ask for another address, or shorten the pool's exclude"
            return Refusal(service.key, RefusalReason.ADDRESS_EXCLUDED, told)
        told = (
            f"pool {pool.name} avoids {address} as a network, broadcast or anycast address: ask for another, list it "
            f"singly in the pool's addresses, or set the pool's avoidNetworkAndBroadcast to false"
        )
        return Refusal(service.key, RefusalReason.ADDRESS_AVOIDED, told)
    where = f"pool {_asked(service)} does not have it" if service.pools else "no pool that it may use has it"
    told = f"{address} cannot be given, because {where}: ask for another address, or add it to a pool"
    return Refusal(service.key, RefusalReason.ADDRESS_NOT_IN_POOL, told)


def closed(service: Service, catalogue: Catalogue, pool: Pool, address: IPAddress | None = None) -> Refusal:
    """The pool that the Service asks for, by its name or by ``address``, does not let it in, or lets nobody in."""
    if trouble := catalogue.objection(pool, service):
        asked = f"pool {pool.name}" if service.pools else f"the pool of {address}"
        told = f"{asked} may not be used here: it is for other namespaces or labels"
        return Refusal(service.key, RefusalReason.POOL_NOT_ALLOWED, told, f"{pool.name}: {trouble}")
    told = f"pool {pool.name} is disabled and gives nothing new: enable it, or choose another"
    return Refusal(service.key, RefusalReason.POOL_DISABLED, told)


def namespace_full(service: Service, family: Family, pools: Sequence[Pool]) -> Refusal:
    """Its namespace has all that it may have of these pools."""
    has = ", ".join(f"{pool.per_namespace} of pool {pool.name}" for pool in pools[:_NAMED])
    told = f"namespace {service.key.namespace} has all {family} addresses that it may have, {has}: free or share one"
    return Refusal(service.key, RefusalReason.NAMESPACE_FULL, told)


def nothing_free(service: Service, catalogue: Catalogue, family: Family, limited: Sequence[Pool]) -> Refusal:
    """No pool could make a free choice for the Service. ``limited``: those of which its namespace has all it may."""
    full = [space.pool.name for space in catalogue.open_to(service, family)]
    if limited:
        return namespace_full(service, family, limited)
    if full:
        plural = "s have" if len(full) > 1 else " has"
        message = f"pool{plural} no free {family} address: {', '.join(full[:_NAMED])}: add addresses or free some"
        return Refusal(service.key, RefusalReason.POOL_FULL, message)
    if service.pools:
        pool = catalogue.pools[service.pools[0]]
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


def _asked(service: Service) -> str:
    return " or ".join(service.pools)


def _why_not(pool: Pool) -> str:
    why = "it is disabled" if pool.disabled else "its autoAssign is false, so it must be asked for by name"
    return f"{pool.name}: {why}"


def _few(whys: Sequence[str]) -> str:
    return "; ".join(whys[:_NAMED])
