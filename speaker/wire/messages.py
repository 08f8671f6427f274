"""What the main process and the wire process say to each other: every message has its own type.

The main process introduces itself with a ``Spec``, which ``Began`` answers. After that it sends ``Request``s: each
names a method of ``Commands``, is sent by ``remote.Wire``, carried out by ``process.Conversation`` or the owner, and
answered by a ``Reply``. It hears every ``WireEvent`` as it comes. Both processes are of one release: the wire process
hangs up on a main process that sends something unknown, and ``parent.py`` starts another.
"""

import asyncio
import pickle
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct

from speaker.model import Addresses, Incarnation, IPAddress, Link, Mac, Placement, Speaker
from speaker.model.events import Countable, Event
from speaker.ownership import events
from speaker.ownership.balance import Rebalancing
from speaker.ownership.preference import Preferred
from speaker.system.supervise import Supervisor

# ── How things are ──────────────────────────────────────────────────────────────────────────────────────────


class ClaimStatus(NamedTuple):
    """What is known about the claim to an EIP."""

    mine: bool
    holder: str | None
    """A node; None: nobody holds it, as far as this node knows."""
    term: int
    """0 if no other node could have claimed it."""
    since: float | None
    """When this node claimed it, in seconds since 1970; None unless ``mine``."""
    link: int | None = None
    """Index of the link on which a peer says that it holds it; None if no peer does."""
    preferred: Preferred | None = None
    """The node that it prefers; None: nobody holds it, or all nodes are equal."""

    @property
    def elsewhere(self) -> str | None:
        """The node that it prefers to its holder."""
        node = self.preferred.node if self.preferred is not None else None
        return node if node != self.holder else None


NOBODYS = ClaimStatus(mine=False, holder=None, term=0, since=None)


class PeerSeen(NamedTuple):
    """Another speaker, as heard on one of our links."""

    node: str
    link: str
    alive: bool
    draining: bool
    heard: bool = True
    """Heard by ourselves, within the time of a failover."""
    hears_us: bool = True
    hello_ms: int = 0
    """ms between its hellos, by its word; 0: it does not say."""
    began: int = 0
    """By its own clock, seconds since 1970; later if it had to follow an earlier life."""
    mac: Mac | None = None
    addresses: Addresses = ()
    loss: int | None = None
    """Percentage of its last hellos that did not arrive here; None: it does not say how many there are."""
    loses: int = 0
    """Percentage of ours that it says it loses; 0: hardly any."""
    sick: bool = False
    """Our own link there loses what is said, and theirs do not (rule 40)."""
    patience_ms: int = 0
    """ms of silence until it counts as dead, if longer than usual because its hellos came late (rule 38)."""
    deaf: bool = False
    """Our own link there gets no broadcasts (rules 17 and 36)."""


class Taken(NamedTuple):
    """An EIP that this node answers for, and the other node that had it last, if known."""

    placement: Placement
    before: str | None


class Resumed(NamedTuple):
    """What a main process finds when the wire process is already at work."""

    offered: Mapping[IPAddress, Placement] = {}
    held: Mapping[IPAddress, Taken] = {}
    incarnation: Incarnation | None = None
    speakers: tuple[tuple[int, str, Speaker], ...] = ()
    """Index of the link, node, and how it speaks there."""
    draining: bool = False


# ── What is asked ───────────────────────────────────────────────────────────────────────────────────────────────


class PeerSpec(Struct, frozen=True):
    """``secrets``: of the key that signs, and of a second one that is accepted, if any. ``api``: there is an API server
    that keeps records. ``revision``: as in ``Hello``."""

    hello: float
    ethertype: int
    secrets: tuple[bytes, ...]
    api: bool = False
    revision: int = 0
    group: str = ""


class Spec(Struct, frozen=True):
    """The first message: what the wire process should be. ``peers`` None: this node is alone. ``take_over``: from
    another load balancer, which still answers. ``in_kernel``: the kernel answers plain requests if possible."""

    node: str
    peers: PeerSpec | None
    take_over: bool = False
    in_kernel: bool = False


class Request(NamedTuple):
    """A ``command`` by its name. ``number``: the reply has the same one."""

    number: int
    command: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


class UseAddresses(Struct, frozen=True, gc=False):
    """This node's own addresses on its links, by index: one of each family, and all of them; and those of its gateways
    there."""

    own: Mapping[int, Addresses]
    bound: Mapping[int, frozenset[IPAddress]]
    gateways: Mapping[int, tuple[IPAddress, ...]]


ApiEvent: TypeAlias = (
    events.RecordRead | events.RecordsRestored | events.RecordWritten | events.LeaseSeen | events.ApiUp | events.ApiDown
)
"""What the ownership machine hears about the API server."""


