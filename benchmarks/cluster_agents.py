"""Three agents on one LAN and a real API server: what its faults cost, how soon a Service is answered for, and what the
API is asked for.

    python benchmarks/cluster_agents.py [--only failures|services|requests|crowd|scale] [--outage SECONDS] [--eips N]
                                        [--services N] [--json]

The cluster of tests/agents: shipped manifests, ServiceAccounts and admission policies; agents in network namespaces. A
client probes eight EIPs through their holders and another host asks for them by ARP.

failures: for each, how long an EIP was out at worst, beside what ownership promises. services: from the POST of one
more Service (what `kubectl apply` sends) to the first ARP answer, and from the start of `kubectl apply` itself; each of
the twenty EIPs is new, so three probes of 20 ms come before its first claim. requests: what each agent asks of the API
in a quiet time, with ten EIPs and with a thousand, from the API server's audit log. scale: ten thousand Services with
three endpoints each, how long until agents that start hold all of it, what memory and event-loop stalls that costs, and
`services` again among them. crowd: with a thousand Services (`--eips`), one more, and then as many again by eight
clients at once: how far the first answers for the last of them come behind the last creation, and all requests of the
agents and the controller until nothing is written any more. Needs etcd and kube-apiserver where
envtest looks for them, nft, and root or a user namespace.
"""

import argparse
import asyncio
import http.client
import json
import os
import re
import ssl
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / name) for name in ("agents", "apiserver", "faults")]

from agent_cluster import AFTERMATH, HELLO_MS, MANAGEMENT, Cluster, cluster_in, holders_of, pause, until  # noqa: E402
from agent_objects import DRAIN, OUT_OF_SERVICE, POOLS, SERVES, SERVICES, SLICES, service, slice_of  # noqa: E402
from real_api import USERS, RealApi, missing  # noqa: E402

from speaker.lab.failover_result import Promise, broken, promise_of  # noqa: E402
from speaker.lab.namespaces import leave_host_network  # noqa: E402
from speaker.lab.outage import asking  # noqa: E402
from speaker.lab.speakers import holds_most  # noqa: E402
from speaker.lab.switch import mend  # noqa: E402
from speaker.layer2.holdings import PROBES, SPACING  # noqa: E402
from speaker.model import IPAddress  # noqa: E402

OUTAGE = 60.0
"""Seconds without the API."""
FEW, MANY = 10, 1000
ROUNDS = 20
NEW = ip_address("192.0.2.210")
"""The first of the EIPs that Services come for one by one."""
ASK = 0.005
"""Seconds between two ARP requests for it."""
QUIET = 30.0
"""Seconds for which requests are counted."""
CLIENTS = 8
"""That create Services at once."""
WATCHED, ASK_MANY = 60, 0.02
"""EIPs of a crowd that are asked for, and seconds between two requests for each."""
CONFLICT = 409
BY_TIME = ("leases", "eips")
"""Resources that are written as often however many Services come: sessions, and a pool's count once a second."""
SETTLING = 15.0
"""Seconds until nothing is written any more that was put off."""
AGENT, CONTROLLER = "system:serviceaccount:eip-speaker-agents:", "system:serviceaccount:eip-speaker:"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "Panic"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────

Holders = Mapping[IPAddress, str]


@dataclass(frozen=True, slots=True)
class Failure:
    """One of them: ``moved`` of the victim's ``held`` EIPs, ``out_ms`` the longest that any EIP was, ``lost`` probes;
    ``recorded_s``: from the end of it all until the records were right."""

    what: str
    held: int
    moved: int
    out_ms: float
    promised_ms: float
    lost: int
    recorded_s: float
    problems: tuple[str, ...]

    def __str__(self) -> str:
        kept = "kept" if not self.problems else "; ".join(("BROKEN", *self.problems))
        return (
            f"{self.what:44} {self.moved} of {self.held} EIPs moved, out for {self.out_ms:4.0f} ms at worst (promised "
            f"{self.promised_ms:.0f}), {self.lost:3} probes lost, records right {self.recorded_s:4.1f} s after: {kept}"
        )


