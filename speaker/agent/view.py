"""Turns the API's objects into what is wanted of this node. Pure. Of 10,000 Services only those that changed are read
again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from speaker.allocator.pools import Catalogue
from speaker.allocator.settle import Settlement
from speaker.api.endpoints import MAX_ENDPOINTS, Slice, merged
from speaker.api.fields import show_path
from speaker.api.kinds import (
    ASSIGNED_FROM,
    AssignedObject,
    EipObject,
    HostObject,
    NodeObject,
    SliceObject,
    asks_us,
    pools_of,
    pools_read,
)
from speaker.api.objects import Key
from speaker.api.reading import Hosts, Unreadable, judge, read_service, read_slice
from speaker.errors import InvalidField
from speaker.model import Assignment, Endpoint, Family, IPAddress, Pool, Service, ServiceKey, TrafficPolicy, World
from speaker.ownership.eligibility import EXCLUDE
from speaker.settings import Node
from speaker.system.supervise import Failures, contained

DRAIN = "eip-speaker.io/drain"
"""An annotation on a Node: ``"true"`` hands its EIPs over."""
MAX_READ = 2 * MAX_ENDPOINTS
"""After so many pairs of address and port, no more slices of a Service are read. While endpoints move they are in two
slices."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint of a node that was shut down for good (KEP-2268)."""


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """``forwards``: this node carries traffic itself. ``assists``: only past dead endpoints. Either needs every
    Service's endpoints."""

    default_class: bool = False
    ignore_exclude: bool = False
    drain_cordoned: bool = False
    forwards: bool = False
    assists: bool = False


# ── Our Node ──────────────────────────────────────────────────────────────────────────────────────────────────


class NodeIntent(NamedTuple):
    """What our Node object asks for. ``drained``: the reason to hand everything over, or None. ``ready``: its network
    is set up too."""

    node: Node
    drained: str | None = None
    ready: bool = True


def node_intent(name: str, found: NodeObject | None, settings: ViewSettings, *, unreadable: bool = False) -> NodeIntent:
    """``found`` None: no such Node; then it has no labels, and may hold what any node may hold. ``unreadable``: there
    is one that cannot be read, so it may hold nothing."""
    if found is None and unreadable:
        return NodeIntent(Node(name, {}, excluded=True))
    if found is None:
        return NodeIntent(Node(name, {"kubernetes.io/hostname": name}))
    labels = found.metadata.labels
    node = Node(name, labels, excluded=EXCLUDE in labels and not settings.ignore_exclude)
    conditions = found.status.conditions or ()
    cut_off = any(each.type == "NetworkUnavailable" and each.status == "True" for each in conditions)
    return NodeIntent(node, _drained(found, settings), found.status.ready and not cut_off)


def unread_wishes(found: NodeObject) -> Iterator[str]:
    """Requests of our Node that are not valid."""
    if (value := found.metadata.annotations.get(DRAIN, "true")) not in ("true", "false"):
        path, rule = show_path(("metadata", "annotations", DRAIN)), "must be true or false: the node is not drained"
        yield str(InvalidField(path, value, rule, f"Node/{found.metadata.name}"))


def _drained(found: NodeObject, settings: ViewSettings) -> str | None:
    if found.metadata.annotations.get(DRAIN) == "true":
        return f"annotation {DRAIN}"
    if any(taint.key == OUT_OF_SERVICE for taint in found.spec.taints or ()):
        return f"taint {OUT_OF_SERVICE}"
    if settings.drain_cordoned and found.spec.unschedulable:
        return "cordoned"
    return None


