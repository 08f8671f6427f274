"""Three agents on one LAN and a real API server behind another: to be broken, watched, and made whole again.

::

    client   host1   gateway                          admin: etcd, kube-apiserver, controller, kubectl
      │        │        │                               │
    ──┴── lan ─┴────────┴──┬──                 ── mgmt ─┴─┬──
                     eth0  │                              │  eth1
                           └──── node1, node2, node3 ─────┘        the agents, and a stand-in for kube-proxy

Each agent and the controller run under the ServiceAccount that the shipped manifests give them, an agent's token is
bound to a pod of its node, and nothing reaches the API server but by the management segment. So everything here can be
cut off, killed, frozen and told lies, for itself.
"""

import asyncio
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address, ip_address
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent_objects import (
    AGENTS,
    ANNOUNCEMENTS,
    LEASES,
    NAMESPACE,
    NODES,
    POOLS,
    SERVICES,
    SLICES,
    Body,
    agent_pod,
    endpoints,
    pool,
    ranges,
    readiness,
    service,
    slice_of,
    whole_node,
)
from agent_process import Agent, Process
from asking import Asking
from real_api import RealApi

from speaker.api.records import announcement_name
from speaker.lab.failover_result import Instants, Promise, View, broken, views
from speaker.lab.lan import Lan, Stage
from speaker.lab.outage import Asks, asking, echoing
from speaker.lab.scene import ASK_INTERVAL, EVERYBODY, LINK, Scene, Watch
from speaker.lab.speakers import ECHO_PORT, POD_PORT, lab_eips, service_of
from speaker.lab.switch import cut, mend, spoil
from speaker.lab.timeline import Timeline
from speaker.lab.topology import lab_topology
from speaker.model import IPAddress, format_mac
from speaker.ownership.hellos.keys import generate
from speaker.settings import DEFAULT_HELLO_MS

NODE_COUNT, CLIENT_COUNT, EIP_COUNT = 3, 2, 8
API_HOST, API_ADDRESS, MANAGEMENT = "admin", "198.51.100.100", "eth1"
OVERLAY = Path(__file__).parents[2] / "manifests" / "overlays" / "default"
GUARD = 120.0
"""Seconds; against a hang, not an expectation."""
POLL = 0.02
TOO_MANY_REQUESTS = 429
AFTERMATH = 0.7
"""Seconds that everything is watched on, once it is as it should be."""
REMEMBERS, REMEMBERED = 2.0, 3.0
"""Seconds between two writings of what the API says, in the agents here, and after which all of it was written."""

KUBE_PROXY = f"""
table inet kube-proxy {{
  chain prerouting {{
    type nat hook prerouting priority dstnat
    ip daddr 192.0.2.200/29 udp dport {ECHO_PORT} redirect to :{POD_PORT}
    ip6 daddr 2001:db8:0:1::200/120 udp dport {ECHO_PORT} redirect to :{POD_PORT}
  }}
}}
"""
"""What stands in for kube-proxy on every node: to the node's own echo, so an answer tells of that node alone."""


class Administrator(Asking):
    """Asks from where the API server is."""

    def __init__(self, api: RealApi) -> None:
        super().__init__(api)
        self._api = api

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Body]:
        with self._api.inside():
            return super().__call__(method, path, body)


@dataclass(frozen=True, slots=True)
class Record:
    """An Announcement's status, as far as it says who holds the EIP."""

    holder: str = ""
    incarnation: int = 0
    term: int = 0
    link: str = ""
    mac: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A node's Lease."""

    incarnation: int


