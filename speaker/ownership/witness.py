"""Whether the EIPs that others hold are answered: which node asks, when, and what the answers mean. Pure.

Each EIP has one asker on its link: of the living nodes other than the holder, the one with the best score, so all that
hear the same agree. All nodes go through the EIPs at the same pace, and each asks for its own share: however many nodes
there are, a LAN gets RATE requests a second.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from speaker.model import IPAddress, Mac
from speaker.ownership.score import score

RATE = 5.0
"""Requests a second, of all nodes of a link together, on average. Those of a turn are sent together, since each time
they wake whoever answers."""
PERIOD = 10.0
"""The shortest time between two turns, and between two requests for one EIP, in seconds."""
IN_DOUBT = 2.0
"""The same while the last answers contradict those before."""
SURE = 3
"""Requests in a row that have to agree before an EIP counts as answered by nobody or by several, or no longer by
several: frames get lost, EIPs move."""


class Place(NamedTuple):
    """Where to ask for an EIP: on the link with this index. ``holder`` None: nobody says that it holds it."""

    link: int
    holder: str | None


class Way(NamedTuple):
    """How to ask for an EIP: by ARP or neighbour solicitation, on the link with this index."""

    link: int
    version: int


def asker(eip: IPAddress, holder: str | None, nodes: Iterable[str]) -> str | None:
    """Which of the living ``nodes`` of its link asks for it; None if only its holder is there."""
    return max((node for node in nodes if node != holder), key=lambda node: (score(eip, node), node), default=None)


class Witness:
    """What this node asks for, and the results. ``verdicts``: how many hosts answer for each EIP that this node asks
    for."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._places: Mapping[IPAddress, Place] = {}
        self._in_turn: list[IPAddress] = []
        self._at, self._due = 0, 1.0
        """Which EIP is next, and how many are due by now."""
        self._unsure: dict[IPAddress, tuple[int, int]] = {}
        """What the last answers say that contradicts the verdict, and how often in a row."""
        self._asked: dict[IPAddress, None] = {}
        self._alive: Mapping[int, frozenset[str]] = {}
        """The nodes that the verdicts are based on."""
        self.verdicts: dict[IPAddress, int] = {}

    def follow(self, places: Mapping[IPAddress, Place]) -> None:
        """All EIPs that others hold, or nobody holds. What was found out about one that moved no longer counts."""
        before, self._places = self._places, places
        self._in_turn = list(places)
        for eip in [eip for eip in (*self.verdicts, *self._unsure) if places.get(eip) != before.get(eip)]:
            self._forget(eip)

    @property
    def pause(self) -> float:
        """Seconds until the next turn."""
        return IN_DOUBT if self._unsure else PERIOD

    def due(self, alive: Mapping[int, Collection[str]]) -> list[IPAddress]:
        """What to ask for in this turn; first what is in doubt. ``alive``: the other living nodes by link."""
        self._reckon_with({link: frozenset(nodes) for link, nodes in alive.items()})
        known = len(self._in_turn)
        self._due += self.pause * min(RATE, known / PERIOD)
        turn = min(int(self._due), known)
        self._due -= turn
        looked_at = [self._in_turn[(self._at + step) % known] for step in range(turn)]
        self._at = (self._at + turn) % max(known, 1)
        mine = []
        for eip in dict.fromkeys((*self._unsure, *looked_at)):
            if self._is_mine(eip):
                mine.append(eip)
            else:
                self._forget(eip)
        self._asked = dict.fromkeys(mine[: max(turn, 1)])
        return [*self._asked]

    def _reckon_with(self, alive: Mapping[int, frozenset[str]]) -> None:
        """Other nodes now ask for some EIPs: verdicts about these are theirs to give, long before their turn."""
        before, self._alive = self._alive, alive
        if alive != before:
            for eip in [eip for eip in self.verdicts if not self._is_mine(eip)]:
                self._forget(eip)

    def _is_mine(self, eip: IPAddress) -> bool:
        place = self._places[eip]
        return asker(eip, place.holder, (self._node, *self._alive.get(place.link, ()))) == self._node

    @property
    def silent(self) -> set[Way]:
        """Where it must be shown, in this turn, that our requests arrive: whether a holder is silent depends on it."""
        return {self._way(eip) for eip in self.doubted}

    @property
    def doubted(self) -> list[IPAddress]:
        """The EIPs of this turn whose holder was silent in the last one."""
        asked = [eip for eip in self._asked if self._unsure.get(eip, (1, 0))[0] == 0]
        return [eip for eip in asked if self._places[eip].holder is not None]

    def _way(self, eip: IPAddress) -> Way:
        return Way(self._places[eip].link, eip.version)

    def judge(
        self,
        answers: Iterable[tuple[IPAddress, Mac]],
        unasked: Collection[IPAddress] = (),
        arriving: Collection[Way] = (),
    ) -> None:
        """The turn is over. ``answers``: who answered for what was ``due``. ``unasked``: those of them for which no
        request was sent. ``arriving``: where others answered us meanwhile."""
        macs: dict[IPAddress, set[Mac]] = {eip: set() for eip in self._asked if eip not in unasked}
        for eip, mac in answers:
            if eip in macs:
                macs[eip].add(mac)
        self._asked = {}
        for eip, found in macs.items():
            if eip in self._places:  # it may have moved meanwhile
                proven = bool(found) or self._places[eip].holder is None or self._way(eip) in arriving
                self._judge(eip, len(found), proven)

    def _judge(self, eip: IPAddress, hosts: int, proven: bool) -> None:
        said, times = self._unsure.pop(eip, (hosts, 0))
        if self.verdicts.get(eip) == hosts:
            return
        times = times + proven if said == hosts else 1
        # One answer proves that somebody is there, but only several prove that nobody else is.
        if (hosts == 1 and self.verdicts.get(eip, 0) < hosts) or times >= SURE:
            self.verdicts[eip] = hosts
        else:
            self._unsure[eip] = hosts, times

    def _forget(self, eip: IPAddress) -> None:
        self.verdicts.pop(eip, None)
        self._unsure.pop(eip, None)
