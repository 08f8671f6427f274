"""One node from start to end: what is opened in which order, and closed again. The work is in ``host.py``."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import structlog

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.forwarder import Forwarder, NoForwarder, cleanup, open_forwarder, remember
from speaker.forwarding.isolating import Isolating
from speaker.forwarding.unknown_flows import open_unknown_flows, remove_unknown_flows
from speaker.model import Forwarding
from speaker.node.handover import HandOver
from speaker.node.host import Host
from speaker.node.key_file import KeyFile
from speaker.node.report import Report
from speaker.node.source import MakeSource
from speaker.settings import MqttSettings, NodeSettings
from speaker.system.garbage import end_in_time
from speaker.system.process import may_administer_network, stoppable
from speaker.system.supervise import at_work, heed_callbacks
from speaker.system.threads import begin
from speaker.system.waiting import limited_as_a_whole
from speaker.telemetry import logs
from speaker.telemetry.http import serving
from speaker.telemetry.metrics import Kept, Metrics, MqttMetrics, exposition
from speaker.telemetry.page.host import Examine, HostPage
from speaker.telemetry.page.server import serving as page_serving
from speaker.wire.messages import Hears, PeerSpec, Spec
from speaker.wire.remote import Wire

log = structlog.get_logger()


async def serve(
    end: socket.socket,
    settings: NodeSettings,
    make: MakeSource,
    *,
    api: bool = False,
    examine: Examine,
    **started: object,
) -> None:
    """Serve what the source asks for, until the wire process at ``end`` asks us to stop. ``api``: the source asks the
    Kubernetes API. ``examine``: for the page. ``started``: for the first log line.

    Raises SettingError (an address to listen on), Unsupported (the forwarder asked for) and EdgeError (a state file
    that cannot be read) before anything is touched.
    """
    logs.configure(settings.log_format, settings.log_level)
    begin()
    try:
        await _serve(end, settings, make, api, examine, started)
    except* EdgeError as errors:
        failure: BaseException = errors
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
    else:
        log.info("stopped")
        return
    raise failure


async def _serve(
    end: socket.socket,
    settings: NodeSettings,
    make: MakeSource,
    api: bool,
    examine: Examine,
    started: Mapping[str, object],
) -> None:
    metrics = Metrics(api=api, wire=os.getppid())
    report = Report(metrics, settings.runtime_dir, take_over=settings.take_over)
    heed_callbacks(report)
    async with AsyncExitStack() as stack:
        stack.callback(report.telling.finish)
        keys = KeyFile(settings.peers.key_file) if settings.peers else None
        with limited_as_a_whole():  # stopped by the wire process if the loop shows no sign of life
            source = await make(report, stack)
            forwarder = await open_forwarder(
                settings.forwarder, settings.runtime_dir, settings.limits.ipvs_timeouts, settings.group
            )
        names = (settings.node.name,)
        if settings.metrics is not None:
            traffic = traffic_told(forwarder, report, real_servers=settings.metrics_real_servers)

            async def more() -> bytes:
                return metrics.of_eips.text() + await traffic()

            await stack.enter_async_context(serving(settings.metrics, metrics.registry, report.health, more, names))
        if settings.page is not None:
            page = HostPage(settings.node.name, report, report.seen)
            report.hearers.append(page.hear)
            report.shown.append(page.shown)
            await stack.enter_async_context(page_serving(settings.page, page.live, report, names))
            await stack.enter_async_context(at_work("doctor", partial(page.examine, examine), report))
        await stack.enter_async_context(at_work("memory", end_in_time, report))
        log.info("started", node=settings.node.name, forwarder=forwarder.name, **started)
        # Two forwarders at once would translate an address twice.
        with limited_as_a_whole():
            removed = await cleanup(settings.runtime_dir, forwarder.name, settings.group)
            hand_over = await _hand_over(settings, report)
        if removed:
            log.info("removed what another forwarder left", removed=list(removed))
        kind = "" if forwarder.name == NoForwarder.name else forwarder.name
        if kind or may_administer_network():
            remember(settings.runtime_dir, kind)
        if settings.mqtt is not None:
            await stack.enter_async_context(
                _publishing(settings.mqtt, settings.node.name, report, metrics, shares=source.record_sink is None)
            )
        hearers: list[Hears] = [each for each in (hand_over, source.record_sink, report) if each is not None]
        wire = Wire(end, _spec(settings, keys, source.record_sink is not None), report, hearers)
        host = Host(settings, keys, source, Isolating(forwarder, report), wire, report, hand_over)
        with stoppable(host.leave) as stop:
            await host.run(stop)
        if settings.forwarder is Forwarding.ASSIST:  # otherwise nobody would remove it once kube-proxy knows
            with suppress(EdgeError):
                await forwarder.cleanup()


async def _hand_over(settings: NodeSettings, report: Report) -> HandOver | None:
    """None if nothing is handed over; then what an earlier speaker handed over is undone too. Raises Unsupported if it
    is asked for and the kernel cannot do it."""
    peers = settings.peers
    if peers is not None and peers.hands_over(settings.forwarder):
        try:
            return HandOver(await open_unknown_flows(settings.group), report)
        except Unsupported as error:
            if peers.hand_over:
                raise
            log.warning("established connections are reset when their EIP moves", reason=str(error))
    if removed := await remove_unknown_flows(settings.group):
        log.info("connections are no longer handed over", removed=list(removed))
    return None


@asynccontextmanager
async def _publishing(
    settings: MqttSettings, node: str, report: Report, metrics: Metrics, *, shares: bool
) -> AsyncIterator[None]:
    """Publishes to a broker while the block lasts. ``shares``: no controller reports all EIPs, so this node reports its
    share."""
    # Not needed without a broker, and perhaps not installed.
    from speaker.telemetry.mqtt.news import publishing

    async with publishing(settings, node, MqttMetrics(metrics.registry), report, shares=shares) as news:
        report.hearers.append(news.hear)
        report.shown.append(news.shown)
        report.stale.set()
        yield


def traffic_told(forwarder: Forwarder, report: Report, *, real_servers: bool) -> Callable[[], Awaitable[bytes]]:
    """What /metrics says about traffic; nothing as long as the kernel does not answer, or a bug of ours prevents it."""
    kept = Kept(lambda: exposition(forwarder.traffic(real_servers=real_servers)))

    async def text() -> bytes:
        found = b""
        with report.trying("traffic"):
            found = await kept.text()
        return found  # noqa: RET504 -- what raised has not been assigned

    return text


def _spec(settings: NodeSettings, keys: KeyFile | None, api: bool) -> Spec:
    peers = settings.peers
    if peers is None or keys is None:
        return Spec(settings.node.name, None, settings.take_over, settings.in_kernel)
    told = PeerSpec(peers.hello, peers.ethertype, keys.current.secrets, api, peers.revision, settings.group.name)
    return Spec(settings.node.name, told, settings.take_over, settings.in_kernel)
