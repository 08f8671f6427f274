"""An API server that is slow, stale or gone, as far as records and Leases go."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

from simulation.clock import Clock, Trace
from simulation.host import Host
from simulation.schedule import Schedule
from speaker.model import IPAddress
from speaker.ownership.events import ApiDown, ApiUp, LeaseSeen, Record, RecordRead, RecordWritten, WriteRecord, gone
from speaker.ownership.hello import Incarnation


class ApiServer:
    def __init__(
        self,
        clock: Clock,
        trace: Trace,
        schedule: Schedule,
        random: Random,
        hosts: list[Host],
        eips: list[IPAddress],
    ) -> None:
        self._clock, self._trace, self._schedule, self._random = clock, trace, schedule, random
        self._hosts, self._eips = hosts, eips
        self._version = 0
        self.records: dict[IPAddress, Record] = {}
        self.writes: Counter[IPAddress] = Counter()
        """That succeeded."""

    def _travel(self) -> float:
        return self._random.uniform(*self._schedule.api_delay) / 2

    # ── Writes ────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, host: Host, order: WriteRecord) -> None:
        life = host.life
        if not host.api_cuts:
            self._clock.after(self._travel(), lambda: self._apply(host, life, order))

    def _apply(self, host: Host, life: int, order: WriteRecord) -> None:
        if host.api_cuts:
            return
        old = self.records.get(order.eip)
        succeeded = (old.version if old else 0) == order.expected
        if succeeded:
            self._version += 1
            self.writes[order.eip] += 1
            new = Record(order.holder, order.incarnation, order.term, self._version)
            self.records[order.eip] = new
            self._trace.say(f"  record {order.eip} := {order.holder} term {order.term}")
            self._watched(lambda other: other.tell(RecordRead(order.eip, new)))
        reply = RecordWritten(order.eip, order.attempt, succeeded, self.records.get(order.eip, gone(order.expected)))
        self._reply(host, life, lambda: host.tell(reply))

    # ── Meddling ──────────────────────────────────────────────────────────────────────────────────────────────

    def touch(self, eip: IPAddress) -> None:
        """A write that changes nothing but the version."""
        if eip in self.records:
            self._version += 1
            touched = self.records[eip] = replace(self.records[eip], version=self._version)
            self._watched(lambda other: other.tell(RecordRead(eip, touched)))

    def forge(self, eip: IPAddress, holder: str | None, term: int, incarnation: int) -> None:
        """Somebody who is no agent writes the record."""
        self._version += 1
        forged = self.records[eip] = Record(holder, Incarnation(incarnation), term, self._version)
        self._watched(lambda other: other.tell(RecordRead(eip, forged)))

    def delete(self, eip: IPAddress) -> None:
        if (deleted := self.records.pop(eip, None)) is not None:
            self._version += 1
            self._watched(lambda other: other.tell(RecordRead(eip, gone(deleted.version))))

    def _reply(self, host: Host, life: int, deliver: Callable[[], None]) -> None:
        def arrive() -> None:
            if host.alive and host.life == life and not host.api_cuts:
                deliver()

        self._clock.after(self._travel(), arrive)

    def _watched(self, deliver: Callable[[Host], None]) -> None:
        for host in self._hosts:
            if host.alive and not host.api_cuts:
                self._watch_one(host, self._watched_after(), deliver)

    def _watched_after(self) -> float:
        return self._random.uniform(0.002, self._schedule.watch_delay)

    def _watch_one(self, host: Host, delay: float, deliver: Callable[[Host], None]) -> None:
        def arrive() -> None:
            if not host.alive or host.api_cuts:
                return
            if host.api_stale:
                self._watch_one(host, 0.05, deliver)
            else:
                deliver(host)

        self._clock.after(delay, arrive)

    # ── Session Leases: what the agent's edge does ────────────────────────────────────────────────────────────

    def session(self, host: Host) -> None:
        """Renews for one life of ``host``, from now on."""
        life = host.life
        answered = [0]

        def renew() -> None:
            asked = answered[0] = answered[0] + 1
            if not host.api_cuts:
                self._clock.after(self._travel(), lambda: self._renewed(host, life, lambda: up(asked)))
            again(self._schedule.times.record_timeout, lambda: check(asked))

        def up(asked: int) -> None:
            if answered[0] == asked:
                answered[0] += 1
                if not host.machine.known.api.up:
                    self._list(host)
                host.tell(ApiUp())
                again(self._schedule.times.renew, renew)

        def check(asked: int) -> None:
            if answered[0] == asked:
                answered[0] += 1
                host.tell(ApiDown())
                again(self._schedule.times.renew / 2, renew)

        def again(delay: float, work: Callable[[], None]) -> None:
            self._clock.after(delay, lambda: host.do(work) if host.alive and host.life == life else None)

        renew()

    def _renewed(self, host: Host, life: int, done: Callable[[], None]) -> None:
        if host.api_cuts or not host.alive or host.life != life:
            return
        own = LeaseSeen(host.name, host.machine.incarnation, renewed=True)
        # A session reads its Lease where it writes it: of an earlier life it sees the last renewal at most.
        self._watch_one(host, self._watched_after(), lambda other: other.tell(own) if other.life == life else None)
        self._reply(host, life, lambda: host.do(done))

    def _list(self, host: Host) -> None:
        """As an agent's mirror: what is not in the list any more is gone at the list's version."""
        for eip, record in self.records.items():
            host.tell(RecordRead(eip, record))
        for eip in self._eips:
            if eip not in self.records:
                host.tell(RecordRead(eip, gone(self._version)))
