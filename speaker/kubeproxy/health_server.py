"""Edge: the ports that ``healthCheckNodePort`` names, on all addresses of this node, as kube-proxy has them.

An EIP is not among those: with IPVS its guard refuses what no Service's port names before a socket sees it, and with
nftables no EIP is bound. The ports are open to the LAN, so connections are few, short and answered from memory.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog

from speaker.kubeproxy.health_checks import HealthCheck, Place, answer
from speaker.model import Family
from speaker.system.listening import Answer, Front, Question, plain
from speaker.system.process import share

log = structlog.get_logger()

_PART = 4
"""One of so many of all descriptors may be ports: the rest of the speaker needs some too."""
MAX_PORTS = 16_384
"""Of both families; Kubernetes gives out 2,768 node ports."""
_ANY = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 -- NodePorts are on every address


class HealthServer:
    """``async with HealthServer(healthy) as server``: serves what ``bring_to`` was last given."""

    def __init__(self, healthy: Callable[[], bool]) -> None:
        self._healthy = healthy
        self._checks: Mapping[Place, HealthCheck] = {}
        self._ports: dict[Place, asyncio.Server] = {}
        self._told: dict[Place, str] = {}
        """Why a port is not ours, as it was said."""
        self._front = Front()
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "HealthServer":
        await self._front.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._ports.clear()
        await self._front.__aexit__(*error)

    @property
    def served(self) -> int:
        return len(self._ports)

    @property
    def left_alone(self) -> int:
        """Ports that somebody else has."""
        return len(self._told)

    async def bring_to(self, checks: Mapping[Place, HealthCheck], *, again: bool = False) -> None:
        """Open what is new, close what is gone; ``again``: try ports that others had, too."""
        async with self._turn:
            self._checks = checks
            for place in [*self._ports.keys() - checks.keys()]:
                self._front.shut(self._ports.pop(place))
            self._told = {place: why for place, why in self._told.items() if place in checks}
            known = self._ports.keys() if again else {*self._ports, *self._told}
            for place in sorted(checks.keys() - known):
                await self._open(place)

    async def _open(self, place: Place) -> None:
        if len(self._ports) >= share(_PART, MAX_PORTS):
            self._leave(place, "this process has reached its limit of open files")
            return
        family, port = place
        try:
            # By any name, as at kube-proxy: balancers ask, and what they hear is a number.
            told = partial(self._answer, place)
            self._ports[place] = await self._front.open(_ANY[family], port, told, names=None)
        except OSError as error:
            self._leave(place, os.strerror(error.errno or 0))
        else:
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

    async def _answer(self, place: Place, _: Question) -> Answer:
        """Whatever the path and the method, as kube-proxy does."""
        check = self._checks.get(place)
        if check is None:  # closed since it connected
            return plain(HTTPStatus.SERVICE_UNAVAILABLE)
        found = answer(check, self._healthy())
        return Answer(found.status, found.body.encode(), found.headers)
