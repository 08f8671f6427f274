"""Answers and failover beside a broker that is told of everything: two LANs, one speaker of each with --mqtt.

    python benchmarks/mqtt.py [--rounds N] [--seconds N] [--json]

Two LANs of network namespaces in one run, alike but for `--mqtt`: two speakers (`run --with-peers`) with EIPS EIPs, and
a switch, from which is asked. One LAN has a broker (Debian's mosquitto) and its speakers tell it; on both the manifests
are changed every half a second, so that CHANGED EIPs come and go: states and events are said all the time.

answer   the client sends an ARP request for an EIP and waits for the reply; LANs take turns, request by request.
         Medians and 99th percentiles of microseconds.
failover SIGKILL to the speaker that holds the most, on one LAN and then on the other; every 5 ms each of its EIPs is
         asked for. The longest time without an answer, in milliseconds.
outage   the broker is killed for --seconds, and back; what is retained then is held against what the speakers' status
         files say.

Each figure is a ratio of with to without. Memory is of the main process that tells (RSS), before and after. Needs
mosquitto, mosquitto_sub, and root or a user namespace.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from ipaddress import IPv4Address
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "mqtt"))

from mqtt_broker import Broker, missing
from mqtt_manifests import manifests

from speaker.lab.namespaces import Namespace, leave_host_network
from speaker.model import Mac
from speaker.ownership.hellos.keys import generate
from speaker.packets import BROADCAST, UNKNOWN, arp
from speaker.system.programs import end_with

EIPS = [f"198.51.100.{last}" for last in range(10, 20)]
"""That stay, and are asked for."""
CHANGED = [f"198.51.{third}.{last}" for third in (101, 102) for last in range(1, 251)]
EVERY = 0.5
"""Seconds between two changes of the manifests."""
PATIENCE = 60.0
LOST = 0.5
"""Seconds until an answer counts as lost."""
ASK = 0.005
CLIENT = IPv4Address("198.51.100.3")
HOSTS = {"a1": "198.51.100.1", "b1": "198.51.100.2"}
RULED = ("listener 1883 198.51.100.3", "allow_anonymous true")


def sh(namespace: Namespace, *lines: str) -> None:
    with namespace.entered():
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


class Lan:
    """Two hosts at a switch, which is where the client and the broker are."""

    def __init__(self, stack: contextlib.ExitStack, name: str, directory: Path, *flags: str) -> None:
        self.directory, self._flags = directory, flags
        self.switch = stack.enter_context(Namespace(f"{name}-switch"))
        sh(
            self.switch,
            "link set lo up",
            "link add br0 type bridge",
            "link set br0 up",
            f"address add {CLIENT}/22 dev br0",
        )
        self.hosts: dict[str, Namespace] = {}
        for node, address in HOSTS.items():
            host = self.hosts[node] = stack.enter_context(Namespace(f"{name}-{node}"))
            sh(self.switch, f"link add {node} type veth peer name eth0 netns {host.path}")
            sh(self.switch, f"link set {node} master br0 up")
            sh(host, "link set lo up", "link set eth0 up", f"address add {address}/22 dev eth0")
            (directory / node).mkdir(parents=True)
        self.manifests = directory / "manifests"
        self.manifests.mkdir()
        self.write(0)
        (directory / "key").write_text(generate(os.urandom(32)))
        (directory / "key").chmod(0o600)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.began: dict[str, float] = {}
        stack.callback(self.stop)
        with self.switch.entered():
            self.client = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
            self.client.bind(("br0", 0x0806))
        stack.callback(self.client.close)
        self.client.settimeout(LOST)
        self.mac = Mac(self.client.getsockname()[4])

    def write(self, change: int) -> None:
        draft = self.directory / "draft"
        draft.write_text(manifests(*EIPS, *CHANGED[change % 2 :: 2], pool="198.51.100.0/22"))
        draft.replace(self.manifests / "a.yaml")

    def start(self, node: str) -> None:
        parent, self.began[node] = os.getpid(), time.time()
        place = self.directory / node
        with self.hosts[node].entered(), (place / "log").open("ab") as log:
            self.running[node] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "speaker", "run", str(self.manifests), "--node", node, "--with-peers"),
                    *("--key", str(self.directory / "key"), "--state", str(place / "state.json")),
                    *("--runtime-dir", str(place / "run"), "--log-format", "json", "--forwarder", "none"),
                    *self._flags,
                ],
                stderr=log,
                preexec_fn=lambda: end_with(parent),
            )

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def status(self, node: str) -> dict[str, str | None]:
        """EIP → holder, as that node sees it."""
        try:
            told = json.loads((self.directory / node / "run" / "status.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return {eip["address"]: eip["holder"] for eip in told["eips"]}

    def settled(self) -> bool:
        """Both run, and say the same of who holds all that stay."""
        seen = [{eip: found.get(eip) for eip in EIPS} for found in map(self.status, HOSTS)]
        return seen[0] == seen[1] and None not in seen[0].values() and all(map(self.fresh, HOSTS))

    def fresh(self, node: str) -> bool:
        """Its status file is of its present life, which has begun to answer."""
        status = self.directory / node / "run" / "status.json"
        return status.exists() and status.stat().st_mtime > self.began[node] + 1.0

    def ask(self, eip: str) -> float | None:
        """Seconds until the answer; None: there was none."""
        request = arp.ArpPacket(BROADCAST, self.mac, 1, self.mac, CLIENT, UNKNOWN, IPv4Address(eip)).pack()
        begun = time.perf_counter()
        self.client.send(request)
        while (left := begun + LOST - time.perf_counter()) > 0:
            self.client.settimeout(left)
            try:
                frame = self.client.recv(128)
            except TimeoutError:
                return None
            if self.is_reply(frame) == eip:
                return time.perf_counter() - begun
        return None

    @staticmethod
    def is_reply(frame: bytes) -> str | None:
        """Whose."""
        if len(frame) < 42 or struct.unpack_from(">H", frame, 20)[0] != 2:
            return None
        return str(IPv4Address(frame[28:32]))

    def longest_silence(self, eips: Collection[str], seconds: float) -> float:
        """Of any of them, in milliseconds."""
        asks = [
            arp.ArpPacket(BROADCAST, self.mac, 1, self.mac, CLIENT, UNKNOWN, IPv4Address(eip)).pack() for eip in eips
        ]
        begun = due = time.perf_counter()
        last, longest = dict.fromkeys(eips, begun), 0.0
        while (now := time.perf_counter()) < begun + seconds:
            if now >= due:
                due += ASK
                for request in asks:
                    self.client.send(request)
            self.client.settimeout(max(due - time.perf_counter(), 0.0001))
            try:
                eip = self.is_reply(self.client.recv(128))
            except (TimeoutError, BlockingIOError):
                continue
            if eip in last:
                longest, last[eip] = max(longest, time.perf_counter() - last[eip]), time.perf_counter()
        return 1000 * max([longest, *(time.perf_counter() - when for when in last.values())])


def until(well: Callable[[], object], seconds: float = PATIENCE) -> float:
    begun = time.monotonic()
    while not well():
        if time.monotonic() > begun + seconds:
            raise SystemExit("gave up: it did not settle")
        time.sleep(0.05)
    return time.monotonic() - begun


@contextlib.contextmanager
def changing(lans: list[Lan]) -> Iterator[None]:
    ended = threading.Event()

    def change() -> None:
        number = 0
        while not ended.wait(EVERY):
            number += 1
            for lan in lans:
                lan.write(number)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for lan in lans:
            lan.write(0)


def answers(lans: list[Lan], count: int) -> list[list[float]]:
    """Microseconds, by LAN; lost ones left out and told of."""
    found: list[list[float]] = [[] for _ in lans]
    lost = [0 for _ in lans]
    for number in range(count):
        for at in range(len(lans)) if number % 2 else reversed(range(len(lans))):
            if (seconds := lans[at].ask(EIPS[number % len(EIPS)])) is None:
                lost[at] += 1
            else:
                found[at].append(1e6 * seconds)
        time.sleep(0.002)
    if any(lost):
        print(f"lost answers: {lost}", file=sys.stderr)
    return found


def failover(lan: Lan) -> float:
    holders = {eip: holder for eip, holder in lan.status("a1").items() if eip in EIPS}
    victim = max(HOSTS, key=list(holders.values()).count)
    theirs = [eip for eip, holder in holders.items() if holder == victim]
    kill = threading.Timer(0.5, lambda: lan.running[victim].send_signal(signal.SIGKILL))
    kill.start()
    outage = lan.longest_silence(theirs, 2.5)
    lan.running[victim].wait()
    lan.start(victim)
    return outage


def main_rss(lan: Lan) -> float:
    """Megabytes of the largest main process."""
    sizes = []
    for process in lan.running.values():
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        for pid in (pid for task in tasks for pid in task.read_text().split()):
            with contextlib.suppress(FileNotFoundError):
                sizes.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20)
    return max(sizes, default=0.0)


def converged(broker: Broker, lan: Lan) -> bool:
    told = {each["address"]: each["holder"] for each in broker.retained("eip-speaker/v1/eips/+").values()}
    return told == lan.status("a1") == lan.status("b1")


def measured(rounds: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        without = Lan(stack, "without", Path(directory) / "without")
        told = Lan(stack, "with", Path(directory) / "with", "--mqtt", "mqtt://198.51.100.3")
        broker = Broker(told.switch, Path(directory) / "broker", *RULED, host="198.51.100.3")
        stack.callback(broker.close)
        broker.start()
        lans = [told, without]
        for lan in lans:
            for node in HOSTS:
                lan.start(node)
        for lan in lans:
            until(lan.settled)
        before = main_rss(told)
        with changing(lans):
            latencies = answers(lans, 300 * rounds)
        outages: list[list[float]] = [[], []]
        for number in range(rounds):
            for at in (0, 1) if number % 2 else (1, 0):
                until(lans[at].settled)
                with changing(lans):
                    outages[at].append(failover(lans[at]))
        until(told.settled)
        broker.kill()
        with changing(lans):
            time.sleep(seconds)
        broker.start()
        back = until(lambda: converged(broker, told))
        medians = [statistics.median(each) for each in latencies]
        late = [statistics.quantiles(each, n=100)[98] for each in latencies]
        out = [statistics.median(each) for each in outages]
        return {
            "answer_us_with": medians[0],
            "answer_us_without": medians[1],
            "answer_ratio": medians[0] / medians[1],
            "answer_p99_us_with": late[0],
            "answer_p99_us_without": late[1],
            "answer_p99_ratio": late[0] / late[1],
            "failover_ms_with": out[0],
            "failover_ms_without": out[1],
            "failover_ratio": out[0] / out[1],
            "rss_mb_before": before,
            "rss_mb_after": main_rss(told),
            "broker_away_s": seconds,
            "converged_s_after": back,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="that the broker is away (default %(default)g)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    leave_host_network()
    found = measured(args.rounds, args.seconds)
    if args.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        print(f"{name:24} {value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
