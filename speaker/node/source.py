"""Says what is asked of a node: an interface for files and for the API."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol

from speaker.allocator.settle import Settlement
from speaker.model import Family, IPAddress, ServiceKey, Usage, World
from speaker.node.report import Report
from speaker.settings import Node
from speaker.wire.messages import Hears
from speaker.wire.remote import Wire


class View(NamedTuple):
    """All that is asked of this node now. ``usage``: of the pools, if this node knows it. ``changed``: only these
    Services differ from the previous view; None: anything may."""

    world: World
    settlement: Settlement
    node: Node
    usage: Mapping[str, Mapping[Family, Usage]] = {}
    changed: frozenset[ServiceKey] | None = None


class Source(Protocol):
    """Where a node's work comes from."""

    @property
    def record_sink(self) -> Hears | None:
        """Writes records for the wire process; None if there are none."""

    def recorded(self, eip: IPAddress) -> str | None:
        """The holder that the record names; None if it names none, or there are no records."""

    async def run(self, wire: Wire, changed: Callable[[], None]) -> None:
        """Endless. Calls ``changed`` when ``view`` has changed."""

    def lost(self, nodes: frozenset[str]) -> None:
        """The nodes believed dead, from what is heard here; called at each change."""

    async def view(self, own: Mapping[IPAddress, str]) -> View | None:
        """None as long as nothing is known. Raises EdgeError if it should be called again. ``own``: as in
        ``Snapshot``."""


MakeSource = Callable[[Report, AsyncExitStack], Awaitable[Source]]
"""Makes a source; what it opens is closed by the stack."""
