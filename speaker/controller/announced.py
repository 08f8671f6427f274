"""What agents record in Announcements: failovers, Events about the Services, and records to delete. Pure.

An agent's record is text from elsewhere. It is reported on Services that have the EIP according to this controller, and
on no others, whatever the record says. An agent that took an EIP over from a dead one writes that node's name and the
time without an answer into the record.

Agents delete no record, because one that hears late of a new Service could delete what another has just claimed. They
give up what they hold, and write that down. If the node is gone nobody does, and the controller deletes its record
after a while. The deletion names the version that was seen, so a claim that comes first is not lost.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from speaker.api.kinds import FullMetadata, ServiceObject, has_ours
from speaker.api.objects import Key
from speaker.api.records import ANNOUNCEMENTS, RecordedClaim, RecordedObject, announced_eip, announcement_name
from speaker.controller.wanted import Event, Order, Removal
from speaker.errors import shown
from speaker.model import Assignment, IPAddress, ServiceKey
from speaker.telemetry.lines import SHOWN, Bound


class Users(NamedTuple):
    """The users of an EIP: the Services on it, and the pool that it comes from."""

    services: Sequence[FullMetadata] = ()
    pool: FullMetadata | None = None


FindUsers = Callable[[Container[str]], Mapping[str, Users]]
"""By the names of Announcements."""


class Failover(NamedTuple):
    """``before`` fell silent, and ``node`` answers. ``unanswered``: seconds from the last sign of the former to the
    claim of the latter. ``name``: the Announcement's. ``since``: the time of the claim, as the record has it."""

    eip: IPAddress
    name: str
    before: str
    node: str
    unanswered: float
    term: int
    since: str

    def __str__(self) -> str:
        silent = f"{shown(self.before)}, which fell silent" if self.before else "a node that fell silent"
        after = f"{self.unanswered:.3f} s after its last sign"
        return f"{self.eip}: {shown(self.node)} answers in place of {silent}, {after}"


class Failovers:
    """Finds failovers among the changes; an EIP never heard of before had none. Only the new holder says which node
    fell silent, so that node is named only if ``is_node`` knows it."""

    def __init__(self, is_node: Callable[[str], bool] = lambda _: True) -> None:
        self._holders: dict[Key, str] = {}
        self._is_node = is_node

    def news(self, changes: Mapping[Key, RecordedObject | None]) -> Iterator[Failover]:
        """``changes``: None for a record that is gone."""
        for key, found in changes.items():
            if found is None:
                self._holders.pop(key, None)
                continue
            known, holder = self._holders.get(key), found.status.holder
            self._holders[key] = holder
            if known is not None and holder not in ("", known) and (told := _read(found)) is not None:
                yield told if self._is_node(told.before) else told._replace(before="")


def _read(found: RecordedObject) -> Failover | None:
    """None if it is not a failover, or was not written by an agent."""
    status, name = found.status, found.metadata.name
    eip = announced_eip(name)
    if eip is None or status.unanswered is None:
        return None
    return Failover(eip, name, status.taken_from, status.holder, status.unanswered / 1000, status.term, status.since)


def told(found: Iterable[Failover], users: FindUsers, at: str, room: Bound, now: float) -> Iterator[Event]:
    """Events for the failovers that there is ``room`` for, one for each Service that has the EIP, whichever Services
    the record names. ``at``: RFC 3339. Terms start again when a record is deleted, so a term alone does not identify a
    failover."""
    if not (kept := [one for one in found if room.admits(now, "failovers")]):
        return
    using = users({one.name for one in kept})
    for one in kept:
        for about in using.get(one.name, Users()).services[:SHOWN]:
            yield Event("Service", about, "Warning", "FailedOver", str(one), at, f"{one.name} {one.term} {one.since}")


def left_out(room: Bound, now: float) -> int:
    """Failovers that got no Event for lack of ``room``; counted once that has ended for a moment, or if it lasts."""
    return sum(left.lines for left in room.left_out(now))


# ── Events of what agents record ────────────────────────────────────────────────────────────────────────────

NOBODY_SECONDS = 5.0
"""How long an EIP may be on its way from one node to another."""
MOST = 100
"""Events at a time: when a node dies thousands of EIPs may move, and every Announcement says where to."""

ON_POOLS = frozenset(("HeldByNobody", "ConflictBegun", "ConflictEnded"))
"""Reasons that concern the pool's owner too: the address may not belong in the pool."""


class _Happened(NamedTuple):
    level: str
    reason: str
    message: str


