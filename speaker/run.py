"""``speaker run``: the files of a directory are what is asked for, and this host gives out the addresses.

::

    manifests ──► settle (allocator) ──► state file ──► node.py

``node.py`` does the rest, as it does for ``speaker agent``.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import settle
from speaker.clock import boottime
from speaker.errors import EdgeError, InvalidManifests
from speaker.memory import recall, remember
from speaker.model import World
from speaker.node import Source, View, serve
from speaker.report import Report
from speaker.settings import RunSettings
from speaker.standalone.manifests import load
from speaker.standalone.watch import changes
from speaker.wire.remote import Wire


async def run(end: socket.socket, settings: RunSettings) -> None:
    """Serve ``settings.directory``; ``end`` leads to the wire process. Raises as ``node.serve`` does."""

    async def open_source(report: Report, _: AsyncExitStack) -> Source:
        return Manifests(settings, recall(settings.state, settings.rest_seconds, boottime()), report)

    await serve(end, settings, open_source, directory=str(settings.directory))


class Manifests:
    """The last good reading of the directory, settled and remembered before it is used. A ``Source``."""

    clerk = None
    """No API, no records."""

    def __init__(self, settings: RunSettings, allocator: Allocator, report: Report) -> None:
        self._settings, self._allocator, self._report = settings, allocator, report
        self._world: World | None = None
        self._saved: int | None = None

    async def run(self, _: Wire, changed: Callable[[], None]) -> None:
        async for _change in changes(self._settings.directory):
            if await self._read():
                changed()

    async def _read(self) -> bool:
        try:
            named = self._settings.peers is not None
            reading = await asyncio.to_thread(load, self._settings.directory, named=named)
        except (InvalidManifests, EdgeError) as error:
            self._report.bad_manifests(error, still_serving=self._world is not None)
            return False
        self._report.good_manifests(reading)
        self._world = reading.world
        return True

    async def view(self) -> View | None:
        if (world := self._world) is None:
            return None
        # In threads, because 10,000 Services take longer than the beat may be late.
        settlement = await asyncio.to_thread(settle, self._allocator, world, boottime())
        await self._remember()
        usage = {pool: self._allocator.usage(pool) for pool in world.pools}
        return View(world, settlement, self._settings.node, usage)

    async def _remember(self) -> None:
        if self._allocator.revision != self._saved:
            revision = self._allocator.revision
            await asyncio.to_thread(remember, self._settings.state, self._allocator, boottime())
            self._saved = revision
