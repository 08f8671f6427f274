"""What agents cost while nothing happens: processor, wake-ups, memory, requests to the API, beside Debian's keepalived.

    python benchmarks/rest.py [--services 0,1000] [--seconds N] [--json]

Three agents on one LAN and a real API server (the cluster of tests/agents), and three keepalived with as many
addresses on a LAN of their own (VRRP version 3, `advert_int 0.1`: as often as we say hello), measured in the same
seconds. An agent is two processes, keepalived one or two: all of a node's are added up, and the worst node counts.
Wake-ups are voluntary context switches of all threads; a preempted thread did not sleep. Programs are what it ran:
nft, that looks at kube-proxy's rules every 20 s. Memory is what /proc/PID/smaps_rollup says: PSS shares what several
processes have in common among them, RSS does not. An environment with what only tests need has 3 MB more: structlog
takes rich where it finds it. `EIP_SPEAKER_PYTHON` names the Python of another one, of `pip install '.[mqtt]'`, say.
Requests are from the audit log: the test's own are left out. Watch events are by the API server's own count, of what
nodes and agents write; its own watchers are among those who are told. `--threads` prints who wakes.

Needs etcd and kube-apiserver where envtest looks for them, nft, and root or a user namespace; keepalived where there is
one.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cluster_agents import audited, audited_cluster, children, eips

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / name) for name in ("agents", "apiserver", "faults")]

from agent_cluster import Cluster, pause  # noqa: E402
from real_api import missing  # noqa: E402

from speaker.lab.lan import Lan  # noqa: E402
from speaker.lab.namespaces import leave_host_network  # noqa: E402
from speaker.lab.topology import lab_topology  # noqa: E402
from speaker.system.programs import end_with  # noqa: E402

SECONDS = 60.0
"""For which everything is counted."""
SETTLING = 45.0
"""Seconds after the last claim until nothing is written any more that was put off, and caches are warm."""
ADVERTISED = 200
"""Addresses in an advertisement of VRRP (one byte counts them); keepalived is told the others apart."""
WRITTEN = ("leases", "nodes", "announcements")
UNUSED = "192.0.2.200"
"""Of the pool that nobody asks for."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """Of one process so far."""

    cpu: float
    wakes: Mapping[str, int]
    """By thread."""
    preempted: int
    programs: float
    """CPU seconds of programs that it ran."""

    @classmethod
    def of(cls, pid: int) -> "Reading":
        wakes: Counter[str] = Counter()
        preempted, run = 0, 0.0
        for task in Path(f"/proc/{pid}/task").iterdir():
            status = (task / "status").read_text()
            name = (task / "comm").read_text().strip()
            wakes[f"{name} {task.name}"] = _number(status, "voluntary_ctxt_switches")
            preempted += _number(status, "nonvoluntary_ctxt_switches")
            run += int((task / "schedstat").read_text().split()[0]) / 1e9
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
        return cls(run, wakes, preempted, (int(user) + int(system)) / _TICKS)


def _number(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    assert found is not None, name
    return int(found[1])


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one process: a minute's CPU seconds, a second's wake-ups, MB."""

    cpu_s: float
    programs_s: float
    wakes: float
    preempted: float
    pss_mb: float
    rss_mb: float
    threads: Mapping[str, float]

    @classmethod
    def between(cls, pid: int, before: Reading, after: Reading, seconds: float) -> "Cost":
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        threads = {name: (count - before.wakes.get(name, 0)) / seconds for name, count in after.wakes.items()}
        return cls(
            cpu_s=(after.cpu - before.cpu) * 60 / seconds,
            programs_s=(after.programs - before.programs) * 60 / seconds,
            wakes=sum(threads.values()),
            preempted=(after.preempted - before.preempted) / seconds,
            pss_mb=_number(rollup, "Pss") / 1024,
            rss_mb=_number(rollup, "Rss") / 1024,
            threads=threads,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """All processes of one."""

    parts: Mapping[str, Cost]

    @property
    def cpu_s(self) -> float:
        return sum(part.cpu_s for part in self.parts.values())

    @property
    def programs_s(self) -> float:
        return sum(part.programs_s for part in self.parts.values())

    @property
    def wakes(self) -> float:
        return sum(part.wakes for part in self.parts.values())

    @property
    def pss_mb(self) -> float:
        return sum(part.pss_mb for part in self.parts.values())

    @property
    def rss_mb(self) -> float:
        return sum(part.rss_mb for part in self.parts.values())

    def __str__(self) -> str:
        each = ", ".join(
            f"{name} {part.cpu_s:.2f} s, {part.wakes:.1f}/s, {part.pss_mb:.0f} MB" for name, part in self.parts.items()
        )
        return (
            f"{self.cpu_s:.2f} s CPU a minute (programs {self.programs_s:.2f}), {self.wakes:.1f} wake-ups/s, "
            f"PSS {self.pss_mb:.1f} MB, "
            f"RSS {self.rss_mb:.1f} MB ({each})"
        )


@dataclass(frozen=True, slots=True)
class Rest:
    services: int
    seconds: float
    agents: Mapping[str, Node]
    keepalived: Mapping[str, Node]
    requests: Mapping[str, int]
    """Of all agents, in all that time."""
    watch_events: Mapping[str, int]

    def lines(self, *, threads: bool) -> Iterator[str]:
        a_minute = 60 / self.seconds
        yield f"── {self.services} Services, {self.seconds:.0f} s"
        for name, node in (*self.agents.items(), *self.keepalived.items()):
            yield f"{name:18} {node}"
            if threads:
                for part, cost in node.parts.items():
                    for thread, wakes in sorted(cost.threads.items(), key=lambda found: -found[1]):
                        yield f"{'':20} {part} {thread}: {wakes:.2f}/s"
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.requests.items()))
        yield f"API requests       {sum(self.requests.values()) * a_minute:.0f} a minute, all agents ({kinds})"
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.watch_events.items()))
        yield f"watch events       {sum(self.watch_events.values()) * a_minute:.0f} a minute, all watchers ({kinds})"
        if self.keepalived:
            yield f"agent / keepalived {', '.join(self._ratios())}"

    def _ratios(self) -> Iterator[str]:
        asked: Sequence[tuple[str, Callable[[Node], float]]] = (
            ("CPU", lambda node: node.cpu_s),
            ("wake-ups", lambda node: node.wakes),
            ("PSS", lambda node: node.pss_mb),
        )
        for what, of in asked:
            ours, theirs = (max(map(of, nodes.values())) for nodes in (self.agents, self.keepalived))
            yield f"{what} {ours / theirs:.1f}" if theirs else f"{what} -"


