"""For how much of the time EIPs are answered while other processes want every processor: speakers and keepalived.

    python benchmarks/loaded.py [--seconds N] [--hogs N] [--contenders ours,ours-normal,keepalived]
                                [--json]

The three nodes, the LAN and the contenders of benchmarks/failover.py, keepalived with `advert_int 0.1`. Once they have
settled, so many hogs begin (endless loops of nice 0), and the gateway broadcasts an ARP request for each of six EIPs
every 100 ms, at real-time priority. An EIP counts as out from its first request that got no answer before the next one
to the first that got one. `ours-normal` are speakers whose processes were taken their real-time priority, as in a pod
without SYS_NICE. The ratio is of the time out, the worst EIP each, to that of keepalived. Where the prober itself stood
still nothing is seen: its longest pause is printed. Needs root or a user namespace.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from failover import EIPS, NODES, Ours, debians_keepalived, our_speakers

from speaker.lab.capture import relapses
from speaker.lab.lan import Lan
from speaker.lab.namespaces import leave_host_network
from speaker.lab.outage import Asks, asking, out_in_sum, outages, stall_ms
from speaker.lab.topology import lab_topology
from speaker.system.programs import end_with

ASK = 0.1
"""Seconds between two requests for one EIP."""
CALM = 10.0
"""Seconds after the hogs have begun that are not measured."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one contender; the worst EIP each. ``twice``: answers of one node between two of another, 0.1 s apart."""

    name: str
    seconds: float
    out: float
    longest_ms: float
    twice: int
    stall_ms: float

    def line(self, other: "Seen | None") -> str:
        ratio = f"{self.out / other.out:.2f}" if other is not None and other.out else "-"
        return (
            f"{self.name:12} answered {100 - 100 * self.out / self.seconds:.2f} % of {self.seconds:.0f} s, longest "
            f"silence {self.longest_ms:.0f} ms, {self.twice} twice; time out / keepalived's {ratio}; "
            f"prober stood still for {self.stall_ms:.0f} ms"
        )


@contextmanager
def hogs(number: int) -> Iterator[None]:
    started = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=partial(end_with, os.getpid()))
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


def be_normal(pid: int) -> None:
    """Every thread of the process and of those below it."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, int(task.name), 0)
        for child in (task / "children").read_text().split():
            be_normal(int(child))


async def measure(name: str, lan: Lan, directory: Path, options: argparse.Namespace) -> Seen:
    start = debians_keepalived if name == "keepalived" else our_speakers
    async with start(lan, directory, 0.1) as contender:
        await contender.settled()
        if name == "ours-normal":
            assert isinstance(contender, Ours)
            for speaker in contender._running.running.values():
                be_normal(speaker.process.pid)
        with hogs(options.hogs):
            async with asking(lan.namespace("gateway"), "eth0", EIPS, ASK) as asks:
                await asyncio.sleep(CALM)
                begun = time.monotonic()
                await asyncio.sleep(options.seconds)
                return judged(name, asks, begun)


def judged(name: str, asks: Asks, begun: float) -> Seen:
    samples = asks.samples(begun)
    return Seen(
        name=name,
        seconds=time.monotonic() - begun,
        out=max(out_in_sum(samples, ASK).values()),
        longest_ms=max(each.ms for each in outages(samples, ASK).values()),
        twice=len(relapses([reply for reply in asks.replies() if reply.at >= begun], 0.1)),
        stall_ms=stall_ms(samples),
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--hogs", type=int, default=20)
    arguments.add_argument("--contenders", default="keepalived,ours,ours-normal")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    leave_host_network()
    found: dict[str, Seen] = {}
    for name in options.contenders.split(","):
        if name == "keepalived" and not shutil.which(name):
            print("keepalived is not installed: without it", file=sys.stderr)
            continue
        with Lan(lab_topology(NODES)) as lan, tempfile.TemporaryDirectory(prefix="loaded-") as directory:
            found[name] = asyncio.run(measure(name, lan, Path(directory), options))
        if not options.json:
            print(found[name].line(found.get("keepalived")), flush=True)
    if options.json:
        print(json.dumps({name: asdict(seen) for name, seen in found.items()}))
        return
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {options.hogs} hogs")


if __name__ == "__main__":
    main()
