"""Who has which EIP after a change: as ``allocator.settle``, and the cost follows what changed. Pure.

Whoever lacks nothing is not asked again while it, its namespace and the pools stay as they are: the answer would be the
same. Whoever was refused something is, once something has moved that may let it have it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from speaker.allocator.assign import Allocator, Outcome
from speaker.allocator.settle import precedence
from speaker.model import FamilyPolicy, IPAddress, Service, ServiceKey

_Mark: TypeAlias = tuple[int, int]
_NOTHING: Mapping[ServiceKey, Collection[IPAddress]] = {}


class Settling:
    """``services`` is its owner's and always up to date: who is to be served. ``outcomes`` is what ``step`` made of
    it."""

    def __init__(self, allocator: Allocator, services: Mapping[ServiceKey, Service]) -> None:
        self.outcomes: dict[ServiceKey, Outcome] = {}
        self._allocator, self._services = allocator, services
        self._refused: dict[ServiceKey, _Mark] = {}
        """Who lacks something, and at which mark it was asked."""
        self._came_with: dict[ServiceKey, Collection[IPAddress]] = {}
        """What Services had that hold nothing yet: their pool, or their namespace, may be heard of later."""
        self._replaced = 0
        """Holders that are others than they were: the allocator's revision passes over those that hold on."""

    def step(
        self,
        changed: Iterable[ServiceKey],
        nothing_new: Collection[ServiceKey],
        now: float,
        came_with: Mapping[ServiceKey, Collection[IPAddress]] = _NOTHING,
    ) -> Mapping[ServiceKey, Outcome | None]:
        """``changed``: Services that are new, others than they were, in a changed namespace, or gone; all of them after
        a change of pools. ``nothing_new``: those that keep what they hold and are given nothing. ``now`` as in
        ``Allocator``. ``came_with``: what those of them that were just made had before, as from a backup. Returns whose
        outcomes are others now, and what they were."""
        before: dict[ServiceKey, Outcome | None] = {}
        due = set(changed)
        for key in sorted(due - self._services.keys()):
            self._came_with.pop(key, None)
            self._allocator.release(key, now)
            self._forget(key, before)
        due = (due | self._allocator.outdated) & self._services.keys()
        self._came_with |= {key: came_with[key] for key in came_with.keys() & due}
        while due or self._anyone_stale():
            self._round(due, nothing_new, now, before)
        return {key: former for key, former in before.items() if self.outcomes.get(key) != former}

    def _round(
        self,
        due: set[ServiceKey],
        nothing_new: Collection[ServiceKey],
        now: float,
        before: dict[ServiceKey, Outcome | None],
    ) -> None:
        holders = self._allocator.holders
        for key in nothing_new:
            if key not in holders:
                due.discard(key)
                self._forget(key, before)
        ordered = sorted((self._services[key] for key in due | self._refused.keys()), key=precedence)
        holding = [each for each in ordered if each.key in holders]
        newcomers = [each for each in ordered if each.key not in holders]
        # One holder may want what another gives up only now: before any newcomer.
        while asked := [each for each in holding if each.key in due or self._is_stale(each.key)]:
            self._ask(asked, due, nothing_new, now, before)
        # Before any of them is asked; of two that had the same the first has it now.
        for service in reversed([each for each in newcomers if each.key in due and each.key in self._came_with]):
            self._allocator.remind(service, self._came_with[service.key], now)
        self._ask(newcomers, due, nothing_new, now, before)

    def _ask(
        self,
        services: Iterable[Service],
        due: set[ServiceKey],
        nothing_new: Collection[ServiceKey],
        now: float,
        before: dict[ServiceKey, Outcome | None],
    ) -> None:
        for service in services:
            key = service.key
            if key in due:
                due.discard(key)
                self._replaced += key in self._allocator.holders
            elif not self._is_stale(key):
                continue
            asking = self._as_held(service) if key in nothing_new else service
            former, outcome = self.outcomes.get(key), self._allocator.assign(asking, now)
            before.setdefault(key, former)
            self.outcomes[key] = outcome
            if outcome.assignment is not None:
                self._came_with.pop(key, None)
            due |= self._allocator.outdated & self._services.keys()
            if outcome.refusal is None:
                self._refused.pop(key, None)
            else:
                self._refused[key] = self._mark()

    def _as_held(self, service: Service) -> Service:
        """It asks for what it holds: what of its families cannot be read takes none away, and gives none."""
        families, pools = tuple(self._allocator.held_by(service.key)), self._allocator.pools_of(service.key)
        policy = FamilyPolicy.SINGLE if len(families) == 1 else FamilyPolicy.PREFER_DUAL
        pool = next(iter(pools)) or None if len(pools) == 1 else None
        return replace(service, families=families, family_policy=policy, pool=pool)

    def _forget(self, key: ServiceKey, before: dict[ServiceKey, Outcome | None]) -> None:
        self._refused.pop(key, None)
        if (former := self.outcomes.pop(key, None)) is not None:
            before.setdefault(key, former)

    def _mark(self) -> _Mark:
        return self._allocator.revision, self._replaced

    def _is_stale(self, key: ServiceKey) -> bool:
        return self._refused.get(key, mark := self._mark()) != mark

    def _anyone_stale(self) -> bool:
        mark = self._mark()
        return any(asked_at != mark for asked_at in self._refused.values())
