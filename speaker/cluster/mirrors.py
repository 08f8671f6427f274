"""All mirrors of one API server. Where its data was restored from a backup, all of them list anew.

Two things show it. A mirror that connects again sees that the server is behind what it knows: a watch would stay
silent. Once the new data has come as far, lists and watches go on as if nothing was lost; then our own Lease shows it.
This process writes it again and again, and the version of an object only rises, whoever writes it. A Lease that is
older than before, or absent, belongs to other data. Versions of different resources are never compared: each may have
an etcd of its own.

Two cases are not noticed, both where the new data has come as far before this process connects again: a backup that is
younger than the last renewal, and one of an etcd that does not hold the Leases. A list every few minutes would notice
them, for a load that grows with the nodes times the Services.
"""

from collections.abc import Hashable, Iterator, Mapping
from math import inf
from typing import Any, Generic, TypeVar

import structlog

from speaker.cluster.client import Client
from speaker.cluster.feed import Room
from speaker.cluster.reflector import Hears, Reflector
from speaker.removals import Doubt, Removals
from speaker.system.clock import time_of_day

log = structlog.get_logger()


class Mirrors:
    """Those of one process. ``room``: for what they hold."""

    def __init__(self, room: Room | None = None) -> None:
        self.room = room or Room()
        self._all: list[Reflector[Any]] = []
        self._lease = 0

    def __iter__(self) -> Iterator[Reflector[Any]]:
        return iter(self._all)

    @property
    def without_room(self) -> int:
        """How many objects are set aside because there is no room for them."""
        return sum(mirror.feed.without_room for mirror in self)

    def add(self, mirror: Reflector[Any]) -> None:
        self._all.append(mirror)

    def saw_lease(self, version: int) -> None:
        """Notes the version of our Lease as just read or written; 0 if there is no Lease."""
        if version < self._lease:
            self.restored()
        self._lease = version

    def restored(self) -> None:
        """Whatever is known is of other data, and so is the Lease's version: everything is listed anew, once."""
        self._lease = 0
        log.warning("the API server's data went back, as if a backup was restored: listing everything again")
        for mirror in self._all:
            mirror.list_anew()


# ── Lists instead of watches ────────────────────────────────────────────────────────────────────────────────

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Polled(Generic[_K, _V]):
    """``what`` it is, for people; ``settle``: seconds, as in ``Resource``; ``hears`` is told of what waits."""

    def __init__(self, what: str, settle: float, hears: Hears) -> None:
        self.known: Mapping[_K, _V] = {}
        self._what, self._hears = what, hears
        self._removals: Removals[_K] = Removals(settle)

    @property
    def due(self) -> float:
        """When the list that decides is to be asked for, by the clock of ``hear``."""
        return inf if self._removals.waiting is None else self._removals.waiting.until

    def via(self, client: Client) -> Client:
        """A list that confirms a doubt is asked for over a connection of its own, perhaps from another server."""
        return client if self._removals.waiting is None else client.afresh

    def hear(self, found: Mapping[_K, _V], now: float) -> None:
        """``now``: when it was asked for, in seconds."""
        waited, known = self._removals.waiting, self.known
        kept = self._removals.kept(known.keys() - found.keys(), len(known), len(found), now)
        self.known = {**found, **{key: known[key] for key in kept}}
        if (waiting := self._removals.waiting) != waited:
            until = "" if waiting is None else time_of_day(waiting.until - now)
            self._hears.doubted(self._what, None if waiting is None else Doubt(self._what, waiting, until))
