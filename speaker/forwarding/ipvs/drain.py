"""Real servers on their way out of a virtual server. Pure.

IPVS ends the connections of a real server that is removed (``expire_nodest_conn``), so one that goes first gets
weight 0: established connections go on, new ones go elsewhere. It is removed when the last has ended, or when its time
is up. One that comes back meanwhile gets its weight back, and its connections never notice. What a speaker that was
killed had begun, the next one takes on: whatever the kernel has and nobody wants any more is on its way out.

UDP has no end of a connection to wait for: a client that keeps sending would keep a real server that is gone. So there
a real server goes at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from speaker.forwarding.plan import Plan, RealServer, VirtualServer, VirtualServerKey
from speaker.model import IPAddress, Protocol

DRAIN_SECONDS = 900.0
"""Time for established connections: as long as IPVS remembers a silent one (net/netfilter/ipvs/ip_vs_proto_tcp.c), and
as kube-proxy gives them (rsGracefulDeletePeriod)."""

Place: TypeAlias = tuple[VirtualServerKey, IPAddress, int]
"""A real server of a virtual server, by its address and port."""


@dataclass(frozen=True, slots=True)
class Draining:
    """Until when each real server on its way out may stay, in seconds of the forwarder's clock."""

    until: Mapping[Place, float] = field(default_factory=dict)

    def keys(self) -> frozenset[VirtualServerKey]:
        return frozenset(key for key, _, _ in self.until)


def draining(
    have: Plan, want: Plan, before: Draining, connections: Mapping[Place, int], now: float
) -> tuple[Plan, Draining]:
    """``want`` with the real servers that ``have`` has beyond it and that must not go yet, at weight 0; and their time.

    ``connections`` counts those of each real server, as seen together with ``have``; one that is not counted has some.
    """
    until: dict[Place, float] = {}
    servers: dict[VirtualServerKey, VirtualServer] = {}
    for key, server in want.virtual_servers.items():
        there = have.virtual_servers.get(key)
        if there is None or there is server or there.real_servers == server.real_servers:
            continue
        leaving = {(key, real.address, real.port): real for real in _leaving(there, server)}
        staying = {
            place: before.until.get(place, now + DRAIN_SECONDS)
            for place, real in leaving.items()
            if before.until.get(place, now + DRAIN_SECONDS) > now
            # At another weight it may be given a connection after they were counted.
            and not (real.weight == 0 and connections.get(place) == 0)
        }
        if staying:
            reals = (*server.real_servers, *(replace(leaving[place], weight=0) for place in staying))
            servers[key] = replace(server, real_servers=tuple(sorted(reals)))
            until |= staying
    goal = Plan(want.eips, {**want.virtual_servers, **servers}) if servers else want
    return goal, Draining(until)


def _leaving(have: VirtualServer, want: VirtualServer) -> Iterator[RealServer]:
    if have.protocol is Protocol.UDP:
        return
    wanted = {(real.address, real.port) for real in want.real_servers}
    yield from (real for real in have.real_servers if (real.address, real.port) not in wanted)
