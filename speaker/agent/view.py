"""What the API holds → what is asked of this node. Pure; of 10,000 Services only those that changed are read again."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import is_

from speaker.agent.objects import NodeObject, SliceEndpoint, SliceObject
from speaker.allocator.pools import Catalogue
from speaker.allocator.settle import Settlement
from speaker.api.addresses import parse_eip, parse_host
from speaker.api.endpoints import Slice, merged
from speaker.cluster.kinds import ASSIGNED, EipObject, ServiceObject, condition_of
from speaker.cluster.objects import Key
from speaker.cluster.pools import judge
from speaker.cluster.reading import Unreadable, read_service
from speaker.model import (
    Assignment,
    Endpoint,
    Family,
    IPAddress,
    Pool,
    Protocol,
    Service,
    ServiceKey,
    TrafficPolicy,
    World,
)
from speaker.ownership.eligibility import EXCLUDE
from speaker.settings import Node

DRAIN = "eip-speaker.io/drain"
"""An annotation on a Node: ``"true"`` hands its EIPs over."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint of a node that was shut down for good (KEP-2268)."""


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """``forwards``: this node carries traffic itself, and needs every Service's endpoints."""

    default_class: bool = False
    ignore_exclude: bool = False
    drain_cordoned: bool = False
    forwards: bool = False


# ── Our Node ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NodeWishes:
    """What our Node object asks for. ``drained``: the reason to hand everything over; None: there is none."""

    node: Node
    drained: str | None = None
    ready: bool = True


def node_wishes(name: str, found: NodeObject | None, settings: ViewSettings) -> NodeWishes:
    """``found`` None: no such Node; it has no labels then, and holds what any node may hold."""
    if found is None:
        return NodeWishes(Node(name, {"kubernetes.io/hostname": name}))
    labels = found.metadata.labels
    node = Node(name, labels, excluded=EXCLUDE in labels and not settings.ignore_exclude)
    conditions = found.status.conditions or ()
    # Unknown is what the node controller writes when it hears nothing: that is not to be ready either.
    ready = next((each.status == "True" for each in conditions if each.type == "Ready"), True)
    return NodeWishes(node, _drained(found, settings), ready)


def _drained(found: NodeObject, settings: ViewSettings) -> str | None:
    if found.metadata.annotations.get(DRAIN) == "true":
        return f"annotation {DRAIN}"
    if any(taint.key == OUT_OF_SERVICE for taint in found.spec.taints or ()):
        return f"taint {OUT_OF_SERVICE}"
    if settings.drain_cordoned and found.spec.unschedulable:
        return "cordoned"
    return None


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Known:
    """A Service as last read; ``service`` None: not ours, or without an address."""

    found: ServiceObject
    service: Service | None
    addresses: tuple[IPAddress, ...]


