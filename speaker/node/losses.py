"""Which nodes are dead, and their endpoints with them, long before the control plane says so. Pure.

The control plane calls a node NotReady 40 s after its last sign, and until then its endpoints are ready. Speakers know
within half a second. Their word is believed for as long as the control plane may take. A killed speaker is silent too,
while its node is well; then only capacity is lost, as an endpoint is taken out only if there are others.
"""

from collections.abc import Iterable
from typing import NamedTuple

BELIEVED = 120.0
"""Seconds after a node's silence for which its endpoints get nothing new. By then the control plane knows."""


class Heard(NamedTuple):
    """A speaker on one of our links."""

    node: str
    alive: bool
    draining: bool
    """It announced that it leaves, as when restarted or drained: its silence means nothing."""


class Losses:
    """``now`` is seconds of one clock that never goes back. ``settles``: seconds until all nodes that died together are
    known to be dead. A node that is cut off hears the others fall silent one after the other."""

    def __init__(self, settles: float) -> None:
        self._settles = settles
        self._known: set[str] = set()
        """Nodes that have been alive since this began."""
        self._since: dict[str, float] = {}

    def heard(self, speakers: Iterable[Heard], now: float) -> tuple[frozenset[str], float | None]:
        """The nodes to be taken for dead: those silent on every link, if this node hears more than half of all that are
        expected, itself included. Otherwise this node may be the one cut off. Also returns in how many seconds to look
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
