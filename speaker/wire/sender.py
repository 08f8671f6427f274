"""What happens in the wire process, on its way to the main process."""

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum

from speaker.layer2.answer import Ignored
from speaker.model import Family, IPAddress, Link, Mac, Placement, Speaker
from speaker.ownership.events import NameFree, PeersAddress, WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.system.supervise import described
from speaker.system.waiting import tick
from speaker.wire.messages import (
    Announcements,
    Answers,
    BugMet,
    BugsMetAgain,
    Conflict,
    Countable,
    Counts,
    EdgeFailed,
    EdgeRecovered,
    EipClaimed,
    EipYielded,
    HellosFiltered,
    HellosReceived,
    HellosSent,
    Ignorings,
    JoinFailed,
    LifeBegan,
    LinkLost,
    Namesake,
    PeerChanged,
    PeersClaims,
    PeersCounted,
    SendFailures,
    Silenced,
    SpeakerSeen,
    WasFrozen,
    WireEvent,
)

MAIN_TASK = "main process"
"""What a main process that did not get on counts as among the errors that nobody foresaw."""
MAX_FAILURES = 100
"""Of links, that wait for somebody who listens; further ones are not told."""
MAX_DELAYS = 1000
"""That wait to be told; of more only the longest is."""
COUNT_SECONDS = 2.0
"""Counts are handed on so long after the first of them at most, and when whoever reads them wakes anyway."""


