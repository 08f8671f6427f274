"""The page of a controller: of what it decided while it leads, and of what agents recorded."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from speaker.api.records import RecordedClaim, RecordedObject
from speaker.cluster.mirror.store import Store
from speaker.controller.decider import Decided
from speaker.controller.failovers import Failover
from speaker.controller.published import claims_of, uses_of
from speaker.system.waiting import set_within, sparing
from speaker.telemetry.page.document import Document, Failovers, document, eip
from speaker.telemetry.page.server import Live

PAUSE = 0.2
"""Seconds at least between two looks at what changed."""
AGAIN = 10.0
"""Seconds after which problems are looked at again."""
LEADS, STANDS_BY = "controller", "controller that stands by:"
_NOBODYS = RecordedClaim()


class ControllerPage:
    """A ``published.Follower``. ``problems`` are those of this process."""

    def __init__(self, identity: str, problems: Callable[[], Collection[str]]) -> None:
        self.live, self.changed = Live(), asyncio.Event()
        self._identity, self._problems, self._failovers = identity, problems, Failovers()
        self._decided: Decided | None = None
        self.stand_by()

    def stand_by(self) -> None:
        """Somebody else leads: here nothing is known."""
        self._decided = None
        self.live.show(partial(document, self._identity, STANDS_BY, {}, {}, [], [*self._problems()], []))

    async def go_on_standing_by(self) -> None:
        """Looks at the problems again, which end by themselves, while this replica does not lead. Endless."""
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
    """Pure: as ``document`` has it."""
    claims = claims_of(announcements)
    eips = {
        str(address): eip(use.pool, use.services, found.holder, found.since if found.holder else "", found.conflict)
        for address, use in uses_of(decided).items()
        for found in [claims.get(address, _NOBODYS)]
    }
    refusals = [outcome.refusal for outcome in decided.outcomes.values() if outcome.refusal is not None]
    refused = [(str(each.service), each.reason.value, each.message) for each in refusals]
    return document(identity, LEADS, eips, decided.usage, failovers, problems, refused)
