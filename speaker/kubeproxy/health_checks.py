"""``healthCheckNodePort``: what external load balancers are told about this node, as kube-proxy tells it. Pure.

kube-proxy: pkg/proxy/healthcheck/service_health.go (newServiceHealthServer, ServeHTTP) and
pkg/proxy/endpointschangetracker.go (LocalReadyEndpoints), Kubernetes 1.36.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import msgspec

from speaker.model import Assignment, Endpoint, Family, ServiceKey, TrafficPolicy, World
from speaker.system.decoding import UNFIT

Place: TypeAlias = tuple[Family, int]
"""A port on all of the node's addresses of one family."""


class HealthCheck(NamedTuple):
    service: ServiceKey
    endpoints: int
    """Ready ones on this node, of the family that is asked by: by address, however many ports they have."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str


def health_checks(world: World, assignments: Mapping[ServiceKey, Assignment], node: str) -> dict[Place, HealthCheck]:
    """Those of every Service that has an EIP, for the families of its EIPs. Where two name one port, which the API does
    not let them, the first by name has it."""
    found: dict[Place, HealthCheck] = {}
    asked = (service for service in world.services.values() if service.health_check_port is not None)
    for service in sorted(asked, key=lambda service: service.key):
        assignment = assignments.get(service.key)
        for address in assignment.addresses if assignment is not None else ():
            assert service.health_check_port is not None
            family = Family.of(address)
            count = _ready_here(world.endpoints.get(service.key, ()), family, node)
            found.setdefault((family, service.health_check_port), HealthCheck(service.key, count))
    return found


def _ready_here(endpoints: Iterable[Endpoint], family: Family, node: str) -> int:
    """Not those that still serve while they terminate: this says where to send what is new."""
    return len({e.address for e in endpoints if e.ready and e.node == node and Family.of(e.address) is family})


def answer(check: HealthCheck, healthy: bool) -> Answer:
    """``healthy``: what forwards does its work."""
    headers = {
        "Content-Type": "application/json",
        "X-Content-Type-Options": "nosniff",
        "X-Load-Balancing-Endpoint-Weight": str(check.endpoints),
    }
    named = {"namespace": check.service.namespace, "name": check.service.name}
    told = {"service": named, "localEndpoints": check.endpoints, "serviceProxyHealthy": healthy}
    body = json.dumps(told, indent="\t", ensure_ascii=False)
    return Answer(200 if check.endpoints and healthy else 503, headers, body)


class _Named(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class _Told(msgspec.Struct, frozen=True, rename="camel"):
    service: _Named
    local_endpoints: int


def read_answer(body: bytes, service: ServiceKey) -> int | None:
    """To how many endpoints of this node kube-proxy sends, as ``answer`` has it; None where it is another's word."""
    try:
        told = msgspec.json.decode(body, type=_Told)
    except UNFIT:
        return None
    named = ServiceKey(told.service.namespace, told.service.name)
    return told.local_endpoints if named == service else None


# ── Which endpoints of this node count ────────────────────────────────────────────────────────────────────────
#
# For ``externalTrafficPolicy: Local``. A node whose kube-proxy does not send to its endpoints yet drops what comes for
# the EIP. Kube-proxy writes its rules at most once a second (``minSyncPeriod``), which takes as long again on a busy
# node; an EIP moves in less. So the first endpoint of a Service here counts once kube-proxy says that it knows it, or
# where nobody says anything. Whatever is there at first counts: it was there before this process.

ServiceFamily: TypeAlias = tuple[ServiceKey, Family]


class LocalEndpoints:
    """``changed`` and what ``follow`` returns are as in ``node.source.View``."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._counted: set[ServiceFamily] = set()
        self._awaited: dict[ServiceFamily, int] = {}
        self._news: frozenset[ServiceKey] = frozenset()
        """Services of which something counts since the last call."""
        self._begun = False

    @property
    def awaited(self) -> Mapping[ServiceFamily, int]:
        """Where kube-proxy is to be asked, and by which port; who has waited longest for an answer is first."""
        return self._awaited

    def follow(self, world: World, changed: frozenset[ServiceKey] | None) -> tuple[World, frozenset[ServiceKey] | None]:
        """The world without endpoints that do not count yet."""
        before = {key for key, _ in (*self._counted, *self._awaited)} if changed is None else ()
        for key in (*world.services, *before) if changed is None else changed:
            self._look(world, key)
        self._begun = True
        news, self._news = self._news, frozenset()
        hidden = {key: tuple(self._counting(key, world.endpoints.get(key, ()))) for key, _ in self._awaited}
        known = replace(world, endpoints={**world.endpoints, **hidden}) if hidden else world
        return known, None if changed is None else changed | news

    def heard(self, which: ServiceFamily, endpoints: int | None) -> bool:
        """Of how many kube-proxy knows, None where nobody says; whether that makes a difference."""
        if (port := self._awaited.pop(which, None)) is None:
            return False
        if endpoints == 0:
            self._awaited[which] = port
            return False
        self._counted.add(which)
        self._news |= {which[0]}
        return True

    def _look(self, world: World, key: ServiceKey) -> None:
        service = world.services.get(key)
        local = service is not None and service.traffic_policy is TrafficPolicy.LOCAL
        port = service.health_check_port if service is not None else None
        found = world.endpoints.get(key, ()) if local else ()
        here = {Family.of(each.address) for each in found if each.node == self._node and each.ready}
        leaving = {Family.of(each.address) for each in found if each.node == self._node and each.serving}
        for family in Family:
            which = key, family
            if family not in here | leaving:
                self._counted.discard(which)
                self._awaited.pop(which, None)
            elif port is None or not self._begun:
                self._counted.add(which)
            elif which not in self._counted and family in here:
                self._awaited[which] = port

    def _counting(self, key: ServiceKey, endpoints: tuple[Endpoint, ...]) -> Iterator[Endpoint]:
        for each in endpoints:
            if each.node != self._node or (key, Family.of(each.address)) not in self._awaited:
                yield each
