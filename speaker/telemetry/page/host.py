"""The page of a host: of what its status file says, and of what happens on it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from speaker.model.events import EipClaimed, PeerChanged
from speaker.system.supervise import Supervisor, contained
from speaker.system.threads import in_thread
from speaker.telemetry.mqtt.messages import Pools
from speaker.telemetry.page.document import Document, Failovers, Seen, examination, of_host
from speaker.telemetry.page.server import Live

MISSED = 3600.0
"""Seconds for which a node that fell silent is shown, and so many of them:"""
MOST_MISSED = 64
EXAMINED = 60.0
"""Seconds between two looks of the doctor's, which take a second or two and some questions on the LAN."""

Examine: TypeAlias = Callable[[], Sequence[Mapping[str, str]]]
"""What is wrong here, each as ``diagnosis/report.py`` tells it to machines. It blocks."""


class HostPage:
    """Nothing is raised to whoever tells it anything: ``supervisor`` hears of it."""

    def __init__(self, node: str, supervisor: Supervisor, seen: Seen = lambda _: {}) -> None:
        self.live, self._supervisor, self._seen = Live(), supervisor, seen
        self._node, self._failovers = node, Failovers()
        self._alive: frozenset[tuple[str, str]] = frozenset()
        """Other hosts, and the links that each is heard on."""
        self._silent: dict[str, float] = {}
        """Node → since when it is not heard, in seconds since 1970."""
        self._holders: dict[str, tuple[str | None, float]] = {}
        """EIP → who holds it, and since when as seen here, in seconds since 1970; 0: since before this page knew it."""
        self._loop = asyncio.get_running_loop()
        self._examination: Document | None = None
        self._make: Callable[[], Document] | None = None

    def hear(self, event: object) -> None:
        """In any thread; what matters here in the loop's."""
        with contained("page", self._supervisor):
            match event:
                case EipClaimed(unanswered=float(seconds)):
                    self._failovers.add(time.time(), str(event.eip), event.before or "", self._node, seconds)
                case PeerChanged(node=node, link=link, alive=alive):
                    one = {(node, link.name)}
                    self._alive = self._alive | one if alive else self._alive - one
                    self._silent.pop(node, None)
                    if not alive and len(self._silent) < MOST_MISSED:
                        self._silent[node] = time.time()

    def shown(self, status: Mapping[str, Any], pools: Pools, conflicts: Mapping[str, str]) -> None:
        """What the status file says. In any thread."""
        self._holders = {one["address"]: self._held(one["address"], one["holder"]) for one in status["eips"]}
        with suppress(RuntimeError):  # at the very end there is no loop
            self._loop.call_soon_threadsafe(self._show, partial(self._document, status, pools, conflicts))

    def _held(self, address: str, holder: str | None) -> tuple[str | None, float]:
        was = self._holders.get(address, (holder, 0.0))
        return was if was[0] == holder else (holder, time.time())

    def _show(self, make: Callable[[], Document]) -> None:
        self._make = make
        self.live.show(make)

    async def examine(self, examine: Examine) -> None:
        """While somebody looks, and never else. Endless."""
        while True:
            await self.live.looked_at.wait()
            found = await in_thread(examine)
            self._show_examination(examination(time.time(), found))
            await asyncio.sleep(EXAMINED)
            if not self.live:
                self.live.looked_at.clear()
                self._show_examination(None)

    def _show_examination(self, found: Document | None) -> None:
        self._examination = found
        if self._make is not None:
            self._show(self._make)

    def _document(self, status: Mapping[str, Any], pools: Pools, conflicts: Mapping[str, str]) -> Document:
        nodes = {node for node, _ in self._alive}
        missed = [node for node, since in [*self._silent.items()] if time.time() - since < MISSED]
        since = {address: at for address, (holder, at) in self._holders.items() if holder and at}
        shown = of_host(self._node, status, pools, conflicts, self._failovers.told(), nodes, missed, since, self._seen)
        return shown | {"doctor": self._examination}
