"""What the main process and the wire process say to each other: every message is a type of its own.

The main process says who it is with a ``Spec``, which ``Began`` answers. From then on it sends ``Request``s, each of
which a ``Reply`` answers, and hears every ``WireEvent`` as it comes. Both processes are of one release: the wire
process hangs up on whoever sends what it does not know, and ``parent.py`` starts another main process.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from speaker.layer2.answer import Ignored
from speaker.layer2.fleet import Spot
from speaker.model import Family, IPAddress, Link, Mac
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import (
    ApiDown,
    ApiUp,
    LeaseSeen,
    NameFree,
    PeersAddress,
    RecordRead,
    RecordsRestored,
    RecordWritten,
    WriteRecord,
)
from speaker.ownership.hello import Addresses, Incarnation
from speaker.wire.told import PeerSeen, Resumed, Speaker, Standing

_R = TypeVar("_R")


class Before(NamedTuple):
    """The main process before this one: how it ended ('' where there was none), and for how many seconds there was
    none."""

    end: str = ""
    away: float = 0.0


# ── From the main process ─────────────────────────────────────────────────────────────────────────────────────


class PeerSpec(Struct, frozen=True):
    """``secrets``: of the key that signs, and of another that is accepted if there is one. ``api``: there is an API
    server that keeps records; ``revision`` as in ``Hello``."""

    hello: float
    ethertype: int
    secrets: tuple[bytes, ...]
    api: bool = False
    revision: int = 0


class Spec(Struct, frozen=True):
    """The first message: what the wire process is to be. ``peers`` None: this node is alone."""

    node: str
    peers: PeerSpec | None


class Command(Struct, Generic[_R], frozen=True, gc=False):
    """What the wire process is to do; the reply carries an ``_R``."""

    def returns(self, result: _R) -> _R:
        """``result``, of the type that whoever asked waits for."""
        return result


class UseLinks(Command[None], frozen=True, gc=False):
    """EIPs are announced on these links and no others. ``macs``: every MAC of this host."""

    links: tuple[Link, ...]
    macs: frozenset[Mac]


class Withdraw(Command[None], frozen=True, gc=False):
    """This node may hold these no longer: nothing is answered for them when the reply comes."""

    eips: Sequence[IPAddress]


class Offer(Command[list[IPAddress]], frozen=True, gc=False):
    """This node may hold these as well. The reply names those that could not be taken."""

    spots: Mapping[IPAddress, Spot]


class Settled(Command[None], frozen=True, gc=False):
    """The main process has said all that may be held here."""


class ClaimsOf(Command[list[Standing]], frozen=True, gc=False):
    """What is known of the claims to these, in order."""

    eips: Sequence[IPAddress]


class IsReady(Command[bool], frozen=True, gc=False):
    """Whether it holds, of what it was offered, what it may, or knows who does."""


class HasPeers(Command[bool], frozen=True, gc=False):
    """Whether somebody could take over."""


class ListPeers(Command[list[PeerSeen]], frozen=True, gc=False):
    """The other speakers, as heard."""


class HoldLock(Command[None], frozen=True, gc=False):
    """Lock the runtime directory anew, should the lock have been removed."""


class UseKeys(Command[None], frozen=True, gc=False):
    """Sign and verify hellos with these from now on; as in ``PeerSpec``."""

    secrets: tuple[bytes, ...]


class UseAddresses(Command[None], frozen=True, gc=False):
    """This node's own on its links, by index: one of each family, all of them, and those of its gateways there."""

    own: Mapping[int, Addresses]
    bound: Mapping[int, frozenset[IPAddress]]
    gateways: Mapping[int, tuple[IPAddress, ...]]


class GatewayAnswers(Command[None], frozen=True, gc=False):
    """Whether the gateway on the link of this index answers."""

    link: int
    answers: bool


class SetDraining(Command[None], frozen=True, gc=False):
    """Hand everything over, or end that."""

    on: bool


class StartRebalancing(Command[Rebalancing | None], frozen=True, gc=False):
    """Begin to level the load where that is not under way; how far it is."""


class FollowRebalancing(Command[Rebalancing | None], frozen=True, gc=False):
    """How far the last rebalancing is."""


class SetDemoted(Command[None], frozen=True, gc=False):
    """For a reason that concerns the whole node, others go first."""

    on: bool


class SetRecalled(Command[None], frozen=True, gc=False):
    """What is offered is what the API said before the start of the main process."""

    on: bool


ApiEvent: TypeAlias = RecordRead | RecordsRestored | RecordWritten | LeaseSeen | ApiUp | ApiDown
"""What the ownership machine is told of the API server."""


class ApiSays(Command[None], frozen=True, gc=False):
    """What the API server said, in order."""

    events: Sequence[ApiEvent]


class ListRecorded(Command[tuple[IPAddress, ...]], frozen=True, gc=False):
    """The EIPs of which, for all that the wire process knows, there is a record."""


class IsInformed(Command[bool], frozen=True, gc=False):
    """Whether some living peer holds what it may by what it reads of the API."""


PeerCommand: TypeAlias = (
    UseKeys
    | UseAddresses
    | GatewayAnswers
    | SetDraining
    | StartRebalancing
    | FollowRebalancing
    | SetDemoted
    | SetRecalled
    | ApiSays
    | ListRecorded
    | IsInformed
)
"""Only where there are peers."""
AnyCommand: TypeAlias = (
    UseLinks | Withdraw | Offer | Settled | ClaimsOf | IsReady | HasPeers | ListPeers | HoldLock | PeerCommand
)


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
    spot: Spot
    term: int
    before: str | None


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
    """So many peers are alive on the link of this name."""

    link: str
    number: int


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


Countable: TypeAlias = Answers | Ignorings | Announcements | SendFailures | HellosSent | HellosReceived | BugsMetAgain


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
