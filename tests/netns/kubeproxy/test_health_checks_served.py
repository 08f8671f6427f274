"""``healthCheckNodePort`` as an external load balancer asks: over the LAN, of the real speaker."""

import asyncio
import resource
import signal
import socket
from contextlib import suppress

import aiohttp
import pytest

from speaker.kubeproxy.health_checks import HealthCheck
from speaker.kubeproxy.watch import HealthServer
from speaker.model import Family, ServiceKey
from speaker.system.listening import MAX_CONNECTIONS

pytestmark = pytest.mark.netns

LOCAL = "externalTrafficPolicy: Local\n  healthCheckNodePort: 30001"
READY, ELSEWHERE = "addresses: [10.0.0.1], nodeName: n1", "addresses: [10.0.0.1], nodeName: n2"


def ask(sh, node, url="http://198.51.100.1:30001/healthz", flags="-i") -> str:
    return sh(node, f"curl -sS {flags} --max-time 60 {url}", check=False)


def until(asked, words: str) -> str:
    """The first answer with these words."""
    for _ in range(200):
        if words in (said := asked()):
            return said
    raise AssertionError(said)


def test_it_is_answered_where_nobody_else_does_and_follows_the_endpoints(node, site, write, start, sh):
    write("site.yaml", site(LOCAL, READY))
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("health check", port=30001, service="default/web")
    said = ask(sh, node)
    assert "200 OK" in said
    assert "X-Load-Balancing-Endpoint-Weight: 1" in said
    assert "X-Content-Type-Options: nosniff" in said
    assert '"localEndpoints": 1,' in said
    assert "200 OK" in ask(sh, node, "http://198.51.100.1:30001/any/path")
    write("site.yaml", site(LOCAL, ELSEWHERE))
    gone = until(lambda: ask(sh, node), "503 Service Unavailable")
    assert '"localEndpoints": 0,' in gone
    write("site.yaml", site())
    until(lambda: ask(sh, node), "curl: (7)")  # refused


def test_it_is_not_on_the_eip(node, site, write, start, sh):
    write("site.yaml", site(LOCAL, READY))
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("health check", port=30001)
    assert "200" not in ask(sh, node, "http://198.51.100.70:30001/")


def test_a_port_that_somebody_has_is_his_until_he_leaves(node, site, write, start):
    with node.entered():
        taken = socket.create_server(("198.51.100.1", 30001))
    write("site.yaml", site(LOCAL, READY))
    speaker = start(node, "--forwarder", "nftables")
    told = speaker.until("health check left to others", port=30001)
    assert "in use" in told["reason"]
    taken.close()
    speaker.until("health check", port=30001)
    again = [line for line in speaker.log if line["event"] == "health check left to others"]
    assert len(again) == 1
    assert speaker.get("/metrics").count('eip_speaker_health_checks{state="served"} 1.0') == 1


@pytest.mark.parametrize("forwarder", ["none", "nftables"])
def test_beside_kube_proxy_it_is_kube_proxys(node, kube_proxy, site, write, start, sh, forwarder):
    kube_proxy(node, "nftables")
    write("site.yaml", site(LOCAL, READY))
    speaker = start(node, "--forwarder", forwarder)
    speaker.until("kube-proxy", mode="nftables")
    assert "200" not in ask(sh, node)
    assert 'eip_speaker_health_checks{state="served"} 0.0' in speaker.get("/metrics")


def test_connections_that_say_nothing_keep_nobody_out_for_long(node, site, write, start, sh):
    write("site.yaml", site(LOCAL, READY))
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("health check", port=30001)
    with node.entered():
        idle = [socket.create_connection(("198.51.100.1", 30001)) for _ in range(100)]
    assert "200 OK" in ask(sh, node)
    with suppress(ConnectionResetError):
        assert idle[0].recv(1) == b""  # shown the door: who came first
    for each in idle:
        each.close()


def test_the_port_is_closed_when_the_speaker_ends(node, site, write, start, sh):
    write("site.yaml", site(LOCAL, READY))
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("health check", port=30001)
    assert speaker.stop(signal.SIGTERM) == 0
    assert "200" not in ask(sh, node)


# ── The server alone ──

WEB = ServiceKey("default", "web")


async def test_each_family_is_answered_for_itself(node):
    checks = {(Family.IPV4, 30001): HealthCheck(WEB, 2), (Family.IPV6, 30001): HealthCheck(WEB, 0)}
    with node.entered():
        async with HealthServer(lambda: True) as server, aiohttp.ClientSession() as session:
            await server.bring_to(checks)
            async with (
                session.get("http://127.0.0.1:30001/") as four,
                session.get("http://[::1]:30001/") as six,
            ):
                assert (four.status, six.status) == (200, 503)


async def test_a_connection_that_outlives_its_check_is_told_so(node):
    checks = {(Family.IPV4, 30001): HealthCheck(WEB, 2)}
    with node.entered():
        async with HealthServer(lambda: True) as server, aiohttp.ClientSession() as session:
            await server.bring_to(checks)
            async with session.get("http://127.0.0.1:30001/") as before:
                assert before.status == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", 30001)
            await asyncio.sleep(0)  # it is accepted
            await server.bring_to({})
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
            writer.close()
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get("http://127.0.0.1:30001/")


async def test_no_more_connections_are_kept_than_said_even_when_all_come_at_once(node):
    with node.entered():
        async with HealthServer(lambda: True) as server:
            await server.bring_to({(Family.IPV4, 30001): HealthCheck(WEB, 2)})
            # The loop does not run while these are made.
            idle = [socket.create_connection(("127.0.0.1", 30001)) for _ in range(MAX_CONNECTIONS + 30)]
            for each in idle:
                each.setblocking(False)
            for too_many in idle[:30]:
                with suppress(ConnectionResetError):
                    assert await asyncio.get_running_loop().sock_recv(too_many, 1) == b""
            for each in idle[30:]:
                with pytest.raises(BlockingIOError):
                    each.recv(1)
            for each in idle:
                each.close()


async def test_the_rest_of_the_speaker_keeps_most_of_the_files_it_may_open(node):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    checks = {(Family.IPV4, port): HealthCheck(WEB, 1) for port in range(30001, 30251)}
    with node.entered():
        async with HealthServer(lambda: True) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
            try:
                await server.bring_to(checks)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert (server.served, server.left_alone) == (100, 150)
