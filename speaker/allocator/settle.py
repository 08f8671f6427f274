"""Who has which EIP after a change, in an order that does not depend on which object was read first.

The cost depends on what changed. A Service that lacks nothing is not looked at again while it, its namespace and the
pools stay the same, because the result would be the same. A Service that was refused something is looked at when a
change may allow it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from speaker.allocator.assign import Allocator, Outcome
from speaker.allocator.refusals import Refusal
from speaker.model import Assignment, Family, FamilyPolicy, IPAddress, Service, ServiceKey, Tally, Usage, World

_Mark: TypeAlias = tuple[int, int]
_Due: TypeAlias = dict[ServiceKey, Service]
_NOTHING: Mapping[ServiceKey, Collection[IPAddress]] = {}


@dataclass(frozen=True, slots=True)
class Settlement:
    """A Service is in ``assignments`` if it is served, in ``refusals`` if it lacks something that it asks for, and in
    both if it is served with less."""

    assignments: Mapping[ServiceKey, Assignment]
    refusals: Mapping[ServiceKey, Refusal]
    failed: Mapping[ServiceKey, Exception] = field(default_factory=dict)
    """Those that met what nobody foresaw."""


def settle(allocator: Allocator, world: World, now: float) -> Settlement:
    """One reading of the world: releases what is gone, and asks everybody. ``now`` in seconds, as in ``Allocator``."""
    allocator.set_pools(world.pools, world.namespaces, world.reserved)
    for key in sorted(allocator.holders - world.services.keys()):
        allocator.release(key, now)
    settling = Settling(allocator, world.services)
    settling.ask(dict(world.services), (), now)
    outcomes = settling.outcomes
    return Settlement(
        assignments={key: each.assignment for key, each in outcomes.items() if each.assignment is not None},
        refusals={key: each.refusal for key, each in outcomes.items() if each.refusal is not None},
        failed=dict(allocator.failed),
    )


def with_own_addresses(world: World, own: Mapping[IPAddress, str]) -> World:
    """``own``: the addresses of this host, and the link that each is bound on."""
    return replace(world, reserved={address: f"this host ({link})" for address, link in own.items()})


def with_former_pools(world: World, allocator: Allocator) -> World:
    """What is served after ``settle``: by the rules of pools that are gone, too, where their EIPs are in use."""
    return replace(world, pools={**allocator.former_pools, **world.pools})


def precedence(service: Service) -> tuple[bool, str, str, str]:
    """The order in which Services are asked, of those that hold something, and then of the others: so nobody is given
    what a later Service holds already. Who names an address comes first, so that no free choice takes it; then the
    older Service; then its key."""
    return not service.addresses, service.created, service.key.namespace, service.key.name


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
        self._before: dict[ServiceKey, Outcome | None] = {}
        """Outcomes as they were at the beginning of this step, of those that were asked in it."""

    def step(
        self,
        changed: Collection[ServiceKey],
        nothing_new: Collection[ServiceKey],
        now: float,
        came_with: Mapping[ServiceKey, Collection[IPAddress]] = _NOTHING,
    ) -> Mapping[ServiceKey, Outcome | None]:
        """``changed``: Services that are new, others than they were, in a changed namespace, or gone; all of them after
        a change of pools. ``nothing_new``: those that keep what they hold and are given nothing. ``now`` as in
        ``Allocator``. ``came_with``: what those of them that were just made had before, as from a backup. Returns whose
        outcomes are others now, and what they were."""
        self._before = {}
        for key in sorted(key for key in changed if key not in self._services):
            self._came_with.pop(key, None)
            self._allocator.release(key, now)
            self._forget(key)
        due = self._known((*changed, *self._allocator.outdated))
        self._came_with |= {key: came_with[key] for key in came_with.keys() & due.keys()}
        self.ask(due, nothing_new, now)
        return {key: former for key, former in self._before.items() if self.outcomes.get(key) != former}

    def ask(self, due: _Due, nothing_new: Collection[ServiceKey], now: float) -> None:
        """These Services, and then all for which that changed something, until nothing changes any more."""
        while due or self._anyone_stale():
            self._round(due, nothing_new, now)
            due = self._known(self._allocator.outdated)

    def _round(self, due: _Due, nothing_new: Collection[ServiceKey], now: float) -> None:
        holders = self._allocator.holders
        for key in nothing_new:
            if key not in holders:
                due.pop(key, None)
                self._forget(key)
        holding: list[Service] = []
        newcomers: list[Service] = []
        for each in sorted({**due, **self._known(self._refused)}.values(), key=precedence):
            (holding if each.key in holders else newcomers).append(each)
        # One holder may want what another gives up only now: before any newcomer.
        to_ask = due
        while (to_ask or self._anyone_stale()) and self._ask(holding, to_ask, nothing_new, now, replaced=1):
            to_ask = self._known(self._allocator.outdated)
        # Before any of them is asked; of two that had the same the first has it now.
        for service in reversed(newcomers):
            if service.key in due and (had := self._came_with.get(service.key)):
                self._allocator.remind(service, had, now)
        self._ask(newcomers, due, nothing_new, now, replaced=0)

    def _ask(
        self, services: Iterable[Service], due: _Due, nothing_new: Collection[ServiceKey], now: float, *, replaced: int
    ) -> bool:
        """Those that are due, and those that are stale when it is their turn; whether there was any. ``replaced``: to
        be added for each that is due."""
        any_asked = False
        for service in services:
            key = service.key
            if key in due:
                self._replaced += replaced
            elif not self._is_stale(key):
                continue
            asking = self._as_held(service) if key in nothing_new else service
            former, outcome = self.outcomes.get(key), self._allocator.assign(asking, now)
            if outcome is not former:
                self._before.setdefault(key, former)
                self.outcomes[key] = outcome
            if self._came_with and outcome.assignment is not None:
                self._came_with.pop(key, None)
            if outcome.refusal is not None:
                self._refused[key] = self._mark()
            elif self._refused:
                self._refused.pop(key, None)
            any_asked = True
        return any_asked

    def _known(self, keys: Iterable[ServiceKey]) -> _Due:
        return {key: service for key in keys if (service := self._services.get(key)) is not None}

    def _as_held(self, service: Service) -> Service:
        """It asks for what it holds: what of its families cannot be read takes none away, and gives none."""
        held, pools = tuple(self._allocator.held_by(service.key)), self._allocator.pools_of(service.key)
        families = tuple(dict.fromkeys(map(Family.of, held)))
        policy = FamilyPolicy.SINGLE if len(families) == 1 else FamilyPolicy.PREFER_DUAL
        only = tuple(pools) if len(pools) == 1 and "" not in pools else ()
        return replace(service, families=families, family_policy=policy, pools=only, addresses=held)

    def _forget(self, key: ServiceKey) -> None:
        self._refused.pop(key, None)
        if (former := self.outcomes.pop(key, None)) is not None:
            self._before.setdefault(key, former)

    def _mark(self) -> _Mark:
        return self._allocator.revision, self._replaced

    def _is_stale(self, key: ServiceKey) -> bool:
        """It was refused something before the last thing moved."""
        return self._refused.get(key, mark := self._mark()) != mark

    def _anyone_stale(self) -> bool:
        mark = self._mark()
        return any(asked_at != mark for asked_at in self._refused.values())


# ── What was given, in numbers ──────────────────────────────────────────────────────────────────────────────

ASSIGNED, PARTLY, REFUSED = "assigned", "partly", "refused"
MAX_FULL = 100
"""Namespaces that are counted because they have all they may of a pool, of one family."""
INVALID = "invalid"
"""Reason: what the Service asks for cannot be read."""


class Given(NamedTuple):
    """To one Service: whether anything, and the reason why not all that it asks for."""

    anything: bool
    lacks: str | None


def given(outcome: Outcome) -> Given:
    return Given(outcome.assignment is not None, outcome.refusal.reason.value if outcome.refusal is not None else None)


def tally(services: Iterable[Given], usage: Mapping[str, Mapping[Family, Usage]]) -> Tally:
    outcomes, lacking = Counter({ASSIGNED: 0, PARTLY: 0, REFUSED: 0}), Counter[str]()
    for anything, lacks in services:
        if lacks is not None:
            lacking[lacks] += 1
        outcomes[REFUSED if not anything else ASSIGNED if lacks is None else PARTLY] += 1
    pools = {
        (pool, family.value): (numbers.size, numbers.used, numbers.resting)
        for pool, families in usage.items()
        for family, numbers in families.items()
    }
    full = {
        (pool, family.value, namespace): number
        for pool, families in usage.items()
        for family, numbers in families.items()
        for namespace, number in numbers.full[:MAX_FULL]
    }
    return Tally(outcomes, lacking, pools, full)
