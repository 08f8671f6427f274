"""What happens on a node. Each event is one type, defined here, from where it is noticed to whoever reports it (the
log, metrics, the status file, MQTT, the page).

Those of the wire process cross to the main process unchanged. Events that the ownership machine orders (``NameClash``,
``NameFree``, ``PeersAddress``, ``WriteRecord``) are in ``ownership/events.py``.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from speaker.model import Family, Incarnation, IPAddress, Link, Mac, Placement, ServiceKey, Speaker


class Event(Struct, frozen=True, gc=False):
    """Something that happened."""


# ── Claims ────────────────────────────────────────────────────────────────────────────────────────────────────


class EipClaimed(Event, frozen=True):
    """This node answers for ``eip``. ``before``: the other node that had it last, alive or not, or None if none is
    known. ``unanswered``: seconds, to the millisecond, since the last sign of that node if it died, or None if this is
    not a failover. Every report of a failover has them from here."""

    eip: IPAddress
    placement: Placement
    term: int
    before: str | None
    unanswered: float | None = None

    @property
    def why(self) -> dict[str, str | float]:
        """As the log and MQTT say it: the one before fell silent, or there was none."""
        if self.unanswered is not None:
            return {"why": "silent", "unanswered": self.unanswered}
        return {"why": "first"} if self.before is None else {}


class EipYielded(Event, frozen=True):
    """It does not any more, and ``holder`` does, where that is known. ``reason``: the metric label."""

    eip: IPAddress
    reason: str
    holder: str | None


class Conflict(Event, frozen=True):
    """A stranger says that an EIP of ours is its own: one that we answer for and go on to (``held``), or one that we
    probe for and do not answer as long as the stranger does. At most once in ten seconds for each EIP, however much it
    sends; ``Ignorings`` counts every packet."""

    link: Link
    eip: IPAddress
    mac: Mac
    held: bool


class OtherGroupsHold(Event, frozen=True):
    """All that other groups hold on our links, as was heard, each with its group in words."""

    eips: Mapping[IPAddress, str]


class HellosFiltered(Event, frozen=True):
    """``node``, none of whose hellos arrives on ``link``, answers there for ``eips``, from ``mac``. Told again as long
    as that is so, at most once a second."""

    link: Link
    node: str
    mac: Mac
    eips: frozenset[IPAddress]


class NotClaimed(Event, frozen=True):
    """This node must not answer for ``eip`` from now on."""

    eip: IPAddress
    reason: str
    message: str


class ConflictBegun(Event, frozen=True):
    """A stranger uses ``eip``, as ``message`` says; there is a ``Conflict`` for each time that it is heard."""

    eip: str
    message: str


class ConflictEnded(Event, frozen=True):
    """None was heard for a while."""

    eip: str


# ── Who gets which EIP ────────────────────────────────────────────────────────────────────────────────────────


class Assigned(Event, frozen=True):
    service: ServiceKey
    addresses: tuple[IPAddress, ...]


class Released(Event, frozen=True):
    service: ServiceKey
    addresses: tuple[IPAddress, ...]


class Flagged(Event, frozen=True):
    """It keeps ``eip`` although its pool no longer offers that."""

    service: ServiceKey
    eip: IPAddress


class Refused(Event, frozen=True):
    """The Service lacks something that it asks for."""

    service: ServiceKey
    reason: str
    message: str


# ── Endpoints that are checked ────────────────────────────────────────────────────────────────────────────────


class EndpointUnwell(Event, frozen=True):
    """``endpoint``, an address and a port, gets nothing new, if another can stand in for it. ``reason``: the metric
    label."""

    endpoint: str
    services: tuple[ServiceKey, ...]
    check: str
    reason: str
    message: str


class EndpointWell(Event, frozen=True):
    """It is again."""

    endpoint: str
    services: tuple[ServiceKey, ...]
    check: str


# ── Peers ─────────────────────────────────────────────────────────────────────────────────────────────────────


class PeerChanged(Event, frozen=True):
    """``node`` came, or fell silent, on ``link``."""

    node: str
    link: Link
    alive: bool


class PeersCounted(Event, frozen=True):
    """So many peers are alive on the link of this name, and so many of the last hour fell silent there without a word;
    whenever that changed."""

    link: str
    number: int
    silent: int


class SpeakerSeen(Event, frozen=True):
    """Who speaks on the link of this index: said at first and whenever it changes, before any claim that it bears on.
    None is ever taken back."""

    link: int
    node: str
    speaker: Speaker


# ── The API ───────────────────────────────────────────────────────────────────────────────────────────────────


API_SILENT = "holders go on answering; claims are decided on the LAN alone"
"""What that means."""


class ApiSilent(Event, frozen=True):
    """It has not answered for a while."""


class ApiAnswers(Event, frozen=True):
    """It does, at first and again."""


# ── The wire process ──────────────────────────────────────────────────────────────────────────────────────────


class LifeBegan(Event, frozen=True):
    """Which life this is; said at the start, and when it is followed by a later one."""

    incarnation: Incarnation


class WasFrozen(Event, frozen=True):
    """The wire process was away for so long that others may have taken over."""


class LinkLost(Event, frozen=True):
    """Nothing is answered on ``link`` until it can be opened again."""

    link: Link
    error: str


class JoinFailed(Event, frozen=True):
    """A link refused a solicited-node group: EIPs in it are solicited in vain."""

    error: str


class SocketsAnswer(Event, frozen=True):
    """The kernel was to answer what is plain on a link, and does not: the speaker's sockets answer all, as they can."""

    link: Link
    error: str


class EdgeFailed(Event, frozen=True):
    """An edge refused; it is tried again."""

    edge: str
    error: str


class EdgeRecovered(Event, frozen=True):
    """It does no longer."""

    edge: str


class BugMet(Event, frozen=True):
    """What nobody foresaw, met in ``task`` for the first time at ``place``."""

    task: str
    words: str
    place: str
    trace: str


# ── What is only counted ──────────────────────────────────────────────────────────────────────────────────────


class Answers(Event, frozen=True):
    """Replies handed to a link."""

    family: Family


class KernelAnswers(Event, frozen=True):
    """Those of the replies that our program in the kernel sent."""

    family: Family


class Ignorings(Event, frozen=True):
    """Packets that got no answer. ``reason``: an ``Ignored``."""

    family: Family
    reason: Enum


class Announcements(Event, frozen=True):
    """Gratuitous ARP packets or unsolicited advertisements handed to a link; an IPv4 EIP takes two a time."""

    family: Family


class SendFailures(Event, frozen=True):
    """Replies and announcements that a link had no room for."""

    family: Family


class HellosSent(Event, frozen=True):
    """Hellos that the link of this name took, or (``left`` false) had no room for."""

    link: str
    left: bool


class HellosReceived(Event, frozen=True):
    """Frames on the link of this name; ``rejected`` None: authentic and new."""

    link: str
    rejected: Enum | None


class BugsMetAgain(Event, frozen=True):
    """Errors in ``task`` from lines of code of which a ``BugMet`` told."""

    task: str


class PeersClaims(Event, frozen=True):
    """What others say that they hold is not what it was."""


Countable: TypeAlias = (
    Answers
    | KernelAnswers
    | Ignorings
    | Announcements
    | SendFailures
    | HellosSent
    | HellosReceived
    | BugsMetAgain
    | PeersClaims
)


class Counts(Event, frozen=True):
    """How often each happened since the last ``Counts``. ``delays``: seconds that the wire process's loop was late,
    answers and hellos at least as late, and how many of them it was busy with work of its own."""

    counts: Mapping[Countable, int]
    delays: Sequence[tuple[float, float]]
