"""``healthCheckNodePort``: what external load balancers are told about this node, as kube-proxy tells it. Pure.

kube-proxy: pkg/proxy/healthcheck/service_health.go (newServiceHealthServer, ServeHTTP) and
pkg/proxy/endpointschangetracker.go (LocalReadyEndpoints), Kubernetes 1.36.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from speaker.model import Assignment, Endpoint, Family, ServiceKey, World
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
    body = (
        "{\n"
        '\t"service": {\n'
        f'\t\t"namespace": "{check.service.namespace}",\n'
        f'\t\t"name": "{check.service.name}"\n'
        "\t},\n"
        f'\t"localEndpoints": {check.endpoints},\n'
        f'\t"serviceProxyHealthy": {str(healthy).lower()}\n'
        "}"
    )
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
