"""``speaker controller``: what runs, what it says, how it stops."""

import socket
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Histogram, Info, ProcessCollector

from speaker import __version__
from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client
from speaker.cluster.feed import Room
from speaker.cluster.lease import Election, Leadership, LeaseName, Timing
from speaker.cluster.reflector import Mirrors
from speaker.controller.decider import ControllerSettings
from speaker.controller.leader import Leader
from speaker.controller.published import ControllerPage, Published
from speaker.errors import EdgeError
from speaker.model import Tally
from speaker.removals import Doubt
from speaker.settings import AGENTS_NAMESPACE, ServingSettings
from speaker.system.garbage import end_in_time
from speaker.system.process import stopped_by_signals
from speaker.system.supervise import at_work, heed_callbacks, never_failing
from speaker.system.threads import begin
from speaker.telemetry import logs
from speaker.telemetry.http import serving
from speaker.telemetry.lateness import watch_loop
from speaker.telemetry.lines import Transition
from speaker.telemetry.logs import InternalErrors, Telling
from speaker.telemetry.metrics import NAMESPACE, GivenMetrics, Maximum, MqttMetrics, counter, gauge, make, metric
from speaker.telemetry.page.server import serving as page_serving

log = structlog.get_logger()

LEASE = "eip-speaker-controller"
REMEMBERED = 1000
"""Objects whose last failure is remembered."""
_NAMESPACE = "eip-speaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings(ServingSettings):
    """All settings of ``speaker controller``. ``namespace``: the Lease's; '' means the pod's own. ``agents_namespace``:
    that of the agents' session Leases, and of their key, which is made if there is none and ``make_key`` is set.
    ``mark_pods``: mark pods of dead nodes as not ready."""

    access: Access = field(default_factory=Access)
    namespace: str = ""
    agents_namespace: str = AGENTS_NAMESPACE
    make_key: bool = False
    mark_pods: bool = False
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    timing: Timing = field(default_factory=Timing)


async def run(settings: CommandSettings) -> None:
    """Runs until SIGTERM or SIGINT, and then gives the Lease back. Raises SettingError for settings that cannot work;
    waits for an API that does not answer."""
    logs.configure(settings.log_format, settings.log_level)
    begin()
    metrics = ControllerMetrics()
    heed_callbacks(metrics)
    ProcessCollector(registry=metrics.registry)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(await configure(settings.access), metrics.took))
        # Unique to this process: after a restart the previous one's Lease has to expire, or to be given back.
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        lease = LeaseName(settings.namespace or settings.access.namespace(_NAMESPACE), LEASE)
        election = Election(
            client, lease, identity, settings.timing, told=lambda error: metrics.failed(lease.path, error)
        )
        if settings.metrics is not None:
            health = partial(metrics.health, election)
            await stack.enter_async_context(serving(settings.metrics, metrics.registry, health))
            await stack.enter_async_context(at_work("loop", partial(watch_loop, metrics.loop_delay), metrics))
        await stack.enter_async_context(at_work("memory", end_in_time, metrics))
        leader = Leader(
            client,
            election,
            settings.controller,
            metrics,
            agents=settings.agents_namespace,
            make_key=settings.make_key,
            mark_pods=settings.mark_pods,
            settle=settings.settle_seconds,
        )

        page = ControllerPage(identity, metrics.problems) if settings.page is not None else None
        if settings.page is not None and page is not None:
            await stack.enter_async_context(page_serving(settings.page, page.live, metrics))
            await stack.enter_async_context(at_work("page", page.go_on_standing_by, metrics))

        async def work(leadership: Leadership) -> None:
            async with AsyncExitStack() as leading:
                if page is not None:
                    leading.callback(page.stand_by)  # once the leader's problems are over
                leading.enter_context(metrics.leading(leadership))
                leader.followers = (page,) if page is not None else ()
                if settings.mqtt is not None:
                    # Not needed without a broker, and perhaps not installed.
                    from speaker.telemetry.mqtt.news import publishing_as_controller

                    publishing = publishing_as_controller(settings.mqtt, identity, metrics.mqtt(), metrics)
                    leader.followers += (Published(await leading.enter_async_context(publishing)),)
                await leader.work(leadership)

        log.info("started", identity=identity, lease=lease.path)
        stack.callback(metrics.finish)
        with stopped_by_signals():
            await election.lead(work)
    log.info("stopped")


