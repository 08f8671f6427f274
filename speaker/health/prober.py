"""Edge: checks every target at its interval, from this node, as cheaply as possible.

One epoll object holds all connections, and the loop has one descriptor and one timer for all of them: a task and two
callbacks for each check would cost more than the check. ``judge.py`` says what a result means, ``probe.py`` how one
check goes.
"""

import asyncio
import random
import select
import socket
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from ssl import SSLContext
from typing import Protocol

from speaker.errors import EdgeError
from speaker.health.judge import Condition, Found, Result, Tally, Target, Unwell
from speaker.health.probe import Steps, checking, connecting, context, failed, request_of
from speaker.model import ServiceKey
from speaker.system.process import share
from speaker.system.supervise import Supervisor, contained
from speaker.system.threads import in_thread
from speaker.system.waiting import set_within

MAX_TARGETS = 4096
"""Those behind are not checked, and count as ready as their EndpointSlice says."""
MAX_AT_ONCE = 1024
"""Connections, or a quarter of all descriptors if those are fewer."""
TICK_SECONDS = 0.02
"""Checks that are due within it begin together."""
BATCH = 100
"""Checks that begin in one tick: some 5 ms of the loop's time."""
LATE_SECONDS = 1.0
"""A check that begins so long after it was due is counted as late."""
STOOD_SECONDS = 0.25
"""If this process did not get on for so long, what was under way says nothing of the endpoints."""
TALLY_SECONDS = 1.0
"""How often it is told what was counted."""
CA_SECONDS = 10.0
"""How often a file of a CA is read again."""

EDGE = "health checks"


class Told(Supervisor, Protocol):
    """Who hears of what fails on this host; ``node.report.Report`` is one."""

    def failed(self, edge: str, error: BaseException) -> None: ...
    def recovered(self, edge: str) -> None: ...
    def endpoints_checked(self, tally: Tally) -> None: ...


@dataclass(slots=True, eq=False)
class Watched:
    """A target, and the check of it that is under way."""

    target: Target
    family: int
    place: tuple[str, int]
    request: bytes
    services: tuple[ServiceKey, ...]
    condition: Condition = field(default_factory=Condition)
    due: float = 0.0
    """When the next check begins, on the loop's clock; 0: it is the first one."""
    deadline: float = inf
    """Of the check that is under way."""
    steps: Steps[Found] | None = None
    wrong: str = ""
    """If it gets no further in time."""
    fd: int = -1
    mask: int = 0
    followed: bool = True


