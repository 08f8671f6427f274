"""What is listed now and then instead of watched. What a list lacks stays until another lacks it too, where it is much.

Nothing here asks: who does, asks ``via`` a client and says what it heard.
"""

from collections.abc import Callable, Hashable, Mapping
from math import inf
from typing import Generic, TypeVar

from speaker.cluster.transport.client import Client
from speaker.removals import Doubt, Removals
from speaker.system.clock import time_of_day

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Polled(Generic[_K, _V]):
    """``what`` it is, for people; ``settle``: seconds, as in ``Resource``; ``doubted`` hears of what waits."""

    def __init__(self, what: str, settle: float, doubted: Callable[[str, Doubt | None], None]) -> None:
        self.known: Mapping[_K, _V] = {}
        self._what, self._doubted = what, doubted
        self._removals: Removals[_K] = Removals(settle)

    @property
    def due(self) -> float:
        """When the list that decides is to be asked for, by the clock of ``hear``."""
        return inf if self._removals.waiting is None else self._removals.waiting.until

    def via(self, client: Client) -> Client:
        """A list that decides goes another way than the one that is doubted."""
        return client if self._removals.waiting is None else client.afresh

    def hear(self, found: Mapping[_K, _V], now: float) -> None:
        """``now``: when it was asked for, in seconds."""
        waited, known = self._removals.waiting, self.known
        kept = self._removals.kept(known.keys() - found.keys(), len(known), len(found), now)
        self.known = {**found, **{key: known[key] for key in kept}}
        if (waiting := self._removals.waiting) != waited:
            until = "" if waiting is None else time_of_day(waiting.until - now)
            self._doubted(self._what, None if waiting is None else Doubt(self._what, waiting, until))
