"""One reading of the world → who has which EIP, in an order that does not depend on who was read first."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from speaker.allocator.assign import Allocator, Outcome
from speaker.allocator.refusals import Refusal
from speaker.model import Assignment, IPAddress, Service, ServiceKey, World


@dataclass(frozen=True, slots=True)
class Settlement:
    """A Service is in ``assignments`` if it is served, in ``refusals`` if it lacks something it asks for, and in both
    if it is served with less than that."""

    assignments: Mapping[ServiceKey, Assignment]
    refusals: Mapping[ServiceKey, Refusal]
    failed: Mapping[ServiceKey, Exception] = field(default_factory=dict)
    """Those that met what nobody foresaw."""


def settle(allocator: Allocator, world: World, now: float) -> Settlement:
    """Release what is gone, then assign the rest. ``now`` in seconds, as in ``Allocator``.

    Who holds something comes first, so that nobody is given what a later Service holds already; then who names an
    address, so that no free choice takes it; then the older Service; then its key.
    """
    allocator.set_pools(world.pools, world.namespaces, world.reserved)
    for key in sorted(allocator.holders - world.services.keys()):
        allocator.release(key, now)
    ordered = sorted(world.services.values(), key=precedence)
    outcomes = _ask(allocator, ordered, now)
    # Whoever was refused something may have been asked before others changed: as they are now, it may have it, or it is
    # to be told something else.
    while lacking := [each for each in ordered if outcomes[each.key].refusal or each.key in allocator.outdated]:
        before = allocator.revision
        outcomes.update(_ask(allocator, lacking, now))
        if allocator.revision == before:
            break
    return Settlement(
        assignments={key: each.assignment for key, each in outcomes.items() if each.assignment is not None},
        refusals={key: each.refusal for key, each in outcomes.items() if each.refusal is not None},
        failed=dict(allocator.failed),
    )


def with_own_addresses(world: World, own: Mapping[IPAddress, str]) -> World:
    """``own``: the addresses of this host, and the link that each is bound on."""
    return replace(world, reserved={address: f"this host ({link})" for address, link in own.items()})


def with_former_pools(world: World, allocator: Allocator) -> World:
    """What is served after ``settle``: by the rules of pools that are gone, too, where their EIPs are in use."""
    return replace(world, pools={**allocator.former_pools, **world.pools})


def _ask(allocator: Allocator, ordered: list[Service], now: float) -> dict[ServiceKey, Outcome]:
    holders = [service for service in ordered if service.key in allocator.holders]
    newcomers = [service for service in ordered if service.key not in allocator.holders]
    outcomes = _assign_holders(allocator, holders, now)
    outcomes.update((service.key, allocator.assign(service, now)) for service in newcomers)
    return outcomes


def _assign_holders(allocator: Allocator, holders: list[Service], now: float) -> dict[ServiceKey, Outcome]:
    """A holder may want what another one gives up only after it was asked: ask again while anything moves."""
    outcomes: dict[ServiceKey, Outcome] = {}
    asking = holders
    while asking:
        before = allocator.revision
        outcomes.update((service.key, allocator.assign(service, now)) for service in asking)
        if allocator.revision == before:
            break
        asking = [service for service in asking if outcomes[service.key].refusal is not None]
    return outcomes


def precedence(service: Service) -> tuple[bool, str, str, str]:
    """The order in which Services are asked."""
    return not service.addresses, service.created, service.key.namespace, service.key.name