@never_failing
class ControllerMetrics:
    """What people see apart from the API: a log line for every transition, metrics, health."""

    leads = gauge("1 while this replica leads")
    api_errors = counter("Requests to the API that failed")
    api_request_seconds = metric(
        Histogram,
        "Duration of requests to the API, by method; of a watch only its start",
        "method",
        buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    )
    writes_waiting = gauge("Objects that wait to be written")
    removals_waiting = gauge(
        "Objects missing from a list of the API, kept until a second list confirms it, by resource", "resource"
    )
    mirror_bytes = gauge("Estimated memory of the API's objects and of what is derived from them")
    mirror_room_bytes = gauge("Memory that they may take at most")
    objects_without_room = gauge("Objects of the API that are set aside because their namespace takes too much memory")
    loop_delay_max_seconds = metric(Maximum, "The longest delay of the event loop since the start")
    loop_busy_max_seconds = metric(
        Maximum, "The longest part of such a delay that was the loop's own work, in CPU time"
    )
    internal_errors = counter(
        "Unexpected errors (bugs of the speaker), by task; the log has the traceback of each once", "task"
    )

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make(self, self.registry, namespace=f"{NAMESPACE}_controller")
        Info("build", "Version of this speaker", (), NAMESPACE, registry=self.registry).info({"version": __version__})
        self._doubts: dict[str, str] = {}
        """Resource → what is doubted."""
        self._given = GivenMetrics(self.registry)
        """The leader's; a replica that stands by knows nothing about it."""
        self._internal = InternalErrors(self.internal_errors)
        self.internal_error = self._internal.internal_error
        self._term: int | None = None
        self._failing: dict[str, str] = {}
        """What was said last, by what failed; the newest last."""
        self._broker = ""
        """Why the broker gets nothing."""
        self._mqtt: MqttMetrics | None = None
        self._telling = Telling()

    def health(self, election: Election) -> tuple[bool, dict[str, object]]:
        """Healthy once the API has answered: a replica that was never let in is useless. After that always healthy: a
        standby is as ready as the leader, and a restart does not repair an API."""
        details = {"ready": election.answered, "leads": self._term is not None, "term": self._term}
        return election.answered, {**details, "problems": self.problems()}

    def problems(self) -> tuple[str, ...]:
        return *self._internal.problems(), *self._doubts.values(), *filter(None, [self._broker])

    @contextmanager
    def leading(self, leadership: Leadership) -> Iterator[None]:
        self._term = leadership.term
        self.leads.set(1)
        self._failing.clear()
        log.info("leads", term=leadership.term)
        try:
            yield
        finally:
            self._term = None
            self.leads.set(0)
            self._given.clear()
            self.writes_waiting.set(0)
            for resource in tuple(self._doubts):
                self.doubted(resource, None)
            self.mirrored(Mirrors(Room(0)))
            self._broker = ""  # whoever leads now reports it
            if self._mqtt is not None:
                self._mqtt.waiting.set(0)
            log.info("no longer leads", term=leadership.term)

    def finish(self) -> None:
        """Says now what waits to be said together."""
        self._telling.finish()

    def took(self, method: str, seconds: float) -> None:
        """A request to the API."""
        self.api_request_seconds.labels(method).observe(seconds)

    def counted(self, tally: Tally, waiting: int) -> None:
        """What everybody has, and how many objects are still to be written."""
        self._given.count(tally)
        self.writes_waiting.set(waiting)

    def doubted(self, resource: str, doubt: Doubt | None) -> None:
        """What is missing from a list of ``resource`` but kept for now; None if nothing is."""
        before = self._doubts.pop(resource, "")
        self.removals_waiting.labels(resource).set(0 if doubt is None else doubt.waiting.gone)
        if doubt is not None:
            self._doubts[resource] = str(doubt)
            log.warning("removals wait", error=str(doubt))
        elif before:
            log.info("removals settled", resource=resource)

    def mirrored(self, mirrors: Mirrors) -> None:
        """The mirrors to measure from now on."""
        self.mirror_bytes.set_function(lambda: mirrors.room.taken)
        self.mirror_room_bytes.set(mirrors.room.most)
        self.objects_without_room.set_function(lambda: mirrors.without_room)

    def loop_delay(self, late: float, busy: float) -> None:
        self.loop_delay_max_seconds.rise(late)
        self.loop_busy_max_seconds.rise(busy)

    def failed(self, what: str, error: EdgeError) -> None:
        """The same words are not repeated while they are remembered. Failures with one reason are reported together."""
        self.api_errors.inc()
        if self._failing.pop(what, None) != str(error):
            self._telling.tell(Transition("warning", "api failed", "what", what, str(error), {"error": str(error)}))
        self._failing[what] = str(error)
        while len(self._failing) > REMEMBERED:
            del self._failing[next(iter(self._failing))]

    def broker_failed(self, error: EdgeError | None) -> None:
        """None: the broker accepts messages again. The same words are not repeated."""
        words = str(error) if error is not None else ""
        if words != self._broker:
            log.warning("mqtt failed", error=words) if words else log.info("mqtt recovered")
        self._broker = words

    def mqtt(self) -> MqttMetrics:
        """Made when there is a broker."""
        self._mqtt = self._mqtt or MqttMetrics(self.registry)
        return self._mqtt
