"""How things are in the wire process, as it says when it is asked. What happens there is ``messages.WireEvent``."""

from collections.abc import Mapping
from typing import NamedTuple

from speaker.model import Addresses, Incarnation, IPAddress, Mac, Placement, Speaker
from speaker.ownership.hello import order
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
