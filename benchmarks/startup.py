"""From exec to the first answer for an EIP that nobody holds: time and CPU of all processes, beside keepalived.

    python benchmarks/startup.py [--rounds N] [--only agent,run,keepalived,python] [--json]

One LAN, on which a client asks by ARP for an EIP of each every 5 ms. By turns: `speaker run` with files, `speaker
agent` with a real API server (the cluster of tests/agents; what earlier rounds have left in it is deleted), Debian's
keepalived with `vrrp_version 3` and `advert_int 0.1`, and what any Python takes: one that imports asyncio. The
best of all rounds is shown: what else a shared machine does can only slow a round down. The ratios are of CPU to
keepalived's and Python's. An environment with what only tests need imports more: structlog takes rich where it finds
it. `EIP_SPEAKER_PYTHON` names the Python of another one, of `pip install '.[mqtt]'`, say. The first round also writes
bytecode, which an image has, to a place of its own.

Needs root or a user namespace; for the agent etcd and kube-apiserver where envtest looks for them, and nft.
"""

import argparse
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / name) for name in ("agents", "apiserver", "faults")]

from agent_cluster import Cluster  # noqa: E402
from agent_objects import ANNOUNCEMENTS, LEASES  # noqa: E402
from real_api import bound_to_us, missing  # noqa: E402
from rest import configuration  # noqa: E402
from speaker_processes import family  # noqa: E402

from speaker.lab.lan import Lan  # noqa: E402
from speaker.lab.namespaces import Namespace, leave_host_network  # noqa: E402
from speaker.lab.topology import lab_topology  # noqa: E402
from speaker.packets import arp  # noqa: E402

ASK = 0.005
"""Seconds between two requests."""
PATIENCE = 120.0
"""Seconds, after which nothing will come."""
PYTHON = os.environ.get("EIP_SPEAKER_PYTHON", sys.executable)
AGENTS_EIP, RUNS_EIP, VRRPS = (IPv4Address(f"192.0.2.{last}") for last in (200, 220, 230))
_TICKS = os.sysconf("SC_CLK_TCK")

