"""What the main process asks of the wire process: every command is a type of its own, which says what is replied."""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from speaker.model import IPAddress, Link, Mac, Placement
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import ApiDown, ApiUp, LeaseSeen, RecordRead, RecordsRestored, RecordWritten
from speaker.ownership.hello import Addresses
from speaker.wire.events import ClaimStatus, PeerSeen

_R = TypeVar("_R")


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

    placements: Mapping[IPAddress, Placement]


class OfferedAll(Command[None], frozen=True, gc=False):
    """The main process has said all that may be held here."""


class ClaimsOf(Command[list[ClaimStatus]], frozen=True, gc=False):
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


class TellProgress(Command[None], frozen=True, gc=False):
    """The main process gets on: for how many seconds each of its loops has been at one step, by name; ``where``: the
    longest of them."""

    loops: Mapping[str, float]
    where: str


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
    UseLinks
    | Withdraw
    | Offer
    | OfferedAll
    | ClaimsOf
    | IsReady
    | HasPeers
    | ListPeers
    | HoldLock
    | TellProgress
    | PeerCommand
)
