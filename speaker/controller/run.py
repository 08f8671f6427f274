"""``speaker controller``: what runs, what it says, how it stops."""

import asyncio
import gc
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from speaker.cluster.election.elector import Leadership, Timing
from speaker.cluster.election.lease import Election, LeaseName
from speaker.cluster.mirror.reflector import Patience
from speaker.cluster.transport.access import Access, configure
from speaker.cluster.transport.client import Client
from speaker.controller.decider import ControllerSettings
from speaker.controller.leader import Leader
from speaker.controller.sweeper import Grace
from speaker.errors import EdgeError
from speaker.settings import AGENTS_NAMESPACE, Bind, LogFormat, LogLevel
from speaker.system.descriptors import raise_limit
from speaker.system.signals import stopped_by_signals
from speaker.system.threads import start_threads
from speaker.telemetry import logs
from speaker.telemetry.http import serving
from speaker.telemetry.internal_errors import InternalErrors
from speaker.telemetry.lateness import watch_loop
from speaker.telemetry.lines import Transition
from speaker.telemetry.maximum import Maximum
from speaker.telemetry.telling import Telling

log = structlog.get_logger()

LEASE = "eip-speaker-controller"
SWITCH = 0.001
"""Seconds for which a thread that decides keeps the loop waiting, each time that it has something to do."""
REMEMBERED = 1000
"""Objects whose last failure is remembered."""
_NAMESPACE = "eip-speaker"


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """Everything ``speaker controller`` can be told. ``namespace`` is the Lease's; '' for the pod's own.
    ``agents_namespace`` is that of the agents' session Leases, and of their key, which is made where there is none if
    ``make_key`` says so."""

    access: Access = field(default_factory=Access)
    namespace: str = ""
    agents_namespace: str = AGENTS_NAMESPACE
    make_key: bool = False
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    timing: Timing = field(default_factory=Timing)
    metrics: Bind | None = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"


async def run(settings: CommandSettings) -> None:
    """Until SIGTERM or SIGINT, when the Lease is given back. Raises SettingError for what cannot work from the start;
    an API that does not answer is waited for."""
    logs.configure(settings.log_format, settings.log_level)
    raise_limit()
    start_threads()
    gc.freeze()  # all that was imported
    sys.setswitchinterval(SWITCH)
    metrics = ControllerMetrics()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(await configure(settings.access)))
        # Unique to this process: after a restart the former one's Lease has to run out, or to be given back.
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        lease = LeaseName(settings.namespace or settings.access.namespace(_NAMESPACE), LEASE)
        election = Election(
            client, lease, identity, settings.timing, told=lambda error: metrics.failed(lease.path, error)
        )
        if settings.metrics is not None:
            health = partial(metrics.health, election)
            await stack.enter_async_context(serving(settings.metrics, metrics.registry, health))
            await stack.enter_async_context(_loop_watched(metrics))
        leader = Leader(
            client,
            election,
            settings.controller,
            metrics.failed,
            metrics,
            Patience(),
            Grace(),
            settings.agents_namespace,
            make_key=settings.make_key,
        )

        async def work(leadership: Leadership) -> None:
            with metrics.leading(leadership):
                await leader.work(leadership)

        log.info("started", identity=identity, lease=lease.path)
        stack.callback(metrics.finish)
        with stopped_by_signals():
            await election.lead(work)
    log.info("stopped")


class ControllerMetrics:
    """What people are told besides what stands in the API: a log line for every transition, metrics, health."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._leads = Gauge(
            "eip_speaker_controller_leads", "1 while this replica is the active one", registry=self.registry
        )
        self._errors = Counter(
            "eip_speaker_controller_api_errors", "requests to the API that failed", registry=self.registry
        )
        self._loop_delay = Maximum(
            "eip_speaker_controller_loop_delay_max_seconds",
            "How late the event loop was, at most, since the start",
            self.registry,
        )
        self._loop_busy = Maximum(
            "eip_speaker_controller_loop_busy_max_seconds",
            "How long of a delay it was work of its own that kept the event loop, at most, since the start",
            self.registry,
        )
        internal_errors = Counter(
            "eip_speaker_controller_internal_errors",
            "Errors that nobody foresaw, by the task they were raised in; the log has the traceback of each once",
            ["task"],
            registry=self.registry,
        )
        self._internal = InternalErrors(internal_errors)
        self.internal_error = self._internal.internal_error
        self._term: int | None = None
        self._failing: dict[str, str] = {}
        """What was said last, by what failed; the newest last."""
        self._telling = Telling()

    def health(self, election: Election) -> tuple[bool, dict[str, object]]:
        """Well once the API has answered: a replica that it never let in is of no use. From then on always: who stands
        by is as ready as who leads, and a restart mends no API."""
        problems = self._internal.problems()
        details = {"ready": election.answered, "leads": self._term is not None, "term": self._term}
        return election.answered, {**details, "problems": problems}

    @contextmanager
    def leading(self, leadership: Leadership) -> Iterator[None]:
        self._term = leadership.term
        self._leads.set(1)
        self._failing.clear()
        log.info("leads", term=leadership.term)
        try:
            yield
        finally:
            self._term = None
            self._leads.set(0)
            log.info("leads no more", term=leadership.term)

    def finish(self) -> None:
        """Say now what waits to be said together."""
        self._telling.finish()

    def loop_delay(self, late: float, busy: float) -> None:
        self._loop_delay.rise(late)
        self._loop_busy.rise(busy)

    def failed(self, what: str, error: EdgeError) -> None:
        """The same words are not repeated, as long as it is remembered; what fails for one reason is told together."""
        self._errors.inc()
        if self._failing.pop(what, None) != str(error):
            self._telling.tell(Transition("warning", "api failed", "what", what, str(error), {"error": str(error)}))
        self._failing[what] = str(error)
        while len(self._failing) > REMEMBERED:
            del self._failing[next(iter(self._failing))]


@asynccontextmanager
async def _loop_watched(metrics: ControllerMetrics) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch_loop(metrics.loop_delay), name="loop")
        yield
        watching.cancel()
