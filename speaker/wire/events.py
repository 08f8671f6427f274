"""What the wire process reports of itself, and to whom."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from speaker.layer2.observer import Observer
from speaker.model import IPAddress, Link, Mac, Placement, Speaker
from speaker.ownership.events import WriteRecord
from speaker.ownership.hello import Addresses, Incarnation, order
from speaker.ownership.machine.peers import PeerState


class ClaimStatus(NamedTuple):
    """What is known of the claim to an EIP."""

    mine: bool
    holder: str | None
    """Node; None: nobody's, as far as this node knows."""
    term: int
    """0 where no other node could have claimed it."""
    since: float | None
    """Seconds since 1970 when this node claimed it; None unless ``mine``."""
    link: int | None = None
    """Index of the link on which a peer says that it holds it; None where none does."""


NOBODYS = ClaimStatus(mine=False, holder=None, term=0, since=None)


class PeerSeen(NamedTuple):
    """Another speaker, as heard on one of our links."""

    node: str
    link: str
    alive: bool
    draining: bool
    heard: bool = True
    """By ourselves, within the time of a failover."""
    hears_us: bool = True
    hello_ms: int = 0
    """Between its hellos, as it says; 0: it does not."""
    began: int = 0
    """By its own clock, seconds since 1970; later where it had to come after an earlier life."""
    mac: Mac | None = None
    addresses: Addresses = ()
    loss: int | None = None
    """Percent of its last hellos that did not arrive here; None: it does not say how many there are."""
    loses: int = 0
    """Percent of ours that it says it loses; 0: hardly any."""
    sick: bool = False
    """Our own link there loses what is said, not theirs (rule 40)."""
    patience_ms: int = 0
    """Of silence until it counts as dead, where that is longer than usual: its hellos came late (rule 38)."""


class WireEvents(Observer, Protocol):
    """Who hears what happens in the wire process: each transition once, counts when there are some."""

    def claimed(
        self, address: IPAddress, placement: Placement, term: int, before: str | None, unanswered: float | None = None
    ) -> None:
        """``before``: the other node that had it last, alive or not; None: nobody, as far as is known. ``unanswered``:
        seconds, to the millisecond, since the last sign of that node, where it died; None: this is no failover. All
        that tells of a failover has them from here."""

    def yielded(self, address: IPAddress, reason: str, holder: str | None) -> None: ...

    def frozen(self) -> None:
        """This process was away for so long that others may have taken over."""

    def peer(self, node: str, link: Link, alive: bool) -> None: ...

    def peers(self, link: str, number: int, silent: int) -> None:
        """How many are alive there, and how many of the last hour fell silent without a word, whenever that changed."""

    def peers_claims(self) -> None:
        """What others say that they hold is not what it was. Told a while later."""

    def lost_link(self, link: Link, error: str) -> None: ...

    def hellos_sent(self, link: str, left: bool, count: int) -> None: ...

    def hellos_received(self, link: str, rejected: Enum | None, count: int) -> None:
        """``rejected`` None: authentic and new."""

    def peers_address(self, address: IPAddress, node: str | None) -> None:
        """``node`` says that this EIP is its own address; see ``events.PeersAddress``."""

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None:
        """Another host that lives has this node's name; see ``events.NameClash``."""

    def name_free(self) -> None:
        """It was not heard for a while: this node has its name for itself."""

    def hellos_filtered(self, link: Link, node: str, mac: Mac, eips: frozenset[IPAddress]) -> None:
        """``node``, none of whose hellos arrives on ``link``, answers there for ``eips``, from ``mac``. Told again as
        long as that is so, at most once a second."""

    def loop_delay(self, late: float, busy: float) -> None:
        """Seconds that the event loop was late, answers and hellos at least as late, and ``busy`` of them with work of
        its own."""


def peer_seen(link: str, peer: PeerState, speaker: Speaker | None) -> PeerSeen:
    mac, addresses = speaker if speaker is not None else (None, ())
    began = order(peer.incarnation)
    heard = peer.heard, peer.hears_us, peer.interval, began
    lost = peer.loss, peer.loses, peer.sick, peer.patience_ms
    return PeerSeen(peer.node, link, peer.alive, peer.draining, *heard, mac, addresses, *lost)


class Taken(NamedTuple):
    """An EIP that this node answers for, and the other node that had it last, if one is known."""

    placement: Placement
    before: str | None


class Resumed(NamedTuple):
    """What a main process finds when it comes to a wire process that is at work already."""

    offered: Mapping[IPAddress, Placement] = {}
    held: Mapping[IPAddress, Taken] = {}
    incarnation: Incarnation | None = None
    speakers: tuple[tuple[int, str, Speaker], ...] = ()
    """Index of the link, node, and how it speaks there."""
    draining: bool = False


class Acquaintances(Protocol):
    """Who speaks on which link, by its index: said at first and whenever it changes, before any claim that it bears on.
    None is ever taken back."""

    def speaker(self, link: int, node: str, speaker: Speaker) -> None: ...


class OwnerEvents(WireEvents, Acquaintances, Protocol):
    """What an owner with peers tells."""

    def failed(self, edge: str, error: str) -> None: ...

    def recovered(self, edge: str) -> None: ...


class RecordSink(Protocol):
    """Who speaks with the API server for the wire process."""

    def incarnation(self, number: Incarnation) -> None:
        """Which life this is; said at the start, and when it is followed by a later one."""

    def silence(self) -> None:
        """Another host keeps our name: until the next ``incarnation`` nothing is said in it."""

    def write_record(self, order: WriteRecord) -> None:
        """What is to be written to the API server. ``Wire.written`` is the answer."""
