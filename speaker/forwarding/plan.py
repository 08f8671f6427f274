"""Which virtual servers a node's kernel should have, and what to change to get there. Pure.

``plan`` turns what somebody asked for into virtual servers and real servers (IPVS's words, also where nftables does
the work); ``diff`` compares two plans. The same changes are printed by ``--dry-run``, logged, tested, and applied.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from speaker.model import (
    Assignment,
    Endpoint,
    Family,
    IPAddress,
    IPNetwork,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)

DEFAULT_SCHEDULER = "rr"

VirtualServerKey: TypeAlias = tuple[IPAddress, Protocol, int]


@dataclass(frozen=True, slots=True, order=True)
class RealServer:
    """One backend. Weight 0: established connections go on, new ones go elsewhere."""

    address: IPAddress
    port: int
    weight: int = 1
    local: bool = False
    """Runs on this node: its replies pass here anyway, so it needs no masquerade."""

    def __str__(self) -> str:
        return f"{_socket(self.address, self.port)} weight {self.weight}{' local' if self.local else ''}"


@dataclass(frozen=True, slots=True)
class VirtualServer:
    """One port of one EIP. Without real servers it still stands: connections are rejected, not left to the host."""

    address: IPAddress
    protocol: Protocol
    port: int
    scheduler: str = DEFAULT_SCHEDULER
    persistence: int | None = None
    """Seconds that a client's address sticks to its real server; None: every connection is scheduled."""
    sources: tuple[IPNetwork, ...] = ()
    """Clients that may connect; empty: everyone."""
    masquerade: bool = True
    """False for traffic policy Local: the real server sees the client's own address."""
    real_servers: tuple[RealServer, ...] = ()
    """Sorted."""

    @property
    def key(self) -> VirtualServerKey:
        return self.address, self.protocol, self.port

    def __str__(self) -> str:
        parts = [f"{_label(self.key)} {self.scheduler}"]
        if self.persistence is not None:
            parts.append(f"persistent {self.persistence}s")
        if self.sources:
            parts.append(f"from {','.join(map(str, self.sources))}")
        if not self.masquerade:
            parts.append("keeps the client's address")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything this node's kernel should forward; ``eips`` also names those without a virtual server."""

    eips: frozenset[IPAddress]
    virtual_servers: Mapping[VirtualServerKey, VirtualServer]


EMPTY = Plan(frozenset(), {})


def plan(world: World, assignments: Mapping[ServiceKey, Assignment], node: str) -> Plan:
    """The virtual servers of every assigned EIP, as seen from ``node``.

    An assignment whose Service is gone contributes nothing. Where two Services claim the same port of a shared EIP
    (the allocator does not let them), the first by name has it.
    """
    eips: set[IPAddress] = set()
    servers: dict[VirtualServerKey, VirtualServer] = {}
    for key in sorted(assignments):
        service = world.services.get(key)
        if service is None:
            continue
        endpoints = world.endpoints.get(key, ())
        for eip in assignments[key].addresses:
            eips.add(eip)
            for port in service.ports:
                server = _virtual_server(service, eip, port, endpoints, node)
                servers.setdefault(server.key, server)
    return Plan(frozenset(eips), servers)


def _virtual_server(
    service: Service, eip: IPAddress, port: ServicePort, endpoints: tuple[Endpoint, ...], node: str
) -> VirtualServer:
    keeps_client = service.traffic_policy is TrafficPolicy.LOCAL
    usable = [
        endpoint
        for endpoint in endpoints
        if (endpoint.port_name, endpoint.protocol) == (port.name, port.protocol)
        and Family.of(endpoint.address) is Family.of(eip)
        and (endpoint.node == node or not keeps_client)
    ]
    return VirtualServer(
        address=eip,
        protocol=port.protocol,
        port=port.port,
        scheduler=service.scheduler or DEFAULT_SCHEDULER,
        persistence=service.affinity_seconds,
        # Ranges of the other family say nothing about this EIP's clients; if all are, nobody may connect, and an
        # empty tuple would mean everyone. So all of them stay, and the edges match by family.
        sources=service.source_ranges,
        masquerade=not keeps_client,
        real_servers=_real_servers(usable, node),
    )


def _real_servers(endpoints: list[Endpoint], node: str) -> tuple[RealServer, ...]:
    """Weight 1 for ready endpoints; where none is, for those that still serve while they terminate (KEP-1669)."""
    any_ready = any(endpoint.ready for endpoint in endpoints)
    merged: dict[tuple[IPAddress, int], RealServer] = {}
    for endpoint in endpoints:
        takes_new = endpoint.ready if any_ready else endpoint.serving and endpoint.terminating
        place = endpoint.address, endpoint.port
        # Two slices may name one endpoint while it moves between them: the better word counts.
        seen = merged.get(place, RealServer(*place, weight=0))
        merged[place] = RealServer(
            *place, weight=max(seen.weight, int(takes_new)), local=seen.local or endpoint.node == node
        )
    return tuple(sorted(merged.values()))


# ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AddEip:
    eip: IPAddress

    def __str__(self) -> str:
        return f"+ EIP {self.eip}"


@dataclass(frozen=True, slots=True)
class RemoveEip:
    eip: IPAddress

    def __str__(self) -> str:
        return f"- EIP {self.eip}"


@dataclass(frozen=True, slots=True)
class AddVirtualServer:
    """Its real servers follow as one ``AddRealServer`` each."""

    server: VirtualServer

    def __str__(self) -> str:
        return f"+ {self.server}"


@dataclass(frozen=True, slots=True)
class ChangeVirtualServer:
    """Anything but its real servers: those have changes of their own."""

    before: VirtualServer
    after: VirtualServer

    def __str__(self) -> str:
        return f"~ {self.after} (was {self.before})"


@dataclass(frozen=True, slots=True)
class RemoveVirtualServer:
    """Its real servers go with it, without a change of their own."""

    server: VirtualServer

    def __str__(self) -> str:
        return f"- {self.server}"


@dataclass(frozen=True, slots=True)
class AddRealServer:
    key: VirtualServerKey
    real_server: RealServer

    def __str__(self) -> str:
        return f"  + {self.real_server} for {_label(self.key)}"


@dataclass(frozen=True, slots=True)
class ChangeRealServer:
    key: VirtualServerKey
    before: RealServer
    after: RealServer

    def __str__(self) -> str:
        return f"  ~ {self.after} for {_label(self.key)} (was {self.before})"


@dataclass(frozen=True, slots=True)
class RemoveRealServer:
    key: VirtualServerKey
    real_server: RealServer

    def __str__(self) -> str:
        return f"  - {self.real_server} for {_label(self.key)}"


Change: TypeAlias = (
    AddEip
    | RemoveEip
    | AddVirtualServer
    | ChangeVirtualServer
    | RemoveVirtualServer
    | AddRealServer
    | ChangeRealServer
    | RemoveRealServer
)


def diff(have: Plan, want: Plan) -> tuple[Change, ...]:
    """What turns ``have`` into ``want``, in an order that is safe to apply one by one; () if nothing does.

    A virtual server and its real servers stand before their EIP is bound, and go after it is unbound: a bound EIP
    without them would leave its ports to the host. Within a virtual server new real servers come before old ones go.
    """
    before, after = have.virtual_servers, want.virtual_servers
    return (
        *(change for key in _sorted(after.keys() - before.keys()) for change in _added(after[key])),
        *(AddEip(eip) for eip in sorted(want.eips - have.eips, key=_address_order)),
        *(change for key in _sorted(after.keys() & before.keys()) for change in _changed(before[key], after[key])),
        *(RemoveEip(eip) for eip in sorted(have.eips - want.eips, key=_address_order)),
        *(RemoveVirtualServer(before[key]) for key in _sorted(before.keys() - after.keys())),
    )


def _added(server: VirtualServer) -> Iterator[Change]:
    yield AddVirtualServer(server)
    yield from (AddRealServer(server.key, real) for real in server.real_servers)


def _changed(before: VirtualServer, after: VirtualServer) -> Iterator[Change]:
    if before == after:
        return
    if _settings(before) != _settings(after):
        yield ChangeVirtualServer(before, after)
    old = {(real.address, real.port): real for real in before.real_servers}
    new = {(real.address, real.port): real for real in after.real_servers}
    yield from (AddRealServer(after.key, new[place]) for place in sorted(new.keys() - old.keys()))
    for place in sorted(new.keys() & old.keys()):
        if old[place] != new[place]:
            yield ChangeRealServer(after.key, old[place], new[place])
    yield from (RemoveRealServer(after.key, old[place]) for place in sorted(old.keys() - new.keys()))


def _settings(server: VirtualServer) -> tuple[object, ...]:
    return server.scheduler, server.persistence, server.sources, server.masquerade


def _sorted(keys: set[VirtualServerKey]) -> list[VirtualServerKey]:
    return sorted(keys, key=lambda key: (_address_order(key[0]), key[1], key[2]))


def _address_order(address: IPAddress) -> tuple[int, int]:
    """IPv4 before IPv6: ``ipaddress`` refuses to compare the two."""
    return address.version, int(address)


def _label(key: VirtualServerKey) -> str:
    address, protocol, port = key
    return f"{protocol} {_socket(address, port)}"


def _socket(address: IPAddress, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
