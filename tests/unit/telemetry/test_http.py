"""Who is answered at /metrics and /healthz: one rule for every port, the same as the page's."""

import asyncio
import socket

import pytest
from prometheus_client import CollectorRegistry

from speaker.settings import Bind
from speaker.telemetry.http import serving


async def ask(path, host):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    async with (
        asyncio.timeout(60),
        serving(Bind("127.0.0.1", port), CollectorRegistry(), lambda: (True, {}), names=("node-1",)),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        said = await reader.read()
        writer.close()
        return int(said.split()[1])


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("10.244.1.7:9900", 200, id="Prometheus and the kubelet ask a pod by its address"),
        pytest.param("192.0.2.1", 200, id="a node"),
        pytest.param("[2001:db8::1]:9900", 200, id="a node of IPv6"),
        pytest.param("localhost:9900", 200, id="whoever is logged in"),
        pytest.param("node-1:9900", 200, id="the name of the node"),
        pytest.param("NODE-1", 200, id="names have no case"),
        pytest.param(f"{socket.gethostname()}:9900", 200, id="the name of the host"),
        pytest.param("evil.example:9900", 421, id="a web site's name that leads here"),
        pytest.param("node-1.evil.example", 421, id="a name that begins like ours"),
        pytest.param("127.0.0.1.evil.example:9900", 421, id="a name that looks like an address"),
        pytest.param("", 421, id="no name"),
    ],
)
async def test_only_who_asks_by_address_or_by_our_own_name_is_answered(path, host, status):
    assert await ask(path, host) == status
