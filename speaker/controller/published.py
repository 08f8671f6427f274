"""What a controller says to a broker: of every EIP in use and every pool, by what was decided and what agents recorded.

``Published`` follows both while one leads; ``shown`` and ``changes`` are pure, and take values only.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from speaker.allocator.assign import Outcome
from speaker.cluster.kinds import announced_eip
from speaker.cluster.mirror.store import Store
from speaker.controller.decider import Told
from speaker.controller.sweeper import HeldObject, Holder
from speaker.model import IPAddress, ServiceKey
from speaker.system.clock import boottime
from speaker.telemetry.lines import Line
from speaker.telemetry.mqtt import states
from speaker.telemetry.mqtt.topics import States, Topics

PAUSE = 0.2
"""Seconds at least between two tellings."""


class RecordedClaim(Holder, frozen=True, gc=False):
    """All of it an agent wrote, or whoever else may."""

    term: int = 0
    link: str = ""
    mac: str = ""
    since: str = ""
    conflict: str = ""


class RecordedObject(HeldObject, frozen=True, gc=False):
    """An Announcement."""

    status: RecordedClaim = RecordedClaim()


class Says(Protocol):
    """``telemetry.mqtt.publisher.Publisher`` is one."""

    topics: Topics

    def show(self, areas: Mapping[str, States | None]) -> None: ...
    def tell(self, line: Line) -> None: ...


class _Use(NamedTuple):
    pool: str
    services: list[str]


def shown(topics: Topics, told: Told, announcements: Iterable[HeldObject]) -> dict[str, States | None]:
    """By area."""
    claims = dict(_claims(announcements))
    uses: dict[IPAddress, _Use] = {}
    for key, outcome in told.outcomes.items():
        if outcome.assignment is not None:
            for address, pool in zip(outcome.assignment.addresses, outcome.assignment.pools, strict=True):
                uses.setdefault(address, _Use(pool, [])).services.append(str(key))
    eips = (
        states.eip(topics, str(address), use.pool, use.services, _claim(found), (found and found.conflict) or None)
        for address, use in uses.items()
        for found in [claims.get(address)]
    )
    return {topics.all_eips: dict(eips), topics.all_pools: states.pools(topics, told.usage)}


def _claims(announcements: Iterable[HeldObject]) -> Iterator[tuple[IPAddress, RecordedClaim]]:
    for found in announcements:
        try:
            if isinstance(found.status, RecordedClaim):
                yield announced_eip(found.metadata.name), found.status
        except ValueError:  # a name that none of us has given
            continue


def _claim(found: RecordedClaim | None) -> dict[str, object]:
    if found is None or not found.holder:
        return {"holder": None, "term": found.term if found is not None else 0}
    told = {"holder": found.holder, "term": found.term, "since": found.since, "link": found.link, "mac": found.mac}
    return {name: value[:64] if isinstance(value, str) and name != "holder" else value for name, value in told.items()}


def changes(before: Mapping[ServiceKey, Outcome], after: Mapping[ServiceKey, Outcome]) -> Iterator[Line]:
    """In the words of ``node/transitions.py``."""
    for key in before.keys() | after.keys():
        was, is_ = before.get(key), after.get(key)
        if was is is_:
            continue
        had = was.assignment.addresses if was is not None and was.assignment is not None else ()
        has = is_.assignment.addresses if is_ is not None and is_.assignment is not None else ()
        if has != had:
            event, addresses = ("assigned", has) if has else ("released", had)
            yield Line("info", event, {"service": str(key), "addresses": [str(address) for address in addresses]})
        refusal = is_.refusal if is_ is not None else None
        if refusal is not None and (was is None or was.refusal != refusal):
            fields = {"service": str(key), "reason": refusal.reason.value, "message": refusal.message}
            yield Line("warning", "refused", fields)


class Published:
    """``decided`` and ``stir`` are called as there is news, in the loop's thread; ``run`` says it."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self._told: Told | None = None
        self._before: Mapping[ServiceKey, Outcome] | None = None
        """None: what was there before us is no news."""
        self.changed = asyncio.Event()

    def decided(self, told: Told) -> None:
        self._told = told
        self.changed.set()

    async def run(self, announcements: Store[HeldObject]) -> None:
        """Endless."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            if (told := self._told) is None:
                continue
            begun = boottime()
            # In a thread, as 10,000 EIPs take their time.
            self._says.show(await asyncio.to_thread(shown, self._says.topics, told, tuple(announcements)))
            before, self._before = self._before, told.outcomes
            for line in changes(told.outcomes if before is None else before, told.outcomes):
                self._says.tell(line)
            await asyncio.sleep(max(PAUSE, 3 * (boottime() - begun)))
