"""What to change in a kernel to get from one plan to another. Pure.

The same changes are printed by ``--dry-run``, logged, tested, and applied.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeVar

from speaker.forwarding.plan import Plan, RealServer, VirtualServer, VirtualServerKey, by_address, label
from speaker.model import IPAddress, Protocol, rank


class EipChange(NamedTuple):
    """An EIP is ``bound``, or no longer."""

    eip: IPAddress
    bound: bool = True

    def __str__(self) -> str:
        return f"{'+' if self.bound else '-'} EIP {self.eip}"


class ServerChange(NamedTuple):
    """A virtual server comes (no ``before``), goes (no ``after``) or changes. One that comes is followed by a
    ``RealChange`` for each of its real servers; one that goes takes them along without further changes. If it changes,
    the real servers are not part of this."""

    before: VirtualServer | None
    after: VirtualServer | None

    @property
    def server(self) -> VirtualServer:
        return _either(self.before, self.after)

    @property
    def key(self) -> VirtualServerKey:
        return self.server.key

    def __str__(self) -> str:
        return _shown(self.before, self.after)


class RealChange(NamedTuple):
    """The same for a real server of the virtual server ``key``."""

    key: VirtualServerKey
    before: RealServer | None
    after: RealServer | None

    @property
    def real_server(self) -> RealServer:
        return _either(self.before, self.after)

    def __str__(self) -> str:
        return f"  {_shown(self.before, self.after, f' for {label(self.key)}')}"


Change: TypeAlias = EipChange | ServerChange | RealChange

Part: TypeAlias = IPAddress | VirtualServerKey
"""The subject of a change: a virtual server, or an EIP itself."""

T = TypeVar("T")


def _either(before: T | None, after: T | None) -> T:
    found = before if after is None else after
    assert found is not None
    return found


def _shown(before: object, after: object, whose: str = "") -> str:
    if before is None or after is None:
        return f"{'+' if before is None else '-'} {after or before}{whose}"
    return f"~ {after}{whose} (was {before})"


def part_of(change: Change) -> Part:
    return change.eip if isinstance(change, EipChange) else change.key


def address_of(part: Part) -> IPAddress:
    return part[0] if isinstance(part, tuple) else part


def diff(have: Plan, want: Plan) -> tuple[Change, ...]:
    """What turns ``have`` into ``want``, in an order that is safe to apply one by one; () if they are equal.

    A virtual server and its real servers are added before their EIP is bound, and removed after it is unbound: a bound
    EIP without them would leave its ports to the host. Within a virtual server, new real servers come before old ones
    go.
    """
    before, after = have.virtual_servers, want.virtual_servers
    new, other = [], []
    for key, server in after.items():  # one pass, as hashing an address takes longer than everything else
        there = before.get(key)
        if there is None:
            new.append(key)
        elif there is not server and there != server:
            other.append(key)
    gone = before.keys() - after.keys() if len(before) + len(new) > len(after) else ()
    return (
        *(change for key in sorted(new, key=by_address) for change in _added(after[key])),
        *(EipChange(eip) for eip in sorted(want.eips - have.eips, key=rank)),
        *(change for key in sorted(other, key=by_address) for change in _changed(before[key], after[key])),
        *(EipChange(eip, bound=False) for eip in sorted(have.eips - want.eips, key=rank)),
        *(ServerChange(before[key], None) for key in sorted(gone, key=by_address)),
    )


def _added(server: VirtualServer) -> Iterator[Change]:
    yield ServerChange(None, server)
    yield from (RealChange(server.key, None, real) for real in server.real_servers)


def _changed(before: VirtualServer, after: VirtualServer) -> Iterator[Change]:
    if _settings(before) != _settings(after):
        yield ServerChange(before, after)
    old, new = ({real.place: real for real in server.real_servers} for server in (before, after))
    yield from (RealChange(after.key, None, new[place]) for place in sorted(new.keys() - old.keys()))
    for place in sorted(new.keys() & old.keys()):
        if old[place] != new[place]:
            yield RealChange(after.key, old[place], new[place])
    yield from (RealChange(after.key, old[place], None) for place in sorted(old.keys() - new.keys()))


def _settings(server: VirtualServer) -> tuple[object, ...]:
    return server.scheduler, server.persistence, server.sources, server.masquerade


# ── Connections that the kernel remembers ─────────────────────────────────────────────────────────────────────
#
# The kernel decides on address translation once, at a connection's first packet. A UDP client that keeps sending from
# one port never has a second first packet: it would stay with a real server that is gone, or with none, for as long as
# it sends (kube-proxy had this: kubernetes/kubernetes#19029, #139628). Forgetting the connection makes its next packet
# a first one.


class Flow(NamedTuple):
    """A connection to the virtual server ``key``, answered by ``real``:``real_port``; if untranslated, that is
    the EIP."""

    key: VirtualServerKey
    client: IPAddress
    client_port: int
    real: IPAddress
    real_port: int
    answered: bool = True
    """Whether any packet ever came back."""


def affected(changes: Iterable[Change]) -> Iterator[VirtualServerKey]:
    """The virtual servers with flows that ``goes_on`` may refuse after ``changes``."""
    for change in changes:
        match change:
            case ServerChange(before, _) if before is not None or change.server.protocol is Protocol.UDP:
                yield change.key
            case RealChange((_, Protocol.UDP, _) as key, _, None):
                yield key


def goes_on(flow: Flow, plan: Plan) -> bool:
    """Whether the plan lets a connection continue: its virtual server still exists, admits the client, and (UDP) still
    has the real server, at whatever weight. A TCP connection to a removed real server ends on its own."""
    server = plan.virtual_servers.get(flow.key)
    if server is None:
        return False
    if server.sources and not any(flow.client in network for network in server.sources):
        return False
    places = (real.place for real in server.real_servers)
    return server.protocol is not Protocol.UDP or (flow.real, flow.real_port) in places


# ── assist: which virtual servers are taken from kube-proxy, and for how long ─────────────────────────────────
#
# What is dead, ``node/losses.py`` says, and the plan what is done without it (``VirtualServer.without``);
# ``AssistForwarder`` in ``nftables/forwarder.py`` does it.

LINGER = 10.0
"""Seconds after Kubernetes knows until kube-proxy is expected to know: it reads, waits up to `minSyncPeriod`, and
writes."""


class Assisted:
    """The virtual servers that are taken from kube-proxy: those that do without a dead node, until LINGER after the
    plan last says so."""

    def __init__(self) -> None:
        self.until: dict[VirtualServerKey, float] = {}

    def of(self, plan: Plan, now: float) -> Plan:
        """The part of ``plan`` for these, with the real servers that take new connections. Refusing connections stays
        with kube-proxy, as does everything that no virtual server names. ``now``: seconds of one clock."""
        servers = plan.virtual_servers
        self.until |= {key: now + LINGER for key, server in servers.items() if server.without}
        self.until = {key: until for key, until in self.until.items() if now < until and key in servers}
        alive = (_alive(servers[key]) for key in self.until)
        return Plan(frozenset(), {server.key: server for server in alive if server.real_servers and server.masquerade})


def _alive(server: VirtualServer) -> VirtualServer:
    return replace(server, real_servers=tuple(real for real in server.real_servers if real.weight))


def past_dead(plan: Plan) -> Counter[str]:
    """Dead node → how many virtual servers do without its endpoints."""
    return Counter(node for server in plan.virtual_servers.values() for node in server.without)


def stays(flow: Flow, plan: Plan) -> bool:
    """Whether a connection keeps its endpoint: the endpoint is alive or, except for UDP, has answered, because nobody
    else can continue the connection. A connection that a dead endpoint never answered begins again with its next
    packet."""
    server = plan.virtual_servers[flow.key]
    if any(real.place == (flow.real, flow.real_port) for real in server.real_servers):
        return True
    return flow.answered and server.protocol is not Protocol.UDP
