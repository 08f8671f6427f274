"""What the IPVS forwarder decides: who owns a virtual server, what the guard contains, what a refusal means. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from speaker.forwarding.changes import RealChange, ServerChange
from speaker.forwarding.ipvs.tables import Refusal
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer, VirtualServerKey
from speaker.model import IPAddress, Protocol

Place: TypeAlias = tuple[VirtualServerKey, IPAddress, int]
"""A real server of a virtual server, by its address and port."""


class Owned(NamedTuple):
    """Addresses of virtual servers."""

    ours: frozenset[IPAddress]
    foreign: frozenset[IPAddress]
    """Another program's, which are left to it."""


def owned(
    served: Collection[IPAddress],
    bound: frozenset[IPAddress],
    asked: frozenset[IPAddress],
    *,
    beside_kube_proxy: bool,
) -> Owned:
    """``served``: every address with a virtual server. ``bound``: EIPs bound on our link, or bound there by us before.
    ``asked``: EIPs that should be forwarded. ``beside_kube_proxy``: in ipvs mode.

    There kube-proxy makes virtual servers for an EIP until its status says ``ipMode: Proxy``, and then leaves them
    behind, because the pool has to be in its ``excludeCIDRs`` (pkg/proxy/ipvs/proxier.go, cleanLegacyService: it skips
    its own too). So those of an EIP that should be forwarded are taken over as they are, with their connections. Until
    then both keep them, for the same endpoints.
    """
    ours = bound | asked if beside_kube_proxy else bound
    return Owned(ours, frozenset(served) - ours)


def completed(have: Plan, remembered: Plan, want: Plan) -> Plan:
    """``have``, with what the guard knows of a virtual server and IPVS does not: as we last set it, or, after a
    restart, as it should be. The guard itself compares."""
    servers: dict[VirtualServerKey, VirtualServer] = {}
    for key, server in have.virtual_servers.items():
        wanted = want.virtual_servers.get(key, server)
        found = _completed(server, remembered.virtual_servers.get(key, wanted))
        servers[key] = wanted if found == wanted else found  # the same object, so the next comparison is quick
    return Plan(have.eips, servers)


def _completed(server: VirtualServer, known: VirtualServer) -> VirtualServer:
    local = {real.place for real in known.real_servers if real.local}
    reals = server.real_servers
    if local:
        reals = tuple(replace(real, local=real.place in local) for real in reals)
    return replace(server, sources=known.sources, masquerade=known.masquerade, real_servers=reals)


def in_between(have: Plan, want: Plan) -> Plan:
    """What the guard contains while the kernel goes from one plan to the other: only ports in both are open, and their
    packets are masqueraded for any real server, including those that leave."""
    both = want.virtual_servers.keys() & have.virtual_servers.keys()
    servers = {key: _to_either(have.virtual_servers[key], want.virtual_servers[key]) for key in both}
    return Plan(have.eips | want.eips, servers)


def _to_either(have: VirtualServer, want: VirtualServer) -> VirtualServer:
    wanted = {real.place for real in want.real_servers}
    leaving = [real for real in have.real_servers if real.weight and real.place not in wanted]
    if not leaving:
        return want
    reals = tuple(sorted((*want.real_servers, *leaving)))
    return replace(want, real_servers=reals, masquerade=want.masquerade or have.masquerade)


def standing(want: Plan, refused: Collection[Refusal], on_the_way: Plan = EMPTY) -> Plan:
    """What the guard finally holds: ``want``, but ports of virtual servers that the kernel refused stay closed, and so
    do all ports of an EIP that cannot leave yet. If a real server could not be removed, it is as in ``on_the_way``."""
    missing = _not_made(refused)
    changes = [refusal.change for refusal in refused]
    stuck = {change.key for change in changes if isinstance(change, RealChange) and change.before is not None}
    servers = {
        key: on_the_way.virtual_servers.get(key, server) if key in stuck else server
        for key, server in want.virtual_servers.items()
        if key not in missing
    }
    return Plan(want.eips | held_back(refused), servers)


def held_back(refused: Iterable[Refusal]) -> frozenset[IPAddress]:
    """EIPs with a virtual server that could not be removed: unbound, it would not be recognised as ours."""
    changes = (refusal.change for refusal in refused)
    return frozenset(each.key[0] for each in changes if isinstance(each, ServerChange) and each.after is None)


def root_causes(refused: Collection[Refusal]) -> tuple[Refusal, ...]:
    """Without real servers whose virtual server was refused already."""
    missing = _not_made(refused)
    return tuple(
        refusal
        for refusal in refused
        if not (isinstance(change := refusal.change, RealChange) and change.before is None and change.key in missing)
    )


def _not_made(refused: Iterable[Refusal]) -> set[VirtualServerKey]:
    changes = (refusal.change for refusal in refused)
    return {each.key for each in changes if isinstance(each, ServerChange) and each.before is None}


def places(real_servers: Iterable[RealServer]) -> set[tuple[tuple[IPAddress, int], int]]:
    return {(real.place, real.weight) for real in real_servers}


def idle(key: VirtualServerKey, counted: Mapping[RealServer, int]) -> dict[Place, int]:
    """The connections of real servers that are given no new ones."""
    return {(key, *real.place): count for real, count in counted.items() if real.weight == 0}


def taken(eip: str) -> str:
    return (
        f"EIP {eip} is not served: another program has a virtual server for it (`ipvsadm -Ln`);"
        " remove that, or take the address out of the pool"
    )


# ── Real servers on their way out of a virtual server ─────────────────────────────────────────────────────────
#
# IPVS ends the connections of a real server that is removed (``expire_nodest_conn``), so one that goes first gets
# weight 0: established connections go on, new ones go elsewhere. It is removed when the last has ended, or when its
# time is up. One that comes back meanwhile gets its weight back, and its connections never notice. What a speaker that
# was killed had begun, the next one takes on: whatever the kernel has and nobody wants any longer is on its way out.
#
# UDP has no end of a connection to wait for: a client that keeps sending would keep a real server that is gone. So
# there a real server goes at once.

DRAIN_SECONDS = 900.0
"""Time for established connections: as long as IPVS remembers a silent one (net/netfilter/ipvs/ip_vs_proto_tcp.c), and
as kube-proxy gives them (rsGracefulDeletePeriod)."""


class Draining(NamedTuple):
    """Until when each real server on its way out may stay, in seconds of the forwarder's clock."""

    until: Mapping[Place, float] = {}

    def keys(self) -> frozenset[VirtualServerKey]:
        return frozenset(key for key, _, _ in self.until)


def draining(
    have: Plan, want: Plan, before: Draining, connections: Mapping[Place, int], now: float
) -> tuple[Plan, Draining]:
    """``want`` with the real servers of ``have`` that must not go yet, at weight 0; and their time.

    ``connections`` counts those of each real server, as seen together with ``have``; one that is not counted has some.
    """
    until: dict[Place, float] = {}
    servers: dict[VirtualServerKey, VirtualServer] = {}
    for key, server in want.virtual_servers.items():
        there = have.virtual_servers.get(key)
        if there is None or there is server or there.real_servers == server.real_servers:
            continue
        leaving = {(key, *real.place): real for real in _leaving(there, server)}
        staying = {
            place: before.until.get(place, now + DRAIN_SECONDS)
            for place, real in leaving.items()
            if before.until.get(place, now + DRAIN_SECONDS) > now
            # At another weight it may have been given a connection since they were counted.
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
    wanted = {real.place for real in want.real_servers}
    yield from (real for real in have.real_servers if real.place not in wanted)
