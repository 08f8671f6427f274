"""``healthCheckNodePort``: which ports, and what they say."""

import json
from dataclasses import replace
from ipaddress import ip_address

import pytest

from speaker.kubeproxy.health_checks import HealthCheck, answer, health_checks
from speaker.model import Assignment, Endpoint, Family, Protocol, Service, ServiceKey, ServicePort, TrafficPolicy, World

KEY = ServiceKey("shop", "web")
V4, V6 = Family.IPV4, Family.IPV6
WEB = Service(KEY, (ServicePort(Protocol.TCP, 80),), traffic_policy=TrafficPolicy.LOCAL, health_check_port=30001)


def endpoint(address: str, node: str | None = "n1", port: int = 8080, **conditions: bool) -> Endpoint:
    return Endpoint(ip_address(address), port, Protocol.TCP, node=node, **conditions)


def checks(*endpoints: Endpoint, eips=("192.0.2.70",), service: Service = WEB):
    world = World(services={service.key: service}, endpoints={service.key: endpoints})
    assigned = Assignment(service.key, tuple(map(ip_address, eips)), ("lan",) * len(eips))
    return health_checks(world, {service.key: assigned}, "n1")


@pytest.mark.parametrize(
    ("endpoints", "count"),
    [
        ([], 0),
        ([endpoint("10.0.0.1")], 1),
        ([endpoint("10.0.0.1"), endpoint("10.0.0.2")], 2),
        ([endpoint("10.0.0.1"), endpoint("10.0.0.1", port=8443)], 1),  # one endpoint with two ports
        ([endpoint("10.0.0.1", node="n2"), endpoint("10.0.0.2", node=None)], 0),
        ([endpoint("10.0.0.1", ready=False)], 0),
        ([endpoint("10.0.0.1", ready=False, serving=True, terminating=True)], 0),
        ([endpoint("2001:db8::1")], 0),  # asked by IPv4
    ],
)
def test_ready_endpoints_on_this_node_are_counted_by_address(endpoints, count):
    assert checks(*endpoints) == {(V4, 30001): HealthCheck(KEY, count)}


def test_each_family_that_the_service_has_an_eip_of_is_asked_for_itself():
    found = checks(
        endpoint("10.0.0.1"), endpoint("10.0.0.2"), endpoint("2001:db8::1"), eips=("192.0.2.70", "2001:db8::70")
    )
    assert found == {(V4, 30001): HealthCheck(KEY, 2), (V6, 30001): HealthCheck(KEY, 1)}


def test_a_service_that_names_no_port_or_has_no_eip_has_no_check():
    assert checks(endpoint("10.0.0.1"), service=replace(WEB, health_check_port=None)) == {}
    assert health_checks(World(services={KEY: WEB}), {}, "n1") == {}


def test_of_two_services_that_name_one_port_the_first_by_name_has_it():
    other = replace(WEB, key=ServiceKey("shop", "api"))
    world = World(services={KEY: WEB, other.key: other})
    assigned = {key: Assignment(key, (ip_address("192.0.2.70"),), ("lan",)) for key in (KEY, other.key)}
    assert health_checks(world, assigned, "n1") == {(V4, 30001): HealthCheck(other.key, 0)}


# What kube-proxy writes, byte by byte (ServeHTTP in service_health.go).
SAYS = """{
\t"service": {
\t\t"namespace": "shop",
\t\t"name": "web"
\t},
\t"localEndpoints": 2,
\t"serviceProxyHealthy": true
}"""


def test_the_answer_is_kube_proxys_own():
    found = answer(HealthCheck(KEY, 2), healthy=True)
    assert (found.status, found.body) == (200, SAYS)
    assert found.headers == {
        "Content-Type": "application/json",
        "X-Content-Type-Options": "nosniff",
        "X-Load-Balancing-Endpoint-Weight": "2",
    }


@pytest.mark.parametrize(
    ("count", "healthy", "status"), [(0, True, 503), (0, False, 503), (1, False, 503), (1, True, 200)]
)
def test_a_node_is_chosen_only_with_endpoints_and_somebody_who_forwards(count, healthy, status):
    found = answer(HealthCheck(KEY, count), healthy)
    assert found.status == status
    assert json.loads(found.body)["serviceProxyHealthy"] is healthy
