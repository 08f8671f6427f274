"""Edge: the ports that ``healthCheckNodePort`` names, on all addresses of this node, as kube-proxy has them.

An EIP is not among those: with IPVS its guard refuses what no Service's port names before a socket sees it, and with
nftables no EIP is bound. The ports are open to the LAN, so connections are few, short and answered from memory.
"""

import asyncio
import os
import resource
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from aiohttp import web

from speaker.beside.health_checks import HealthCheck, Place, answer
from speaker.model import Family

log = structlog.get_logger()

MAX_CONNECTIONS = 64
"""At a time, on all ports; more are closed at once."""
CONNECTION_SECONDS = 10.0
"""How long one may last."""
SHUTDOWN_SECONDS = 1.0
_ANY = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 -- NodePorts are on every address


class HealthServer:
    """``async with HealthServer(healthy) as server``: serves what ``bring_to`` was last given."""

    def __init__(self, healthy: Callable[[], bool]) -> None:
        self._healthy = healthy
        self._checks: Mapping[Place, HealthCheck] = {}
        self._sites: dict[Place, web.TCPSite] = {}
        self._told: dict[Place, str] = {}
        """Why a port is not ours, as it was said."""
        self._runner = web.ServerRunner(_Server(self._answer), shutdown_timeout=SHUTDOWN_SECONDS)
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "HealthServer":
        await self._runner.setup()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        self._sites.clear()

    @property
    def served(self) -> int:
        return len(self._sites)

    @property
    def left_alone(self) -> int:
        """Ports that somebody else has."""
        return len(self._told)

    async def bring_to(self, checks: Mapping[Place, HealthCheck], *, again: bool = False) -> None:
        """Open what is new, close what is gone; ``again``: try ports that others had, too."""
        async with self._turn:
            self._checks = checks
            for place in [*self._sites.keys() - checks.keys()]:
                await self._sites.pop(place).stop()
            self._told = {place: why for place, why in self._told.items() if place in checks}
            known = self._sites.keys() if again else {*self._sites, *self._told}
            for place in sorted(checks.keys() - known):
                await self._open(place)

    async def _open(self, place: Place) -> None:
        if len(self._sites) >= _most_open():
            self._leave(place, "this process may have no more files open")
            return
        family, port = place
        site = web.TCPSite(self._runner, _ANY[family], port)
        try:
            await site.start()
        except OSError as error:
            await site.stop()
            self._leave(place, os.strerror(error.errno or 0))
        else:
            self._sites[place] = site
            self._told.pop(place, None)
            log.info("health check", **self._shown(place))

    def _leave(self, place: Place, why: str) -> None:
        """To others, and say so once."""
        if self._told.get(place) != why:
            log.info("health check left to others", **self._shown(place), reason=why)
        self._told[place] = why

    def _shown(self, place: Place) -> dict[str, Any]:
        family, port = place
        return {"service": str(self._checks[place].service), "port": port, "family": family.value}

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Whatever the path and the method, as kube-proxy does."""
        check = self._checks.get(_place(request))
        if check is None:  # closed since it connected
            return web.Response(status=503, headers={"Connection": "close"})
        found = answer(check, self._healthy())
        return web.Response(status=found.status, headers=found.headers, body=found.body.encode())


def _place(request: web.BaseRequest) -> Place:
    assert request.transport is not None
    name: tuple[Any, ...] = request.transport.get_extra_info("sockname")
    return Family.IPV6 if ":" in name[0] else Family.IPV4, name[1]


def _most_open() -> int:
    """Half of the files that this process may have open: the rest of it needs some too."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


class _Server(web.Server):
    """Keeps its connections few and short: aiohttp waits for a first line forever."""

    def __init__(self, handler: Any) -> None:
        super().__init__(handler)
        self._ends: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._ends) < MAX_CONNECTIONS:
            self._ends[handler] = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, handler.force_close)
        else:  # no sooner: a loop that was busy accepts all that wait before it makes the first of them
            transport.abort()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if end := self._ends.pop(handler, None):
            end.cancel()