class Failures:
    """Each method breaks something at ``victim``, and returns when, before everybody agrees again."""

    def __init__(self, cluster: Cluster, outage: float) -> None:
        self.cluster, self.outage = cluster, outage

    async def crash(self, victim: str) -> float:
        return await self.cluster.dies(victim)

    async def agent_killed(self, victim: str) -> float:
        return self.cluster.killed(victim)

    async def drain_annotation(self, victim: str) -> float:
        return self._patched(victim, {"metadata": {"annotations": {DRAIN: "true"}}})

    async def out_of_service(self, victim: str) -> float:
        return self._patched(victim, {"spec": {"taints": [OUT_OF_SERVICE]}})

    async def terminated(self, victim: str) -> float:
        return await self.cluster.stopped(victim)

    async def label(self, victim: str) -> float:
        return self._patched(victim, {"metadata": {"labels": {SERVES: None}}})

    async def api_gone(self, victim: str) -> float:
        self.cluster.api.stop()
        await pause(self.outage / 2)
        at = await self.cluster.dies(victim)
        await pause(self.outage / 2)
        self.cluster.api.start()
        return at

    async def api_frozen(self, victim: str) -> float:
        self.cluster.api.freeze()
        await pause(self.outage / 2)
        at = await self.cluster.dies(victim)
        await pause(self.outage / 2)
        self.cluster.api.thaw()
        return at

    async def api_out_of_reach(self, victim: str) -> float:
        at = time.monotonic()
        await self.cluster.cut_off(victim)
        await pause(self.outage)
        await self.cluster.do(mend, victim, MANAGEMENT)
        return at

    async def compaction(self, victim: str) -> float:
        self.cluster.api.stop()
        self.cluster.api.compact()
        self.cluster.api.start()
        return await self.cluster.dies(victim)

    async def storm(self, victim: str) -> float:
        with self.cluster.storm():
            await pause(5.0)
            at = await self.cluster.dies(victim)
            await pause(5.0)
        return at

    def _patched(self, node: str, patch: dict[str, object]) -> float:
        at = time.monotonic()
        self.cluster.on_node(node, patch)
        return at


@dataclass(frozen=True, slots=True)
class Case:
    what: str
    begin: Callable[[str], Awaitable[float]]
    promise: str = "crash"
    stays: bool = False
    """Nothing is to move."""


def cases(cluster: Cluster, outage: float) -> Iterator[Case]:
    failures = Failures(cluster, outage)
    yield Case("a node dies", failures.crash)
    yield Case("an agent is killed (kill -9)", failures.agent_killed)
    yield Case("a node is drained by annotation", failures.drain_annotation, "drain")
    yield Case("a node is out of service (taint)", failures.out_of_service, "drain")
    yield Case("an agent is asked to stop (SIGTERM)", failures.terminated, "drain")
    yield Case("a node is not the pool's any more (label)", failures.label)
    yield Case("etcd compacted, and a node dies", failures.compaction)
    yield Case("a storm of 409s, and a node dies within", failures.storm)
    yield Case(f"no API for {outage:.0f} s, and a node dies within", failures.api_gone)
    yield Case(f"API frozen for {outage:.0f} s, and a node dies within", failures.api_frozen)
    yield Case(f"a holder without API for {outage:.0f} s", failures.api_out_of_reach, "drain", stays=True)


async def fail(cluster: Cluster, case: Case) -> Failure:
    await cluster.whole()
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    held = {eip for eip, node in holders.items() if node == victim}
    async with cluster.watching(holders) as watch:
        at = await case.begin(victim)
        over = time.monotonic()
        await cluster.agreed(lambda whose: case.stays or victim not in whose.values())
        recorded = time.monotonic() - over
        await pause(AFTERMATH)
    seen = cluster.views(watch, at)
    promise: Promise = promise_of(case.promise, HELLO_MS)
    return Failure(
        what=case.what,
        held=len(held),
        moved=sum(bool(view.moves) for view in seen if view.address in held),
        out_ms=round(max((view.longest_ms if case.promise == "crash" else view.outage.ms) for view in seen), 1),
        promised_ms=round(promise.outage_ms if case.promise == "crash" else 0.0, 1),
        lost=sum(view.outage.lost for view in seen),
        recorded_s=round(recorded, 2),
        problems=tuple(broken(promise, None if case.stays else victim, seen)),
    )


