"""A schedule being played in virtual time: deterministic, seeded, single-threaded."""

from functools import partial

from simulation.cluster import Cluster
from simulation.faults import FAULTS
from simulation.host import REQUEST, Host, Make
from simulation.schedule import FOR_GOOD, Fault, Schedule
from speaker.model import IPAddress
from speaker.ownership.machine.machine import Ownership


class World(Cluster):
    """Hosts start, faults happen, clients ask."""

    def __init__(self, schedule: Schedule, make: Make = Ownership, trace: bool = False) -> None:
        super().__init__(schedule, make, trace)
        for host in self.hosts:
            self.clock.at(self.random.uniform(0, 0.2) + host.index * schedule.apart, partial(self.boot, host))
        for fault in schedule.faults:
            self.clock.at(fault.at, partial(self.inflict, fault))
        if schedule.asks:
            self.clock.at(max(1.0, schedule.silent_until), self._ask)

    def run(self, until: float | None = None) -> "World":
        """On to ``until``, or to the end of the schedule, where the final promises are checked."""
        end = self.schedule.end if until is None else until
        clock, promises = self.clock, self.promises
        while not promises.broken and clock.step(end):
            promises.check()
        if not promises.broken:
            clock.now = end
        if until is None:
            promises.check_end()
        return self

    def inflict(self, fault: Fault) -> None:
        self.trace.say(f"# {str(fault).split(' ', 1)[1]}")
        mended = fault.lasts < FOR_GOOD
        self.promises.fault_begins(mended)
        if mended:
            self.clock.after(fault.lasts, partial(self.promises.fault_ends, self.clock.now))
        FAULTS[fault.kind](self, fault)

    def _ask(self) -> None:
        """A client asks for an EIP."""
        eip, asked_at = self.random.choice(self.eips), self.clock.now
        for host in self.stations.client_asks(self.network.link_of[eip]):
            host.do(partial(self._asked, host, eip, asked_at), REQUEST)
        self.clock.after(self.random.uniform(0.01, 0.06), self._ask)

    def _asked(self, host: Host, eip: IPAddress, asked_at: float) -> None:
        if host.answers(eip) and host.in_time(asked_at):
            self.promises.answered(host, eip, asked_at)
