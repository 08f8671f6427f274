"""Edge: the API's records. What they say goes to the wire process, and what its machine orders is written.

The writer also keeps the parts of a record that are for people up to date.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec
import structlog

from speaker.agent.mirrors import AGAIN_SECONDS
from speaker.agent.record import Facts, correction, creation, eip_of, is_made_up, path_of, read_record, update
from speaker.api.records import ANNOUNCEMENTS, AnnouncementObject
from speaker.cluster.client import REQUEST, Client
from speaker.cluster.feed import Change, Store
from speaker.errors import ApiRefused, EdgeError, as_edge_error
from speaker.model import IPAddress
from speaker.ownership.events import Record, WriteRecord, gone
from speaker.system.decoding import UNFIT
from speaker.system.supervise import Supervisor, contained, lasting
from speaker.system.waiting import time_of_day
from speaker.wire.remote import A_SLICE, Wire

log = structlog.get_logger()

Tell: TypeAlias = Callable[[Wire], Awaitable[None]]
"""Tells the wire process something, in its turn."""


class AnnouncementReader:
    """``stored``: what the mirror of Announcements knows. ``outgoing`` takes what the wire process is to be told, in
    order. ``changed`` hears of each delivery, and whether ``made_up`` may have changed."""

    def __init__(
        self,
        stored: Callable[[], Store[AnnouncementObject]],
        outgoing: asyncio.Queue[Tell],
        changed: Callable[[bool], None],
        supervisor: Supervisor,
    ) -> None:
        self._stored, self._outgoing, self._changed, self._supervisor = stored, outgoing, changed, supervisor
        self.made_up: set[str] = set()
        """Names of records whose term no agent wrote."""

    def saw(self, changes: tuple[Change[AnnouncementObject], ...]) -> None:
        async def tell(wire: Wire) -> None:
            unread: list[Change[AnnouncementObject]] = []
            # A list brings all of them at once, and there is other work to do in between.
            for at in range(0, len(changes), A_SLICE):
                await wire.records(list(self._records_of(changes[at : at + A_SLICE], unread)))
            if unread:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._see_again, tuple(unread))

        self._outgoing.put_nowait(tell)
        before = len(self.made_up)
        for change in changes:
            self.made_up.discard(change.key.name)
            if change.after is not None and is_made_up(change.after):
                self.made_up.add(change.key.name)
        self._changed(bool(self.made_up or before))

    def saw_all(self, version: str, restored: bool) -> None:
        """A list shows which objects known to the mirror are gone. Records that we, or an earlier main process, wrote
        meanwhile may have been deleted without showing. ``restored``: the list is of other data, whose versions may be
        lower than those that the wire process knows."""
        at = int(version)

        async def tell(wire: Wire) -> None:
            there = {eip_of(found) for found in self._stored()}
            lacking = [eip for eip in await wire.recorded() if eip not in there]
            await wire.records([(eip, gone(at)) for eip in lacking])

        if restored:
            self._outgoing.put_nowait(lambda wire: wire.restored())
            self.saw(tuple(Change(found.key, None, found) for found in self._stored()))
        self._outgoing.put_nowait(tell)

    def problems(self) -> Iterator[str]:
        for name in sorted(self.made_up):
            yield f"Announcement/{name}: its term is higher than any agent's: it is ignored and will be overwritten"

    def _records_of(
        self, changes: Iterable[Change[AnnouncementObject]], unread: list[Change[AnnouncementObject]]
    ) -> Iterator[tuple[IPAddress, Record]]:
        """A record that meets a bug of ours goes to ``unread``, and does not keep others from being heard."""
        for change in changes:
            with contained("hand on", self._supervisor):
                if (told := _record(change)) is not None:
                    yield told
                continue
            unread.append(change)

    def _see_again(self, changes: tuple[Change[AnnouncementObject], ...]) -> None:
        """Reads these records again, as they are now."""
        now = ((change, self._stored().get(change.key)) for change in changes)
        self.saw(tuple(change if found is None else Change(change.key, None, found) for change, found in now))


def _record(change: Change[AnnouncementObject]) -> tuple[IPAddress, Record] | None:
    """None if its name is not that of an EIP."""
    found = change.after or change.before
    if found is None or (eip := eip_of(found)) is None:
        return None
    record = read_record(found)
    return eip, record if change.after is not None else gone(record.version)


# ── What the machine orders, on its way to the API ──────────────────────────────────────────────────────────

WORKERS = 32
"""Records written at a time."""

_decode = msgspec.json.Decoder(AnnouncementObject).decode


class _Failure(NamedTuple):
    """``order``: what was to be written; None: only the part for people was to be corrected."""

    words: str
    order: WriteRecord | None

    def is_over(self, found: AnnouncementObject) -> bool:
        """The record says what was ordered: the answer was lost, or it has become so since."""
        order, status = self.order, found.status
        if order is None:
            return True
        said = status.holder, status.incarnation
        return said == (order.holder, order.incarnation) and status.term >= order.term


class AnnouncementWriter:
    """``facts`` says what people want to know about an EIP held by this node or by nobody. ``told`` hears of each
    failure, and of each success as None. ``supervisor`` hears of a bug, which ends only the order that meets it.

    The machine gives up an order after ``deadline`` seconds, so one that has waited here for so long is not sent. Once
    an order is sent, its answer is waited for, as the record that it finds is news at any time.
    """

    def __init__(
        self,
        client: Client,
        deadline: float,
        facts: Callable[[IPAddress, bool], Facts | None],
        told: Callable[[EdgeError | None], None],
        supervisor: Supervisor,
    ) -> None:
        self._client, self._deadline, self._facts, self._told = client, deadline, facts, told
        self._supervisor = supervisor
        self._orders: asyncio.Queue[tuple[WriteRecord, float]] = asyncio.Queue()
        self._failing: dict[IPAddress, _Failure] = {}
        """EIPs whose records cannot be written; others go on."""
        self._said = ""
        """The words that were reported last."""

    def take(self, order: WriteRecord) -> None:
        self._orders.put_nowait((order, time.monotonic() + self._deadline))

    async def run(self, wire: Wire) -> None:
        """Endless."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                work = lasting("record writer", partial(self._work, wire))
                workers.create_task(work, name=f"record writer {number}")

    async def _work(self, wire: Wire) -> None:
        while True:
            order, due = await self._orders.get()
            if time.monotonic() < due:
                with contained("records", self._supervisor):
                    await self._carry_out(order, wire)

    async def _carry_out(self, order: WriteRecord, wire: Wire) -> None:
        try:
            succeeded, record = await self._write(order)
        except EdgeError as error:
            self._failed(order.eip, error, order)
        else:
            self._succeeded(order.eip)
            await wire.written(order, succeeded, record)

    def _failed(self, eip: IPAddress, error: EdgeError, order: WriteRecord | None = None) -> None:
        """Each failure is reported once, and one of them whenever it fails again: that counts it, while other words
        would be news."""
        words, known = str(error), self._failing.get(eip)
        if known is None or known.words != words or self._said == words or not self._fails_still(self._said):
            self._said = words
            self._told(error)
        self._failing[eip] = _Failure(words, order or (known.order if known is not None else None))

    def _fails_still(self, words: str) -> bool:
        return any(failure.words == words for failure in self._failing.values())

    def _succeeded(self, eip: IPAddress) -> None:
        self._go_on_failing(each for each in self._failing if each != eip and self._facts(each, True) is not None)

    def only(self, eips: Collection[IPAddress]) -> None:
        """Failures of other EIPs are over: somebody else writes their records."""
        if self._failing:
            self._go_on_failing(each for each in self._failing if each in eips)

    def _go_on_failing(self, eips: Iterable[IPAddress]) -> None:
        self._failing = {each: self._failing[each] for each in eips}
        if not self._failing:
            self._told(None)

    async def _write(self, order: WriteRecord) -> tuple[bool, Record]:
        path, facts = path_of(order.eip), self._facts(order.eip, bool(order.holder))
        at = time_of_day()
        try:
            if order.expected:
                return True, _read(await self._client.patch(path, update(order, facts, at)))
            return True, _read(await self._client.create(ANNOUNCEMENTS, creation(order, facts, at)))
        except ApiRefused as error:
            if error.no_such_object:
                return False, gone(order.expected)
            if error.code != 409:
                raise
        return False, await self._look(path, order.expected)

    async def _look(self, path: str, version: int) -> Record:
        try:
            return _read(await self._client.get(path))
        except ApiRefused as error:
            if not error.no_such_object:
                raise
            return gone(version)

    async def correct(self, ours: Sequence[AnnouncementObject]) -> None:
        """One after the other, as nobody waits for it, and a failed correction is found again the next time."""
        for at, found in enumerate(ours):
            if at % A_SLICE == 0:
                await asyncio.sleep(0)
            with contained("correct", self._supervisor):
                await self._correct(found)

    async def _correct(self, found: AnnouncementObject) -> None:
        eip = eip_of(found)
        facts = self._facts(eip, True) if eip is not None else None
        if eip is None or facts is None:
            return
        if (patch := correction(found, facts)) is None:
            if eip in self._failing and self._failing[eip].is_over(found):
                self._succeeded(eip)
            return
        try:
            await self._client.patch(path_of(eip), patch, within=REQUEST)
        except EdgeError as error:
            if not (isinstance(error, ApiRefused) and error.outdated):
                self._failed(eip, error)
        else:
            self._succeeded(eip)


def _read(body: bytes) -> Record:
    with as_edge_error("cannot be read as an Announcement", UNFIT):
        return read_record(_decode(body))