async def all_failures(cluster: Cluster, outage: float) -> list[Failure]:
    found = []
    for case in cases(cluster, outage):
        found.append(await fail(cluster, case))
        print(found[-1], file=sys.stderr, flush=True)
    return found


# ── one more Service ──────────────────────────────────────────────────────────────────────────────────────────


class Connection:
    """Requests as the administrator over one connection, as a client's that is at work already."""

    def __init__(self, api: RealApi) -> None:
        self._api = api
        host, _, port = api.url.removeprefix("https://").partition(":")
        context = ssl.create_default_context(cafile=api.ca)
        self._http = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
        with api.inside():
            self._http.connect()

    def __call__(self, method: str, path: str, body: object) -> None:
        headers = {"Authorization": f"Bearer {USERS['admin'][0]}", "Content-Type": "application/json"}
        self._http.request(method, path, json.dumps(body), headers)
        answer = self._http.getresponse()
        said = answer.read()
        assert answer.status < 300, said


@dataclass(frozen=True, slots=True)
class Answered:
    """From the request until the first answer on the LAN, milliseconds."""

    how: str
    p50_ms: float
    worst_ms: float
    rounds: int

    def __str__(self) -> str:
        probes = PROBES * SPACING * 1000
        return (
            f"{self.how:44} p50 {self.p50_ms:.0f} ms, worst {self.worst_ms:.0f} ms of {self.rounds}; without the "
            f"{probes:.0f} ms of a first claim's probes {self.p50_ms - probes:.0f} and {self.worst_ms - probes:.0f} ms"
        )


async def one_more(cluster: Cluster, eip: IPv4Address, create: Callable[[dict[str, object]], Awaitable[None]]) -> float:
    async with asking(cluster.lan.namespace("host1"), "eth0", [eip], ASK) as asks:

        def answers() -> list[float]:
            return [reply.at for reply in asks.replies() if reply.address == eip and not reply.unasked]

        await pause(1.0)
        assert not answers()
        at = time.monotonic()
        await create(service(eip))
        await until(answers)
        return (min(answers()) - at) * 1000


async def services(cluster: Cluster) -> list[Answered]:
    await cluster.whole()
    connection = Connection(cluster.api)

    async def post(body: dict[str, object]) -> None:
        connection("POST", SERVICES, body)

    async def apply(body: dict[str, object]) -> None:
        kubectl = cluster.api.kubectl
        await asyncio.to_thread(kubectl, "apply", "--namespace=lab", "-f", "-", stdin=json.dumps(body))

    found = []
    eip = NEW
    for how, create in (("POST of a Service to its first answer", post), ("kubectl apply, with its own start", apply)):
        waits = []
        for _ in range(ROUNDS):
            waits.append(await one_more(cluster, eip, create))
            eip += 1
        found.append(Answered(how, round(statistics.median(waits), 1), round(max(waits), 1), ROUNDS))
        print(found[-1], file=sys.stderr, flush=True)
    return found


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Requests:
    """Of a quiet time. ``per_agent``: a second, all kinds; ``kinds``: of all agents together, in all that time."""

    eips: int
    seconds: float
    per_agent: float
    kinds: Mapping[str, int]
    held_after_s: float
    recorded_after_s: float
    while_starting: Mapping[str, int]

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.kinds.items()))
        starting = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.while_starting.items()))
        return (
            f"{self.eips:5} EIPs: {self.per_agent:.2f} requests/s an agent ({kinds} by 3 agents in "
            f"{self.seconds:.0f} s); before that all held {self.held_after_s:.1f} s and all recorded "
            f"{self.recorded_after_s:.1f} s after the agents began ({starting})"
        )


def audited(log: Path, begin: datetime, end: datetime, *who: str) -> Counter[str]:
    """What the agents, or those whose user names begin like one of ``who``, asked for in that time: verb and resource.
    A watch counts when it is opened."""
    found: Counter[str] = Counter()
    with log.open() as lines:
        for line in lines:
            entry = json.loads(line)
            received = datetime.fromisoformat(entry["requestReceivedTimestamp"])
            stage = "ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete"
            if (
                entry["user"]["username"].startswith(who or AGENT)
                and entry["stage"] == stage
                and begin <= received < end
            ):
                about = entry.get("objectRef", {})
                parts = (about.get("resource", entry["requestURI"]), about.get("subresource"))
                code = entry.get("responseStatus", {}).get("code", 200)
                refused = f" ({code})" if code >= 400 else ""
                found[f"{entry['verb']} {'/'.join(filter(None, parts))}{refused}"] += 1
    return found


