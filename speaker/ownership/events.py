"""What the ownership machine is told, and what it orders. Only values.

Links are named by their ifindex, nodes by name. Times are seconds of one monotonic clock (CLOCK_BOOTTIME).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from speaker.model import IPAddress, Link, Mac, Preference
from speaker.ownership.hello import Hello, Incarnation

# ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Record:
    """An ``Announcement``'s status: who holds the EIP, as the API server said last.

    ``version`` grows with every write (resourceVersion as a number). ``gone``: the object that had this version was
    deleted.
    """

    holder: str | None
    incarnation: Incarnation
    term: int
    version: int
    gone: bool = False


def gone(version: int) -> Record:
    """The object no longer exists; ``version`` is the last one that it is known to have had."""
    return Record(None, Incarnation(0), 0, version, gone=True)


@dataclass(frozen=True, slots=True)
class Tick:
    """``next_wake`` has come."""


class HelloHeard(NamedTuple):
    """An authenticated hello (one part of it) was received on ``link``, from ``mac``. ``looped``: that MAC is one of
    this host's own. ``age``: seconds since it arrived. ``more``: another event follows at once, and the consequences of
    this hello are judged together with that one: no node counts as silent while its hello is next in line."""

    link: int
    hello: Hello
    mac: Mac | None = None
    looped: bool = False
    age: float = 0.0
    more: bool = False


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """``link`` carries hellos now (up, with carrier), or no longer does."""

    link: int
    up: bool


@dataclass(frozen=True, slots=True)
class EligibilityChanged:
    """This node may hold ``eip`` and would announce it on ``link``; None: it may not (rule 10).

    ``demoted``: a soft reason (gateway silent, no peer heard, node not Ready) puts it behind the others. ``behind``: a
    reason of this EIP alone does, which the others are not told.
    """

    eip: IPAddress
    link: int | None
    demoted: bool = False
    preference: Preference | None = None
    """How much this node is preferred (rule 41); None: all nodes are equal."""
    behind: bool = False


@dataclass(frozen=True, slots=True)
class RecordRead:
    """A list or a watch delivered the record of ``eip``."""

    eip: IPAddress
    record: Record


@dataclass(frozen=True, slots=True)
class RecordsRestored:
    """The API server's data was replaced by an older backup: versions that were read before no longer count. All
    records are read again."""


@dataclass(frozen=True, slots=True)
class RecordWritten:
    """The API server replied to the ``WriteRecord`` of this ``attempt``: ``record`` is what it has now."""

    eip: IPAddress
    attempt: int
    succeeded: bool
    record: Record | None


@dataclass(frozen=True, slots=True)
class ApiUp:
    """Lists are complete and a session Lease renewal just succeeded. Repeated with every renewal."""


@dataclass(frozen=True, slots=True)
class ApiDown:
    """A renewal or a watch failed."""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """A node's session Lease. ``renewed``: a watch delivered it, so it was renewed while we looked; a list does not
    prove that."""

    node: str
    incarnation: Incarnation
    renewed: bool


@dataclass(frozen=True, slots=True)
class FrameHeard:
    """A frame of another host, not a hello, reached this node on ``link``: a broadcast, or an answer to an ``Ask`` or a
    ``Question`` for an address of this IP ``version``. So this node hears. Sent only shortly after one of these, and
    then not for every frame. ``age`` and ``more`` as in ``HelloHeard``; the age is an upper bound."""

    link: int
    version: int | None = None
    age: float = 0.0
    more: bool = False


@dataclass(frozen=True, slots=True)
class EipAnswered:
    """Somebody on ``link`` answered for ``eip``: from the MAC of the peer ``node``, or a stranger (None).

    ``probed``: this was found not by an ``Ask``, but by the probe before the first answer for an EIP that is held here:
    somebody else has it. ``age`` and ``more`` as in ``FrameHeard``.
    """

    eip: IPAddress
    link: int
    node: str | None
    probed: bool = False
    age: float = 0.0
    more: bool = False


@dataclass(frozen=True, slots=True)
class GroupsHold:
    """All ``eips`` that other groups hold on ``link``, according to what was heard recently, each with its group in
    words. None of them is an EIP for us (rule 33)."""

    link: int
    eips: Mapping[IPAddress, str]


@dataclass(frozen=True, slots=True)
class Drain:
    """Hand everything over, make before break (rule 26). ``on=False`` ends that: what is still held is kept, and what
    was handed over is not taken back (rule 31)."""

    on: bool = True


@dataclass(frozen=True, slots=True)
class SetAside:
    """What was ordered for ``eip`` could not be done: let it go, and try again after a while."""

    eip: IPAddress


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Plan the fewest moves that even out what the nodes hold, and ask for them; does nothing while one is
    under way."""


Event: TypeAlias = (
    Tick
    | HelloHeard
    | LinkChanged
    | EligibilityChanged
    | RecordRead
    | RecordsRestored
    | RecordWritten
    | ApiUp
    | ApiDown
    | LeaseSeen
    | FrameHeard
    | EipAnswered
    | GroupsHold
    | Drain
    | SetAside
    | Rebalance
)