class Exclusion:
    """A node that may no longer hold anything first hands over what it has: make before break.

    ``now`` is seconds of one clock. ``drain`` as in ``Parameters``: the longest time that a drain takes.
    """

    def __init__(self, drain: float) -> None:
        self._step = drain + 1.0
        self._since: float | None = None
        self._begun = False

    def follow(self, intent: NodeIntent, now: float) -> tuple[NodeIntent, float | None]:
        """What to ask of the node for now, and in how many seconds that changes.

        A node that is excluded from the start has nothing. Any other is drained, then forbidden to hold anything, and
        then no longer drained: peers count a draining node as gone, but this one goes on hearing and vouching.
        """
        first, self._begun = not self._begun, True
        if not intent.node.excluded:
            self._since = None
            return intent, None
        if self._since is None:
            self._since = now - 2 * self._step if first else now
        passed = now - self._since
        if passed >= 2 * self._step:
            return intent, None
        drained = intent._replace(drained=intent.drained or f"label {EXCLUDE}")
        if passed >= self._step:
            return drained, 2 * self._step - passed
        return drained._replace(node=replace(intent.node, excluded=False)), self._step - passed


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Known(NamedTuple):
    """One of our Services with an address, as last read. ``problem``: what could not be read, or ''."""

    found: AssignedObject
    service: Service
    addresses: tuple[IPAddress, ...]
    pools: tuple[str, ...]
    """The pool of each address, as our controller wrote it; '' for addresses that an earlier release gave."""
    problem: str = ""


@dataclass(slots=True)
class News:
    """Everything that changed, None for what is gone; at first everything. ``slices``: Services whose endpoints
    changed. ``eips``: all of them, None if none changed. ``nodes``: ours and others."""

    services: dict[Key, AssignedObject | None] = field(default_factory=dict)
    slices: set[ServiceKey] = field(default_factory=set)
    eips: tuple[EipObject, ...] | None = None
    nodes: dict[Key, HostObject | None] = field(default_factory=dict)


