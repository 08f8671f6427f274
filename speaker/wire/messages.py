"""What the main process and the wire process say to each other: every message is a type of its own.

The main process says who it is with a ``Spec``, which ``Began`` answers. From then on it sends ``Request``s, each of
which a ``Reply`` answers, and hears every ``WireEvent`` as it comes. Both processes are of one release: the wire
process hangs up on whoever sends what it does not know, and ``parent.py`` starts another main process.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from speaker.model.events import Countable, Event
from speaker.ownership.events import NameClash, NameFree, PeersAddress, WriteRecord
from speaker.system.supervise import Supervisor
from speaker.wire.commands import Request, Spec
from speaker.wire.events import Resumed


class Before(NamedTuple):
    """The main process before this one: how it ended ('' where there was none), and for how many seconds there was
    none."""

    end: str = ""
    away: float = 0.0


FromMain: TypeAlias = Spec | Request


class Began(Struct, frozen=True, gc=False):
    """The answer to ``Spec``: what was before this main process, and what it finds."""

    before: Before
    found: Resumed


class Reply(Struct, frozen=True, gc=False):
    """To the request of this number. ``error``: why there is no result; '' where there is one."""

    number: int
    result: Any
    error: str = ""


class Stop(Struct, frozen=True, gc=False):
    """The main process is to hand over and end."""


WireEvent: TypeAlias = Event | PeersAddress | NameClash | NameFree | WriteRecord
"""What happened in the wire process."""
FromWire: TypeAlias = Began | Reply | Stop | WireEvent


class Events(Supervisor, Protocol):
    """Who hears what happens in the wire process: each transition once, and how often what is only counted did."""

    def tell(self, event: WireEvent) -> None: ...

    def count(self, what: Countable, number: int) -> None: ...


class Hears(Protocol):
    """Who hears of it in the main process, and passes over what does not concern it."""

    def hear(self, event: Began | WireEvent) -> None: ...
