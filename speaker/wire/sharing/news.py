"""What was last reported of peers, names and addresses: only news is reported, and all of it to a new main process."""

from collections.abc import Collection, Iterable, Mapping

from speaker.model import Incarnation, IPAddress, Link
from speaker.model.events import LifeBegan, PeerChanged, PeersClaims, PeersCounted
from speaker.ownership.events import NameClash, NameFree, PeersAddress
from speaker.ownership.machine.peers import PeerState
from speaker.wire.messages import Events

FORGETTING = 60.0
"""Seconds after which peers are counted anew though none changed: whoever is long gone is forgotten one day."""


class News:
    """``events`` hears of what changed."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.incarnation: Incarnation | None = None
        self._alive: Mapping[tuple[int, str], bool] = {}
        """By index of the link, and node."""
        self._heard: dict[tuple[int, str], None] = {}
        """Those of them that were told of as alive, and not as silent since."""
        self._claims_heard = 0
        """Changes of what others claim that were told of."""
        self._counted: dict[str, tuple[int, int]] = {}
        """Name of the link → how many are alive there, and how many silent."""
        self._peers_changed: int | None = None
        self._counted_at = float("-inf")
        self._peers_own: dict[IPAddress, PeersAddress] = {}
        """EIPs that are a peer's own addresses."""
        self._clash: NameClash | None = None

    def retell(self) -> None:
        """What a new main process must hear, and is not in ``Resumed``."""
        self._counted.clear()
        self._heard.clear()
        self._alive = {}
        self._peers_changed = None
        if self._clash is not None:
            self._events.tell(self._clash)
        for event in self._peers_own.values():
            self._events.tell(event)

    def life(self, incarnation: Incarnation, claims_heard: int = 0) -> None:
        """``claims_heard``: so many changes of what others claim there were by now."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self._events.tell(LifeBegan(incarnation))
        if claims_heard != self._claims_heard:
            self._claims_heard = claims_heard
            self._events.count(PeersClaims(), 1)

    def tell(self, event: PeersAddress | NameClash | NameFree) -> None:
        """What the machine says, and what of it a new main process must hear."""
        match event:
            case PeersAddress(eip=eip, node=node):
                self._peers_own.pop(eip, None)
                if node is not None:
                    self._peers_own[eip] = event
            case NameClash():
                self._clash = event
            case NameFree():
                self._clash = None
        self._events.tell(event)

    def may_have_changed(self, peers_changed: int, now: float) -> bool:
        """Whether there may be news for ``peers``. ``peers_changed``: so many changes there were by now."""
        if peers_changed == self._peers_changed and now < self._counted_at + FORGETTING:
            return False
        self._peers_changed, self._counted_at = peers_changed, now
        return True

    def peers(
        self, states: Mapping[int, Iterable[PeerState]], links: Mapping[int, Link], fresh: Collection[int] = ()
    ) -> bool:
        """Who lives, by index of the link, on the ``links`` that carry hellos; who is silent and did not say that it
        goes. On a link that carries them no more nobody is counted; who fell silent there meanwhile is told of when it
        carries them again, and no longer is one of the ``fresh``, where nobody had the time to be heard yet. Whether
        anything is news."""
        alive = {(index, peer.node): peer.alive for index, some in states.items() for peer in some}
        gone = {(index, peer.node) for index, some in states.items() for peer in some if peer.draining}
        changed = alive != self._alive
        self._alive = alive
        for index, node in dict.fromkeys((*alive, *self._heard)):
            lives = alive.get((index, node), False)
            if not lives and index in fresh:
                continue
            if ((index, node) in self._heard) is not lives and (link := links.get(index)) is not None:
                self._note_heard((index, node), lives)
                self._events.tell(PeerChanged(node, link, lives))
        counts = dict.fromkeys(self._counted, (0, 0))
        for index, link in links.items():
            number = sum(lives for (at, _), lives in alive.items() if at == index)
            silent = sum(one[0] == index and not lives and one not in gone for one, lives in alive.items())
            counts[link.name] = number, 0 if index in fresh else silent
        for name, count in counts.items():
            if self._counted.get(name) != count:
                self._counted[name] = count
                self._events.tell(PeersCounted(name, *count))
        if fresh:
            self._peers_changed = None  # there is more to tell soon, though nothing changes
        return changed

    def _note_heard(self, one: tuple[int, str], lives: bool) -> None:
        if lives:
            self._heard[one] = None
        else:
            self._heard.pop(one, None)