class Prober:
    """``tell`` hears of the targets that became well or unwell, ``report`` of what fails here and what is counted."""

    def __init__(
        self,
        tell: Callable[[list[Watched]], None],
        report: Told,
        most: int = MAX_TARGETS,
        at_once: int = MAX_AT_ONCE,
    ) -> None:
        self._tell, self._report = tell, report
        self._most, self._at_once = most, share(4, at_once)
        self._watched: dict[Target, Watched] = {}
        self._heap: list[tuple[float, int, Watched]] = []
        """What happens next to each target: it is due, or its time is over."""
        self._number = count()
        self._due: deque[Watched] = deque()
        """Those that wait until others end."""
        self._under_way: dict[int, Watched] = {}
        """By descriptor."""
        self._contexts: dict[str, SSLContext | EdgeError] = {}
        """By the file of the CA."""
        self._poll = select.epoll()
        self._changed, self._cas_changed, self._known = (asyncio.Event() for _ in range(3))
        self._news: list[Watched] = []
        self._fails = False
        self._results: Counter[Result] = Counter()
        self._late = self._beyond = 0
        self._tally_at = 0.0

    # ── what is asked ──

    def follow(self, targets: Mapping[Target, tuple[ServiceKey, ...]]) -> None:
        """These are checked from now on, new ones at once."""
        for target in self._watched.keys() - targets.keys():
            gone = self._watched.pop(target)
            gone.followed = False
            self._end(gone)
        self._beyond = max(0, len(targets) - self._most)
        for target, services in targets.items():
            if (known := self._watched.get(target)) is not None:
                known.services = services
            elif len(self._watched) < self._most:
                family = socket.AF_INET if target.address.version == 4 else socket.AF_INET6
                place = str(target.address), target.port
                self._watched[target] = new = Watched(target, family, place, request_of(target), services)
                self._due.append(new)
        self._known.clear()
        self._see_whether_known()
        self._changed.set()
        self._cas_changed.set()

    async def known(self, seconds: float) -> None:
        """Returns when every target was checked, or after so long."""
        await set_within(self._known, seconds)

    def _see_whether_known(self) -> None:
        if all(each.condition.well is not None for each in self._watched.values()):
            self._known.set()

    @property
    def unwell(self) -> Unwell:
        """Also what was not checked yet."""
        return {each.target: each.condition.words for each in self._watched.values() if not each.condition.well}

    # ── the loop ──

    async def run(self) -> None:
        """Endless."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._poll.fileno(), self._ready)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_cas(), name="CAs of health checks")
                while True:
                    at = self._next(loop.time())
                    await set_within(self._changed, None if at == inf else at - loop.time())
                    self._changed.clear()
                    self._turn(loop.time(), stood=loop.time() > at + STOOD_SECONDS)
        finally:
            loop.remove_reader(self._poll.fileno())
            for each in (*self._under_way.values(),):
                self._give_up(each)

    def _next(self, now: float) -> float:
        first = self._heap[0][0] if self._heap else inf
        return now + TICK_SECONDS if self._due else max(first, now + TICK_SECONDS)

    def _turn(self, now: float, *, stood: bool = False) -> None:
        """``stood``: this process did not get on for a while."""
        self._ready()
        if stood:
            for each in (*self._under_way.values(),):
                self._give_up(each)
        while self._heap and self._heap[0][0] <= now:
            _, _, watched = heappop(self._heap)
            if watched.followed:
                self._happens(watched, now)
        for _ in range(min(BATCH, len(self._due))):
            if len(self._under_way) >= self._at_once:
                break
            if (watched := self._due.popleft()).followed:
                self._begin(watched, now)
        self._say()
        if now >= self._tally_at or not self._watched:
            states = Counter(each.condition.well for each in self._watched.values())
            self._report.endpoints_checked(Tally(self._results, states, self._late, self._beyond))
            self._results, self._late, self._tally_at = Counter(), 0, now + TALLY_SECONDS

    def _happens(self, watched: Watched, now: float) -> None:
        if watched.steps is not None and watched.deadline <= now:
            self._hear(watched, Found(Result.TIMEOUT, f"{watched.wrong} within {watched.target.check.timeout:g}s"))
        if watched.steps is not None:  # the next one is due, and waits for this one
            self._push(min(watched.deadline, now + watched.target.check.interval), watched)
        elif watched.due > now:
            self._push(watched.due, watched)
        else:
            self._due.append(watched)

    def _begin(self, watched: Watched, now: float) -> None:
        check = watched.target.check
        tls = self._contexts.get(check.ca) if check.kind == "https" else None
        if tls is None and check.kind == "https":  # not read yet
            self._push(now + TICK_SECONDS, watched)
            return
        self._late += 0 < watched.due <= now - LATE_SECONDS
        # Those that begin together with their first check spread over the interval with their second.
        pause = check.interval if watched.due else random.uniform(0, check.interval)  # noqa: S311
        watched.due = now + pause + random.uniform(0, check.jitter)  # noqa: S311
        watched.deadline = now + check.timeout
        self._push(min(watched.due, watched.deadline), watched)
        with contained(EDGE, self._report):
            self._connect(watched, tls)

    def _connect(self, watched: Watched, tls: SSLContext | EdgeError | None) -> None:
        if isinstance(tls, EdgeError):
            self._hear(watched, Found(Result.HERE, str(tls)))
            return
        try:
            sock = connecting(watched.family, watched.place)
        except EdgeError as error:  # says nothing of the endpoint
            self._fails = True
            self._report.failed(EDGE, error)
            return
        except OSError as error:
            self._hear(watched, failed(error))
            return
        if self._fails:
            self._fails = False
            self._report.recovered(EDGE)
        watched.steps = checking(sock, watched.target.check, watched.request, tls)
        watched.fd, watched.mask = sock.fileno(), 0
        self._under_way[watched.fd] = watched
        self._step(watched, None)

    def _ready(self) -> None:
        for fd, mask in self._poll.poll(0):
            if (watched := self._under_way.get(fd)) is not None:
                with contained(EDGE, self._report):
                    self._step(watched, mask)
        self._say()

    def _step(self, watched: Watched, mask: int | None) -> None:
        """``mask``: what happened to its descriptor; None: it begins."""
        assert watched.steps is not None
        try:
            wait = next(watched.steps) if mask is None else watched.steps.send(mask)
        except StopIteration as end:
            self._hear(watched, end.value)
            return
        except BaseException:
            self._end(watched)
            raise
        if not watched.mask:
            self._poll.register(watched.fd, wait.mask)
        elif watched.mask != wait.mask:
            self._poll.modify(watched.fd, wait.mask)
        watched.mask, watched.wrong = wait.mask, wait.wrong

    def _end(self, watched: Watched) -> None:
        if watched.steps is not None:
            del self._under_way[watched.fd]
            watched.steps.close()  # with its socket, which the kernel takes off the epoll object
            watched.steps = None

    def _give_up(self, watched: Watched) -> None:
        """Without a result."""
        self._end(watched)
        watched.due = 0.0

    def _hear(self, watched: Watched, found: Found) -> None:
        self._end(watched)
        self._results[found.result] += 1
        if watched.condition.hear(found, watched.target.check):
            self._news.append(watched)

    def _say(self) -> None:
        if self._news:
            news, self._news = self._news, []
            self._see_whether_known()
            self._tally_at = 0.0
            self._changed.set()
            self._tell(news)

    def _push(self, when: float, watched: Watched) -> None:
        heappush(self._heap, (when, next(self._number), watched))

    async def _read_cas(self) -> None:
        """Endless. A file that cannot be read again keeps what it held."""
        while True:
            checks = (target.check for target in self._watched)
            cas = {check.ca for check in checks if check.kind == "https"}
            self._contexts = {ca: found for ca, found in self._contexts.items() if ca in cas}
            for ca in cas:
                try:
                    self._contexts[ca] = await in_thread(context, ca)
                except EdgeError as error:
                    if not isinstance(self._contexts.get(ca), SSLContext):
                        self._contexts[ca] = error
            await set_within(self._cas_changed, CA_SECONDS if any(cas) else None)
            self._cas_changed.clear()