def eips(count: int) -> tuple[IPv4Address, ...]:
    """250 of each /24: pools leave out .0 and .255."""
    first = IPv4Address("10.99.0.1")
    return tuple(first + 256 * (at // 250) + at % 250 for at in range(count))


@contextmanager
def audited_cluster(directory: Path, **cluster: object) -> Iterator[tuple[Cluster, Path]]:
    policy, log = directory / "policy.json", directory / "audit.log"
    policy.write_text(json.dumps(POLICY))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
    with cluster_in(directory, api_flags=flags, **cluster) as made:
        yield made, log


async def requests(cluster: Cluster, log: Path) -> Requests:
    started, began = datetime.now(UTC), time.monotonic()
    for node in cluster.nodes:
        cluster.start(node)
    await cluster.settled()
    held = time.monotonic() - began
    await cluster.agreed()
    recorded = time.monotonic() - began
    await pause(SETTLING)
    quiet = datetime.now(UTC)
    await pause(QUIET + 1)
    kinds = audited(log, quiet, quiet + timedelta(seconds=QUIET))
    return Requests(
        eips=len(cluster.eips),
        seconds=QUIET,
        per_agent=round(sum(kinds.values()) / QUIET / len(cluster.nodes), 2),
        kinds=dict(kinds),
        held_after_s=round(held, 1),
        recorded_after_s=round(recorded, 1),
        while_starting=dict(audited(log, started, quiet)),
    )


# ── crowd ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Crowd:
    """``behind_ms``: from the creation of the last Service to the last of the first answers for ``WATCHED`` of them,
    the latest created among those; ``created_s``: how long the creations took. ``asked``: while that was, and until
    all was recorded, by agents and controller."""

    one_more: Answered
    created: int
    created_s: float
    behind_ms: float
    asked: Mapping[str, int]

    def __str__(self) -> str:
        refused = sum(count for kind, count in self.asked.items() if kind.endswith(f"({CONFLICT})"))
        by_time = {kind: count for kind, count in self.asked.items() if any(map(kind.__contains__, BY_TIME))}
        for_each = (sum(self.asked.values()) - sum(by_time.values())) / self.created
        return (
            f"{self.one_more}\n{self.created} at once, created in {self.created_s:.1f} s: last answered "
            f"{self.behind_ms:.0f} ms behind, {refused} refused writes, {for_each:.2f} requests for each, and "
            f"{sum(by_time.values())} that time alone causes ({dict(self.asked)})"
        )


async def crowd(cluster: Cluster, log: Path, more: Sequence[IPv4Address]) -> Crowd:
    """Beside those that there are: one by one, then ``more`` at once."""
    for node in cluster.nodes:
        cluster.start(node)
    await cluster.agreed()
    await pause(SETTLING)
    post = Connection(cluster.api)

    async def create(body: dict[str, object]) -> None:
        post("POST", SERVICES, without_node_port(body))

    waits = [await one_more(cluster, NEW + at, create) for at in range(ROUNDS)]
    one = Answered(
        f"one more than {len(cluster.eips)}", round(statistics.median(waits), 1), round(max(waits), 1), ROUNDS
    )
    print(one, file=sys.stderr, flush=True)
    await pause(SETTLING)  # until all of those is told
    watched = [*more[:: len(more) // WATCHED * 2 or 1], *more[-WATCHED // 2 :]]
    async with asking(cluster.lan.namespace("host1"), "eth0", list(dict.fromkeys(watched)), ASK_MANY) as asks:
        clients = [Connection(cluster.api) for _ in range(CLIENTS)]
        begun, began = datetime.now(UTC), time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as threads:  # as many as connections: none waits until it is closed
            run = partial(asyncio.get_running_loop().run_in_executor, threads, _create)
            await asyncio.gather(*(run(client, more[at::CLIENTS]) for at, client in enumerate(clients)))
        created = time.monotonic()

        def first() -> dict[IPAddress, float]:
            found: dict[IPAddress, float] = {}
            for reply in asks.replies():
                if not reply.unasked:
                    found.setdefault(reply.address, reply.at)
            return found

        await until(lambda: first().keys() >= set(watched))
        last = max(first().values())
    everything = {*cluster.eips, *more}
    await until(lambda: sum(bool(each.holder) for each in cluster.records().values()) >= len(everything), patience=120)
    await pause(SETTLING)
    return Crowd(
        one_more=one,
        created=len(more),
        created_s=round(created - began, 2),
        behind_ms=round((last - created) * 1000, 1),
        asked=dict(audited(log, begun, datetime.now(UTC), AGENT, CONTROLLER)),
    )


def _create(client: Connection, eips: Sequence[IPv4Address]) -> None:
    for eip in eips:
        client("POST", SERVICES, without_node_port(service(eip)))


# ── scale ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Scale:
    """Of three agents, the worst. Memory in MB, now and at most so far: of the agent and of its wire process."""

    services: int
    endpoints: int
    held_after_s: float
    recorded_after_s: float
    asked_while_starting: Mapping[str, int]
    agent_mb: float
    agent_peak_mb: float
    wire_mb: float
    main_stall_ms: float
    main_busy_ms: float
    wire_stall_ms: float
    wire_busy_ms: float
    one_more: Answered

    def __str__(self) -> str:
        asked = sum(self.asked_while_starting.values()) / self.services
        return (
            f"{self.services} Services, {self.endpoints} endpoints: all held {self.held_after_s:.1f} s and all "
            f"recorded {self.recorded_after_s:.1f} s after the agents began, {asked:.1f} requests for each "
            f"({dict(self.asked_while_starting)}); agent {self.agent_mb:.0f} MB (at most {self.agent_peak_mb:.0f}) "
            f"and wire process {self.wire_mb:.0f} MB; longest stall {self.main_stall_ms:.0f} ms, with "
            f"{self.main_busy_ms:.0f} ms of its own work, on the wire {self.wire_stall_ms:.0f} with "
            f"{self.wire_busy_ms:.0f}; {self.one_more}"
        )


def memory(pid: int) -> tuple[float, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    now, most = (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("VmRSS", "VmHWM"))
    assert now is not None
    assert most is not None
    return int(now[1]) / 1024, int(most[1]) / 1024


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def gauge(cluster: Cluster, node: str, name: str) -> float:
    with (
        cluster.lan.namespace(node).entered(),
        urllib.request.urlopen("http://127.0.0.1:9900/metrics", timeout=30) as answer,
    ):
        found = re.search(rf"^{name} (\S+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


async def scale(cluster: Cluster, log: Path, many: Sequence[IPv4Address]) -> Scale:
    post = Connection(cluster.api)
    for eip in many:
        post("POST", SERVICES, without_node_port(service(eip)))
        post("POST", SLICES, slice_of(eip, three_endpoints(cluster.nodes)))
    wanted = {*many, *cluster.eips}
    await until(lambda: assigned(cluster, len(wanted)))
    started, began = datetime.now(UTC), time.monotonic()
    for node in cluster.nodes:
        cluster.start(node)
    await until(
        lambda: sum(len(agent.holds() & wanted) for agent in cluster.agents.values()) == len(wanted), patience=600
    )
    held = time.monotonic() - began
    await until(lambda: sum(bool(each.holder) for each in cluster.records().values()) == len(wanted), patience=600)
    recorded = time.monotonic() - began
    print(f"held {held:.1f} s, recorded {recorded:.1f} s", file=sys.stderr, flush=True)
    await pause(SETTLING)
    asked = audited(log, started, datetime.now(UTC))
    own = [memory(child) for agent in cluster.agents.values() for child in children(agent.process.pid)]
    wires = [memory(agent.process.pid)[0] for agent in cluster.agents.values()]
    stalls = [
        [gauge(cluster, node, name) for node in cluster.nodes]
        for name in (
            "eip_speaker_main_loop_delay_max_seconds",
            "eip_speaker_main_loop_busy_max_seconds",
            "eip_speaker_loop_delay_max_seconds",
            "eip_speaker_loop_busy_max_seconds",
        )
    ]

    print(asked, own, wires, stalls, file=sys.stderr, flush=True)
    post = Connection(cluster.api)  # the server has hung up meanwhile

    async def create(body: dict[str, object]) -> None:
        post("POST", SERVICES, without_node_port(body))

    waits = [await one_more(cluster, NEW + at, create) for at in range(ROUNDS)]
    more = Answered("one more among them", round(statistics.median(waits), 1), round(max(waits), 1), ROUNDS)
    return Scale(
        services=len(wanted),
        endpoints=3 * len(wanted),
        held_after_s=round(held, 1),
        recorded_after_s=round(recorded, 1),
        asked_while_starting=dict(asked),
        agent_mb=max(now for now, _ in own),
        agent_peak_mb=max(most for _, most in own),
        wire_mb=max(wires),
        main_stall_ms=1000 * max(stalls[0]),
        main_busy_ms=1000 * max(stalls[1]),
        wire_stall_ms=1000 * max(stalls[2]),
        wire_busy_ms=1000 * max(stalls[3]),
        one_more=more,
    )


def assigned(cluster: Cluster, count: int) -> bool:
    (pool,) = cluster.done("GET", POOLS)["items"]
    used: int = pool.get("status", {}).get("ipv4", {}).get("used", 0) + pool["status"].get("ipv6", {}).get("used", 0)
    return used >= count


def without_node_port(body: dict[str, Any]) -> dict[str, Any]:
    """There are 2,768 of them in a cluster."""
    return {**body, "spec": {**body["spec"], "allocateLoadBalancerNodePorts": False}}


def three_endpoints(nodes: Sequence[str]) -> list[dict[str, object]]:
    return [{"addresses": [f"10.244.{at}.7"], "nodeName": node} for at, node in enumerate(nodes)]


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────────────────

PARTS = ("failures", "services", "requests", "crowd", "scale")


def measured(part: str, directory: Path, options: argparse.Namespace) -> Sequence[object]:
    (home := directory / part).mkdir()
    if part == "failures":
        with cluster_in(home) as cluster:
            return asyncio.run(all_failures(cluster, options.outage))
    if part == "services":
        more = (f"{NEW}-{NEW + 2 * ROUNDS - 1}",)
        with cluster_in(home, more_addresses=more) as cluster:
            return asyncio.run(services(cluster))
    if part == "crowd":
        there, more = eips(options.eips), eips(2 * options.eips)[options.eips :]
        ranges = (f"{NEW}-{NEW + ROUNDS - 1}", f"{more[0]}-{more[-1]}")
        with audited_cluster(home, eips=there, more_addresses=ranges, interface="eth0") as (cluster, log):
            return [asyncio.run(crowd(cluster, log, more))]
    if part == "scale":
        many = eips(options.services)
        more = (f"{NEW}-{NEW + 2 * ROUNDS - 1}", f"{many[0]}-{many[-1]}")
        with audited_cluster(home, more_addresses=more, interface="eth0") as (cluster, log):
            return [asyncio.run(scale(cluster, log, many))]
    found = []
    for count in (FEW, options.eips):
        (directory := home / str(count)).mkdir()
        with audited_cluster(directory, eips=eips(count), interface="eth0") as (cluster, log):
            found.append(asyncio.run(requests(cluster, log)))
            print(found[-1], file=sys.stderr, flush=True)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", choices=PARTS)
    arguments.add_argument("--outage", type=float, default=OUTAGE)
    arguments.add_argument("--eips", type=int, default=MANY)
    arguments.add_argument("--services", type=int, default=10_000)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    if reason := missing():
        print(reason)  # as the tests of this kind say it: not everybody has it
        return
    leave_host_network()
    load, found = os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory(prefix="cluster-agents-") as name:
        for part in (options.only,) if options.only else PARTS:
            found[part] = measured(part, Path(name), options)
    if options.json:
        print(json.dumps({"load": load, **{part: [asdict(one) for one in ones] for part, ones in found.items()}}))
        return
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    for ones in found.values():
        for one in ones:
            print(one)


if __name__ == "__main__":
    main()
