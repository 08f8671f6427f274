"""What the main process asks of the wire process: each command is a method of ``Commands``, which says what is asked
and what is replied. ``remote.Wire`` asks, ``process.Life`` does."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from speaker.model import Addresses, IPAddress, Link, Mac, Placement
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import ApiDown, ApiUp, LeaseSeen, RecordRead, RecordsRestored, RecordWritten
from speaker.wire.events import ClaimStatus, PeerSeen


class PeerSpec(Struct, frozen=True):
    """``secrets``: of the key that signs, and of another that is accepted if there is one. ``api``: there is an API
    server that keeps records; ``revision`` as in ``Hello``."""

    hello: float
    ethertype: int
    secrets: tuple[bytes, ...]
    api: bool = False
    revision: int = 0


class Spec(Struct, frozen=True):
    """The first message: what the wire process is to be. ``peers`` None: this node is alone. ``take_over``: from
    another load balancer, which still answers."""

    node: str
    peers: PeerSpec | None
    take_over: bool = False


class Request(NamedTuple):
    """A ``command`` by its name. ``number``: the reply has the same one."""

    number: int
    command: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


class UseAddresses(Struct, frozen=True, gc=False):
    """This node's own on its links, by index: one of each family, all of them, and those of its gateways there."""

    own: Mapping[int, Addresses]
    bound: Mapping[int, frozenset[IPAddress]]
    gateways: Mapping[int, tuple[IPAddress, ...]]


ApiEvent: TypeAlias = RecordRead | RecordsRestored | RecordWritten | LeaseSeen | ApiUp | ApiDown
"""What the ownership machine is told of the API server."""


class Commands(Protocol):
    """Those from ``keys`` on only where there are peers."""

    def use_links(self, links: tuple[Link, ...], macs: frozenset[Mac]) -> None:
        """EIPs are announced on these links and no others. ``macs``: every MAC of this host."""

    def withdraw(self, eips: Sequence[IPAddress]) -> None:
        """This node may hold these no longer: nothing is answered for them when the reply comes."""

    def offer(self, placements: Mapping[IPAddress, Placement]) -> Sequence[IPAddress]:
        """This node may hold these as well. The reply names those that could not be taken."""

    def offered_all(self) -> None:
        """The main process has said all that may be held here."""

    def claims_of(self, eips: Sequence[IPAddress]) -> list[ClaimStatus]:
        """What is known of the claims to these, in order."""

    def ready(self) -> bool:
        """Whether it holds, of what it was offered, what it may, or knows who does."""

    def has_peers(self) -> bool:
        """Whether somebody could take over."""

    def peers(self) -> list[PeerSeen]:
        """The other speakers, as heard."""

    def hold_lock(self) -> None:
        """Lock the runtime directory anew, should the lock have been removed."""

    def progress(self, loops: Mapping[str, float], where: str) -> None:
        """The main process gets on: for how many seconds each of its loops has been at one step, by name; ``where``:
        the longest of them."""

    def keys(self, secrets: tuple[bytes, ...]) -> None:
        """Sign and verify hellos with these from now on; as in ``PeerSpec``."""

    def use_addresses(self, ours: UseAddresses) -> None: ...

    def gateway(self, link: int, answers: bool) -> None:
        """Whether the gateway on the link of this index answers."""

    def drain(self, on: bool) -> None:
        """Hand everything over, or end that."""

    def rebalance(self) -> Rebalancing | None:
        """Begin to level the load where that is not under way; how far it is."""

    def rebalancing(self) -> Rebalancing | None:
        """How far the last rebalancing is."""

    def demote(self, on: bool) -> None:
        """For a reason that concerns the whole node, others go first."""

    def recalled(self, on: bool) -> None:
        """What is offered is what the API said before the start of the main process."""

    def api_says(self, events: Sequence[ApiEvent]) -> None:
        """What the API server said, in order."""

    def recorded(self) -> tuple[IPAddress, ...]:
        """The EIPs of which, for all that the wire process knows, there is a record."""

    def informed(self) -> bool:
        """Whether some living peer holds what it may by what it reads of the API, for all that it says."""


NAMES = frozenset(name for name in vars(Commands) if not name.startswith("_"))
