"""Which remembered connections must not go on as they are. Pure.

The kernel decides on address translation once, at a connection's first packet. A UDP client that keeps sending from
one port never has a second first packet: it would stay with a real server that is gone, or with none, for as long as
it sends (kube-proxy had this: kubernetes/kubernetes#19029, #139628). Forgetting the connection makes its next packet
a first one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from speaker.forwarding.changes import (
    AddVirtualServer,
    Change,
    ChangeVirtualServer,
    RemoveRealServer,
    RemoveVirtualServer,
)
from speaker.forwarding.plan import Plan, VirtualServerKey
from speaker.model import IPAddress, Protocol


@dataclass(frozen=True, slots=True)
class Flow:
    """A connection to the virtual server ``key``, answered by ``real``:``real_port``; untranslated, that is the EIP."""

    key: VirtualServerKey
    client: IPAddress
    client_port: int
    real: IPAddress
    real_port: int


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