class Reader:
    """Reads which Service has which EIP, and where its endpoints are. Nothing is assigned or refused here: the
    controller has done that, and wrote it into the Services."""

    def __init__(self, settings: ViewSettings) -> None:
        self._settings = settings
        self._known: dict[ServiceKey, _Known] = {}
        self._assigned: dict[ServiceKey, Assignment] = {}
        self._on: dict[IPAddress, set[ServiceKey]] = {}
        self._slices: dict[Key, tuple[SliceObject, tuple[Slice, tuple[str, ...]]]] = {}
        self._endpoints: dict[ServiceKey, tuple[Endpoint, ...]] = {}
        self._problems: dict[ServiceKey, tuple[str, ...]] = {}
        self._pools: dict[str, Pool] = {}
        """All pools that can be read, even those that give nothing new. Of pools that can no longer be read, or are
        gone, the last known state, as long as they are in use."""
        self._catalogue = Catalogue({})
        self._failed: Failures[ServiceKey] = Failures()
        """Services that met an unexpected error when they were last read: they stay as they were."""
        self._unread: dict[Key, AssignedObject | None] = {}
        """The same Services as they are now: they are read again with the next news."""
        self._unmerged: Failures[ServiceKey] = Failures()
        """Services whose endpoints met one."""
        self._failed_pools: tuple[str, ...] = ()
        """Pools that met one, each a sentence: they stay as they were."""
        self._eips: tuple[EipObject, ...] = ()
        """As they were last heard."""
        self._hosts = Hosts()

    def read(
        self, news: News, slices_of: Callable[[ServiceKey], Collection[SliceObject]]
    ) -> tuple[World, Settlement, frozenset[ServiceKey] | None]:
        """``slices_of`` returns the slices of a Service as they are now. The third result: the Services that changed;
        None: pools or nodes' addresses changed, so anything may have."""
        services, self._unread = {**self._unread, **news.services}, {}
        changed = {key for found in services.items() if (key := self._try(*found)) is not None}
        changed |= {key for key in (*news.slices, *self._unmerged) if self.follows(key)}
        for key in changed:
            self._unmerged.pop(key, None)
            with contained(key, self._unmerged):
                self._merge(key, slices_of)
        self._eips = self._eips if news.eips is None else news.eips
        pools_changed = (news.eips is not None or bool(self._failed_pools)) and self._read_pools(self._eips)
        for key in changed | self._known.keys() if pools_changed else changed:
            self._assign(key)
        hosts_changed = self._hosts.hear(news.nodes)
        served = {key: known.service for key, known in self._known.items()}
        world = World(dict(self._pools), served, dict(self._endpoints), reserved=self._hosts.reserved)
        settlement = Settlement(dict(self._assigned), {}, self._unmerged | self._failed)
        return world, settlement, None if pools_changed or hosts_changed else frozenset(changed)

    def services_on(self, eip: IPAddress) -> tuple[str, ...]:
        """namespace/name of each Service that has it."""
        return tuple(map(str, sorted(self._on.get(eip, ()))))

    def problems(self) -> tuple[str, ...]:
        """Parts of Services and their slices that could not be read and are left out; and pools that are set aside."""
        of_services = (sentence for key in sorted(self._problems) for sentence in self._problems[key])
        return *self._failed_pools, *of_services

    def follows(self, service: ServiceKey) -> bool:
        """Whether its endpoints matter."""
        return service in self._endpoints or service in self._unmerged

    def _read_pools(self, eips: tuple[EipObject, ...]) -> bool:
        """Returns whether anything that matters has changed."""
        judged = judge(eips)
        self._failed_pools = tuple(f"Eip/{name}: {each.message}" for name, each in judged.items() if each.failed)
        aside = {name: self._pools[name] for name, each in judged.items() if each.failed and name in self._pools}
        offering = {name: each.pool for name, each in judged.items() if each.pool is not None}
        refused = {name: each.refused for name, each in judged.items() if each.refused is not None}
        in_use = {pool for assignment in self._assigned.values() for pool in assignment.pools}
        in_use.update(pool for known in self._known.values() for pool in known.pools)
        former = {name: pool for name, pool in self._pools.items() if name in in_use}
        pools = {**former, **aside, **refused, **offering}
        if pools == self._pools and offering == self._catalogue.pools:
            return False
        self._pools, self._catalogue = pools, Catalogue(offering)
        return True

    def _try(self, key: Key, found: AssignedObject | None) -> ServiceKey | None:
        """Like ``_read``, but a Service that meets a bug of ours stays as it was."""
        name = ServiceKey(key.namespace, key.name)
        self._failed.pop(name, None)
        with contained(name, self._failed):
            return name if self._read(name, found) else None
        self._unread[key] = found
        return None

    def _read(self, name: ServiceKey, found: AssignedObject | None) -> bool:
        """Takes over a Service's new state. Returns whether anything that matters has changed."""
        before = self._known.get(name)
        now = self._service(found, before) if found is not None else None
        if now is not None:
            self._known[name] = now
        elif before is not None:
            del self._known[name]
        if before is not None and now is not None:
            return _counts(before) != _counts(now)
        return before is not now

    def _service(self, found: AssignedObject, before: _Known | None) -> _Known | None:
        """None if it is not ours, or has no address."""
        if not (addresses := assigned_addresses(found)):
            return None
        if before is not None and _asks(before.found) == _asks(found):
            known = before._replace(found=found, addresses=addresses, pools=_pools(found, addresses))
        else:
            here = self._settings
            parsed = read_service(found, default_class=here.default_class, fields_alone=not here.forwards)
            service, problem = (parsed.keep, parsed.message) if isinstance(parsed, Unreadable) else (parsed, "")
            if not isinstance(service, Service):
                return None
            known = _Known(found, service, addresses, _pools(found, addresses), problem)
        if (left_alone := self._left_alone(found, addresses)) != known.service.left_alone:
            known = known._replace(service=replace(known.service, left_alone=left_alone))
        if not found.spec.ip_families:
            return known
        # A family without an address from the cluster has no endpoint either.
        served = tuple(address for address in addresses if Family.of(address) in known.service.families)
        return known._replace(addresses=served, pools=_pools(found, served)) if served else None

    def _left_alone(self, found: AssignedObject, addresses: tuple[IPAddress, ...]) -> frozenset[IPAddress]:
        if self._settings.forwards:
            return frozenset()
        told = {ingress.ip for ingress in found.status.load_balancer.ingress if ingress.ip_mode == "Proxy"}
        return frozenset(address for address in addresses if str(address) in told) if told else frozenset()

    def _assign(self, key: ServiceKey) -> None:
        before, known = self._assigned.pop(key, None), self._known.get(key)
        for address in before.addresses if before is not None else ():
            self._on[address].discard(key)
            if not self._on[address]:
                del self._on[address]
        if known is None:
            return
        places = zip(known.addresses, known.pools, strict=True)
        pools = tuple(pool or self._guess(address) for address, pool in places)
        now = Assignment(key, known.addresses, pools)
        self._assigned[key] = before if before == now and before is not None else now
        for address in known.addresses:
            self._on.setdefault(address, set()).add(key)

    def _guess(self, address: IPAddress) -> str:
        """The pool of an EIP for which none was recorded; '' if it is gone."""
        return next((space.pool.name for space in self._catalogue.offering(address)), "")

    # ── Endpoints ─────────────────────────────────────────────────────────────────────────────────────────────

    def _needs_endpoints(self, service: Service) -> bool:
        here = self._settings
        return here.forwards or here.assists or service.traffic_policy is TrafficPolicy.LOCAL

    def _merge(self, key: ServiceKey, slices_of: Callable[[ServiceKey], Collection[SliceObject]]) -> None:
        known = self._known.get(key)
        problems = [known.problem] if known is not None and known.problem else []
        if known is None or not self._needs_endpoints(known.service):
            self._endpoints.pop(key, None)
        else:
            slices, left_out = self._read_slices(slices_of(key))
            problems += [sentence for _, told in slices for sentence in told]
            if left_out:
                rule = f"left out, because those before them have more than {MAX_READ} address and port pairs"
                problems.append(f"Service/{key}: {left_out} of its EndpointSlices are {rule}")
            endpoints = merged(slice_ for slice_, _ in slices).get(key, ())
            self._endpoints[key] = endpoints[:MAX_ENDPOINTS]
            problems += _misfits(known, endpoints)
        if problems:
            self._problems[key] = tuple(problems)
        else:
            self._problems.pop(key, None)

    def _read_slices(self, found: Iterable[SliceObject]) -> tuple[list[tuple[Slice, tuple[str, ...]]], int]:
        """As many slices as may be of use, and how many are left: some hundred small ones may hold millions of pairs.
        Sorted by name, so that every node uses the same."""
        read, pairs, left_out = [], 0, 0
        for each in sorted(found, key=lambda each: each.metadata.name):
            if pairs > MAX_READ:
                left_out += 1
                self.forget_slice(each.key)
            else:
                read.append(self._slice(each))
                pairs += len(read[-1][0].endpoints)
        return read, left_out

    def _slice(self, found: SliceObject) -> tuple[Slice, tuple[str, ...]]:
        known = self._slices.get(found.key)
        if known is not None and known[0] is found:
            return known[1]
        read = read_slice(found)
        self._slices[found.key] = found, read
        return read

    def forget_slice(self, key: Key) -> None:
        self._slices.pop(key, None)


