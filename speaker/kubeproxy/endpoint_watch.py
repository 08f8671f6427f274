"""The loop that asks kube-proxy about endpoints that have just come to this node."""

import asyncio
from collections.abc import Callable, Collection
from itertools import islice

from speaker.kubeproxy import signs
from speaker.kubeproxy.local_endpoints import LocalEndpoints, ServiceFamily
from speaker.model import IPAddress, ServiceKey, World

AGAIN_SECONDS = 0.1
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
            await asyncio.sleep(AGAIN_SECONDS)

    async def _ask(self, which: ServiceFamily, port: int) -> bool:
        return self._endpoints.heard(which, await signs.endpoints_known(which[0], port, which[1], self._own()))