class Reader:
    """Remembers what it read, by the object it was read from."""

    def __init__(self, settings: ViewSettings) -> None:
        self._settings = settings
        self._services: dict[Key, _Known] = {}
        self._slices: dict[Key, tuple[SliceObject, Slice]] = {}
        self._endpoints: dict[ServiceKey, tuple[tuple[Slice, ...], tuple[Endpoint, ...]]] = {}
        self._assigned: dict[ServiceKey, Assignment] = {}
        self._eips: tuple[EipObject, ...] = ()
        self._pools: dict[str, Pool] = {}
        self._catalogue = Catalogue({})

    def read(
        self,
        services: Iterable[ServiceObject],
        eips: Iterable[EipObject],
        slices_of: Callable[[ServiceKey], Collection[SliceObject]],
    ) -> tuple[World, Settlement]:
        """Who has which EIP is what the controller wrote: nothing is assigned here, and nobody refused."""
        self._read_pools(tuple(eips))
        self._services = {found.key: self._known(found) for found in services}
        ours = {known.service.key: known for known in self._services.values() if known.service is not None}
        self._assigned = {key: self._assignment(key, known) for key, known in ours.items()}
        served = {key: known.service for key, known in ours.items() if known.service is not None}
        self._endpoints = {key: self._merged(key, slices_of(key)) for key in served if self._needs(served[key])}
        endpoints = {key: found for key, (_, found) in self._endpoints.items()}
        return World(self._pools, served, endpoints), Settlement(self._assigned, {})

    def _read_pools(self, eips: tuple[EipObject, ...]) -> None:
        if _same(eips, self._eips):
            return
        self._eips = eips
        pools = {name: judged.pool for name, judged in judge(eips).items() if judged.pool is not None}
        if pools != self._pools:
            self._pools, self._catalogue, self._assigned = pools, Catalogue(pools), {}

    def _known(self, found: ServiceObject) -> _Known:
        known = self._services.get(found.key)
        if known is not None and known.found is found:
            return known
        addresses = _addresses(found)
        if not addresses:
            return _Known(found, None, ())
        if known is not None and known.service is not None and _asks(known.found) == _asks(found):
            return replace(known, found=found, addresses=addresses)
        parsed = read_service(found, default_class=self._settings.default_class)
        service = parsed.keep if isinstance(parsed, Unreadable) else parsed
        return _Known(found, service if isinstance(service, Service) else None, addresses)

    def _assignment(self, key: ServiceKey, known: _Known) -> Assignment:
        before = self._assigned.get(key)
        if before is not None and before.addresses == known.addresses:
            return before
        return Assignment(key, known.addresses, tuple(map(self._pool, known.addresses)))

    def _pool(self, address: IPAddress) -> str:
        """'' where the pool is gone: the EIP stays with its Service all the same."""
        return next((space.pool.name for space in self._catalogue.offering(address)), "")

    # ── Endpoints ─────────────────────────────────────────────────────────────────────────────────────────────

    def _needs(self, service: Service) -> bool:
        return self._settings.forwards or service.traffic_policy is TrafficPolicy.LOCAL

    def _merged(
        self, key: ServiceKey, found: Collection[SliceObject]
    ) -> tuple[tuple[Slice, ...], tuple[Endpoint, ...]]:
        slices = tuple(self._slice(each) for each in found)
        known = self._endpoints.get(key)
        if known is not None and _same(known[0], slices):
            return known
        return slices, merged(slices).get(key, ())

    def _slice(self, found: SliceObject) -> Slice:
        known = self._slices.get(found.key)
        if known is not None and known[0] is found:
            return known[1]
        read = Slice(found.service_key, tuple(_endpoints(found)))
        self._slices[found.key] = found, read
        return read

    def forget_slice(self, key: Key) -> None:
        self._slices.pop(key, None)


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _addresses(found: ServiceObject) -> tuple[IPAddress, ...]:
    """Those that our controller wrote."""
    if condition_of(found.status.conditions, ASSIGNED) is None:
        return ()
    addresses: dict[Family, IPAddress] = {}
    for ingress in found.status.load_balancer.ingress:
        try:
            address = parse_eip(ingress.ip)
        except ValueError:
            continue
        addresses.setdefault(Family.of(address), address)
    return tuple(addresses.values())


def _asks(found: ServiceObject) -> tuple[object, ...]:
    return found.spec, found.metadata.annotations, found.metadata.labels, found.metadata.creation_timestamp


_FAMILIES = {family.value: family for family in Family}
_PROTOCOLS = {protocol.value: protocol for protocol in Protocol}


def _endpoints(found: SliceObject) -> Iterable[Endpoint]:
    """The API server has validated them; what it may come to allow later is passed over."""
    if found.address_type not in _FAMILIES:
        return
    for each in found.endpoints or ():
        for address in each.addresses:
            try:
                parsed = parse_host(address)
            except ValueError:
                continue
            yield from _ports(parsed, each, found)


def _ports(address: IPAddress, endpoint: SliceEndpoint, found: SliceObject) -> Iterable[Endpoint]:
    conditions, node = endpoint.conditions, endpoint.node_name
    # Unknown means ready, and serving means ready where it is not said (discovery/v1 EndpointConditions).
    ready = conditions.ready is not False
    serving = ready if conditions.serving is None else conditions.serving
    terminating = bool(conditions.terminating)
    for port in found.ports or ():
        protocol = _PROTOCOLS.get(port.protocol or "TCP")
        if port.port is not None and protocol is not None:
            yield Endpoint(address, port.port, protocol, port.name or "", ready, serving, terminating, node)
