"""``speaker run``: which tasks run, what wakes them, how they stop.

::

    manifests ─┐                                     ┌─► forwarder (kernel)
               ├─► reconcile: settle → decide ───────┼─► layer 2, one LinkSpeaker a link
    links     ─┘        (allocator)  (decide.py)     └─► state file, status file, log, metrics
    beat ─────────────► every LinkSpeaker's deadline: what stops moving it stops the answers

The first three wait for changes; ``reconcile`` brings everything to what was last asked for. An edge that fails
is tried again, and what already works goes on working meanwhile.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import settle
from speaker.decide import decide
from speaker.errors import EdgeError, InvalidManifests
from speaker.files import only_one
from speaker.forwarding.forwarder import Forwarder, cleanup, open_forwarder
from speaker.interfaces.martians import martian_sources
from speaker.interfaces.netlink import Watcher
from speaker.interfaces.snapshot import Snapshot
from speaker.layer2.fleet import Fleet, Spot
from speaker.memory import recall, remember
from speaker.model import Forwarding, World
from speaker.ownership import sole
from speaker.report import Report
from speaker.settings import RunSettings
from speaker.standalone.manifests import load
from speaker.standalone.watch import changes
from speaker.telemetry import logs
from speaker.telemetry.http import serving
from speaker.telemetry.metrics import Metrics

log = structlog.get_logger()

RETRY_MAX = 30.0
"""Seconds at most between two tries of a failing edge; the first come within a fraction of a second."""

MARTIAN_SECONDS = 10.0
"""How often the kernel's martian counter is read: it is a symptom to be seen, not a signal to react to."""


def boottime() -> float:
    """Seconds of CLOCK_BOOTTIME: it runs on through suspend and most VM pauses, where CLOCK_MONOTONIC stands."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def run(settings: RunSettings) -> None:
    """Serve ``settings.directory`` until SIGTERM or SIGINT.

    Raises SettingError (an address to listen on), Unsupported (the forwarder asked for) and EdgeError (another speaker
    on this host, a state file that cannot be read) before anything is touched.
    """
    logs.configure(settings.log_format)
    metrics = Metrics()
    report = Report(metrics, settings.runtime_dir)
    async with AsyncExitStack() as stack:
        stack.enter_context(only_one(settings.runtime_dir / "lock"))
        allocator = recall(settings.state, settings.rest_seconds, boottime())
        forwarder = await open_forwarder(settings.forwarder, settings.runtime_dir)
        if settings.metrics is not None:
            await stack.enter_async_context(serving(settings.metrics, metrics.registry, report.health))
        log.info("started", node=settings.node.name, directory=str(settings.directory), forwarder=forwarder.name)
        # Two forwarders at once would translate an address twice.
        if removed := await cleanup(Forwarding.AUTO, settings.runtime_dir, keep=forwarder.name):
            log.info("removed what another forwarder left", removed=list(removed))
        fleet = Fleet(boottime, metrics, report.lost_link)
        with _stopped_by_signals():
            await Speaker(settings, allocator, forwarder, fleet, report).run()
    log.info("stopped")


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGINT end the block quietly: leaving every ``with`` inside it is the shutdown."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    asked = asyncio.Event()

    def stop() -> None:
        asked.set()
        task.cancel()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not asked.is_set():
            raise
        task.uncancel()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class Speaker:
    """The loops of one node and the little they share: what was asked for, and what the links look like."""

    def __init__(
        self, settings: RunSettings, allocator: Allocator, forwarder: Forwarder, fleet: Fleet, report: Report
    ) -> None:
        self._settings = settings
        self._allocator = allocator
        self._forwarder = forwarder
        self._fleet = fleet
        self._report = report
        self._world: World | None = None
        self._snapshot: Snapshot | None = None
        self._changed = asyncio.Event()
        self._saved: int | None = None

    async def run(self) -> None:
        """Every task, by name. One that ends, ends the speaker: none of them is ever done."""
        async with self._fleet, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_manifests(), name="manifests")
            tasks.create_task(self._follow_links(), name="links")
            tasks.create_task(self._reconcile(), name="reconcile")
            tasks.create_task(self._beat(), name="beat")
            tasks.create_task(self._watch_martians(), name="martians")

    # ── sources ──

    async def _follow_manifests(self) -> None:
        async for _ in changes(self._settings.directory):
            await self._read_manifests()

    async def _read_manifests(self) -> None:
        try:
            reading = await asyncio.to_thread(load, self._settings.directory)
        except (InvalidManifests, EdgeError) as error:
            self._report.bad_manifests(error, still_serving=self._world is not None)
            return
        self._report.good_manifests(reading)
        self._world = reading.world
        self._changed.set()

    async def _follow_links(self) -> None:
        async for attempt in _retrying("netlink", self._report):
            with attempt:
                async with Watcher() as watcher:
                    async for snapshot in watcher:
                        self._report.recovered("netlink")
                        self._snapshot = snapshot
                        self._changed.set()

    # ── decisions and effects ──

    async def _reconcile(self) -> None:
        while True:
            await self._changed.wait()
            async for attempt in _retrying("reconcile", self._report, self._changed_or):
                with attempt:
                    self._changed.clear()
                    if self._world is not None and self._snapshot is not None:
                        await self._bring_to(self._world, self._snapshot)
            self._report.recovered("reconcile")

    async def _changed_or(self, seconds: float) -> None:
        """Between two tries: no longer than until there is something new to try."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def _bring_to(self, world: World, snapshot: Snapshot) -> None:
        """One pass, in a safe order: remembered before used, withdrawn before unforwarded, forwarded before claimed."""
        # In threads, because 10,000 Services take longer than the beat may be late.
        settlement = await asyncio.to_thread(settle, self._allocator, world, boottime())
        await self._remember()
        self._report.settled(settlement)
        decision = await asyncio.to_thread(decide, world, settlement.assignments, snapshot, self._settings.node)
        spots = {address: Spot(eip.link, eip.gratuitous) for address, eip in decision.held().items()}
        self._fleet.withdraw_except(spots)
        applied = await self._forwarder.apply(decision.forwarding)
        self._report.forwarding(applied, self._forwarder.approximations(decision.forwarding))
        self._fleet.hold(spots)
        self._report.decided(decision)
        usage = {pool: self._allocator.usage(pool) for pool in world.pools}
        self._report.in_force(settlement, decision, await self._forwarder.problems(), usage)

    async def _remember(self) -> None:
        if self._allocator.revision != self._saved:
            revision = self._allocator.revision
            await asyncio.to_thread(remember, self._settings.state, self._allocator, boottime())
            self._saved = revision

    async def _beat(self) -> None:
        while True:
            self._fleet.extend(sole.deadline(boottime()))
            await asyncio.sleep(sole.BEAT)

    async def _watch_martians(self) -> None:
        while True:
            self._report.martians(martian_sources())
            await asyncio.sleep(MARTIAN_SECONDS)


def _retrying(edge: str, report: Report, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> AsyncRetrying:
    """Tries until it works, with jittered backoff, and tells of every failure."""

    def tell(state: RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            report.failed(edge, error)

    return AsyncRetrying(
        retry=retry_if_exception_type(EdgeError),
        wait=wait_random_exponential(multiplier=0.1, max=RETRY_MAX),
        before_sleep=tell,
        sleep=sleep,
    )