class EventSender:
    """Sends transitions at once and counts a few times a second. An ``OwnerEvents`` and a ``RecordSink``."""

    def __init__(
        self,
        send: Callable[[WireEvent], None],
        read: Callable[[], bool] = lambda: True,
        listened: Callable[[], bool] = lambda: True,
    ) -> None:
        """``read``: whoever is told keeps up; counts wait until it does. ``listened``: there is somebody."""
        self._send, self._read, self._listened = send, read, listened
        self._untold: dict[IPAddress, EipClaimed] = {}
        """Claims that stand and that nobody heard of."""
        self._counts: Counter[Countable] = Counter()
        self._delays: list[tuple[float, float]] = []
        self._counted = asyncio.Event()
        """There is something to hand on."""
        self._bugs: set[tuple[str, str]] = set()
        """Task and place of those that were told."""
        self._untold_bugs: dict[tuple[str, str], BugMet] = {}
        """By task and place: the first of each that was met while nobody listened."""
        self._untold_freezes = 0
        self._untold_failures: list[LinkLost | JoinFailed] = []
        self._ending = False

    async def run(self) -> None:
        """Endless."""
        while True:
            await self._counted.wait()
            await tick(COUNT_SECONDS)
            self.flush()

    def flush(self) -> None:
        if (self._counts or self._delays) and self._read():
            self._send(Counts(dict(self._counts), self._delays))
            self._counts.clear()
            self._delays = []
            self._counted.clear()

    def start_over(self) -> None:
        """Somebody else listens from now on."""
        self._bugs.clear()

    def retell(self) -> None:
        """What was claimed while nobody listened, with the seconds that it took then, how often this process froze,
        what failed, and the bugs that were met."""
        untold, self._untold = self._untold, {}
        bugs, self._untold_bugs = self._untold_bugs, {}
        freezes, self._untold_freezes = self._untold_freezes, 0
        failures, self._untold_failures = self._untold_failures, []
        self._bugs |= bugs.keys()
        for _ in range(freezes):
            self._send(WasFrozen())
        for event in untold.values():
            self._send(event)
        for failure in failures:
            self._send(failure)
        for bug in bugs.values():
            self._send(bug)

    def end(self) -> None:
        """Who listens is asked to end as well: what is met from now on is among the ``last_words``."""
        self._ending = True

    def last_words(self) -> tuple[list[BugMet | LinkLost | JoinFailed], dict[str, int]]:
        """What nobody will be told of any more, and how many more bugs were met, by task."""
        again = {what.task: count for what, count in self._counts.items() if isinstance(what, BugsMetAgain)}
        return [*self._untold_bugs.values(), *self._untold_failures], again

    # ── counts ──

    def _count(self, what: Countable, count: int) -> None:
        self._counts[what] += count
        self._counted.set()

    def answered(self, family: Family, count: int) -> None:
        self._count(Answers(family), count)

    def ignored(self, family: Family, reason: Ignored, count: int) -> None:
        self._count(Ignorings(family, reason), count)

    def announced(self, family: Family, count: int) -> None:
        self._count(Announcements(family), count)

    def send_failed(self, family: Family, count: int) -> None:
        self._count(SendFailures(family), count)

    def hellos_sent(self, link: str, left: bool, count: int) -> None:
        self._count(HellosSent(link, left), count)

    def hellos_received(self, link: str, rejected: Enum | None, count: int) -> None:
        self._count(HellosReceived(link, rejected), count)

    def peers_claims(self) -> None:
        self._count(PeersClaims(), 1)

    def loop_delay(self, late: float, busy: float) -> None:
        self._delays.append((late, busy))
        self._counted.set()
        if len(self._delays) > MAX_DELAYS:
            self._delays = [(max(late for late, _ in self._delays), max(busy for _, busy in self._delays))]

    # ── transitions ──

    def claimed(
        self, address: IPAddress, placement: Placement, term: int, before: str | None, unanswered: float | None = None
    ) -> None:
        event = EipClaimed(address, placement, term, before, unanswered)
        if self._listened():
            self._send(event)
        else:
            self._untold[address] = event

    def yielded(self, address: IPAddress, reason: str, holder: str | None) -> None:
        self._untold.pop(address, None)
        self._send(EipYielded(address, reason, holder))

    def frozen(self) -> None:
        if self._listened():
            self._send(WasFrozen())
        else:
            self._untold_freezes += 1

    def peer(self, node: str, link: Link, alive: bool) -> None:
        self._send(PeerChanged(node, link, alive))

    def peers(self, link: str, number: int, silent: int) -> None:
        self._send(PeersCounted(link, number, silent))

    def speaker(self, link: int, node: str, speaker: Speaker) -> None:
        self._send(SpeakerSeen(link, node, speaker))

    def lost_link(self, link: Link, error: str) -> None:
        self._failed(LinkLost(link, error))

    def join_failed(self, error: Exception) -> None:
        self._failed(JoinFailed(str(error)))

    def _failed(self, event: LinkLost | JoinFailed) -> None:
        if self._listened():
            self._send(event)
        elif len(self._untold_failures) < MAX_FAILURES:
            self._untold_failures.append(event)

    def conflict(self, link: Link, address: IPAddress, mac: Mac, held: bool) -> None:
        self._send(Conflict(link, address, mac, held))

    def peers_address(self, address: IPAddress, node: str | None) -> None:
        self._send(PeersAddress(address, node))

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None:
        self._send(Namesake(link, mac, silent))

    def name_free(self) -> None:
        self._send(NameFree())

    def hellos_filtered(self, link: Link, node: str, mac: Mac, eips: frozenset[IPAddress]) -> None:
        self._send(HellosFiltered(link, node, mac, eips))

    def failed(self, edge: str, error: str) -> None:
        self._send(EdgeFailed(edge, error))

    def recovered(self, edge: str) -> None:
        self._send(EdgeRecovered(edge))

    def internal_error(self, task: str, error: BaseException) -> None:
        """The first from one line of code with its traceback, further ones by their number."""
        words, place, trace = described(error)
        key, bug, listened = (task, place), BugMet(task, words, place, trace), self._listened()
        if key in (self._bugs if listened else self._untold_bugs):
            self._count(BugsMetAgain(task), 1)
        elif listened:
            self._bugs.add(key)
            self._send(bug)
        if not listened or self._ending:
            self._untold_bugs.setdefault(key, bug)

    def replaced(self, words: str, stacks: str) -> None:
        """A main process did not get on; the next one tells of it. ``stacks``: where its threads and loops stood."""
        self._untold_bugs[MAIN_TASK, words] = BugMet(MAIN_TASK, words, "the main process", stacks)

    # ── records ──

    def incarnation(self, number: Incarnation) -> None:
        self._send(LifeBegan(number))

    def silence(self) -> None:
        self._send(Silenced())

    def write_record(self, order: WriteRecord) -> None:
        self._send(order)
