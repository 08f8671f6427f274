"""``speaker run``: the files of a directory say what is wanted, and this host assigns the addresses.

::

    manifests ──► settle (allocator) ──► state file ──► node/host.py

``run`` opens what the node needs and starts it (``node/serve.py``). The work is in ``node/host.py``: it asks
``Manifests.view`` what is wanted and brings it about, as it does for ``speaker agent``. An assignment that cannot be
written to the state file is not used; everything else continues.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path

from speaker.allocator.assign import Allocator
from speaker.allocator.book import Ledger
from speaker.allocator.settle import settle, with_former_pools, with_own_addresses
from speaker.api.reading import Reading
from speaker.errors import DoubtfulManifests, EdgeError, InvalidManifests
from speaker.health.judge import event, judged, targets
from speaker.health.prober import EDGE, Prober, Watched
from speaker.model import Family, IPAddress, Usage, World
from speaker.node.report import Report
from speaker.node.serve import serve
from speaker.node.source import Source, View
from speaker.settings import RunSettings
from speaker.standalone.manifests import Patience, load, mount
from speaker.standalone.state import Holdings, holdings, one_speakers, only, recall, write_state
from speaker.standalone.watch import changes
from speaker.system.files import shown
from speaker.system.supervise import at_work
from speaker.system.threads import in_thread
from speaker.system.waiting import Timer, boottime
from speaker.telemetry.page.host import Examine
from speaker.wire.remote import Wire

AGAIN_SECONDS = 5.0
"""After which what could not be read or written is tried again, where nothing changes."""
FIRST_CHECK_SECONDS = 1.5
"""For which new endpoints that are checked hold a change up: what is not known by then goes last."""
DISK_SECONDS = 2.0
"""After which a disk that has not taken the state file counts as one that refuses it, until it has."""


async def run(end: socket.socket, settings: RunSettings, examine: Examine) -> None:
    """Serve ``settings.directory``; ``end`` leads to the wire process. Raises as ``node.serve`` does."""

    async def open_source(report: Report, stack: AsyncExitStack) -> Source:
        await stack.enter_async_context(one_speakers(settings.state))
        return Manifests(settings, recall(settings.state, settings.rest_seconds, boottime()), report)

    await serve(end, settings, open_source, examine=examine, directory=shown(settings.directory))


class Manifests:
    """The last good reading of the directory, settled and remembered before it is used. A ``Source``."""

    record_sink = None
    """No API, no records."""

    def __init__(
        self,
        settings: RunSettings,
        allocator: Allocator,
        report: Report,
        write: Callable[[Path, Ledger], None] = write_state,
    ) -> None:
        self._settings, self._allocator, self._report, self._write = settings, allocator, report, write
        self._patience = Patience(shown(settings.directory), settings.settle_seconds, bool(allocator.holders))
        self._prober = Prober(self._checked, report)
        self._again = inf
        """When to read the directory again (boottime)."""
        self._world: World | None = None
        self._saved: int | None = None
        self._on_disk = holdings(allocator.ledger(boottime()))
        self._writing: asyncio.Task[tuple[int, Holdings]] | None = None
        self._changed: Callable[[], None] = lambda: None
        self._rested, self._unwritten = (Timer(lambda: self._changed()) for _ in range(2))
        """When there is more room in the pools; when the state file is tried again."""

    def recorded(self, _: IPAddress) -> None:
        """Nobody."""

    def lost(self, _: frozenset[str]) -> None:
        """Nobody asks."""

    async def run(self, _: Wire, changed: Callable[[], None]) -> None:
        self._changed = changed
        async with at_work(EDGE, self._prober.run, self._report):
            async for _change in changes(self._settings.directory, lambda: boottime() >= self._again):
                if await self._read():
                    changed()

    def _checked(self, news: list[Watched]) -> None:
        self._report.happened(event(each.target, each.services, each.condition) for each in news)
        self._changed()

    async def _read(self) -> bool:
        self._again = inf
        try:
            reading = await in_thread(self._load)
        except InvalidManifests as error:
            self._patience.forget()
            self._again = boottime() + AGAIN_SECONDS if error.may_pass else inf
            self._report.bad_manifests(error, still_serving=self._world is not None)
            return False
        except DoubtfulManifests as error:
            self._report.bad_manifests(error, still_serving=self._world is not None)
            return False
        self._report.good_manifests(reading)
        await self._follow(reading.world)
        return True

    async def _follow(self, world: World) -> None:
        """Its new endpoints are checked before they get anything, those of the world before as long as it is used."""
        wanted = targets(world)
        if wanted or self._world is not None:
            self._prober.follow((targets(self._world) if self._world is not None else {}) | wanted)
            await self._prober.known(FIRST_CHECK_SECONDS)
            self._prober.follow(wanted)
        self._world = world

    def _load(self) -> Reading:
        """Raises InvalidManifests, DoubtfulManifests."""
        directory = self._settings.directory
        place = mount(directory)
        reading = load(directory, named=self._settings.peers is not None, honoured=self._settings.honoured)
        if (doubt := self._patience.doubt(reading.world, place, boottime())) is not None:
            self._again = doubt.until
            raise DoubtfulManifests(doubt.sentence)
        return reading

    async def view(self, own: Mapping[IPAddress, str]) -> View | None:
        if self._world is None:
            return None
        world = with_own_addresses(self._world, own)
        # In threads, because 10,000 Services take longer than the beat may be late.
        settlement = await in_thread(settle, self._allocator, world, boottime())
        if not await self._remember():
            settlement = only(settlement, self._on_disk)
        usage = self._usage(world)
        world = with_former_pools(judged(world, self._prober.unwell), self._allocator)
        return View(world, settlement, self._settings.node, usage)

    def _usage(self, world: World) -> dict[str, Mapping[Family, Usage]]:
        """Looked at again once what rests now has rested."""
        self._allocator.wake(boottime())
        usage = {pool: self._allocator.usage(pool) for pool in world.pools}
        self._rested.cancel()
        if any(numbers.resting for families in usage.values() for numbers in families.values()):
            self._rested.set(self._settings.rest_seconds + 1)
        return usage

    async def _remember(self) -> bool:
        """Where it is refused, it is tried again after a while."""
        revision = self._allocator.revision
        if revision != self._saved:
            with self._report.trying("state file"):
                if self._writing is not None:
                    await self._wait_for(self._writing)
                if revision != self._saved:
                    ledger = await in_thread(self._allocator.ledger, boottime())
                    self._writing = asyncio.create_task(self._put(revision, ledger), name="state file")
                    await self._wait_for(self._writing)
        if revision != self._saved:
            self._unwritten.set(AGAIN_SECONDS)
        return revision == self._saved

    async def _put(self, revision: int, ledger: Ledger) -> tuple[int, Holdings]:
        await in_thread(self._write, self._settings.state, ledger)
        return revision, holdings(ledger)

    async def _wait_for(self, writing: asyncio.Task[tuple[int, Holdings]]) -> None:
        """Not for ever: edits that take nothing new are followed meanwhile. Raises EdgeError."""
        done, _ = await asyncio.wait((writing,), timeout=DISK_SECONDS)
        if not done:
            raise EdgeError(f"state file {shown(self._settings.state)}: the disk took longer than {DISK_SECONDS:g} s")
        self._writing = None
        self._saved, self._on_disk = writing.result()