# ── keepalived ────────────────────────────────────────────────────────────────────────────────────────────────


def configuration(number: int, addresses: Sequence[IPv4Address]) -> str:
    said, others = addresses[:ADVERTISED], addresses[ADVERTISED:]
    return f"""\
global_defs {{
  router_id node{number + 1}
  vrrp_version 3
}}
vrrp_instance lan {{
  state {"BACKUP" if number else "MASTER"}
  interface eth0
  virtual_router_id 51
  priority {(150, 100, 50)[number]}
  advert_int 0.1
  virtual_ipaddress {{
{_listed(said)}
  }}
  virtual_ipaddress_excluded {{
{_listed(others)}
  }}
}}
"""


def _listed(addresses: Sequence[IPv4Address]) -> str:
    return "\n".join(f"    {address}/32" for address in addresses)


@contextmanager
def keepaliveds(directory: Path, addresses: Sequence[IPv4Address]) -> Iterator[dict[str, int]]:
    """The first process of each node; none where there is no keepalived."""
    if not shutil.which("keepalived"):
        print("keepalived is not installed: without it", file=sys.stderr)
        yield {}
        return
    found: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        lan = stack.enter_context(Lan(lab_topology(3)))
        for number, node in enumerate(lan.topology.nodes):
            (home := directory / f"keepalived-{node}").mkdir()
            (home / "conf").write_text(configuration(number, addresses or [IPv4Address(UNUSED)]))
            with lan.namespace(node).entered(), (home / "log").open("wb") as log:
                command = ("keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", home / "conf")
                found[node] = process = subprocess.Popen(
                    [*command, "--pid", home / "pid", "--vrrp_pid", home / "vrrp"],
                    stdout=log,
                    stderr=log,
                    preexec_fn=partial(end_with, os.getpid()),
                )
                stack.callback(process.wait)
                stack.callback(process.terminate)
        yield {f"keepalived {node}": process.pid for node, process in found.items()}


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────


