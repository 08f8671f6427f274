"""``speaker agent``: settings, and what is opened before ``node/serve.py`` takes over."""

import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from speaker.agent.source import Cluster
from speaker.agent.view import ViewSettings
from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client
from speaker.model import Forwarding
from speaker.node.report import Report
from speaker.node.serve import serve
from speaker.node.source import Source
from speaker.ownership.parameters import Parameters
from speaker.settings import (
    AGENTS_NAMESPACE,
    DEFAULT_RUNTIME_DIR,
    DEFAULT_SETTLE,
    Bind,
    Limits,
    LogFormat,
    LogLevel,
    MqttSettings,
    Node,
    PeerSettings,
)
from speaker.telemetry.page.host import Examine


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything ``speaker agent`` can be told. ``namespace`` is the session Leases'; '' for the pod's own. ``node``
    has the name only: the rest is in the API."""

    node: Node
    access: Access = field(default_factory=Access)
    namespace: str = ""
    view: ViewSettings = field(default_factory=ViewSettings)
    peers: PeerSettings = field(default_factory=PeerSettings)
    runtime_dir: Path = DEFAULT_RUNTIME_DIR
    forwarder: Forwarding = Forwarding.NONE
    metrics: Bind | None = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    limits: Limits = field(default_factory=Limits)
    settle_seconds: float = DEFAULT_SETTLE
    metrics_real_servers: bool = False
    mqtt: MqttSettings | None = None
    page: Bind | None = None
    take_over: bool = False


async def run(end: socket.socket, settings: AgentSettings, examine: Examine) -> None:
    """Until the wire process, to which ``end`` leads, asks for the end, when everything is handed over. Raises as
    ``node.serve`` does; an API that does not answer is waited for."""
    namespace = settings.namespace or settings.access.namespace(AGENTS_NAMESPACE)

    async def open_source(report: Report, stack: AsyncExitStack) -> Source:
        client = await stack.enter_async_context(Client(await configure(settings.access)))
        times = Parameters.for_hello(settings.peers.hello)
        return Cluster(
            client,
            settings.node.name,
            namespace,
            settings.view,
            times,
            report,
            settings.runtime_dir,
            settings.forwarder,
            settings.settle_seconds,
        )

    await serve(end, settings, open_source, api=True, examine=examine, leases=namespace)
