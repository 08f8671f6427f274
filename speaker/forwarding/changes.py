"""What to change in a kernel to get from one plan to another. Pure.

The same changes are printed by ``--dry-run``, logged, tested, and applied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from speaker.forwarding.plan import Plan, RealServer, VirtualServer, VirtualServerKey, by_address, label
from speaker.model import (
    IPAddress,
    rank,
)


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
        return f"  + {self.real_server} for {label(self.key)}"


@dataclass(frozen=True, slots=True)
class ChangeRealServer:
    key: VirtualServerKey
    before: RealServer
    after: RealServer

    def __str__(self) -> str:
        return f"  ~ {self.after} for {label(self.key)} (was {self.before})"


@dataclass(frozen=True, slots=True)
class RemoveRealServer:
    key: VirtualServerKey
    real_server: RealServer

    def __str__(self) -> str:
        return f"  - {self.real_server} for {label(self.key)}"


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
    new, other = [], []
    for key, server in after.items():  # one pass: hashing an address takes longer than all the rest
        there = before.get(key)
        if there is None:
            new.append(key)
        elif there is not server and there != server:
            other.append(key)
    gone = before.keys() - after.keys() if len(before) + len(new) > len(after) else ()
    return (
        *(change for key in sorted(new, key=by_address) for change in _added(after[key])),
        *(AddEip(eip) for eip in sorted(want.eips - have.eips, key=rank)),
        *(change for key in sorted(other, key=by_address) for change in _changed(before[key], after[key])),
        *(RemoveEip(eip) for eip in sorted(have.eips - want.eips, key=rank)),
        *(RemoveVirtualServer(before[key]) for key in sorted(gone, key=by_address)),
    )


def _added(server: VirtualServer) -> Iterator[Change]:
    yield AddVirtualServer(server)
    yield from (AddRealServer(server.key, real) for real in server.real_servers)


def _changed(before: VirtualServer, after: VirtualServer) -> Iterator[Change]:
    if _settings(before) != _settings(after):
        yield ChangeVirtualServer(before, after)
    old = {(real.address, real.port): real for real in before.real_servers}
    new = {(real.address, real.port): real for real in after.real_servers}
    yield from (AddRealServer(after.key, new[place]) for place in sorted(new.keys() - old.keys()))
    for place in sorted(new.keys() & old.keys()):
        if old[place] != new[place]:
            yield ChangeRealServer(after.key, old[place], new[place])
    yield from (RemoveRealServer(after.key, old[place]) for place in sorted(old.keys() - new.keys()))


def applied(have: Plan, changes: Iterable[Change]) -> Plan:
    """``have`` after ``changes``, which are some of what ``diff`` made of it; those before others they rest on."""
    eips, servers = set(have.eips), dict(have.virtual_servers)

    def put(key: VirtualServerKey, gone: RealServer | None, come: RealServer | None) -> None:
        left = [real for real in servers[key].real_servers if real != gone]
        servers[key] = replace(servers[key], real_servers=tuple(sorted([*left, come] if come else left)))

    for change in changes:
        match change:
            case AddEip(eip):
                eips.add(eip)
            case RemoveEip(eip):
                eips.discard(eip)
            case AddVirtualServer(server):
                servers[server.key] = replace(server, real_servers=())
            case ChangeVirtualServer(before, after):
                servers[after.key] = replace(after, real_servers=servers[before.key].real_servers)
            case RemoveVirtualServer(server):
                del servers[server.key]
            case AddRealServer(key, real):
                put(key, None, real)
            case ChangeRealServer(key, old, new):
                put(key, old, new)
            case RemoveRealServer(key, real):
                put(key, real, None)
    return Plan(frozenset(eips), servers)


def _settings(server: VirtualServer) -> tuple[object, ...]:
    return server.scheduler, server.persistence, server.sources, server.masquerade