@dataclass(slots=True)
class _Told:
    """What is remembered of one EIP: who is believed to hold it, and what was reported."""

    holder: str
    conflict: bool
    vacant: float | None = None
    """Since when nobody holds it, as long as that is not reported."""
    lost: str = ""
    """The last Lease of a holder that was reported to be gone: later changes may be of the record that was reported
    before."""


class Announced:
    """What is heard first is not news: another leader reported it."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        self._now: dict[str, RecordedObject] = {}
        self._vacant: set[str] = set()
        """Names of vacant EIPs that are yet to be reported."""
        self._gone: Mapping[str, str] = {}
        self._begun = False
        self.left_out = 0
        """Events that were too many in the last step."""

    def step(
        self,
        changes: Mapping[Key, RecordedObject | None],
        users: FindUsers,
        now: float,
        at: str,
        gone: Mapping[str, str] | None = None,
    ) -> list[Event]:
        """``changes``: records that have changed, None for those that are gone. ``now``: seconds that never go back.
        ``at``: RFC 3339. ``gone``: as from ``Lives.gone``."""
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
        """EIPs whose holder has gone or come back since the last time. If nothing is known, nothing changes."""
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
        """The record names a holder that is gone. It may only be cut off from the API and still answer on the LAN,
        which nobody here knows."""
        if told.holder:
            told.holder, told.vacant, told.lost = "", None, f" {self._gone[holder]}"
            self._vacant.discard(name)
            why = f"its holder {holder} is gone, or cut off from the API"
            yield _Happened("Warning", "HeldByNobody", f"no node is known to announce {eip}: {why}")

    def _held(self, name: str, eip: IPAddress, told: _Told, status: RecordedClaim, now: float) -> Iterator[_Happened]:
        holder = status.holder
        if holder:
            before, told.holder, told.vacant = told.holder, holder, None
            self._vacant.discard(name)
            where = f" on {status.link}" if status.link else ""
            if not before:
                yield _Happened("Normal", "Announced", f"{eip} is announced by {holder}{where}")
            elif before != holder and status.unanswered is None:  # or it is reported as a failover
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


# ── Announcements that nobody needs ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Grace:
    """Seconds for which an EIP must have been unused, by the leader's clock. ``vacant``: nobody holds it, but agents
    may be about to write just that. ``held``: the holder has had time to give it up, so its node is gone."""

    vacant: float = 2.0
    held: float = 60.0


class Uses:
    """The EIPs that any Service has, by the names of their Announcements: those decided, and those still in a status,
    since agents go by statuses."""

    def __init__(self) -> None:
        self._by: dict[ServiceKey, tuple[str, ...]] = {}
        self._users: Counter[str] = Counter()

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def of(self, names: Container[str]) -> dict[str, list[ServiceKey]]:
        """The Services that have each of them. Looks at all EIPs."""
        found: dict[str, list[ServiceKey]] = {}
        for key, used in self._by.items():
            for name in used:
                if name in names:
                    found.setdefault(name, []).append(key)
        return found

    def note(self, key: ServiceKey, found: ServiceObject | None, assignment: Assignment | None) -> None:
        """``found``: the object as it is in the API, or None if it is gone."""
        addresses = set(assignment.addresses if assignment is not None else ())
        if found is not None and has_ours(found.status.conditions):
            addresses.update(found.status.load_balancer.addresses)
        names = tuple(map(announcement_name, addresses))
        for name in self._by.pop(key, ()):
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
        if names:
            self._by[key] = names
            self._users.update(names)


class Sweeper:
    def __init__(self, grace: Grace = Grace()) -> None:
        self._grace = grace
        self._unused: dict[str, float] = {}
        """Since when, by name."""
        self._due: frozenset[str] = frozenset()
        """Paths of the records that are to be deleted."""

    def step(
        self, announcements: Iterable[RecordedObject], uses: Container[str], now: float
    ) -> dict[str, Order | None]:
        """``announcements``: all there are. ``now``: seconds that never go back."""
        unused = [found for found in announcements if found.metadata.name not in uses]
        self._unused = {found.metadata.name: self._unused.get(found.metadata.name, now) for found in unused}
        due = {removal.path: removal for removal in (_removal(found) for found in unused if self._is_due(found, now))}
        orders: dict[str, Order | None] = {**dict.fromkeys(self._due - due.keys()), **due}
        self._due = frozenset(due)
        return orders

    def _is_due(self, found: RecordedObject, now: float) -> bool:
        grace = self._grace.held if found.status.holder else self._grace.vacant
        return now - self._unused[found.metadata.name] >= grace


def _removal(found: RecordedObject) -> Removal:
    meta = found.metadata
    return Removal(f"{ANNOUNCEMENTS}/{meta.name}", meta.uid, meta.resource_version)