def concerns_us(found: AssignedObject, *, default_class: bool) -> bool:
    """It is ours, or may be, or has an address that our controller wrote."""
    return asks_us(found.spec, default_class=default_class) or bool(assigned_addresses(found))


def is_or_was_assigned(before: AssignedObject | None, after: AssignedObject | None) -> bool:
    """A Service without an address is ignored until it gets one: looking at it costs every node some milliseconds, just
    when the controller is busy with it."""
    return any(found is not None and assigned_addresses(found) for found in (after, before))


def assigned_addresses(found: AssignedObject) -> tuple[IPAddress, ...]:
    """Addresses that our controller wrote."""
    return found.status.load_balancer.addresses if found.status.is_ours else ()


def _pools(found: AssignedObject, addresses: tuple[IPAddress, ...]) -> tuple[str, ...]:
    said = (each.message for each in found.status.conditions or () if each.type == ASSIGNED_FROM)
    return pools_of(addresses, _pools_read(next(said, "")))


_pools_read = lru_cache(256)(pools_read)


def _asks(found: AssignedObject) -> tuple[object, ...]:
    return found.spec, found.metadata.annotations


def _counts(known: _Known) -> tuple[object, ...]:
    """The parts that anything depends on."""
    return known.service, known.addresses, known.pools, known.problem


def _misfits(known: _Known, endpoints: tuple[Endpoint, ...]) -> Iterable[str]:
    subject = f"Service/{known.service.key}"
    if len(endpoints) > MAX_ENDPOINTS:
        yield f"{subject}: only {MAX_ENDPOINTS} of its {len(endpoints)} address and port pairs are used"
    if own := {endpoint.address for endpoint in endpoints if endpoint.address in known.addresses}:
        yield f"{subject}: an EndpointSlice contains its own EIP {', '.join(map(str, own))}, which is left out"