@dataclass
class Cluster:
    """``with Cluster(directory, lan) as cluster``: installed, all EIPs assigned, no agent started yet.

    From one thread only: what it starts dies with that thread.
    """

    directory: Path
    lan: Lan
    eips: tuple[IPAddress, ...] = lab_eips(EIP_COUNT)
    more_addresses: Sequence[str] = ()
    """Of the pool, beside ``eips``; and the link to announce on, which is found by itself on the LAN's own subnets."""
    interface: str = ""
    api_flags: tuple[str, ...] = ()
    revision: int = 1
    """Of the agents that are started from now on."""
    agents: dict[str, Agent] = field(default_factory=dict)
    """Those that run, by node."""

    def __post_init__(self) -> None:
        self.nodes = self.lan.topology.nodes
        self.scene = Scene(Stage(self.lan, Timeline(None), self.directory, self.directory), self, self.eips, HELLO_MS)
        self._accesses: dict[str, tuple[str, ...]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._build(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    # ── Building it ──

    def _build(self, stack: ExitStack) -> None:
        stack.callback(lambda: [agent.kill() for agent in self.agents.values()])
        (home := self.directory / "api").mkdir()
        place = self.lan.namespace(API_HOST)
        self.api = stack.enter_context(RealApi(home, *self.api_flags, place=place, address=API_ADDRESS))
        self.ask = Administrator(self.api)
        self._write_key()
        self._install()
        for node in self.nodes:
            self._let_in(node)
        self._objects()
        self._forward(stack)
        self._start_controller()
        stack.callback(lambda: self.controller.kill())
        deadline = time.monotonic() + GUARD
        while not self._assigned():
            assert time.monotonic() < deadline, self.controller.log.read_text()[-2000:]
            time.sleep(POLL)

    def _forward(self, stack: ExitStack) -> None:
        """What forwards on every node, and what answers behind it."""
        for node in self.nodes:
            with self.lan.namespace(node).entered():
                subprocess.run(["nft", "-f", "-"], input=KUBE_PROXY, text=True, check=True)
        stack.enter_context(echoing((self.lan.namespace(node), POD_PORT) for node in self.nodes))

    def _start_controller(self, *flags: str) -> None:
        token = self.api.kubectl("create", "token", "eip-speaker-controller", "--namespace=eip-speaker")
        common = (*self._access("controller", token), "--metrics", "off", "--log-format", "json")
        place = self.lan.namespace(API_HOST)
        self.controller = Process(place, self.directory / "controller.log", "controller", *common, *flags)

    async def control(self, *flags: str) -> None:
        """From now on by a controller with these flags."""
        self.controller.terminate()
        await until(lambda: self.controller.process.poll() is not None)
        self._start_controller(*flags)

    def _write_key(self) -> None:
        self.key = self.directory / "key"
        self.key.touch(mode=0o600)
        self.key.write_text(generate(os.urandom(32)))
        for node in self.nodes:
            self.hand_out_key(node)

    def hand_out_key(self, node: str) -> None:
        shutil.copy(self.key, self._key_of(node))

    def _key_of(self, node: str) -> Path:
        return self.directory / f"key-{node}"

    def _install(self) -> None:
        """The shipped manifests, and namespaces of our own."""
        self.api.kubectl("apply", "-k", str(OVERLAY))
        names = ("crd/eips.eip-speaker.io", "crd/announcements.eip-speaker.io")
        self.api.kubectl("wait", "--for=condition=Established", "--timeout=180s", *names)
        self.done("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def _let_in(self, node: str) -> None:
        self.done("POST", NODES, {"metadata": {"name": node}})
        self.done("PATCH", f"{NODES}/{node}", whole_node())
        self.done("PATCH", f"{NODES}/{node}/status", readiness(True))
        self._give_token(node)

    def _give_token(self, node: str) -> None:
        """Of a pod that is made now."""
        self.done("POST", f"/api/v1/namespaces/{AGENTS}/pods", pod := agent_pod(node))
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod['metadata']['name']}")
        token = self.api.kubectl("create", "token", "eip-speaker-agent", f"--namespace={AGENTS}", *bound)
        self._accesses[node] = self._access(f"agent-{node}", token)

    def _access(self, name: str, token: str) -> tuple[str, ...]:
        """As a pod has it."""
        mounted = self.api.service_account(self.directory / f"{name}-account", token)
        return ("--service-account", str(mounted), "--server", self.api.url)

    def _objects(self) -> None:
        self.done("POST", POOLS, pool([*ranges(self.eips), *self.more_addresses], self.interface))
        for eip in self.eips:
            self.done("POST", SERVICES, service(eip, local=eip in self.local))
            self.done("POST", SLICES, slice_of(eip, endpoints(self.lan.topology, eip, self.nodes)))

    def _assigned(self) -> bool:
        services = self.done("GET", SERVICES)["items"]
        return all(each["status"]["loadBalancer"].get("ingress") for each in services)

    @property
    def local(self) -> tuple[IPAddress, ...]:
        """The EIPs whose Service wants its holder to have a ready endpoint."""
        return self.eips[::2]

    # ── Asking the API ──

    def done(self, method: str, path: str, body: object = None) -> Body:
        """A request as the administrator that must not be refused; what it said."""
        code, answer = self.ask(method, path, body)
        while code == TOO_MANY_REQUESTS:  # a resource that was just defined: "storage is (re)initializing"
            code, answer = self.ask(method, path, body)
        assert code < 300, (method, path, code, answer)
        return answer

    def records(self) -> dict[IPAddress, Record]:
        found = {}
        for each in self.done("GET", ANNOUNCEMENTS)["items"]:
            status = each.get("status", {})
            found[_address(each["metadata"]["name"])] = Record(
                **{name: status[name] for name in Record.__slots__ if name in status}
            )
        return found

    def prolong(self, node: str, seconds: int) -> None:
        """The node's Lease, as if it had been renewed for so long just now."""
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.done("PATCH", f"{LEASES}/{node}", {"spec": {"leaseDurationSeconds": seconds, "renewTime": renewed}})

    def sessions(self) -> dict[str, Session]:
        """By node."""
        found = {}
        for each in self.done("GET", LEASES)["items"]:
            node, _, incarnation = each["spec"]["holderIdentity"].rpartition("_")
            found[node] = Session(int(incarnation))
        return found

    def on_node(self, node: str, patch: Body) -> None:
        self.done("PATCH", f"{NODES}/{node}", patch)

    def ready(self, nodes: Iterable[str], *, ready: bool = True) -> None:
        for node in nodes:
            self.done("PATCH", f"{NODES}/{node}/status", readiness(ready))

    def ready_endpoints(self, eip: IPAddress, nodes: Iterable[str]) -> None:
        """From now on those of the Service are ready on ``nodes`` only."""
        found = {"endpoints": endpoints(self.lan.topology, eip, nodes)}
        self.done("PATCH", f"{SLICES}/{service_of(eip)}", found)

    @contextmanager
    def storm(self) -> Iterator[list[int]]:
        """Somebody else writes to every Announcement, all the time. Yields a list that grows by one each time."""
        over, written = threading.Event(), []

        def write() -> None:
            ask = Administrator(self.api)
            while not over.is_set():
                for eip in self.eips:
                    note = {"metadata": {"annotations": {"example.com/storm": str(len(written))}}}
                    ask("PATCH", f"{ANNOUNCEMENTS}/{announcement_name(eip)}", note)
                    written.append(1)

        writer = threading.Thread(target=write, name="storm")
        writer.start()
        try:
            yield written
        finally:
            over.set()
            writer.join()

    # ── Agents ──

    def start(self, node: str, *flags: str) -> None:
        access = (*self._accesses[node], "--key", str(self._key_of(node)))
        place, home = self.lan.namespace(node), self.directory / node
        revision = ("--revision", str(self.revision))
        self.agents[node] = Agent(node, place, home, *access, *revision, *flags)

    async def dies(self, node: str) -> float:
        """A machine: its agent, and its forwarding at once. Returns when."""
        at = time.monotonic()
        await self.do(cut, node)
        self.agents.pop(node).kill()
        return at

    def killed(self, node: str) -> float:
        """Its agent alone; the node's kernel goes on forwarding."""
        at = time.monotonic()
        self.agents.pop(node).kill()
        return at

    async def stopped(self, node: str) -> float:
        """SIGTERM, as the kubelet sends it; returns when that was, and after the agent has ended."""
        at, agent = time.monotonic(), self.agents.pop(node)
        agent.terminate()
        await until(lambda: agent.process.poll() is not None)
        assert agent.process.returncode == 0, agent.said()[-10:]
        return at

    def holders(self) -> dict[IPAddress, list[str]]:
        """By what each agent that runs says of itself."""
        says = {node: agent.holds() for node, agent in self.agents.items()}
        return {eip: [node for node in says if eip in says[node]] for eip in self.eips}

    async def settled(self, wanted: Callable[[Mapping[IPAddress, str]], object] = bool) -> dict[IPAddress, str]:
        """When each EIP has one holder, and ``wanted`` is true of them: who that is."""

        def one_each() -> dict[IPAddress, str] | None:
            for agent in self.agents.values():
                agent.check()
            found = self.holders()
            whose = {eip: them[0] for eip, them in found.items() if len(them) == 1}
            return whose if len(whose) == len(self.eips) and wanted(whose) else None

        return await until(one_each, lambda: f"holders: {self.holders()}")

    async def agreed(self, wanted: Callable[[Mapping[IPAddress, str]], object] = bool) -> dict[IPAddress, Record]:
        """As ``settled``, and each EIP's record names its holder, as it is now: the records."""
        wrong: dict[IPAddress, tuple[str, Record]] = {}

        async def right() -> dict[IPAddress, Record] | None:
            holders, found, sessions = await self.settled(wanted), self.records(), self.sessions()
            wrong.clear()
            for eip, node in holders.items():
                record = found.get(eip, Record())
                if not self._true(record, node, sessions):
                    wrong[eip] = node, record
            return None if wrong else found

        deadline = time.monotonic() + GUARD
        while not (found := await right()):
            assert time.monotonic() < deadline, f"EIP: (holder, its record): {wrong}"
            await asyncio.sleep(POLL)
        return found

    def _true(self, record: Record, node: str, sessions: Mapping[str, Session]) -> bool:
        mac = format_mac(self.lan.topology.host(node).mac(LINK))
        said = (record.holder, record.incarnation, record.link, record.mac)
        return node in sessions and said == (node, sessions[node].incarnation, LINK, mac)

    # ── Breaking it, and making it whole ──

    async def do(self, fault: Callable[..., None], *arguments: object) -> None:
        """One of the LAN's (``speaker.lab.switch``, ``speaker.lab.switch``)."""
        await asyncio.to_thread(fault, self.lan, *arguments)

    async def cut_off(self, node: str) -> None:
        """From the API."""
        await self.do(cut, node, MANAGEMENT)

    async def whole(self) -> None:
        """Nothing is broken, drained or missing, every node holds something, and the records say so."""
        self.api.thaw()
        if not self.api.running:
            self.api.start()
        await self.do(spoil, [])
        for node in self.nodes:
            await self.do(mend, node)
            await self.do(mend, node, MANAGEMENT)
            self.on_node(node, whole_node())
        self.ready(self.nodes)
        for eip in self.local:
            self.ready_endpoints(eip, self.nodes)
        for node in self.nodes:
            if node not in self.agents:
                self.start(node)
        await self.until_healthy(*self.nodes)
        deadline = time.monotonic() + GUARD
        while set(holders_of(found := await self.agreed()).values()) != set(self.nodes):
            assert time.monotonic() < deadline, found
            self.agents[self.nodes[0]].ask("rebalance")  # in vain as long as a node has not heard that it may again

    async def until_healthy(self, *nodes: str) -> None:
        agents = [self.agents[node] for node in nodes]

        def healthy() -> bool:
            for agent in agents:
                agent.check()
            return all(map(self.healthy, nodes))

        await until(healthy, lambda: {agent.node: agent.said()[-10:] for agent in agents})

    def complaints(self) -> list[dict[str, Any]]:
        """What the agents that run said and none ever should: errors of their own, and tracebacks."""
        return [
            {"node": node, **line}
            for node, agent in self.agents.items()
            for line in agent.said()
            if line.get("level") not in ("debug", "info", "warning")
        ]

    def healthy(self, node: str) -> bool:
        try:
            with self.lan.namespace(node).entered(), urllib.request.urlopen(HEALTH, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:  # not there yet, or 503
            return False

    def metrics(self, node: str) -> str:
        with self.lan.namespace(node).entered(), urllib.request.urlopen(METRICS, timeout=GUARD) as answer:
            text: bytes = answer.read()
            return text.decode()

    # ── Watching it ──

    @asynccontextmanager
    async def watching(self, holders: Mapping[IPAddress, str]) -> AsyncIterator[Watch]:
        """The client probes every EIP and another host asks for them by ARP, from before the block until everybody is
        served again after it, and a little longer."""
        async with self.scene.watching(*EVERYBODY, holders) as watch:
            yield watch
            await watch.probes.answering(time.monotonic())
            await asyncio.sleep(AFTERMATH)

    def asking(self) -> AbstractAsyncContextManager[Asks]:
        """A host that asks by ARP for every EIP of IPv4, held or not."""
        asked = [eip for eip in self.eips if isinstance(eip, IPv4Address)]
        return asking(self.lan.namespace(EVERYBODY[1]), LINK, asked, ASK_INTERVAL)

    def views(self, watch: Watch, fault: float = 0.0) -> tuple[View, ...]:
        return tuple(views(watch.seen(), self.scene.names, Instants(fault), HELLO_MS))


def broken_promises(
    seen: Iterable[View], victim: str | None = None, *, lossless: bool = False, of: Collection[IPAddress] | None = None
) -> list[str]:
    """What ``victim`` held (``of``: only these) has moved once, nothing else has; nobody answered twice, everybody
    is served, and with ``lossless`` no probe was lost. Milliseconds are not asked for.
    """
    promise = Promise(inf, lossless=lossless)
    concerned, others = [], []
    for view in seen:
        (concerned if of is None or view.address in of else others).append(view)
    return [*broken(promise, victim, concerned), *broken(Promise(inf, lossless=True), None, others)]


HELLO_MS = DEFAULT_HELLO_MS
HEALTH, METRICS = "http://127.0.0.1:9900/healthz", "http://127.0.0.1:9900/metrics"


async def until(holds: Callable[[], Any], told: Callable[[], object] = lambda: "", patience: float = GUARD) -> Any:
    """Its first true answer; AssertionError with what ``told`` says when there is none."""
    deadline = time.monotonic() + patience
    while not (found := holds()):  # what it looks at grows in other processes
        assert time.monotonic() < deadline, told()
        await asyncio.sleep(POLL)
    return found


def holders_of(records: Mapping[IPAddress, Record]) -> dict[IPAddress, str]:
    return {eip: record.holder for eip, record in records.items()}


async def pause(seconds: float) -> None:
    """Nothing is waited for: what is there stays as it is for so long, or the watch tells."""
    await asyncio.sleep(seconds)


def _address(name: str) -> IPAddress:
    return ip_address(name.replace("-", ":"))


@contextmanager
def cluster_in(directory: Path, nodes: int = NODE_COUNT, **options: Any) -> Iterator[Cluster]:
    with Lan(lab_topology(nodes, CLIENT_COUNT)) as lan, Cluster(directory, lan, **options) as cluster:
        yield cluster
