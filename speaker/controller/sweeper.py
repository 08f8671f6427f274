"""Which Announcements go: those of EIPs that no Service has any more. Pure.

Agents delete none: one that hears late of a new Service could delete what another has just claimed. They give up what
they hold, and write that down; where a node is gone nobody does, and its record goes after a while of its own accord.
The deletion names the version that was seen, so a claim that comes first is not lost.
"""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass

from speaker.api.kinds import ServiceObject, has_ours
from speaker.api.records import ANNOUNCEMENTS, RecordedObject, announcement_name
from speaker.controller.writes import Order, Removal
from speaker.model import Assignment, ServiceKey


@dataclass(frozen=True, slots=True)
class Grace:
    """Seconds for which an EIP must have been unused, by the leader's clock. ``vacant``: nobody holds it, and agents
    may be about to write just that. ``held``: the holder has had the time to give it up, so its node is gone."""

    vacant: float = 2.0
    held: float = 60.0


class Uses:
    """The EIPs that any Service has, by the names of their Announcements: as it was decided, and as long as it stands
    in a status, since agents go by those."""

    def __init__(self) -> None:
        self._by: dict[ServiceKey, tuple[str, ...]] = {}
        self._users: Counter[str] = Counter()

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def of(self, names: Container[str]) -> dict[str, list[ServiceKey]]:
        """Who has each of them. Walks over all."""
        found: dict[str, list[ServiceKey]] = {}
        for key, used in self._by.items():
            for name in used:
                if name in names:
                    found.setdefault(name, []).append(key)
        return found

    def note(self, key: ServiceKey, found: ServiceObject | None, assignment: Assignment | None) -> None:
        """``found``: as it stands in the API, None where it is gone."""
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
        """Paths of those that are to go."""

    def step(
        self, announcements: Iterable[RecordedObject], uses: Container[str], now: float
    ) -> dict[str, Order | None]:
        """``announcements``: all there are; ``now``: seconds that never go back."""
        unused = [found for found in announcements if found.metadata.name not in uses]
        self._unused = {found.metadata.name: self._unused.get(found.metadata.name, now) for found in unused}
        due = {
            removal.path: removal for removal in map(_removal, filter(lambda found: self._is_due(found, now), unused))
        }
        orders: dict[str, Order | None] = {**dict.fromkeys(self._due - due.keys()), **due}
        self._due = frozenset(due)
        return orders

    def _is_due(self, found: RecordedObject, now: float) -> bool:
        grace = self._grace.held if found.status.holder else self._grace.vacant
        return now - self._unused[found.metadata.name] >= grace


def _path(found: RecordedObject) -> str:
    return f"{ANNOUNCEMENTS}/{found.metadata.name}"


def _removal(found: RecordedObject) -> Removal:
    return Removal(_path(found), found.metadata.uid, found.metadata.resource_version)
