"""``assist``: kube-proxy forwards, and new connections are led past a dead node's endpoints until it knows. Pure.

What is dead, ``node/losses.py`` says, and the plan what is done without it (``VirtualServer.without``). Here it is
decided what is taken from kube-proxy, and for how long; ``nftables/assist.py`` takes it.
"""

from collections import Counter
from dataclasses import replace

from speaker.forwarding.changes import Flow
from speaker.forwarding.plan import Plan, VirtualServer, VirtualServerKey
from speaker.model import Protocol

LINGER = 10.0
"""Seconds from when Kubernetes knows until kube-proxy is believed to: it reads, waits up to `minSyncPeriod`, writes."""


class Assisted:
    """Which virtual servers are taken from kube-proxy: those that do without a dead node, and for LINGER after the plan
    says so for the last time."""

    def __init__(self) -> None:
        self.until: dict[VirtualServerKey, float] = {}

    def of(self, plan: Plan, now: float) -> Plan:
        """Of ``plan``, with the real servers that take new connections. What has none is kube-proxy's to refuse, and so
        is what no virtual server names. ``now``: seconds of one clock."""
        servers = plan.virtual_servers
        self.until |= {key: now + LINGER for key, server in servers.items() if server.without}
        self.until = {key: until for key, until in self.until.items() if now < until and key in servers}
        alive = (_alive(servers[key]) for key in self.until)
        return Plan(frozenset(), {server.key: server for server in alive if server.real_servers and server.masquerade})


def _alive(server: VirtualServer) -> VirtualServer:
    return replace(server, real_servers=tuple(real for real in server.real_servers if real.weight))


def past_dead(plan: Plan) -> Counter[str]:
    """Dead node → virtual servers that do without its endpoints."""
    return Counter(node for server in plan.virtual_servers.values() for node in server.without)


def stays(flow: Flow, plan: Plan) -> bool:
    """Whether a connection goes on where it went: to a living endpoint, or, unless it is UDP's, it was answered: nobody
    else can go on with it. What a dead endpoint never answered begins anew with its next packet."""
    server = plan.virtual_servers[flow.key]
    if any(real.place == (flow.real, flow.real_port) for real in server.real_servers):
        return True
    return flow.answered and server.protocol is not Protocol.UDP
