"""Elections on a ``coordination.k8s.io`` Lease: reads it, writes it, and lets somebody work while it is held."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from speaker.api.records import LeaseObject, leases_in
from speaker.cluster.client import Client
from speaker.cluster.elector import Elector, Leadership, LeaseRecord, Look, Rest, Timing, Write
from speaker.errors import ApiRefused, EdgeError
from speaker.system.clock import boottime
from speaker.system.decoding import UNFIT

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
                group.create_task(self._hold(), name=f"lease {self._lease.name}")
                group.create_task(self._work(work), name=f"leader {self._lease.name}")
        finally:
            await self._resign()

    # ── Work ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self, work: Work) -> None:
        while True:
            leadership = await self.held()
            working = asyncio.create_task(work(leadership), name=f"leader's work {self._lease.name}")
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
        try:
            self._stored = msgspec.json.decode(body)
            lease = msgspec.convert(self._stored, LeaseObject)
            version = int(lease.metadata.resource_version)
        except (*UNFIT, ValueError) as error:
            raise EdgeError(f"{self._lease.path}: cannot be read as a Lease: {error}") from error
        self.saw(version)
        spec = lease.spec
        duration, transitions = spec.lease_duration_seconds or 0, spec.lease_transitions or 0
        seen = spec.holder_identity or "", duration, transitions, spec.renew_time or ""
        return LeaseRecord(*seen, lease.metadata.resource_version)


def _is_stale(order: Write, error: ApiRefused) -> bool:
    """The Lease is not what it was. What is not there where it is to be created is its namespace."""
    return error.code == _CONFLICT or (error.no_such_object and order.over is not None)


_KIND: Final = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
