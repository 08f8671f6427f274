"""Who says what is asked of a node, and the settings of every command that works on one."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

from speaker.allocator.assign import Usage
from speaker.allocator.settle import Settlement
from speaker.model import Family, Forwarding, IPAddress, ServiceKey, World
from speaker.node.report import Report
from speaker.settings import Bind, Limits, LogFormat, LogLevel, MqttSettings, Node, PeerSettings
from speaker.wire.messages import Hears
from speaker.wire.remote import Wire


class View(NamedTuple):
    """All that is asked of this node now. ``usage``: of the pools, where this node knows it. ``changed``: the Services
    that are all there is of difference to the view before; None: there may be more."""

    world: World
    settlement: Settlement
    node: Node
    usage: Mapping[str, Mapping[Family, Usage]] = {}
    changed: frozenset[ServiceKey] | None = None


class Source(Protocol):
    """Where it is asked."""

    @property
    def record_sink(self) -> Hears | None:
        """Writes records for the wire process; None where none are kept."""

    def recorded(self, eip: IPAddress) -> str | None:
        """The node that the record names as its holder; None: none, or there are no records."""

    async def run(self, wire: Wire, changed: Callable[[], None]) -> None:
        """Endless. ``changed`` says that ``view`` is another."""

    def lost(self, nodes: frozenset[str]) -> None:
        """The nodes that died, as far as is heard here; at each change."""

    async def view(self, own: Mapping[IPAddress, str]) -> View | None:
        """None as long as nothing is known. Raises EdgeError where it is to be asked again. ``own``: as in
        ``Snapshot``."""


class HostSettings(Protocol):
    """The settings of every command that works on a node."""

    @property
    def node(self) -> Node: ...
    @property
    def runtime_dir(self) -> Path:
        """Facts about the running kernel that a reboot makes void: must be on a tmpfs."""

    @property
    def forwarder(self) -> Forwarding: ...
    @property
    def metrics(self) -> Bind | None: ...
    @property
    def page(self) -> Bind | None: ...
    @property
    def log_format(self) -> LogFormat: ...
    @property
    def log_level(self) -> LogLevel: ...
    @property
    def peers(self) -> PeerSettings | None:
        """None: this host is the only one that serves these EIPs."""

    @property
    def limits(self) -> Limits: ...
    @property
    def metrics_real_servers(self) -> bool: ...
    @property
    def mqtt(self) -> MqttSettings | None: ...
    @property
    def take_over(self) -> bool:
        """Another load balancer still answers for the EIPs."""


MakeSource = Callable[[Report, AsyncExitStack], Awaitable[Source]]
"""Opens what a source needs on the stack."""
