"""Elections on a ``coordination.k8s.io`` Lease: reads it, writes it, and runs somebody's work while it is held.

``Elector`` says who holds it, and decides that as client-go does: what the API said and the time in, the next thing to
do out. It never compares the clocks of two machines. The holder is alive if the record has changed since I looked, by
my clock; the timestamps in it are for people. A leader counts from when it *sent* the renewal that succeeded, its
rivals from when they saw it, which is later: it stops ``duration - renew_within`` before anybody may follow it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from speaker.api.records import LeaseObject, leases_in
from speaker.cluster.client import Client
from speaker.errors import ApiRefused, EdgeError, SettingError, as_edge_error
from speaker.system.decoding import UNFIT
from speaker.system.supervise import lasting, passing
from speaker.system.waiting import boottime

LAST_TERM = 2**31 - 1
"""That ``leaseTransitions`` may be (int32). It is followed by itself: who edited a Lease ends no election."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. The defaults are client-go's; ``duration`` is what the Lease says, hence whole."""

    duration: int = 15
    renew_within: float = 10.0
    """Who could not renew for so long leads no more."""
    retry: float = 2.0
    """Between two renewals, and between two looks at somebody else's Lease."""
    request: float = 2.0
    """For one request."""

    def __post_init__(self) -> None:
        if not 0 < self.request <= self.renew_within < self.duration or not 0 < self.retry < self.renew_within:
            raise SettingError(
                f"{self}: must be 0 < retry < renew_within < duration, and a request no longer than renew_within"
            )


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease's ``spec``. ``renewed`` is its ``renewTime`` as it is written: only whether it changed matters.
    ``version``: as the API has it, to be named when it is replaced; no part of what is compared."""

    holder: str
    duration: float
    transitions: int
    renewed: str = ""
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Leadership:
    """What a leader writes under. ``term`` is the Lease's ``leaseTransitions``, higher for every later leader, and
    decides nothing; ``version`` the Lease's resourceVersion when it began."""

    term: int
    version: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do before ``until``."""

    until: float


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease, then ``looked`` or ``failed``."""


@dataclass(frozen=True, slots=True)
class Write:
    """Create the Lease, or replace it at ``over``; then ``written``, ``conflicted`` or ``failed``."""

    record: LeaseRecord
    over: str | None


Order: TypeAlias = Rest | Look | Write


