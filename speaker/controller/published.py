"""What a controller shows of every EIP in use and every pool, according to its decisions and the agents' records.

``Published`` sends it to a broker, ``ControllerPage`` to a page; both work while this replica leads.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from speaker.allocator.assign import Outcome
from speaker.api.records import RecordedClaim, RecordedObject, announced_eip
from speaker.cluster.feed import Store
from speaker.controller.announced import Failover
from speaker.controller.decider import Decided
from speaker.model import IPAddress, ServiceKey
from speaker.model.events import Assigned, Event, Refused, Released
from speaker.system.threads import in_thread
from speaker.system.waiting import set_within, sparing
from speaker.telemetry.mqtt import messages
from speaker.telemetry.mqtt.messages import States, Topics
from speaker.telemetry.page.document import Document, Failovers, document, eip
from speaker.telemetry.page.server import Live

if TYPE_CHECKING:  # its library need not be installed where there is no broker
    from speaker.telemetry.mqtt.publisher import Publisher

PAUSE = 0.2
"""The shortest pause between two updates, in seconds."""


class Follower(Protocol):
    """``decided`` and ``failed_over`` are called when there is news, and ``changed`` is set when records change, in the
    loop's thread. ``run`` acts on it. Endless."""

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
    """A ``Follower`` that publishes to a broker, except for failovers, which agents publish."""

    def __init__(self, says: "Publisher") -> None:
        self._says = says
        self._decided: Decided | None = None
        self._before: Mapping[ServiceKey, Outcome] | None = None
        """None: what was there before us is not news."""
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


# ── For the page ────────────────────────────────────────────────────────────────────────────────────────────

AGAIN = 10.0
"""Seconds after which problems are looked at again."""
LEADS, STANDS_BY = "controller", "standby controller:"
_NOBODYS = RecordedClaim()


class ControllerPage:
    """A ``Follower``. ``problems``: those of this process."""

    def __init__(self, identity: str, problems: Callable[[], Collection[str]]) -> None:
        self.live, self.changed = Live(), asyncio.Event()
        self._identity, self._problems, self._failovers = identity, problems, Failovers()
        self._decided: Decided | None = None
        self.stand_by()

    def stand_by(self) -> None:
        """Another replica leads: nothing is known here."""
        self._decided = None
        self.live.show(partial(document, self._identity, STANDS_BY, {}, {}, [], [*self._problems()], []))

    async def go_on_standing_by(self) -> None:
        """While this replica does not lead, looks again at the problems, as they end on their own. Endless."""
        while True:
            await asyncio.sleep(AGAIN)
            if self._decided is None:
                self.stand_by()

    def follow(self, decided: Decided) -> None:
        self._decided = decided
        self.changed.set()

    def failed_over(self, failover: Failover) -> None:
        self._failovers.add(time.time(), str(failover.eip), failover.before, failover.node, failover.unanswered)

    async def run(self, announcements: Store[RecordedObject]) -> None:
        while True:
            await set_within(self.changed, AGAIN)
            self.changed.clear()
            if self._decided is None:
                continue
            async with sparing(PAUSE):
                failovers, problems = self._failovers.told(), [*self._problems()]
                make = partial(of_controller, self._identity, self._decided, tuple(announcements), failovers, problems)
                self.live.show(make)


def of_controller(
    identity: str,
    decided: Decided,
    announcements: Iterable[RecordedObject],
    failovers: list[dict[str, Any]],
    problems: Collection[str],
) -> Document:
    """Pure. See ``document``."""
    claims = claims_of(announcements)
    eips = {
        str(address): eip(use.pool, use.services, found.holder, conflict=found.conflict, **held)
        for address, use in uses_of(decided).items()
        for found in [claims.get(address, _NOBODYS)]
        for held in [{"since": found.since, "link": found.link} if found.holder else {}]
    }
    refusals = [outcome.refusal for outcome in decided.outcomes.values() if outcome.refusal is not None]
    refused = [(str(each.service), each.reason.value, each.message) for each in refusals]
    return document(identity, LEADS, eips, decided.usage, failovers, problems, refused)