MANIFESTS = f"""\
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: pool}}
spec: {{addresses: [{RUNS_EIP}], interface: eth0}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-4, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints: [{{addresses: [10.244.1.11]}}]
"""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds, from exec to the first answer."""

    took: float
    cpu: float


def cpu_of(pid: int) -> float:
    """All processes that it has started; of those that ended, if they were waited for, in ticks of the clock."""
    used = 0.0
    for one in family(pid):
        with suppress(OSError):
            of_ended = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[13:15]
            used += sum(map(int, of_ended)) / _TICKS
            for task in Path(f"/proc/{one}/task").iterdir():
                used += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def first_answer(client: Namespace, eip: IPv4Address, begin: Callable[[], subprocess.Popen[bytes]]) -> Start:
    """Of what ``begin`` starts; it is ended."""
    with client.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(arp.ETHERTYPE))
        sock.bind(("eth0", arp.ETHERTYPE))
    mac = sock.getsockname()[4]
    question = arp.request(mac, IPv4Address("192.0.2.100"), eip).pack()
    with sock, begin() as process:
        began = asked = time.monotonic()
        try:
            while not _answered(sock, eip):
                assert process.poll() is None, f"exit code {process.returncode}"
                now = time.monotonic()
                assert now < began + PATIENCE, "no answer"
                if now >= asked + ASK:
                    sock.send(question)
                    asked = now
            return Start(time.monotonic() - began, cpu_of(process.pid))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def _answered(sock: socket.socket, eip: IPv4Address) -> bool:
    if not select.select([sock], [], [], ASK)[0]:
        return False
    frame = sock.recv(2048)
    return frame[20:22] == arp.REPLY and frame[28:32] == eip.packed


def popen(place: Namespace, log: Path, *command: str | Path) -> subprocess.Popen[bytes]:
    with place.entered(), log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0, preexec_fn=bound_to_us()
        )


# ── what is started ───────────────────────────────────────────────────────────────────────────────────────────

Contender = Callable[[], Start]


def speaker_run(lan: Lan, home: Path) -> Contender:
    (home / "manifests").mkdir()
    (home / "manifests" / "all.yaml").write_text(MANIFESTS)
    files = ("--state", home / "state.json", "--runtime-dir", home / "run")
    command = (PYTHON, "-m", "speaker", "run", home / "manifests", *files, "--metrics", "127.0.0.1:9900")

    def once() -> Start:
        (home / "state.json").unlink(missing_ok=True)
        begin = lambda: popen(lan.namespace("node2"), home / "log", *command, "--forwarder", "none")  # noqa: E731
        return first_answer(lan.namespace("client"), RUNS_EIP, begin)

    return once


def speaker_agent(cluster: Cluster) -> Contender:
    def begin() -> subprocess.Popen[bytes]:
        cluster.start("node1")
        return cluster.agents["node1"].process

    def once() -> Start:
        cluster.done("DELETE", ANNOUNCEMENTS)
        cluster.ask("DELETE", f"{LEASES}/node1")
        return first_answer(cluster.lan.namespace("client"), AGENTS_EIP, begin)

    return once


def keepalived(lan: Lan, home: Path) -> Contender:
    (home / "conf").write_text(configuration(0, [VRRPS]))
    pids = ("--pid", home / "pid", "--vrrp_pid", home / "vrrp")
    command = ("keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", home / "conf", *pids)
    begin = lambda: popen(lan.namespace("node3"), home / "log", *command)  # noqa: E731
    return lambda: first_answer(lan.namespace("client"), VRRPS, begin)


def python() -> Start:
    began = time.monotonic()
    process = subprocess.Popen([PYTHON, "-c", "import asyncio"])
    used = os.wait4(process.pid, 0)[2]
    return Start(time.monotonic() - began, used.ru_utime + used.ru_stime)


@contextmanager
def contenders(names: list[str]) -> Iterator[dict[str, Contender]]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        homes = {name: Path(directory, name) for name in names}
        for home in homes.values():
            home.mkdir()
        os.environ["PYTHONPYCACHEPREFIX"] = f"{directory}/bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        lan = stack.enter_context(Lan(lab_topology(3, 2)))
        makers: Mapping[str, Callable[[Path], Contender]] = {
            "agent": lambda home: speaker_agent(stack.enter_context(Cluster(home, lan))),
            "run": lambda home: speaker_run(lan, home),
            "keepalived": lambda home: keepalived(lan, home),
            "python": lambda _: python,
        }
        yield {name: makers[name](home) for name, home in homes.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="agent,run,keepalived,python", help="several with commas between")
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    names = options.only.split(",")
    if "agent" in names and (reason := missing()):
        print(f"without the agent: {reason}", file=sys.stderr)
        names.remove("agent")
    if not shutil.which("keepalived"):
        print("keepalived is not installed: without it", file=sys.stderr)
        names = [name for name in names if name != "keepalived"]
    leave_host_network()
    load = os.getloadavg()[0]
    with contenders(names) as found:
        rounds = [{name: once() for name, once in found.items()} for _ in range(options.rounds)]
    least = {
        name: Start(min(each[name].took for each in rounds), min(each[name].cpu for each in rounds)) for name in found
    }
    if options.json:
        print(json.dumps({"load": load, "least": {name: asdict(each) for name, each in least.items()}}))
        return
    print(f"load {load:.1f}; the least of {options.rounds} rounds")
    for name, each in least.items():
        others = [other for other in ("keepalived", "python") if other in found and other != name and least[other].cpu]
        ratios = (f"CPU / {other}'s {each.cpu / least[other].cpu:.1f}" for other in others)
        print(f"{name:12} {each.took:6.2f} s to the first answer, {each.cpu:5.2f} s of CPU; {', '.join(ratios)}")


if __name__ == "__main__":
    main()
