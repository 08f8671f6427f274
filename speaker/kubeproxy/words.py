"""Edge: what kube-proxy says about itself and about Services, over HTTP, with a short timeout."""

import asyncio
from collections.abc import Iterable

import aiohttp

from speaker.kubeproxy.health_checks import read_answer
from speaker.kubeproxy.judge import HEALTH, METRICS, Signs, read_configuration, read_health
from speaker.model import Family, IPAddress, ServiceKey

TIMEOUT = 2.0
"""Seconds for one answer."""
MAX_BODY = 1 << 20
"""Bytes; whoever says more on that port is not kube-proxy."""
LOOPBACK = ("127.0.0.1", "[::1]")
"""A node with IPv6 alone has it on the second."""


async def ask() -> Signs:
    """What kube-proxy says about itself over HTTP."""
    async with _session() as session:
        mode, configuration, health = await asyncio.gather(
            _get(session, METRICS, "/proxyMode"), _get(session, METRICS, "/configz"), _get(session, HEALTH, "/healthz")
        )
    return Signs(
        proxy_mode=mode[1].decode(errors="replace").strip() if mode is not None and mode[0] == 200 else None,
        healthy=read_health(*health) if health is not None else None,
        configuration=read_configuration(configuration[1]) if configuration is not None else None,
    )


async def endpoints_known(service: ServiceKey, port: int, family: Family, own: Iterable[IPAddress]) -> int | None:
    """To how many endpoints of this node kube-proxy sends, as it says on the Service's ``healthCheckNodePort``, or None
    if nobody says. ``own``: the node's addresses; kube-proxy may listen on only one of them."""
    hosts = [each for each in own if Family.of(each) is family]
    names = [f"[{host}]" if family is Family.IPV6 else str(host) for host in hosts]
    async with _session() as session:
        answer = await _get(session, port, "/", (*names, LOOPBACK[family is Family.IPV6]))
    return read_answer(answer[1], service) if answer is not None else None


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


async def _get(
    session: aiohttp.ClientSession, port: int, path: str, hosts: Iterable[str] = LOOPBACK
) -> tuple[int, bytes] | None:
    for host in hosts:
        try:
            async with session.get(f"http://{host}:{port}{path}", allow_redirects=False) as response:
                return response.status, await _some(response)
        except (aiohttp.ClientError, TimeoutError, OSError):
            continue
    return None


async def _some(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            break
    return bytes(body[:MAX_BODY])
