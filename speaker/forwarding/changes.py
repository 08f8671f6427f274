"""What to change in a kernel to get from one plan to another. Pure.

The same changes are printed by ``--dry-run``, logged, tested, and applied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from speaker.forwarding.plan import Plan, RealServer, VirtualServer, VirtualServerKey, by_address, label
from speaker.model import IPAddress, Protocol, rank


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

Part: TypeAlias = IPAddress | VirtualServerKey
"""What a change is about: a virtual server, or an EIP by itself."""


def part_of(change: Change) -> Part:
    match change:
        case AddEip(eip) | RemoveEip(eip):
            return eip
        case AddVirtualServer(server) | ChangeVirtualServer(_, server) | RemoveVirtualServer(server):
            return server.key
        case AddRealServer(key) | ChangeRealServer(key) | RemoveRealServer(key):
            return key


def address_of(part: Part) -> IPAddress:
    return part[0] if isinstance(part, tuple) else part


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


def _settings(server: VirtualServer) -> tuple[object, ...]:
    return server.scheduler, server.persistence, server.sources, server.masquerade


# ── Connections that the kernel remembers ─────────────────────────────────────────────────────────────────────
#
# The kernel decides on address translation once, at a connection's first packet. A UDP client that keeps sending from
# one port never has a second first packet: it would stay with a real server that is gone, or with none, for as long as
# it sends (kube-proxy had this: kubernetes/kubernetes#19029, #139628). Forgetting the connection makes its next packet
# a first one.


@dataclass(frozen=True, slots=True)
class Flow:
    """A connection to the virtual server ``key``, answered by ``real``:``real_port``; untranslated, that is the EIP."""

    key: VirtualServerKey
    client: IPAddress
    client_port: int
    real: IPAddress
    real_port: int
    answered: bool = True
    """A packet came back, ever."""


def affected(changes: Iterable[Change]) -> Iterator[VirtualServerKey]:
    """The virtual servers with flows that ``goes_on`` may refuse after ``changes``."""
    for change in changes:
        match change:
            case ChangeVirtualServer(_, server) | RemoveVirtualServer(server):
                yield server.key
            case AddVirtualServer(server) if server.protocol is Protocol.UDP:
                yield server.key
            case RemoveRealServer((_, Protocol.UDP, _) as key, _):
                yield key
            case _:
                pass


def goes_on(flow: Flow, plan: Plan) -> bool:
    """Whether the plan lets a connection continue: its virtual server stands, admits the client, and (UDP) still has
    the real server, at whatever weight. A TCP connection to a removed real server ends by itself."""
    server = plan.virtual_servers.get(flow.key)
    if server is None:
        return False
    if server.sources and not any(flow.client in network for network in server.sources):
        return False
    return server.protocol is not Protocol.UDP or any(
        (real.address, real.port) == (flow.real, flow.real_port) for real in server.real_servers
    )