class CommandsToAll(Protocol):
    """Commands for every wire process."""

    def use_links(self, links: tuple[Link, ...], macs: frozenset[Mac]) -> None:
        """EIPs are announced on these links and no others. ``macs``: every MAC of this host."""

    def withdraw(self, eips: Sequence[IPAddress]) -> None:
        """This node may no longer hold these: when the reply comes, nothing is answered for them."""

    def offer(self, placements: Mapping[IPAddress, Placement]) -> Sequence[IPAddress]:
        """This node may also hold these. The reply names those that could not be taken."""

    def offered_all(self) -> None:
        """The main process has offered everything that may be held here."""

    def claims_of(self, eips: Sequence[IPAddress]) -> list[ClaimStatus]:
        """What is known about the claims to these, in order."""

    def ready(self) -> bool:
        """Whether each EIP that was offered is held, by this node or by one that it knows."""

    def has_peers(self) -> bool:
        """Whether somebody could take over."""

    def peers(self) -> list[PeerSeen]:
        """The other speakers, as heard."""

    def hold_lock(self) -> None:
        """Lock the runtime directory again if somebody removed the lock."""

    def progress(self, loops: Mapping[str, float], where: str) -> None:
        """The main process is alive. ``loops``: by name, how many seconds each of its loops has spent at one step.
        ``where``: what the longest of them waits for."""


class Commands(CommandsToAll, Protocol):
    """And those for a wire process with peers."""

    def keys(self, secrets: tuple[bytes, ...]) -> None:
        """Sign and verify hellos with these from now on; as in ``PeerSpec``."""

    def use_addresses(self, ours: UseAddresses) -> None: ...

    def gateway(self, link: int, answers: bool) -> None:
        """Whether the gateway on the link of this index answers."""

    def drain(self, on: bool) -> None:
        """Hand everything over, or end that."""

    def rebalance(self) -> Rebalancing | None:
        """Begin to even out the load, unless that is under way. Returns the progress."""

    def rebalancing(self) -> Rebalancing | None:
        """The progress of the last rebalancing."""

    def demote(self, on: bool) -> None:
        """Other nodes go first, for a reason that concerns this whole node."""

    def behind(self, eips: frozenset[IPAddress]) -> None:
        """All EIPs for which other nodes go first, because this node's own endpoints are unwell."""

    def recalled(self, on: bool) -> None:
        """What is offered is what the API said before the main process started."""

    def api_says(self, events: Sequence[ApiEvent]) -> None:
        """What the API server said, in order."""

    def recorded(self) -> tuple[IPAddress, ...]:
        """The EIPs that have a record, as far as the wire process knows."""

    def informed(self) -> bool:
        """Whether a living peer says that it goes by what it reads in the API."""


def _names(kind: type) -> frozenset[str]:
    return frozenset(name for name in vars(kind) if not name.startswith("_"))


WITH_PEERS = _names(Commands)
NAMES = _names(CommandsToAll) | WITH_PEERS


# ── What is answered and told ────────────────────────────────────────────────────────────────────────────────


class Before(NamedTuple):
    """The previous main process: how it ended ('' if there was none), and for how many seconds there was none."""

    end: str = ""
    away: float = 0.0


class Began(Struct, frozen=True, gc=False):
    """The answer to ``Spec``: what was before this main process, and what it finds."""

    before: Before
    found: Resumed


class Reply(Struct, frozen=True, gc=False):
    """To the request with this number. ``error``: why there is no result, or ''."""

    number: int
    result: Any
    error: str = ""


class Stop(Struct, frozen=True, gc=False):
    """The main process is to hand over and end."""


WireEvent: TypeAlias = Event | events.PeersAddress | events.NameClash | events.NameFree | events.WriteRecord
"""What happened in the wire process."""
FromMain: TypeAlias = Spec | Request
FromWire: TypeAlias = Began | Reply | Stop | WireEvent


class Events(Supervisor, Protocol):
    """Hears what happens in the wire process: each transition once, and numbers for what is only counted."""

    def tell(self, event: WireEvent) -> None: ...

    def count(self, what: Countable, number: int) -> None: ...


class Hears(Protocol):
    """Hears of it in the main process, and ignores what does not concern it."""

    def hear(self, event: Began | WireEvent) -> None: ...


# ── How it gets there ──────────────────────────────────────────────────────────────────────────────────────────

_LENGTH = struct.Struct("!I")
_Sent = TypeVar("_Sent")
_Received = TypeVar("_Received")


class Channel(Generic[_Sent, _Received]):
    """Edge: one end of a socket pair that nobody else holds. A message is its length and a pickle: both ends are the
    same program, and no byte comes from anywhere else. ``send`` never waits: what the other end does not read is kept.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, message: _Sent) -> None:
        if self._writer.is_closing():  # the other end is gone; asyncio would report it on stderr
            return
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._writer.write(_LENGTH.pack(len(body)) + body)

    async def messages(self) -> AsyncIterator[_Received]:
        """Until the other end is closed, for whatever reason."""
        while True:
            try:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            yield pickle.loads(body)  # noqa: S301 -- from our own other half

    @property
    def waiting(self) -> int:
        """Bytes that the other end has not read."""
        return self._writer.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Closes it at once: what the other end has not read is lost."""
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


ToMain: TypeAlias = Channel[FromWire, FromMain]
ToWire: TypeAlias = Channel[FromMain, FromWire]
"""Each names the other end."""