class Elector:
    """One candidate for one Lease. ``now`` is seconds of one clock that never goes back."""

    def __init__(self, identity: str, timing: Timing) -> None:
        self.identity, self.timing = identity, timing
        self._record: LeaseRecord | None = None
        """The last one seen. It binds even when its Lease was deleted since: its holder does not know that yet."""
        self._version: str | None = None
        """None where there is no Lease."""
        self._changed_at = 0.0
        self._current = False
        """What we saw is the latest we can know of; not so after a conflict, a failure, or a rest."""
        self._due = float("-inf")
        self._leads_until = float("-inf")
        self._leadership: Leadership | None = None
        self._highest = -1
        """Of the transitions seen: a Lease that was deleted begins above it, so that no term comes back."""

    @property
    def leads_until(self) -> float:
        """The instant from which this candidate no longer leads unless it renews; -inf if it does not lead."""
        return self._leads_until

    def leadership(self, now: float) -> Leadership | None:
        return self._leadership if now < self._leads_until else None

    def step(self, now: float) -> Order:
        """The next thing to do. Asked again after a Rest and after each answer to the others."""
        if now < self._due:
            return Rest(self._due)
        if not self._current:
            return Look()
        record = self._record
        if record is None or (record.holder != self.identity and (not record.holder or now >= self._expiry(record))):
            return Write(self._own(self._next_term), over=self._version)
        if record.holder == self.identity:
            renewed = record.transitions if self._version is not None else self._next_term
            return Write(self._own(renewed), over=self._version)
        self._current = False
        self._due = min(now + self.timing.retry, self._expiry(record))
        return Rest(self._due)

    def looked(self, seen: LeaseRecord | None, now: float) -> None:
        """The Lease as it is, or None if there is none."""
        self._observe(seen, now)
        self._current = True

    def written(self, seen: LeaseRecord, sent_at: float, now: float) -> None:
        """The write that ``step`` ordered, sent at ``sent_at``, succeeded."""
        if self.leadership(now) is None:
            self._leadership = Leadership(seen.transitions, seen.version)
        self._observe(seen, now)
        self._current = True
        self._leads_until = sent_at + self.timing.renew_within
        self._due = sent_at + self.timing.retry

    def conflicted(self, now: float) -> None:
        """The write that ``step`` ordered was refused: the Lease is not what it was."""
        self._current = False
        self._due = now + self.timing.retry / 20

    def failed(self, now: float) -> None:
        """No answer, or one that says nothing about the Lease. A write may have been done all the same."""
        self._current = False
        self._due = now + self.timing.retry

    def resign(self, now: float) -> Write | None:
        """Leads no more from here on. The write that lets others follow at once, None where it is not ours to give."""
        self._leads_until = float("-inf")
        if self._version is None or self._record is None or self._record.holder != self.identity:
            return None
        # One second, as client-go writes it: the field must be positive.
        return Write(replace(self._own(self._record.transitions), holder="", duration=1), over=self._version)

    @property
    def _next_term(self) -> int:
        return min(self._highest + 1, LAST_TERM)

    def _own(self, transitions: int) -> LeaseRecord:
        return LeaseRecord(self.identity, self.timing.duration, transitions)

    def _expiry(self, record: LeaseRecord) -> float:
        return self._changed_at + record.duration

    def _observe(self, seen: LeaseRecord | None, now: float) -> None:
        self._version = seen.version if seen is not None else None
        if seen is None or seen.holder != self.identity:
            self._leads_until = float("-inf")
        if seen is not None:
            if seen != self._record:
                self._changed_at = now
            self._record = seen
            self._highest = max(self._highest, seen.transitions)


_CONFLICT = 409

