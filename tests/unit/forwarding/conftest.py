"""Short ways to write down a world, and strategies for plans."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import strategies as st

from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.model import Assignment, Endpoint, Protocol, Service, ServiceKey, ServicePort, World

WEB = Service(ServiceKey("default", "web"), (ServicePort(Protocol.TCP, 80, "http"),))


@pytest.fixture
def web() -> Callable[..., Service]:
    return lambda **changes: replace(WEB, **changes)


@pytest.fixture
def pod() -> Callable[..., Endpoint]:
    """``pod("10.0.0.3", ready=False, …)``: an endpoint of the port http, 8080/TCP, on node a."""

    def make(address: str, **changes: object) -> Endpoint:
        return Endpoint(
            ip_address(address), **{"port": 8080, "protocol": Protocol.TCP, "port_name": "http", "node": "a", **changes}
        )

    return make


@pytest.fixture
def world() -> Callable[..., tuple[World, dict[ServiceKey, Assignment]]]:
    """``world((service, endpoints, eips), …)``: the world and the assignments that ``plan`` takes."""

    def make(
        *services: tuple[Service, tuple[Endpoint, ...], tuple[str, ...]],
    ) -> tuple[World, dict[ServiceKey, Assignment]]:
        return (
            World(
                services={service.key: service for service, _, _ in services},
                endpoints={service.key: endpoints for service, endpoints, _ in services},
            ),
            {
                service.key: Assignment(service.key, tuple(map(ip_address, eips)), ("lan",) * len(eips))
                for service, _, eips in services
            },
        )

    return make


@st.composite
def _virtual_servers(draw: st.DrawFn) -> VirtualServer:
    places = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(8080, 8081)), max_size=4, unique=True))
    real = (
        RealServer(ip_address(f"10.1.0.{last}"), port, draw(st.integers(0, 2)), draw(st.booleans()))
        for last, port in places
    )
    return VirtualServer(
        ip_address(f"192.0.2.{draw(st.integers(10, 12))}"),
        draw(st.sampled_from(Protocol)),
        draw(st.integers(80, 81)),
        draw(st.sampled_from(["rr", "sh"])),
        draw(st.none() | st.integers(1, 2)),
        masquerade=draw(st.booleans()),
        real_servers=tuple(sorted(real)),
    )


@pytest.fixture(scope="session")
def plans() -> st.SearchStrategy[Plan]:
    """Small plans that often overlap; some EIPs without a virtual server."""

    def assemble(servers: list[VirtualServer], more: set[int]) -> Plan:
        eips = {server.address for server in servers} | {ip_address(f"192.0.2.{last}") for last in more}
        return Plan(frozenset(eips), {server.key: server for server in servers})

    return st.builds(assemble, st.lists(_virtual_servers(), max_size=5), st.sets(st.integers(10, 14), max_size=2))
