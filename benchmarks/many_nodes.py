"""What many nodes cost, counted in virtual time: frames, bytes, questions on the wire and writes to the API, beside the
formula.

    python benchmarks/many_nodes.py [--nodes N] [--services N]

The ownership machines of N nodes on one link, with the API server beside them: hellos travel as the frames that would
leave, for 1 ms; a write is answered after 20 ms, and a watch tells of it 50 ms later. They start, are offered all EIPs,
share them among themselves and come to rest; then everything is counted for some seconds, one node dies, and what
follows is counted.
Session Leases and watches are the agents' and not the machine's: for them there is the formula alone, and
`benchmarks/rest.py` counts them with three agents.
"""

import argparse
import heapq
import time
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address
from itertools import count

from speaker.model import Mac
from speaker.ownership.events import (
    ApiUp,
    Ask,
    Claim,
    EligibilityChanged,
    Event,
    HelloHeard,
    LinkChanged,
    Order,
    Record,
    RecordRead,
    RecordWritten,
    SendHello,
    Tick,
    WriteRecord,
)
from speaker.ownership.hello import Hello, incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters

LINK = 2
TRAVEL, WRITE, WATCH = 0.001, 0.02, 0.05
"""Seconds."""
APART = 0.013
"""Between two nodes' starts."""
MET = 3.0
"""After these EIPs are offered: a start of all nodes with all EIPs at once has everybody judge all of them for each
that comes, which is another figure."""
STEP, PATIENCE = 1.0, 60.0
"""Seconds between two looks whether all is at rest, and after which it will not be."""
CALM, AFTER = 2.0, 2.0
"""Seconds for which is counted: at rest, and from the death on."""
WATCHES, REOPENED, NODES_READ = 5, 450.0, 300.0
"""Of an agent; seconds for which a watch is asked for, on average, and between two readings of the nodes' addresses."""
FIRST = IPv4Address("10.0.0.1")


class Cluster:
    """Machines, and what they ordered so far."""

    def __init__(self, nodes: int, services: int) -> None:
        self.now = 0.0
        self.counted: Counter[str] = Counter()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._keys = Keys(Key(bytes(32)))
        self._eips = [FIRST + at for at in range(services)]
        self._records: dict[IPv4Address, Record] = {}
        self._versions = count(1)
        self.machines: dict[int, Ownership] = {}
        self._wakes: dict[int, float] = {}
        for node in range(nodes):
            self._after(node * APART, lambda node=node: self._start(node))  # type: ignore[misc]

    def _after(self, delay: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._order), work))

    def run(self, seconds: float) -> Counter[str]:
        """What was ordered meanwhile."""
        before, end = self.counted.copy(), self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, work = heapq.heappop(self._queue)
            work()
        self.now = end
        return self.counted - before

    def _start(self, node: int) -> None:
        self.machines[node] = Ownership(
            f"node-{node}.example", lambda known: incarnation(1_700_000_000 + node, node), self.now, api=True
        )
        self._tell(node, LinkChanged(LINK, up=True))
        self._tell(node, ApiUp())

    def offer(self) -> None:
        for node in self.machines:
            for eip in self._eips:
                self._tell(node, EligibilityChanged(eip, LINK))

    def _tell(self, node: int, event: Event) -> None:
        if (machine := self.machines.get(node)) is None:
            return
        for order in machine.step(self.now, event):
            self._carry_out(node, order)
        wake = max(machine.next_wake(self.now), self.now + 1e-4)
        if wake != self._wakes.get(node):
            self._wakes[node] = wake
            self._after(wake - self.now, lambda: self._tell(node, Tick()) if self._wakes.get(node) == wake else None)

    def _carry_out(self, node: int, order: Order) -> None:
        match order:
            case SendHello():
                for frame in frames.encode(order.hello, self._keys, Mac(bytes((2, 0, 0, 0, 0, node)))):
                    self.counted["frames"] += 1
                    self.counted["bytes"] += len(frame)
                    hello = frames.decode(frame, self._keys)
                    assert isinstance(hello, Hello)
                    self._after(TRAVEL, lambda hello=hello: self._hear(node, hello))  # type: ignore[misc]
                self.counted["hellos"] += 1
            case WriteRecord():
                self.counted["writes"] += 1
                self._after(WRITE, lambda: self._write(node, order))
            case Ask(eips=eips):
                self.counted["asks"] += 1
                self.counted["EIPs asked for"] += len(eips)
            case Claim():
                self.counted["claims"] += 1
            case _:
                pass

    def _hear(self, sender: int, hello: Hello) -> None:
        for node in list(self.machines):
            if node != sender:
                self._tell(node, HelloHeard(LINK, hello))

    def _write(self, node: int, order: WriteRecord) -> None:
        known = self._records.get(order.eip)
        right = (known.version if known is not None else 0) == order.expected
        if right:
            new = Record(order.holder, order.incarnation, order.term, next(self._versions))
            self._records[order.eip] = new
            self._after(WATCH, lambda: [self._tell(each, RecordRead(order.eip, new)) for each in list(self.machines)])
        else:
            self.counted["refused writes"] += 1
        self._tell(node, RecordWritten(order.eip, order.attempt, right, self._records.get(order.eip)))

    def held(self) -> Counter[int]:
        return Counter({node: len(machine.held()) for node, machine in self.machines.items()})

    def at_rest(self) -> bool:
        named = sum(record.holder is not None for record in self._records.values())
        return self.held().total() == len(self._eips) == named

    def kill(self, node: int) -> None:
        del self.machines[node]


