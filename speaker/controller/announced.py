"""What befalls EIPs on the LAN, for who looks at their Services: Events of what agents record. Pure.

An agent's word is text from elsewhere: it is told of Services that have the EIP as it was decided here, and of no
others, whatever the record says.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from speaker.api.kinds import FullMetadata
from speaker.api.objects import Key
from speaker.api.records import RecordedClaim, RecordedObject, announced_eip
from speaker.controller.writes import Event
from speaker.model import IPAddress
from speaker.telemetry.lines import SHOWN

NOBODY_SECONDS = 5.0
"""For which an EIP may be on its way from one node to another."""
MOST = 100
"""Events at a time: when a node dies thousands may move, and every Announcement says where to."""

ON_POOLS = frozenset(("HeldByNobody", "ConflictBegun", "ConflictEnded"))
"""Reasons that the owner of a pool reads as well: it may be an address that should not be in it."""


class Users(NamedTuple):
    """Of an EIP: the Services on it, and the pool that they have it from."""

    services: Sequence[FullMetadata] = ()
    pool: FullMetadata | None = None


FindUsers = Callable[[Container[str]], Mapping[str, Users]]
"""By the names of Announcements."""


class _Happened(NamedTuple):
    level: str
    reason: str
    message: str


@dataclass(slots=True)
class _Told:
    """Of one EIP: who is believed to hold it, and what was told of it."""

    holder: str
    conflict: bool
    vacant: float | None = None
    """Since when nobody holds it, and that is not told."""
    lost: str = ""
    """The last Lease of a holder that was told to be gone: what comes may be of the record that was told of before."""


class Announced:
    """What is heard first is no news: another leader told it."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        self._now: dict[str, RecordedObject] = {}
        self._vacant: set[str] = set()
        """Those of which that is yet to be told."""
        self._gone: Mapping[str, str] = {}
        self._begun = False
        self.left_out = 0
        """Events in the last step that were too many."""

    def step(
        self,
        changes: Mapping[Key, RecordedObject | None],
        users: FindUsers,
        now: float,
        at: str,
        gone: Mapping[str, str] | None = None,
    ) -> list[Event]:
        """``changes``: what is another than the last time, None for what is gone; ``now``: seconds that never go back;
        ``at``: RFC 3339; ``gone``: as ``Lives.gone`` has it."""
        happened: dict[str, list[_Happened]] = {}
        turned = self._turned(gone)
        for name in {key.name for key in changes} | self._vacant | turned:
            key = Key("", name)
            if key in changes and (found := changes[key]) is None:
                self._forget(name)
            else:
                self._now[name] = found = changes.get(key) or self._now[name]
                if (eip := announced_eip(name)) is None:
                    continue
                if news := [*self._heard(name, eip, found.status, now, turned=name in turned)]:
                    happened[name] = news
        self._begun = True
        if not happened:
            self.left_out = 0
            return []
        events = [*self._events(happened, users(happened), at)]
        self.left_out = len(events[MOST:])
        return events[:MOST]

    def _turned(self, gone: Mapping[str, str] | None) -> set[str]:
        """Of which EIPs the holder is gone since the last time, or back. What is not known changes nothing."""
        before, self._gone = self._gone, self._gone if gone is None else gone
        nodes = before.keys() ^ self._gone.keys()
        return {name for name, found in self._now.items() if found.status.holder in nodes} if nodes else set()

    def _forget(self, name: str) -> None:
        self._told.pop(name, None)
        self._now.pop(name, None)
        self._vacant.discard(name)

    def _heard(
        self, name: str, eip: IPAddress, status: RecordedClaim, now: float, *, turned: bool
    ) -> Iterator[_Happened]:
        told = self._told.get(name)
        if told is None:
            told = _Told("", False) if self._begun else _Told(status.holder, bool(status.conflict))
            self._told[name] = told
        if status.holder in self._gone and (turned or not told.holder):
            yield from self._lost(name, eip, told, status.holder)
        else:
            yield from self._held(name, eip, told, status, now)
        conflict = bool(status.conflict)
        if conflict is not told.conflict:
            told.conflict = conflict
            if conflict:
                yield _Happened("Warning", "ConflictBegun", f"{eip}: {status.conflict} uses it too")
            else:
                yield _Happened("Normal", "ConflictEnded", f"nobody else uses {eip} any more")

    def _lost(self, name: str, eip: IPAddress, told: _Told, holder: str) -> Iterator[_Happened]:
        """The record names one that is gone. Or it cannot reach the API, and answers on the LAN: nobody here knows."""
        if told.holder:
            told.holder, told.vacant, told.lost = "", None, f" {self._gone[holder]}"
            self._vacant.discard(name)
            why = f"its holder {holder} is gone, or cut off from the API"
            yield _Happened("Warning", "HeldByNobody", f"nobody is known to announce {eip}: {why}")

    def _held(self, name: str, eip: IPAddress, told: _Told, status: RecordedClaim, now: float) -> Iterator[_Happened]:
        holder = status.holder
        if holder:
            before, told.holder, told.vacant = told.holder, holder, None
            self._vacant.discard(name)
            where = f" on {status.link}" if status.link else ""
            if not before:
                yield _Happened("Normal", "Announced", f"{eip} is announced by {holder}{where}")
            elif before != holder and status.unanswered is None:  # or it is told of as a failover
                message = f"{eip} moved from {before} to {holder}{where}"
                yield _Happened("Normal", "Moved", message)
        elif told.holder and told.vacant is None:
            told.vacant = now
            self._vacant.add(name)
        elif told.holder and told.vacant is not None and now - told.vacant >= NOBODY_SECONDS:
            why = f": {told.holder} let it go ({status.reason})" if status.reason else ""
            told.holder, told.vacant = "", None
            self._vacant.discard(name)
            yield _Happened("Warning", "HeldByNobody", f"nobody announces {eip}{why}")

    def _events(
        self, happened: Mapping[str, Sequence[_Happened]], users: Mapping[str, Users], at: str
    ) -> Iterator[Event]:
        for name, news in happened.items():
            mark = f"{name} {self._now[name].metadata.resource_version}{self._told[name].lost}"
            services, pool = users.get(name, Users())
            for meta in services[:SHOWN]:
                yield from (Event("Service", meta, *each, at, mark) for each in news)
            if pool is not None:
                yield from (Event("Eip", pool, *each, at, mark) for each in news if each.reason in ON_POOLS)
