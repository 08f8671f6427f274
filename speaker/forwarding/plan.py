"""Which virtual servers a node's kernel should have. Pure.

``plan`` turns Services and their endpoints into virtual servers and real servers (IPVS's words, also if nftables does
the work); ``changes.py`` says what leads from one plan to another.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from speaker.model import (
    Assignment,
    Endpoint,
    Family,
    IPAddress,
    IPNetwork,
    Protocol,
    Service,
    ServiceKey,
    Traffic,
    TrafficPolicy,
    World,
    rank,
    with_port,
)
from speaker.system.supervise import Failures, contained

DEFAULT_SCHEDULER = "rr"

VirtualServerKey: TypeAlias = tuple[IPAddress, Protocol, int]

NUMBERS = {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}
"""As IP has them, for the kernel."""
PROTOCOLS = {number: protocol for protocol, number in NUMBERS.items()}


@dataclass(frozen=True, slots=True, order=True)
class RealServer:
    """One backend. Weight 0: established connections go on, new ones go elsewhere."""

    address: IPAddress
    port: int
    weight: int = 1
    local: bool = False
    """It runs on this node: its replies pass here anyway, so it needs no masquerade."""

    @property
    def place(self) -> tuple[IPAddress, int]:
        return self.address, self.port

    def __str__(self) -> str:
        return f"{with_port(self.address, self.port)} weight {self.weight}{' local' if self.local else ''}"


@dataclass(frozen=True, slots=True)
class VirtualServer:
    """One port of one EIP. It exists even without real servers: connections are then rejected, not left to the host."""

    address: IPAddress
    protocol: Protocol
    port: int
    scheduler: str = DEFAULT_SCHEDULER
    persistence: int | None = None
    """Seconds that a client's address sticks to its real server; None: every connection is scheduled on its own."""
    sources: tuple[IPNetwork, ...] = ()
    """Clients that may connect; empty: everyone."""
    masquerade: bool = True
    """False for traffic policy Local: the real server sees the client's own address."""
    real_servers: tuple[RealServer, ...] = ()
    """Sorted."""
    elsewhere: bool = False
    """With policy Local, health checks found all endpoints on this node unwell, but not those of all nodes. Connections
    go on, and this node's own clients get another endpoint at the holder (``taken_here``)."""
    without: tuple[str, ...] = field(default=(), compare=False)
    """Dead nodes whose endpoints get nothing new, though Kubernetes calls them ready. Sorted; the kernel does not know
    this."""

    @property
    def key(self) -> VirtualServerKey:
        return self.address, self.protocol, self.port

    def __str__(self) -> str:
        parts = [f"{label(self.key)} {self.scheduler}"]
        if self.persistence is not None:
            parts.append(f"persistent {self.persistence}s")
        if self.sources:
            parts.append(f"from {','.join(map(str, self.sources))}")
        if not self.masquerade:
            parts.append("keeps the client's address")
        if self.without:
            parts.append(f"without {','.join(self.without)}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything this node's kernel should forward; ``eips`` also names those without a virtual server."""

    eips: frozenset[IPAddress]
    virtual_servers: Mapping[VirtualServerKey, VirtualServer]


EMPTY = Plan(frozenset(), {})


def plan(world: World, assignments: Mapping[ServiceKey, Assignment], node: str) -> Plan:
    """The virtual servers of every assigned EIP, as seen from ``node``.

    An assignment whose Service is gone contributes nothing, nor does an EIP that this node could only refuse. If two
    Services ask for one port of a shared EIP (which the allocator prevents), the first by name gets it.
    """
    return Planner().plan(world, assignments, node, None)


class Planner:
    """Plans again and again: what did not change is passed on as the same objects, which ``diff`` skips."""

    def __init__(self) -> None:
        self._eips: dict[IPAddress, dict[ServiceKey, None]] = {}
        self._servers: dict[VirtualServerKey, dict[ServiceKey, VirtualServer]] = {}
        """Both by the Services that ask for them."""
        self._of: dict[ServiceKey, tuple[tuple[IPAddress, ...], tuple[VirtualServer, ...]]] = {}
        self._plan = EMPTY
        self.failed: Failures[ServiceKey] = Failures()
        """Services whose planning met an unexpected error since they last changed: their part stays as it was."""

    def plan(
        self,
        world: World,
        assignments: Mapping[ServiceKey, Assignment],
        node: str,
        changed: Iterable[ServiceKey] | None,
    ) -> Plan:
        """``changed``: the Services that differ from the previous call, including their endpoints and assignments, if
        nothing else does; None: anything may."""
        keys = {*assignments, *self._of} if changed is None else set(changed)
        touched: set[VirtualServerKey] = set()
        moved: set[IPAddress] = set()
        for key in keys:
            before = self._of.pop(key, ((), ()))
            self.failed.pop(key, None)
            service, held = world.services.get(key), assignments.get(key)
            if service is not None and held is not None:
                with contained(key, self.failed):
                    # A real server that is its own EIP would send packets round in a circle.
                    endpoints = tuple(e for e in world.endpoints.get(key, ()) if e.address not in held.addresses)
                    here = _served_here(service, held.addresses, endpoints, node)
                    made = _virtual_servers(service, here, endpoints, node, world.lost)
                if key in self.failed:
                    here = tuple(eip for eip in before[0] if eip in held.addresses)
                    made = tuple(server for server in before[1] if server.address in here)
                if changed is None and made == before[1] and _without(made) == _without(before[1]):
                    made = before[1]
                self._of[key] = here, made
            eips, servers = self._of.get(key, ((), ()))
            _ask(self._eips, key, dict.fromkeys(before[0]), dict.fromkeys(eips))
            _ask(self._servers, key, {old.key: old for old in before[1]}, {new.key: new for new in servers})
            moved.update(before[0], eips)
            touched.update(server.key for server in (*before[1], *servers))
        if touched or moved:
            self._plan = self._after(moved, touched)
        return self._plan

    def _after(self, moved: set[IPAddress], touched: set[VirtualServerKey]) -> Plan:
        servers = dict(self._plan.virtual_servers)  # the previous plan keeps its own
        for key in touched:
            if asked := self._servers.get(key):
                servers[key] = asked[min(asked)]
            else:
                servers.pop(key, None)
        eips = self._plan.eips
        if any((eip in self._eips) != (eip in eips) for eip in moved):
            eips = frozenset(self._eips)
        return Plan(eips, servers)


T = TypeVar("T")
K = TypeVar("K")

MAX_REAL_SERVERS = 4096
"""Per virtual server: whoever may write EndpointSlices in one namespace must not fill every node's kernel."""


def _ask(asked: dict[K, dict[ServiceKey, T]], service: ServiceKey, before: Mapping[K, T], now: Mapping[K, T]) -> None:
    """``service`` asks for ``now``, and no longer for the rest of ``before``."""
    for key in before.keys() - now.keys():
        del asked[key][service]
        if not asked[key]:
            del asked[key]
    for key, value in now.items():
        asked.setdefault(key, {})[service] = value


def _served_here(
    service: Service, eips: tuple[IPAddress, ...], endpoints: tuple[Endpoint, ...], node: str
) -> tuple[IPAddress, ...]:
    """Those of ``eips`` that concern this node.

    With traffic policy Local a node without endpoints serves nobody: its own clients' packets go to the holder like
    everybody else's, and would be refused if it took them. Endpoints that are not ready count: their connections go on.
    """
    if service.traffic_policy is TrafficPolicy.CLUSTER:
        return eips
    families = {Family.of(endpoint.address) for endpoint in endpoints if endpoint.node == node}
    return tuple(eip for eip in eips if Family.of(eip) in families)


def _virtual_servers(
    service: Service, eips: tuple[IPAddress, ...], endpoints: tuple[Endpoint, ...], node: str, lost: Collection[str]
) -> tuple[VirtualServer, ...]:
    keeps_client = service.traffic_policy is TrafficPolicy.LOCAL
    usable: dict[tuple[str, Protocol, Family], list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.node == node or not keeps_client:
            place = endpoint.port_name, endpoint.protocol, Family.of(endpoint.address)
            usable.setdefault(place, []).append(endpoint)
    here = [
        (eip, port, usable.get((port.name, port.protocol, Family.of(eip)), []))
        for eip in eips
        for port in service.ports
    ]
    return tuple(
        VirtualServer(
            eip,
            port.protocol,
            port.port,
            scheduler=service.scheduler or DEFAULT_SCHEDULER,
            persistence=service.affinity_seconds,
            # Ranges of the other family say nothing about this EIP's clients; if all are, nobody may connect, and an
            # empty tuple would mean everyone. So all of them stay, and the edges match by family.
            sources=service.source_ranges,
            masquerade=not keeps_client,
            real_servers=_real_servers(found, node, port.protocol, lost),
            elsewhere=keeps_client and _unwell(found),
            without=tuple(sorted({e.node for e in found if e.ready and e.node} & _dead(found, lost))),
        )
        for eip, port, found in here
    )


def _unwell(endpoints: list[Endpoint]) -> bool:
    return bool(endpoints) and all(endpoint.unwell and not endpoint.ready for endpoint in endpoints)


def _without(servers: Iterable[VirtualServer]) -> list[tuple[str, ...]]:
    return [server.without for server in servers]


def _dead(endpoints: Iterable[Endpoint], lost: Collection[str]) -> frozenset[str]:
    """All nodes that are ``lost``; none if no other endpoint is ready. Then those that take them for lost may be
    mistaken, and nobody else can serve."""
    others = any(endpoint.ready and endpoint.node not in lost for endpoint in endpoints)
    return frozenset(lost if others else ())


def _real_servers(
    endpoints: list[Endpoint], node: str, protocol: Protocol, lost: Collection[str]
) -> tuple[RealServer, ...]:
    """Weight 1 for ready endpoints; if none is ready, for those that still serve while they terminate (KEP-1669). On
    ``_dead`` nodes none is ready.

    With UDP the others are left out: at weight 0 one would keep a client for as long as that keeps sending.
    """
    dead = _dead(endpoints, lost)
    any_ready = any(endpoint.ready for endpoint in endpoints)
    merged: dict[tuple[IPAddress, int], RealServer] = {}
    for endpoint in endpoints:
        takes_new = endpoint.ready if any_ready else endpoint.serving and endpoint.terminating
        takes_new = takes_new and endpoint.node not in dead
        place = endpoint.address, endpoint.port
        # Two slices may name one endpoint while it moves between them: the better statement counts.
        seen = merged.get(place, RealServer(*place, weight=0))
        local = seen.local or endpoint.node == node
        merged[place] = RealServer(*place, max(seen.weight, int(takes_new)), local)
    kept = sorted(real for real in merged.values() if real.weight or protocol is not Protocol.UDP)
    if len(kept) > MAX_REAL_SERVERS:  # those that take new connections come first
        kept = sorted(sorted(kept, key=lambda real: -real.weight)[:MAX_REAL_SERVERS])
    return tuple(kept)


def crowded(plan: Plan) -> tuple[str, ...]:
    """A sentence for each virtual server that has reached the limit of real servers for a port: others may be
    left out."""
    return tuple(
        f"{server}: no more than {MAX_REAL_SERVERS} endpoints of a port are used"
        for server in plan.virtual_servers.values()
        if len(server.real_servers) >= MAX_REAL_SERVERS
    )


def taken_here(plan: Plan) -> Plan:
    """The part that takes new connections, or refuses them: ``plan`` without virtual servers that are ``elsewhere``.
    Those are in no rule; only the kernel's connection table lets their connections go on."""
    servers = {key: server for key, server in plan.virtual_servers.items() if not server.elsewhere}
    if len(servers) == len(plan.virtual_servers):
        return plan
    gone = {server.address for server in plan.virtual_servers.values()} - {each.address for each in servers.values()}
    return Plan(plan.eips - gone, servers)


def by_address(key: VirtualServerKey) -> tuple[tuple[int, int], Protocol, int]:
    """Virtual servers sort by this."""
    address, protocol, port = key
    return rank(address), protocol, port


def label(key: VirtualServerKey) -> str:
    address, protocol, port = key
    return f"{protocol} {with_port(address, port)}"


def without(plan: Plan, addresses: Collection[IPAddress]) -> Plan:
    """``plan`` without the EIPs among ``addresses``, as others have them: to bind or guard one would make it ours."""
    if plan.eips.isdisjoint(addresses):
        return plan
    servers = {key: server for key, server in plan.virtual_servers.items() if server.address not in addresses}
    return Plan(plan.eips.difference(addresses), servers)


UNKNOWN = Traffic({}, {})
"""For a forwarder that does not count."""