def settled(nodes: int, services: int) -> tuple[Cluster, float]:
    """At rest, and the virtual seconds from the offer of all EIPs until nothing is repeated any more."""
    cluster = Cluster(nodes, services)
    cluster.run(nodes * APART + MET)
    cluster.offer()
    offered = cluster.now
    cluster.run(STEP)
    while not cluster.at_rest() and cluster.now < offered + PATIENCE:
        cluster.run(STEP)
    cluster.run(2 * Parameters().yielded)
    return cluster, cluster.now - offered


def told(counted: Counter[str], seconds: float) -> str:
    return ", ".join(f"{number / seconds:.1f} {what}/s" for what, number in sorted(counted.items())) or "nothing"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=100)
    arguments.add_argument("--services", type=int, default=1000)
    options = arguments.parse_args()
    nodes, times = options.nodes, Parameters()
    began = time.monotonic()
    cluster, took = settled(nodes, options.services)
    print(f"{nodes} nodes, {options.services} EIPs: at rest within {took:.1f} s", flush=True)
    print(f"  until then                {told(cluster.counted, 1.0).replace('/s', '')}")
    calm = cluster.run(CALM)
    each = calm["frames"] / max(1, calm["hellos"])
    print(f"  at rest                   {told(calm, CALM)}")
    print(
        f"  formula: N / hello        {nodes / times.hello:.1f} hellos/s of {each:.1f} frames, all links alike; each "
        f"node hears {(nodes - 1) / times.hello * each:.0f} frames/s; writes 0"
    )
    asked = 60 / times.renew + WATCHES * 60 / REOPENED + 60 / NODES_READ
    print(f"  formula: requests         N x {asked:.1f} a minute = {nodes * asked:.0f}, {nodes * asked / 60:.1f}/s")
    held = cluster.held()
    victim, most = held.most_common(1)[0]
    cluster.kill(victim)
    death = cluster.run(AFTER)
    extra = death["hellos"] - round((nodes - 1) / times.hello * AFTER)
    print(
        f"  a death of one with {most} EIPs: {death['claims']} claims, {death['writes']} writes "
        f"({death['refused writes']} refused), {death['asks']} asks for {death['EIPs asked for']} EIPs, {extra} hellos "
        f"more than at rest within {AFTER:.0f} s; all held: {cluster.held().total() == options.services}"
    )
    print(f"  ({time.monotonic() - began:.0f} s of ours)")


if __name__ == "__main__":
    main()
