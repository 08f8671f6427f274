"""The loop that asks kube-proxy, against a port that answers as kube-proxy does."""

import asyncio
import socket
from ipaddress import ip_address

from speaker.kubeproxy.health_checks import HealthCheck
from speaker.kubeproxy.watch import EndpointWatch, HealthServer
from speaker.model import Endpoint, Family, Protocol, Service, ServiceKey, ServicePort, TrafficPolicy, World

KEY = ServiceKey("shop", "web")
HERE = Endpoint(ip_address("10.0.0.1"), 8080, Protocol.TCP, node="n1")
GUARD = 60.0
"""Seconds; against a hang."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


async def test_an_endpoint_counts_as_soon_as_kube_proxy_says_that_it_knows_it():
    port, changed = free_port(), asyncio.Event()
    web = Service(KEY, (ServicePort(Protocol.TCP, 80),), traffic_policy=TrafficPolicy.LOCAL, health_check_port=port)
    place = Family.IPV4, port
    asked = World(services={KEY: web}, endpoints={KEY: (HERE,)})
    watch = EndpointWatch("n1", lambda: (ip_address("127.0.0.1"),), changed.set)
    watch.follow(World(), None)
    async with asyncio.timeout(GUARD), HealthServer(lambda: True) as kube_proxy, asyncio.TaskGroup() as tasks:
        await kube_proxy.bring_to({place: HealthCheck(KEY, 0)})
        running = tasks.create_task(watch.run(), name="watch")
        assert watch.follow(asked, frozenset({KEY}))[0].endpoints[KEY] == ()
        await kube_proxy.bring_to({place: HealthCheck(KEY, 1)})
        await changed.wait()
        assert watch.follow(asked, frozenset()) == (asked, frozenset({KEY}))
        running.cancel()


async def test_where_no_kube_proxy_is_it_counts_at_once():
    port, changed = free_port(), asyncio.Event()
    web = Service(KEY, (ServicePort(Protocol.TCP, 80),), traffic_policy=TrafficPolicy.LOCAL, health_check_port=port)
    watch = EndpointWatch("n1", tuple, changed.set)
    watch.follow(World(), None)
    async with asyncio.timeout(GUARD), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watch.run(), name="watch")
        watch.follow(World(services={KEY: web}, endpoints={KEY: (HERE,)}), frozenset({KEY}))
        await changed.wait()
        running.cancel()
