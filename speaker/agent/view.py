"""What the API holds → what is asked of this node. Pure; of 10,000 Services only those that changed are read again."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from speaker.agent.objects import AssignedObject, NodeObject, SliceEndpoint, SliceObject
from speaker.allocator.pools import Catalogue
from speaker.allocator.settle import Settlement
from speaker.api.addresses import parse_eip, parse_host
from speaker.api.endpoints import Slice, merged
from speaker.cluster.hosts import HostObject, Hosts
from speaker.cluster.kinds import ASSIGNED, ASSIGNED_FROM, EipObject, pools_read
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
    """A Service of ours with an address, as last read."""

    found: AssignedObject
    service: Service
    addresses: tuple[IPAddress, ...]
    pools: Mapping[Family, str]
    """Which each is from, as our controller wrote it; of addresses that an earlier release gave, nothing."""


@dataclass(slots=True)
class News:
    """What is another than it was, None for what is gone; at first everything. ``slices``: Services whose endpoints
    changed; ``eips``: all of them, None where none changed; ``nodes``: others as well as ours."""

    services: dict[Key, AssignedObject | None] = field(default_factory=dict)
    slices: set[ServiceKey] = field(default_factory=set)
    eips: tuple[EipObject, ...] | None = None
    nodes: dict[Key, HostObject | None] = field(default_factory=dict)


class Reader:
    """Who has which EIP, and where its endpoints are. Nothing is assigned here, and nobody refused: the controller has
    done that, and wrote it into the Services."""

    def __init__(self, settings: ViewSettings) -> None:
        self._settings = settings
        self._known: dict[ServiceKey, _Known] = {}
        self._assigned: dict[ServiceKey, Assignment] = {}
        self._on: dict[IPAddress, set[ServiceKey]] = {}
        self._slices: dict[Key, tuple[SliceObject, Slice]] = {}
        self._endpoints: dict[ServiceKey, tuple[Endpoint, ...]] = {}
        self._pools: dict[str, Pool] = {}
        """All that can be read, also those from which nothing new is given; of those that cannot be read any more, or
        are gone, what was last known, for as long as they are in use."""
        self._catalogue = Catalogue({})
        self._hosts = Hosts()
        self._reserved: Mapping[IPAddress, str] = {}

    def read(
        self, news: News, slices_of: Callable[[ServiceKey], Collection[SliceObject]]
    ) -> tuple[World, Settlement, frozenset[ServiceKey] | None]:
        """``slices_of`` gives those of a Service as they are now. The last of the three: the Services of which anything
        changed; None: pools changed, or addresses of nodes, and so may anything."""
        changed = {key for found in news.services.items() if (key := self._read(*found)) is not None}
        changed |= {key for key in news.slices if self.follows(key)}
        for key in changed:
            self._merge(key, slices_of)
        pools_changed = news.eips is not None and self._read_pools(news.eips)
        for key in changed | self._known.keys() if pools_changed else changed:
            self._assign(key)
        if hosts_changed := self._hosts.hear(news.nodes):
            self._reserved = self._hosts.reserved()
        services = {key: known.service for key, known in self._known.items()}
        world = World(dict(self._pools), services, dict(self._endpoints), reserved=self._reserved)
        settlement = Settlement(dict(self._assigned), {})
        return world, settlement, None if pools_changed or hosts_changed else frozenset(changed)

    def services_on(self, eip: IPAddress) -> tuple[str, ...]:
        """namespace/name of each that has it."""
        return tuple(map(str, sorted(self._on.get(eip, ()))))

    def follows(self, service: ServiceKey) -> bool:
        """Its endpoints matter."""
        return service in self._endpoints

    def _read_pools(self, eips: tuple[EipObject, ...]) -> bool:
        """Whether anything that counts is another."""
        judged = judge(eips)
        offering = {name: each.pool for name, each in judged.items() if each.pool is not None}
        refused = {name: each.refused for name, each in judged.items() if each.refused is not None}
        in_use = {pool for assignment in self._assigned.values() for pool in assignment.pools}
        former = {name: pool for name, pool in self._pools.items() if name in in_use}
        pools = {**former, **refused, **offering}
        if pools == self._pools and offering == self._catalogue.pools:
            return False
        self._pools, self._catalogue = pools, Catalogue(offering)
        return True

    def _read(self, key: Key, found: AssignedObject | None) -> ServiceKey | None:
        """Takes over what became of a Service; its key where that is of any interest."""
        name = ServiceKey(key.namespace, key.name)
        before = self._known.get(name)
        now = self._service(found, before) if found is not None else None
        if now is not None:
            self._known[name] = now
        elif before is not None:
            del self._known[name]
        if before is not None and now is not None:
            same = (before.service, before.addresses, before.pools) == (now.service, now.addresses, now.pools)
            return None if same else name
        return None if before is now else name

    def _service(self, found: AssignedObject, before: _Known | None) -> _Known | None:
        """None where it is not ours, or has no address."""
        addresses = _addresses(found)
        if not addresses:
            return None
        if before is not None and _asks(before.found) == _asks(found):
            return replace(before, found=found, addresses=addresses, pools=_pools(found))
        parsed = read_service(found, default_class=self._settings.default_class)
        service = parsed.keep if isinstance(parsed, Unreadable) else parsed
        return _Known(found, service, addresses, _pools(found)) if isinstance(service, Service) else None

    def _assign(self, key: ServiceKey) -> None:
        before, known = self._assigned.pop(key, None), self._known.get(key)
        for address in before.addresses if before is not None else ():
            self._on[address].discard(key)
            if not self._on[address]:
                del self._on[address]
        if known is None:
            return
        pools = tuple(known.pools.get(Family.of(address)) or self._guess(address) for address in known.addresses)
        now = Assignment(key, known.addresses, pools)
        self._assigned[key] = before if before == now and before is not None else now
        for address in known.addresses:
            self._on.setdefault(address, set()).add(key)

    def _guess(self, address: IPAddress) -> str:
        """The pool of an EIP of which none was recorded, '' where it is gone."""
        return next((space.pool.name for space in self._catalogue.offering(address)), "")

    # ── Endpoints ─────────────────────────────────────────────────────────────────────────────────────────────

    def _merge(self, key: ServiceKey, slices_of: Callable[[ServiceKey], Collection[SliceObject]]) -> None:
        known = self._known.get(key)
        if known is None or not self._needs(known.service):
            self._endpoints.pop(key, None)
            return
        self._endpoints[key] = merged(map(self._slice, slices_of(key))).get(key, ())

    def _needs(self, service: Service) -> bool:
        return self._settings.forwards or service.traffic_policy is TrafficPolicy.LOCAL

    def _slice(self, found: SliceObject) -> Slice:
        known = self._slices.get(found.key)
        if known is not None and known[0] is found:
            return known[1]
        read = Slice(found.service_key, tuple(_endpoints(found)))
        self._slices[found.key] = found, read
        return read

    def forget_slice(self, key: Key) -> None:
        self._slices.pop(key, None)


def _addresses(found: AssignedObject) -> tuple[IPAddress, ...]:
    """Those that our controller wrote."""
    if not any(condition.type == ASSIGNED for condition in found.status.conditions or ()):
        return ()
    addresses: dict[Family, IPAddress] = {}
    for ingress in found.status.load_balancer.ingress:
        try:
            address = parse_eip(ingress.ip)
        except ValueError:
            continue
        addresses.setdefault(Family.of(address), address)
    return tuple(addresses.values())


def _pools(found: AssignedObject) -> Mapping[Family, str]:
    said = (each.message for each in found.status.conditions or () if each.type == ASSIGNED_FROM)
    return _pools_read(next(said, ""))


_pools_read = lru_cache(256)(pools_read)


def _asks(found: AssignedObject) -> tuple[object, ...]:
    return found.spec, found.metadata.annotations


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
