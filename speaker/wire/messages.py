"""What the main process and the wire process say to each other: every message is a type of its own.

The main process says who it is with a ``Spec``, which ``Began`` answers. From then on it sends ``Request``s, each of
which a ``Reply`` answers, and hears every ``WireEvent`` as it comes. Both processes are of one release: the wire
process hangs up on whoever sends what it does not know, and ``parent.py`` starts another main process.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from speaker.layer2.answer import Ignored
from speaker.model import Family, IPAddress, Link, Mac, Placement, Speaker
from speaker.ownership.events import (
    NameFree,
    PeersAddress,
    WriteRecord,
)
from speaker.ownership.hello import Incarnation
from speaker.wire.commands import AnyCommand, Spec
from speaker.wire.events import Resumed


class Before(NamedTuple):
    """The main process before this one: how it ended ('' where there was none), and for how many seconds there was
    none."""

    end: str = ""
    away: float = 0.0


# ── From the main process ─────────────────────────────────────────────────────────────────────────────────────


class Request(Struct, frozen=True, gc=False):
    """``number``: the reply has the same one."""

    number: int
    command: AnyCommand


FromMain: TypeAlias = Spec | Request

# ── From the wire process ─────────────────────────────────────────────────────────────────────────────────────


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


class EipClaimed(Struct, frozen=True, gc=False):
    """See ``WireEvents.claimed``."""

    eip: IPAddress
    placement: Placement
    term: int
    before: str | None
    unanswered: float | None = None


class EipYielded(Struct, frozen=True, gc=False):
    """See ``WireEvents.yielded``."""

    eip: IPAddress
    reason: str
    holder: str | None


class WasFrozen(Struct, frozen=True, gc=False):
    """See ``WireEvents.frozen``."""


class PeerChanged(Struct, frozen=True, gc=False):
    """``node`` came, or fell silent, on ``link``."""

    node: str
    link: Link
    alive: bool


class PeersCounted(Struct, frozen=True, gc=False):
    """So many peers are alive on the link of this name; see ``WireEvents.peers``."""

    link: str
    number: int
    silent: int


class SpeakerSeen(Struct, frozen=True, gc=False):
    """See ``Acquaintances.speaker``."""

    link: int
    node: str
    speaker: Speaker


class LinkLost(Struct, frozen=True, gc=False):
    """Nothing is answered on ``link`` until it can be opened again."""

    link: Link
    error: str


class JoinFailed(Struct, frozen=True, gc=False):
    """See ``Observer.join_failed``."""

    error: str


class Conflict(Struct, frozen=True, gc=False):
    """See ``Observer.conflict``."""

    link: Link
    eip: IPAddress
    mac: Mac
    held: bool


class Namesake(Struct, frozen=True, gc=False):
    """See ``WireEvents.name_clash``."""

    link: Link | None
    mac: Mac | None
    silent: bool


class HellosFiltered(Struct, frozen=True, gc=False):
    """See ``WireEvents.hellos_filtered``."""

    link: Link
    node: str
    mac: Mac
    eips: frozenset[IPAddress]


class LifeBegan(Struct, frozen=True, gc=False):
    """See ``RecordSink.incarnation``."""

    incarnation: Incarnation


class Silenced(Struct, frozen=True, gc=False):
    """See ``RecordSink.silence``."""


class EdgeFailed(Struct, frozen=True, gc=False):
    """An edge of the wire process refused; it tries again."""

    edge: str
    error: str


class EdgeRecovered(Struct, frozen=True, gc=False):
    """It does no longer."""

    edge: str


class BugMet(Struct, frozen=True, gc=False):
    """What nobody foresaw, met in ``task`` for the first time at ``place``."""

    task: str
    words: str
    place: str
    trace: str


class Answers(Struct, frozen=True, gc=False):
    """Replies handed to a link."""

    family: Family


class Ignorings(Struct, frozen=True, gc=False):
    """Packets that got no answer."""

    family: Family
    reason: Ignored


class Announcements(Struct, frozen=True, gc=False):
    """Announcements handed to a link."""

    family: Family


class SendFailures(Struct, frozen=True, gc=False):
    """Replies and announcements that a link had no room for."""

    family: Family


class HellosSent(Struct, frozen=True, gc=False):
    """Hellos that the link of this name took, or (``left`` false) had no room for."""

    link: str
    left: bool


class HellosReceived(Struct, frozen=True, gc=False):
    """Frames on the link of this name; ``rejected`` None: authentic and new."""

    link: str
    rejected: Enum | None


class BugsMetAgain(Struct, frozen=True, gc=False):
    """Errors in ``task`` from lines of code of which a ``BugMet`` told."""

    task: str


class PeersClaims(Struct, frozen=True, gc=False):
    """See ``WireEvents.peers_claims``."""


Countable: TypeAlias = (
    Answers | Ignorings | Announcements | SendFailures | HellosSent | HellosReceived | BugsMetAgain | PeersClaims
)


class Counts(Struct, frozen=True, gc=False):
    """How often each happened since the last ``Counts``; ``delays`` as in ``WireEvents.loop_delay``."""

    counts: Mapping[Countable, int]
    delays: Sequence[tuple[float, float]]


WireEvent: TypeAlias = (
    EipClaimed
    | EipYielded
    | WasFrozen
    | PeerChanged
    | PeersCounted
    | SpeakerSeen
    | LinkLost
    | JoinFailed
    | Conflict
    | PeersAddress
    | Namesake
    | NameFree
    | HellosFiltered
    | LifeBegan
    | Silenced
    | WriteRecord
    | EdgeFailed
    | EdgeRecovered
    | BugMet
    | Counts
)
"""What happened in the wire process. Values of the ownership machine go as they are."""
FromWire: TypeAlias = Began | Reply | Stop | WireEvent