# ── Ordered ───────────────────────────────────────────────────────────────────────────────────────────────────


class Yielded(Enum):
    """Why an EIP was let go. The value is the metric label."""

    BETTER_CLAIM = "better_claim"
    INELIGIBLE = "ineligible"
    LINK_DOWN = "link_down"
    DEAF = "deaf"
    """Nothing reaches this node on the link, where it heard others before."""
    DRAINED = "drained"
    FROZEN = "frozen"
    INTERNAL_ERROR = "internal_error"
    """A bug of ours: others take the EIP over, and this node tries again after a while."""
    PEERS_ADDRESS = "peers_address"
    """A peer says that it is its own address."""
    NAME_CLASH = "name_clash"
    """Another host has this node's name, and keeps it."""
    UNANSWERED = "unanswered"
    """A peer took it over because nobody got an answer from this node."""


class SendHello(NamedTuple):
    """Split it to fit the link's MTU, and broadcast it on ``link``. Before that, send ``direct`` to each of these
    nodes."""

    link: int
    hello: Hello
    direct: tuple[str, ...] = ()

    def copy(self) -> Hello:
        """The copy for those nodes. Its sequence is one lower than the broadcast's, so it can never make the broadcast
        outdated."""
        return self.hello._replace(direct=True, sequence=self.hello.sequence - 1)


@dataclass(frozen=True, slots=True)
class Claim:
    """Put forwarding in place, then answer on ``link``. ``first``: the last holder is not a node whose hellos we know,
    so before answering, check on the wire whether somebody uses the address."""

    eip: IPAddress
    link: int
    term: int
    first: bool = False
    silent_since: float | None = field(default=None, compare=False)
    """When the previous holder gave its last sign, if the EIP is taken because that node died."""

    def unanswered(self, now: float) -> float | None:
        """Seconds from then to ``now``, in milliseconds' precision."""
        return None if self.silent_since is None else round(now - self.silent_since, 3)


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Stop answering now. Comes before every other order of its step. Forward until ``linger``."""

    eip: IPAddress
    link: int
    reason: Yielded
    linger: float


@dataclass(frozen=True, slots=True)
class Announce:
    """Gratuitous ARP or unsolicited NA for these, paced if there are many."""

    link: int
    eips: tuple[IPAddress, ...]


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Compare-and-swap: write ``holder`` and ``term`` if the record still has the version ``expected``."""

    eip: IPAddress
    attempt: int
    expected: int
    holder: str | None
    incarnation: Incarnation
    term: int


@dataclass(frozen=True, slots=True)
class Listen:
    """We were away too long (rule 27): discard unread what is queued on the hello, ARP and NDP sockets."""

    until: float


@dataclass(frozen=True, slots=True)
class DropRequests:
    """We stood still for a while (rule 39): discard unread the requests queued on the ARP and NDP sockets."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask on ``link``, by ARP and neighbour solicitation, who answers for ``eips``. ``anybody``: also ask the gateway,
    the neighbours that the kernel knows and the own addresses of ``nodes``, because a node that hears any answer is not
    deaf. Ordered again as long as it should go on."""

    link: int
    eips: tuple[IPAddress, ...]
    nodes: tuple[str, ...]
    anybody: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """Ask on ``link``, by ARP or neighbour solicitation, for ``eips``, which ``node`` holds, and listen only for the
    answers. ``doubted``: it did not answer before. Then also ask it by its MAC, and afterwards others on the link,
    whose answers show that questions leave and answers arrive."""

    link: int
    node: str
    eips: tuple[IPAddress, ...]
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class InternalError:
    """A bug of ours, met while ``doing`` something about ``what`` (an EIP, a peer, a link). Only that was given up for
    a while; everything else goes on."""

    doing: str
    what: str
    error: Exception


@dataclass(frozen=True, slots=True)
class PeersAddress:
    """``node`` says that ``eip``, which this node might hold otherwise, is its own address; or a group, named in words,
    holds it. None: that is over, or this node might not hold it."""

    eip: IPAddress
    node: str | None


@dataclass(frozen=True, slots=True)
class NameClash:
    """Another live host has our name: it says so on ``link``, from ``mac``, or renews our Lease (both None).
    ``silent``: it keeps the name; we hold nothing and say nothing until ``NameFree``. ``on``: that link, as known to
    whoever carries this out."""

    link: int | None
    mac: Mac | None
    silent: bool
    on: Link | None = None


@dataclass(frozen=True, slots=True)
class NameFree:
    """The other host was not heard for a while."""


Order: TypeAlias = (
    SendHello
    | Claim
    | Withdraw
    | Announce
    | WriteRecord
    | Listen
    | DropRequests
    | Ask
    | Question
    | InternalError
    | NameClash
    | NameFree
    | PeersAddress
)
