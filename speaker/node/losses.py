"""Which nodes are dead, and their endpoints with them, long before the control plane says so. Pure.

The control plane calls a node NotReady 40 s after its last word, and until then its endpoints are ready. Speakers know
within half a second. It is believed for as long as the control plane may take: a speaker that was killed is silent too,
while its node is well, and what is missed of that is capacity alone, as nothing is taken out that has no substitute.
"""

from collections.abc import Iterable
from typing import NamedTuple

BELIEVED = 120.0
"""Seconds from a node's silence on for which its endpoints get nothing new. By then the control plane has spoken."""


class Heard(NamedTuple):
    """A speaker on one of our links."""

    node: str
    alive: bool
    draining: bool
    """It said that it goes, as one does that is restarted or drained: its silence means nothing."""


class Losses:
    """``now`` is seconds of one clock that never goes back. ``settles``: seconds in which all who died with one are
    known to have: whoever is cut off hears them fall silent one after the other."""

    def __init__(self, settles: float) -> None:
        self._settles = settles
        self._known: set[str] = set()
        """Nodes that were alive since we look."""
        self._since: dict[str, float] = {}

    def heard(self, speakers: Iterable[Heard], now: float) -> tuple[frozenset[str], float | None]:
        """The nodes to be taken for dead: those that fell silent on every link, if more than half of all that are
        expected, us included, are heard. Otherwise it may be us that nobody reaches. And in how many seconds to look
        again, if that is soon."""
        everybody = list(speakers)
        alive = {each.node for each in everybody if each.alive}
        silent = {each.node for each in everybody if not each.draining} - alive
        self._known |= alive
        self._since = {node: self._since.get(node, now) for node in silent & self._known}
        young = [since + self._settles - now for since in self._since.values() if now < since + self._settles]
        soon = min(young, default=None)
        if len(alive) + 1 <= len(silent):
            return frozenset(), soon
        ages = {node: now - since for node, since in self._since.items()}
        return frozenset(node for node, age in ages.items() if self._settles <= age < BELIEVED), soon
