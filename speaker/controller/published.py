"""What a controller says to a broker: of every EIP in use and every pool, by what was decided and what agents recorded.

``Published`` follows both while one leads; ``shown`` and ``changes`` are pure, and take values only.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from speaker.allocator.assign import Outcome
from speaker.api.records import RecordedClaim, RecordedObject, announced_eip
from speaker.cluster.mirror.store import Store
from speaker.controller.decider import Decided
from speaker.controller.failovers import Failover
from speaker.model import IPAddress, ServiceKey
from speaker.model.events import Assigned, Event, Refused, Released
from speaker.system.threads import in_thread
from speaker.system.waiting import sparing
from speaker.telemetry.mqtt import messages
from speaker.telemetry.mqtt.messages import States, Topics

PAUSE = 0.2
"""Seconds at least between two tellings."""


class Says(Protocol):
    """``telemetry.mqtt.publisher.Publisher`` is one."""

    topics: Topics

    def show(self, areas: Mapping[str, States | None]) -> None: ...
    def tell(self, happened: object) -> None: ...


class Follower(Protocol):
    """``decided`` and ``failed_over`` are called as there is news, and ``changed`` is set as records change, in the
    loop's thread; ``run`` does something about it. Endless."""

    changed: asyncio.Event

    def follow(self, decided: Decided) -> None: ...
    def failed_over(self, failover: Failover) -> None: ...
    async def run(self, announcements: Store[RecordedObject]) -> None: ...


class Use(NamedTuple):
    pool: str
    services: list[str]


def shown(topics: Topics, decided: Decided, announcements: Iterable[RecordedObject]) -> dict[str, States | None]:
    """By area."""
    claims = claims_of(announcements)
    eips = (
        messages.eip(topics, str(address), use.pool, use.services, _claim(found), (found and found.conflict) or None)
        for address, use in uses_of(decided).items()
        for found in [claims.get(address)]
    )
    return {topics.all_eips: dict(eips), topics.all_pools: messages.pools(topics, decided.usage)}


def uses_of(decided: Decided) -> dict[IPAddress, Use]:
    """Every EIP in use."""
    uses: dict[IPAddress, Use] = {}
    for key, outcome in decided.outcomes.items():
        if outcome.assignment is not None:
            for address, pool in zip(outcome.assignment.addresses, outcome.assignment.pools, strict=True):
                uses.setdefault(address, Use(pool, [])).services.append(str(key))
    return uses


def claims_of(announcements: Iterable[RecordedObject]) -> dict[IPAddress, RecordedClaim]:
    named = ((announced_eip(found.metadata.name), found.status) for found in announcements)
    return {eip: claim for eip, claim in named if eip is not None}


def _claim(found: RecordedClaim | None) -> dict[str, object]:
    if found is None or not found.holder:
        return {"holder": None, "term": found.term if found is not None else 0}
    return {"holder": found.holder, "term": found.term, "since": found.since, "link": found.link, "mac": found.mac}


def changes(before: Mapping[ServiceKey, Outcome], after: Mapping[ServiceKey, Outcome]) -> Iterator[Event]:
    for key in before.keys() | after.keys():
        was, is_ = before.get(key), after.get(key)
        if was is is_:
            continue
        had = was.assignment.addresses if was is not None and was.assignment is not None else ()
        has = is_.assignment.addresses if is_ is not None and is_.assignment is not None else ()
        if has != had:
            yield Assigned(key, has) if has else Released(key, had)
        refusal = is_.refusal if is_ is not None else None
        if refusal is not None and (was is None or was.refusal != refusal):
            yield Refused(key, refusal.reason.value, refusal.message)


class Published:
    """A ``Follower``: says it to a broker, but for failovers, of which agents tell."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self._decided: Decided | None = None
        self._before: Mapping[ServiceKey, Outcome] | None = None
        """None: what was there before us is no news."""
        self.changed = asyncio.Event()

    def follow(self, decided: Decided) -> None:
        self._decided = decided
        self.changed.set()

    def failed_over(self, _: Failover) -> None:
        pass

    async def run(self, announcements: Store[RecordedObject]) -> None:
        """Endless."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            if (decided := self._decided) is None:
                continue
            async with sparing(PAUSE):
                # In a thread, as 10,000 EIPs take their time.
                self._says.show(await in_thread(shown, self._says.topics, decided, tuple(announcements)))
                before, self._before = self._before, decided.outcomes
                for event in changes(decided.outcomes if before is None else before, decided.outcomes):
                    self._says.tell(event)
