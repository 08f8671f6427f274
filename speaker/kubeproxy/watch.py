"""The loops: one looks now and then, and serves health checks if nobody else does; one asks kube-proxy about endpoints
that have just come to this node. And the edge that serves them.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from importlib import import_module
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

import structlog

from speaker.kubeproxy import sight
from speaker.kubeproxy.health_checks import HealthCheck, LocalEndpoints, Place, ServiceFamily, answer
from speaker.kubeproxy.judge import GRACE, NO_FORWARDER, Here, Judge, Judgement, Mode, recognise
from speaker.model import Family, IPAddress, Link, Pool, ServiceKey, World
from speaker.system.listening import Answer, Front, Question, plain
from speaker.system.process import share
from speaker.system.threads import in_thread
from speaker.system.waiting import at_rest, set_within

FIRST_SECONDS, LOOK_SECONDS = 2.0, 20.0
"""Between two looks: at first, and in the long run. With AGAIN_SECONDS it is less than 30 until a change is told."""
AGAIN_SECONDS = GRACE + 1
"""Where something seems to be missing."""


class Asked(NamedTuple):
    """What is asked of this node, as far as it matters here. ``checks``: called in a thread, where they are served;
    ``links``: by number; ``lan``: names of those that EIPs are, or could be, announced on."""

    pools: Mapping[str, Pool]
    checks: Callable[[], Mapping[Place, HealthCheck]]
    links: Mapping[int, Link]
    lan: frozenset[str]


class LookReport(NamedTuple):
    """One look; and health checks: ports served, and ports that others have."""

    seen: Judgement
    served: int
    left_alone: int


async def _words() -> ModuleType:
    """What asks kube-proxy. With it comes an HTTP library, of which nobody who waits for a first answer has need."""
    return await in_thread(import_module, "speaker.kubeproxy.words")


class KubeProxyWatch:
    """The program that implements Services on this node besides us."""

    def __init__(
        self,
        forwarder: str,
        held: Callable[[], frozenset[IPAddress]],
        healthy: Callable[[], bool],
        tell: Callable[[LookReport], None],
    ) -> None:
        """``held``: which EIPs this node answers for; ``healthy``: our forwarder does its work."""
        self._forwarder, self._held, self._tell = forwarder, held, tell
        self._server = HealthServer(healthy)
        self._tables, self._judge = sight.Tables(), Judge()
        self._asked: Asked | None = None
        self._first = asyncio.Event()
        """There is something asked."""
        self._alone = False
        """There is nobody, as far as we can see."""

    async def follow(self, asked: Asked) -> None:
        self._asked = asked
        self._first.set()
        if self._alone:
            await self._serve(asked)

    async def run(self) -> None:
        """Endless."""
        await set_within(self._first, None)
        pace = FIRST_SECONDS
        async with self._server:
            while True:
                assert self._asked is not None
                seen = await self._look(self._asked)
                self._alone = seen.kube_proxy.mode is Mode.NONE
                await self._serve(self._asked, again=True)
                self._tell(LookReport(seen, self._server.served, self._server.left_alone))
                with at_rest():
                    await asyncio.sleep(AGAIN_SECONDS if seen.unsure else pace)
                pace = min(2 * pace, LOOK_SECONDS)

    async def _serve(self, asked: Asked, *, again: bool = False) -> None:
        """But where something else was asked meanwhile: that has been served, or will be."""
        checks = await self._served(asked)
        if asked is self._asked:
            await self._server.bring_to(checks, again=again)

    async def _served(self, asked: Asked) -> Mapping[Place, HealthCheck]:
        """Kube-proxy answers for every Service, whoever forwards, and fails loudly where it finds the port taken."""
        if not self._alone or self._forwarder == NO_FORWARDER:
            return {}
        return await in_thread(asked.checks)

    async def _look(self, asked: Asked) -> Judgement:
        words = await (await _words()).ask()
        # What it says of itself counts most; without its word the kernel's tables are gone through.
        chains = await self._tables.chains() if words.proxy_mode is None else None
        found = recognise(replace(words, links=frozenset(link.name for link in asked.links.values()), chains=chains))
        now = time.monotonic()
        rules = await self._tables.rules(self._judge.reckons_with(now, found), asked.links)
        answering = await sight.answering(asked.lan) if found.mode is Mode.IPVS else ()
        here = Here(self._forwarder, asked.pools, self._held())
        return self._judge.look(now, here, found, rules, answering)


# ── Endpoints that have just come ─────────────────────────────────────────────────────────────────────────────

ASK_SECONDS = 0.1
"""Between two questions."""
AT_ONCE = 32
"""Questions."""


class EndpointWatch:
    """``changed`` says that ``follow`` would say something else; ``own``: this node's addresses."""

    def __init__(self, node: str, own: Callable[[], Collection[IPAddress]], changed: Callable[[], None]) -> None:
        self._endpoints = LocalEndpoints(node)
        self._own, self._changed = own, changed
        self._awaits = asyncio.Event()

    def follow(self, world: World, changed: frozenset[ServiceKey] | None) -> tuple[World, frozenset[ServiceKey] | None]:
        """As ``LocalEndpoints`` has it."""
        found = self._endpoints.follow(world, changed)
        if self._endpoints.awaited:
            self._awaits.set()
        return found

    async def run(self) -> None:
        """Endless."""
        while True:
            await self._awaits.wait()
            asked = list(islice(self._endpoints.awaited.items(), AT_ONCE))
            if any(await asyncio.gather(*(self._ask(which, port) for which, port in asked))):
                self._changed()
            if not self._endpoints.awaited:
                self._awaits.clear()
            await asyncio.sleep(ASK_SECONDS)

    async def _ask(self, which: ServiceFamily, port: int) -> bool:
        known = await (await _words()).endpoints_known(which[0], port, which[1], self._own())
        return self._endpoints.heard(which, known)


# ── The ports that healthCheckNodePort names ──────────────────────────────────────────────────────────────────
#
# On all addresses of this node, as kube-proxy has them. An EIP is not among those: with IPVS its guard refuses what no
# Service's port names before a socket sees it, and with nftables no EIP is bound. The ports are open to the LAN, so
# connections are few, short and answered from memory.

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