def parts_of(pid: int, *names: str) -> dict[str, int]:
    """The processes of a node by name: the first and what it started."""
    return dict(zip(names, [pid, *children(pid)], strict=False))


def watch_events(cluster: Cluster) -> Counter[str]:
    """That the API server sent, by kind."""
    text = cluster.api._ask("/metrics").decode()
    found: Counter[str] = Counter()
    for line in text.splitlines():
        match = re.match(r'apiserver_watch_events_total\{.*resource="([^"]+)".*\} (\S+)', line)
        if match and match[1] in WRITTEN:
            found[match[1]] += int(float(match[2]))
    return found


async def rest(cluster: Cluster, log: Path, others: Mapping[str, int], seconds: float) -> Rest:
    for node in cluster.nodes:
        cluster.start(node)
    await cluster.until_healthy(*cluster.nodes)
    if cluster.eips:
        await cluster.agreed()
    await pause(SETTLING)
    everybody = {
        **{f"agent {node}": parts_of(agent.process.pid, "wire", "main") for node, agent in cluster.agents.items()},
        **{name: parts_of(pid, "parent", "vrrp") for name, pid in others.items()},
    }
    events, quiet, began = watch_events(cluster), datetime.now(UTC), time.monotonic()
    before = {name: {part: Reading.of(pid) for part, pid in parts.items()} for name, parts in everybody.items()}
    await pause(seconds)
    took = time.monotonic() - began
    after = {name: {part: Reading.of(pid) for part, pid in parts.items()} for name, parts in everybody.items()}
    told = watch_events(cluster) - events
    await pause(1.0)  # what was asked is in the log
    nodes = {
        name: Node(
            {part: Cost.between(pid, before[name][part], after[name][part], took) for part, pid in parts.items()}
        )
        for name, parts in everybody.items()
    }
    return Rest(
        services=len(cluster.eips),
        seconds=seconds,
        agents={name: node for name, node in nodes.items() if name not in others},
        keepalived={name: node for name, node in nodes.items() if name in others},
        requests=dict(audited(log, quiet, quiet + timedelta(seconds=seconds))),
        watch_events=dict(told),
    )


def measured(directory: Path, services: int, seconds: float) -> Rest:
    (home := directory / str(services)).mkdir()
    with (
        keepaliveds(home, eips(services)) as others,
        audited_cluster(home, eips=eips(services), more_addresses=(UNUSED,), interface="eth0") as (cluster, log),
    ):
        return asyncio.run(rest(cluster, log, others, seconds))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--services", default="0,1000", help="how many, several with commas between")
    arguments.add_argument("--seconds", type=float, default=SECONDS)
    arguments.add_argument("--threads", action="store_true", help="who wakes")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    if reason := missing():
        print(reason)
        return
    leave_host_network()
    load, found = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory(prefix="rest-") as name:
        for services in map(int, options.services.split(",")):
            found.append(measured(Path(name), services, options.seconds))
            if not options.json:
                print("\n".join(found[-1].lines(threads=options.threads)), flush=True)
    if options.json:
        print(json.dumps({"load": load, "rest": [asdict(each) for each in found]}))
    else:
        print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
