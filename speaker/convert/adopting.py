"""Lets every Service keep its address: gives one share key to the Services at one address, and makes pools for
addresses that no other converted pool gives to the Service.
"""

from collections.abc import Iterable, Mapping, Sequence

from speaker.allocator.refusals import RefusalReason
from speaker.convert.draft import Draft as Pool
from speaker.convert.draft import Made
from speaker.convert.ranges import less, within
from speaker.convert.services import Draft as Service
from speaker.model import AddressRange, IPAddress, ServiceKey

MOVABLE = frozenset(
    {
        RefusalReason.ADDRESS_NOT_IN_POOL,
        RefusalReason.ADDRESS_EXCLUDED,
        RefusalReason.ADDRESS_AVOIDED,
        RefusalReason.POOL_NOT_ALLOWED,
        RefusalReason.POOL_DISABLED,
        RefusalReason.NO_SUCH_POOL,
    }
)
"""Refusals that a pool with just this address avoids."""


def share(services: Sequence[Service]) -> None:
    """Services at one address now, which at their peer need no share key."""
    for address, together in _by_address(services).items():
        if len(together) > 1:
            _agree(address, together)


def _by_address(services: Iterable[Service]) -> Mapping[IPAddress, list[Service]]:
    found: dict[IPAddress, list[Service]] = {}
    for service in services:
        for address in service.addresses if service.present else ():
            found.setdefault(address, []).append(service)
    return found


def _agree(address: IPAddress, together: list[Service]) -> None:
    keys = {service.share for service in together if service.share}
    if len(keys) > 1:
        return
    key = next(iter(keys), f"adopted-{_slug(address)}")
    namespaces = {service.key.namespace for service in together}
    for service in together:
        service.share = key
        service.share_namespaces = sorted({*service.share_namespaces, *namespaces} - {service.key.namespace})


def of_their_own(made: Made, services: Sequence[Service], refused: Mapping[ServiceKey, RefusalReason]) -> list[Pool]:
    """For each namespace, a pool with the current addresses of its refused Services; other pools give them up.
    Addresses announced elsewhere stay there."""
    sharing = _by_address(services)
    wanted: dict[tuple[str, ...], dict[IPAddress, Service]] = {}
    placed: set[IPAddress] = set()
    for service in services:
        if not service.present or refused.get(service.key) not in MOVABLE or _elsewhere(made, service):
            continue
        partners = [other for address in service.addresses for other in sharing[address]]
        namespaces = tuple(sorted({other.key.namespace for other in partners}))
        for partner in partners:
            partner.pool = ""
        new = [address for address in service.addresses if address not in placed]
        wanted.setdefault(namespaces, {}).update(dict.fromkeys(new, service))
        placed.update(new)
    return [_pool(made, namespaces, found) for namespaces, found in wanted.items() if found]


def _elsewhere(made: Made, service: Service) -> bool:
    return any(within(made.elsewhere, address) for address in service.addresses)


def _pool(made: Made, namespaces: tuple[str, ...], found: Mapping[IPAddress, Service]) -> Pool:
    blocks = [AddressRange(address, address) for address in found]
    holders = [draft for draft in made.drafts if any(within(draft.blocks, address) for address in found)]
    for draft in holders:
        draft.blocks = less(draft.blocks, blocks)
    first = next(iter(found))
    name = f"adopted-{namespaces[0] if len(namespaces) == 1 else _slug(first)}"
    if any(draft.name == name for draft in made.drafts):
        name = f"{name}-{_slug(first)}"
    pool = Pool(found[first].document, name, blocks)
    pool.namespaces, pool.auto_assign = list(namespaces), False
    if holders:
        like = holders[0]
        pool.interface, pool.node_selector, pool.gratuitous = like.interface, like.node_selector, like.gratuitous
    return pool


def _slug(address: IPAddress) -> str:
    return address.exploded.replace(":", "-").replace(".", "-")
