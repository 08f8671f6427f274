"""What the API's records say, on its way to the wire process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeAlias

import structlog

from speaker.agent.delivery import AGAIN_SECONDS
from speaker.agent.record import eip_of, is_made_up, read_record
from speaker.api.records import AnnouncementObject
from speaker.cluster.mirror.store import Change, Store
from speaker.model import IPAddress
from speaker.ownership.events import Record, gone
from speaker.system.supervise import Supervisor, contained
from speaker.wire.remote import A_SLICE, Wire

log = structlog.get_logger()

Tell: TypeAlias = Callable[[Wire], Awaitable[None]]
"""Something that the wire process is told, in its turn."""


class AnnouncementReader:
    """``stored`` is what the mirror of Announcements knows; ``hand_on`` takes what the wire process is to be told, in
    order; ``changed`` hears of each delivery, and whether ``made_up`` may be another."""

    def __init__(
        self,
        stored: Callable[[], Store[AnnouncementObject]],
        hand_on: Callable[[Tell], None],
        changed: Callable[[bool], None],
        supervisor: Supervisor,
    ) -> None:
        self._stored, self._hand_on, self._changed, self._supervisor = stored, hand_on, changed, supervisor
        self.made_up: set[str] = set()
        """Names of those whose term no agent wrote."""

    def saw(self, changes: tuple[Change[AnnouncementObject], ...]) -> None:
        async def tell(wire: Wire) -> None:
            unread: list[Change[AnnouncementObject]] = []
            # A list brings all of them at once; there is other work to do in between.
            for at in range(0, len(changes), A_SLICE):
                await wire.records(list(self._records_of(changes[at : at + A_SLICE], unread)))
            if unread:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._see_again, tuple(unread))

        self._hand_on(tell)
        before = len(self.made_up)
        for change in changes:
            self.made_up.discard(change.key.name)
            if change.after is not None and is_made_up(change.after):
                self.made_up.add(change.key.name)
        self._changed(bool(self.made_up or before))

    def saw_all(self, version: str, restored: bool) -> None:
        """A list tells what is gone of what the mirror knew. What we wrote meanwhile, or a main process before us, may
        have been deleted without it. ``restored``: the list is of other data, whose versions may be lower than those
        that the wire process knows."""
        at = int(version)

        async def tell(wire: Wire) -> None:
            there = {eip_of(found) for found in self._stored()}
            lacking = [eip for eip in await wire.recorded() if eip not in there]
            await wire.records([(eip, gone(at)) for eip in lacking])

        if restored:
            self._hand_on(lambda wire: wire.restored())
            self.saw(tuple(Change(found.key, None, found) for found in self._stored()))
        self._hand_on(tell)

    def problems(self) -> Iterator[str]:
        for name in sorted(self.made_up):
            yield f"Announcement/{name}: its term is higher than any agent's: it is ignored and written again"

    def _records_of(
        self, changes: Iterable[Change[AnnouncementObject]], unread: list[Change[AnnouncementObject]]
    ) -> Iterator[tuple[IPAddress, Record]]:
        """One that meets a bug of ours is ``unread``, and keeps no other from being heard."""
        for change in changes:
            with contained("hand on", self._supervisor):
                if (told := _record(change)) is not None:
                    yield told
                continue
            unread.append(change)

    def _see_again(self, changes: tuple[Change[AnnouncementObject], ...]) -> None:
        """As they are now."""
        now = ((change, self._stored().get(change.key)) for change in changes)
        self.saw(tuple(change if found is None else Change(change.key, None, found) for change, found in now))


def _record(change: Change[AnnouncementObject]) -> tuple[IPAddress, Record] | None:
    """None where its name is no EIP's."""
    found = change.after or change.before
    if found is None or (eip := eip_of(found)) is None:
        return None
    record = read_record(found)
    return eip, record if change.after is not None else gone(record.version)
