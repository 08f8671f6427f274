"""What was last reported of peers, names and addresses: only news is reported, and all of it to a new main process."""

from collections.abc import Iterable, Mapping

from speaker.model import IPAddress, Link, Mac
from speaker.ownership.hello import Incarnation
from speaker.ownership.machine.peers import PeerState
from speaker.wire.events import OwnerEvents, RecordSink

FORGETTING = 60.0
"""Seconds after which peers are counted anew though none changed: whoever is long gone is forgotten one day."""


class News:
    """``events`` and ``sink`` hear of what changed."""

    def __init__(self, events: OwnerEvents, sink: RecordSink) -> None:
        self._events, self._sink = events, sink
        self.incarnation: Incarnation | None = None
        self._alive: Mapping[tuple[int, str], bool] = {}
        """By index of the link, and node."""
        self._claims_heard = 0
        """Changes of what others claim that were told of."""
        self._counted: dict[int, tuple[str, int, int]] = {}
        """Link → its name, how many are alive there, and how many silent."""
        self._peers_changed: int | None = None
        self._counted_at = float("-inf")
        self._peers_own: dict[IPAddress, str] = {}
        """EIPs that are a peer's own addresses."""
        self._clash: tuple[Link | None, Mac | None, bool] | None = None
        """Another host with our name."""

    def retell(self) -> None:
        """What a new main process must hear, and is not in ``Resumed``."""
        self._counted.clear()
        self._alive = {}
        self._peers_changed = None
        if self._clash is not None:
            self.name_clash(*self._clash)
        for eip, node in self._peers_own.items():
            self._events.peers_address(eip, node)

    def life(self, incarnation: Incarnation, claims_heard: int = 0) -> None:
        """``claims_heard``: so many changes of what others claim there were by now."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self._sink.incarnation(incarnation)
        if claims_heard != self._claims_heard:
            self._claims_heard = claims_heard
            self._events.peers_claims()

    def peers_address(self, eip: IPAddress, node: str | None) -> None:
        self._peers_own.pop(eip, None)
        if node is not None:
            self._peers_own[eip] = node
        self._events.peers_address(eip, node)

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None:
        self._clash = link, mac, silent
        if silent:
            self._sink.silence()
        self._events.name_clash(link, mac, silent)

    def name_free(self) -> None:
        self._clash = None
        self._events.name_free()

    def may_have_changed(self, peers_changed: int, now: float) -> bool:
        """Whether there may be news for ``peers``. ``peers_changed``: so many changes there were by now."""
        if peers_changed == self._peers_changed and now < self._counted_at + FORGETTING:
            return False
        self._peers_changed, self._counted_at = peers_changed, now
        return True

    def peers(self, states: Mapping[int, Iterable[PeerState]], links: Mapping[int, Link]) -> bool:
        """Who lives, by index of the link, on the ``links`` that carry hellos; who is silent and did not say that it
        goes; where no hellos are carried any more, nobody does either. Whether that is news."""
        alive = {(index, peer.node): peer.alive for index, some in states.items() for peer in some}
        gone = {(index, peer.node) for index, some in states.items() for peer in some if peer.draining}
        changed = alive != self._alive
        for (index, node), lives in alive.items():
            if self._alive.get((index, node), False) is not lives and (link := links.get(index)) is not None:
                self._events.peer(node, link, lives)
        self._alive = alive
        for index in self._counted.keys() - links.keys():
            self._events.peers(self._counted.pop(index)[0], 0, 0)
        for index, link in links.items():
            number = sum(lives for (at, _), lives in alive.items() if at == index)
            silent = sum(one[0] == index and not lives and one not in gone for one, lives in alive.items())
            if self._counted.get(index) != (told := (link.name, number, silent)):
                self._counted[index] = told
                self._events.peers(*told)
        return changed
