"""Who says what is asked of a node."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol

from speaker.allocator.assign import Usage
from speaker.allocator.settle import Settlement
from speaker.model import Family, IPAddress, ServiceKey, World
from speaker.node.report import Report
from speaker.settings import Node
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


MakeSource = Callable[[Report, AsyncExitStack], Awaitable[Source]]
"""Opens what a source needs on the stack."""