Work: TypeAlias = Callable[[Leadership], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class LeaseName:
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    @property
    def collection(self) -> str:
        return leases_in(self.namespace)


class Deposed(EdgeError):
    """Raised when something was to be done that only the leader may do."""


class Election:
    """One candidate. ``identity`` must be nobody else's: two that share one both lead.

    ``lead`` runs once, and gives the Lease back when it ends. ``told`` hears of every request that failed; nothing
    but a bug is raised.
    """

    def __init__(
        self,
        client: Client,
        lease: LeaseName,
        identity: str,
        timing: Timing,
        *,
        told: Callable[[EdgeError], None] = lambda _: None,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._client, self._lease, self._told, self._clock = client, lease, told, clock
        self._elector = Elector(identity, timing)
        self._stored: dict[str, Any] = {}
        """The Lease as it was last read or written: what others put there is kept."""
        self._turned = asyncio.Event()
        self.answered = False
        """The API has said at least once who holds the Lease, or that nobody does."""
        self.saw: Callable[[int], None] = lambda _: None
        """Hears of the Lease's version whenever it was read or written; 0: there was none."""

    @property
    def leadership(self) -> Leadership | None:
        """None as soon as it may have been lost, whether or not anybody has noticed."""
        return self._elector.leadership(self._clock())

    def fence(self) -> float:
        """Seconds in which a leader's write must be over: its ``within``. Raises Deposed when it may not begin.

        With it nothing is *sent* too late; what is already on its way can still be carried out after that, by a server
        that was frozen. So a write also names the resourceVersion of what it was decided from.
        """
        now = self._clock()
        if self._elector.leadership(now) is None:
            raise Deposed(f"{self._lease.path}: not held by {self._elector.identity}")
        return self._elector.leads_until - now

    async def held(self) -> Leadership:
        """Waits until the Lease is held."""
        while (leadership := self.leadership) is None:
            self._turned.clear()
            await self._turned.wait()
        return leadership

    async def lead(self, work: Work) -> None:
        """Runs ``work`` while the Lease is held, and cancels it when it no longer is. Endless, as ``work`` must be."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(lasting("lease", self._hold), name=f"lease {self._lease.name}")
                group.create_task(lasting("leader", partial(self._work, work)), name=f"leader {self._lease.name}")
        finally:
            await self._resign()

    # ── Work ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self, work: Work) -> None:
        while True:
            leadership = await self.held()
            own = passing("leader's work", partial(work, leadership))
            working = asyncio.create_task(own, name=f"leader's work {self._lease.name}")
            working.add_done_callback(lambda _: self._turned.set())
            try:
                await self._until_lost(leadership, working)
            finally:
                working.cancel()
                await asyncio.wait((working,))
            if not working.cancelled():
                working.result()
                raise AssertionError("a leader's work has no end")

    async def _until_lost(self, leadership: Leadership, working: asyncio.Task[None]) -> None:
        while self.leadership == leadership and not working.done():
            self._turned.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._elector.leads_until - self._clock()):
                    await self._turned.wait()

    # ── The Lease ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _hold(self) -> None:
        while True:
            now = self._clock()
            match self._elector.step(now):
                case Rest(until):
                    await asyncio.sleep(until - now)
                case order:
                    await self._obey(order)
                    self._turned.set()

    async def _obey(self, order: Look | Write) -> None:
        try:
            if isinstance(order, Look):
                self._elector.looked(await self._read(), self._clock())
            else:
                sent_at = self._clock()
                self._elector.written(await self._write(order), sent_at, self._clock())
            self.answered = True
        except ApiRefused as error:
            if isinstance(order, Write) and _is_stale(order, error):
                self._elector.conflicted(self._clock())
            else:
                self._elector.failed(self._clock())
                self._told(error)
        except EdgeError as error:
            self._elector.failed(self._clock())
            self._told(error)

    async def _resign(self) -> None:
        # Others wait the Lease's time out if this fails; that is what it is for.
        with suppress(EdgeError):
            try:
                await self._give_back()
            except ApiRefused as error:
                if error.code != _CONFLICT:
                    raise
                # The renewal that stopping broke off was carried out all the same.
                self._elector.looked(await self._read(), self._clock())
                await self._give_back()

    async def _give_back(self) -> None:
        if (order := self._elector.resign(self._clock())) is not None:
            await self._write(order)

    async def _read(self) -> LeaseRecord | None:
        try:
            return self._taken(await self._client.get(self._lease.path, within=self._elector.timing.request))
        except ApiRefused as error:
            if not error.no_such_object:
                raise
            self.saw(0)
            return None

    async def _write(self, order: Write) -> LeaseRecord:
        within = self._elector.timing.request
        if order.over is None:
            return self._taken(await self._client.create(self._lease.collection, self._body(order, {}), within=within))
        return self._taken(await self._client.replace(self._lease.path, self._body(order, self._stored), within=within))

    def _body(self, order: Write, stored: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        former = stored.get("spec", {})
        same = former.get("holderIdentity") == order.record.holder
        spec = {
            **former,
            "holderIdentity": order.record.holder,
            "leaseDurationSeconds": order.record.duration,
            "leaseTransitions": order.record.transitions,
            "renewTime": now,
            "acquireTime": former.get("acquireTime", now) if same else now,
        }
        metadata = {**stored.get("metadata", {}), "name": self._lease.name, "namespace": self._lease.namespace}
        return {**_KIND, **stored, "metadata": metadata, "spec": spec}

    def _taken(self, body: bytes) -> LeaseRecord:
        with as_edge_error(f"{self._lease.path}: cannot be read as a Lease", (*UNFIT, ValueError)):
            self._stored = msgspec.json.decode(body)
            lease = msgspec.convert(self._stored, LeaseObject)
            version = int(lease.metadata.resource_version)
        self.saw(version)
        spec = lease.spec
        duration, transitions = spec.lease_duration_seconds or 0, spec.lease_transitions or 0
        seen = spec.holder_identity or "", duration, transitions, spec.renew_time or ""
        return LeaseRecord(*seen, lease.metadata.resource_version)


def _is_stale(order: Write, error: ApiRefused) -> bool:
    """The Lease is not what it was. What is not there where it is to be created is its namespace."""
    return error.code == _CONFLICT or (error.no_such_object and order.over is not None)


_KIND: Final = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
