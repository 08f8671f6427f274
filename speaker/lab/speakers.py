"""The speakers of all nodes, sharing the EIPs: started, watched, killed, frozen, brought back.

Each is the real one as a child process inside a node's namespace, and dies with the lab, whatever ends the lab.

The manifests that they share have one Service for each EIP, named by address, with ``externalTrafficPolicy: Local`` and
pods on every node. So each holder answers through a pod of its own, and a probe depends on that node alone, not on the
way to another node's pods.
"""

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from speaker.errors import EdgeError
from speaker.lab.lan import Stage
from speaker.lab.namespaces import Namespace
from speaker.lab.topology import MAX_EIPS, Topology
from speaker.model import Family, IPAddress
from speaker.ownership.hellos.keys import generate
from speaker.system.programs import end_with
from speaker.system.threads import in_thread

HEALTH = ("127.0.0.1", 9900)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
#: Seconds a speaker gets to withdraw its EIPs after SIGTERM.
GRACE = 5.0


@dataclass(frozen=True, slots=True)
class SpeakerProcess:
    """One running speaker: its log as it comes, its status file, and the last lines in case it dies."""

    node: str
    namespace: Namespace
    runtime_dir: Path
    process: asyncio.subprocess.Process
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=40))

    def signal(self, number: signal.Signals) -> None:
        """As somebody sends it: what asks a service to stop goes to its first process (kubelet, systemd's
        ``KillMode=mixed``), what happens to a machine (SIGKILL, SIGSTOP, SIGCONT) happens to all of them."""
        if number is signal.SIGTERM:
            self.process.send_signal(number)
        else:
            os.killpg(self.process.pid, number)  # a group of its own: see _settle_in

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Log lines as they are written, until the speaker ends; other text comes as ``{"event": line}``."""
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            line = raw.decode(errors="replace").rstrip()
            self.last_lines.append(line)
            yield parse_event(line)

    def status(self) -> Mapping[str, Any]:
        """``status.json``, what the speaker says it does; empty until it is written."""
        with suppress(FileNotFoundError):
            found: Mapping[str, Any] = json.loads((self.runtime_dir / "status.json").read_bytes())
            return found
        return {}

    async def healthy(self) -> bool:
        """Whether ``GET /healthz`` inside the node says 200."""
        with suppress(OSError):  # nobody answers, or 503
            await in_thread(fetched, self.namespace, "/healthz", 1.0)
            return True
        return False


def fetched(node: Namespace, path: str, seconds: float) -> bytes:
    """What the speaker there answers over HTTP. Blocking. Raises OSError, also for an answer that is a failure."""
    with node.entered(), _DIRECT.open(f"http://{HEALTH[0]}:{HEALTH[1]}{path}", timeout=seconds) as answer:
        body: bytes = answer.read()
    return body


@asynccontextmanager
async def started(
    node: str,
    namespace: Namespace,
    manifests: Path,
    directory: Path,
    *flags: str,
    grace: float = GRACE,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[SpeakerProcess]:
    """``speaker run manifests`` with ``flags`` inside ``namespace``, its files under ``directory``.

    At the end it is asked to stop, and after ``grace`` seconds killed. ``environment``: more than this process's own.
    """
    runtime_dir = directory / "run"
    runtime_dir.mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "speaker", "run", str(manifests), "--node", node),
        *("--state", str(directory / "state.json"), "--runtime-dir", str(runtime_dir)),
        *("--forwarder", "auto", "--metrics", f"{HEALTH[0]}:{HEALTH[1]}", "--log-format", "json", *flags),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,  # bytes a log line may have; a list of changes can be long
        env={**os.environ, **(environment or {})},
        preexec_fn=_settle_in(namespace),
    )
    try:
        yield SpeakerProcess(node, namespace, runtime_dir, process)
    finally:
        await _stop(process, grace)


def _settle_in(namespace: Namespace) -> Any:
    """What the child does between fork and exec: only system calls, so that other threads' locks do not matter."""
    lab = os.getpid()

    def settle_in() -> None:
        end_with(lab)
        namespace.join()
        os.setsid()  # a Ctrl-C at the terminal is for the lab, which then stops us in good order

    return settle_in


async def _stop(process: asyncio.subprocess.Process, grace: float) -> None:
    if process.returncode is not None:
        return
    try:
        if grace > 0:
            process.terminate()
        async with asyncio.timeout(grace):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def parse_event(line: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) else {"event": line}


#: Seconds until everybody knows who holds what, generous because a lab also runs on a busy laptop.
CONVERGENCE = 30.0
#: Seconds that a drained speaker may take to end.
ENDING = 10.0
POLL = 0.02


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a speaker's log; ``at``: CLOCK_MONOTONIC seconds."""

    at: float
    node: str
    event: Mapping[str, Any]


@dataclass
class Speakers:
    """``running`` has those that run now, by node; ``told`` everything that all of them ever logged."""

    stage: Stage
    flags: tuple[str, ...]
    stack: AsyncExitStack
    tasks: asyncio.TaskGroup
    running: dict[str, SpeakerProcess] = field(default_factory=dict)
    told: list[LogLine] = field(default_factory=list)

    async def start(self, node: str) -> None:
        stage = self.stage
        directory = stage.directory / node
        (directory / "run" / "status.json").unlink(missing_ok=True)  # of a life before
        # Nothing is left to hand over to at the end of a lab.
        speaker = await self.stack.enter_async_context(
            started(node, stage.lan.namespace(node), stage.manifests, directory, *self.flags, grace=0)
        )
        self.running[node] = speaker
        self.tasks.create_task(self._listen(speaker), name=f"log of {node}")

    def signal(self, node: str, number: signal.Signals) -> float:
        """Send it now; returns when that was."""
        self.running[node].signal(number)
        return time.monotonic()

    async def ended(self, node: str) -> int:
        """Wait until the speaker of ``node`` is gone; its exit code. EdgeError when it stays."""
        speaker = self.running.pop(node)
        try:
            async with asyncio.timeout(ENDING):
                return await speaker.process.wait()
        except TimeoutError as late:
            raise EdgeError(f"the speaker of {node} did not end within {ENDING:.0f} s") from late

    async def settled(self, eips: Collection[IPAddress], nodes: Collection[str] | None = None) -> dict[IPAddress, str]:
        """Wait until each of ``eips`` has one holder among ``nodes`` (None: all that run); who it is.

        By what each says of itself in its status file. EdgeError when it takes too long.
        """
        asked = [self.running[node] for node in (self.running if nodes is None else nodes)]
        found: Mapping[IPAddress, list[str]] = {}
        try:
            async with asyncio.timeout(CONVERGENCE):
                while True:
                    found = holders(eips, {speaker.node: claimed(speaker.status()) for speaker in asked})
                    if all(len(them) == 1 for them in found.values()):
                        return {eip: them[0] for eip, them in found.items()}
                    await asyncio.sleep(POLL)
        except TimeoutError as late:
            told = "; ".join(f"{eip}: {' and '.join(them) or 'nobody'}" for eip, them in found.items())
            raise EdgeError(f"after {CONVERGENCE:.0f} s not every EIP has one holder: {told}") from late

    async def _listen(self, speaker: SpeakerProcess) -> None:
        """Keeps what a speaker logs. Raises EdgeError, with its last lines, if it ends before it was asked to."""
        async for event in speaker.events():
            self.told.append(LogLine(_when(event), speaker.node, event))
        code = await speaker.process.wait()
        if self.running.get(speaker.node) is speaker:
            words = [f"the speaker in {speaker.node} ended with exit code {code}:", *speaker.last_lines]
            raise EdgeError("\n".join(words))


def _when(event: Mapping[str, Any]) -> float:
    """The time in the line itself, because the line may have waited in the pipe."""
    offset = time.monotonic() - time.time()
    try:
        return datetime.fromisoformat(event["timestamp"]).timestamp() + offset
    except (KeyError, ValueError):
        return time.monotonic()


@asynccontextmanager
async def speakers(stage: Stage, hello_ms: int) -> AsyncIterator[Speakers]:
    """The speakers of all nodes of the topology, sharing one key; killed at the end of the block."""
    key = stage.directory / "key"
    key.touch(mode=0o600)
    key.write_text(generate(os.urandom(32)))
    flags = ("--with-peers", "--key", str(key), "--hello", str(hello_ms), "--responder", stage.responder)
    async with asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        found = Speakers(stage, flags, stack, tasks)
        for node in stage.lan.topology.nodes:
            await found.start(node)
        try:
            yield found
        finally:
            found.running.clear()  # whoever ends now was meant to


def claimed(status: Mapping[str, Any]) -> dict[IPAddress, bool]:
    """Whether a node holds each EIP, from its ``status.json``; empty until it has one."""
    return {ip_address(eip["address"]): eip["claimed"] for eip in status.get("eips", ())}


def holders(
    eips: Collection[IPAddress], claims: Mapping[str, Mapping[IPAddress, bool]]
) -> Mapping[IPAddress, list[str]]:
    """Who says of itself that it holds each EIP; nobody does until every node has spoken of all of them."""
    told = all(said.keys() >= set(eips) for said in claims.values())
    return {eip: [node for node, said in claims.items() if told and said[eip]] for eip in eips}


def holds_most(holders: Mapping[IPAddress, str]) -> str:
    """The node with the most EIPs, the first by name among equals."""
    counts = Counter(holders.values())
    return min(counts, key=lambda node: (-counts[node], len(node), node))


# ── The manifests that the nodes share ────────────────────────────────────────────────────────────────────────


#: RFC 862's, on which the Services listen, and the one that their pods do.
ECHO_PORT, POD_PORT = 7, 7007

ELSEWHERE = ip_address("198.51.100.200")
"""An EIP on the nodes' other link: hellos go there too, and tell at once what a pulled cable made a node give up."""

_FIRST = {Family.IPV4: ip_address("192.0.2.200"), Family.IPV6: ip_address("2001:db8:0:1::200")}


def lab_eips(count: int) -> tuple[IPAddress, ...]:
    """``count`` EIPs on the nodes' eth0, a quarter of them IPv6; ValueError outside 1 to MAX_EIPS."""
    if not 1 <= count <= MAX_EIPS:
        raise ValueError(f"a lab has 1 to {MAX_EIPS} EIPs, not {count}")
    of_ipv6 = count // 4
    return (
        *(_FIRST[Family.IPV4] + number for number in range(count - of_ipv6)),
        *(_FIRST[Family.IPV6] + number for number in range(of_ipv6)),
    )


def failover_manifests(topology: Topology, eips: tuple[IPAddress, ...]) -> str:
    """A file for the manifests directory."""
    documents = [pool("lan", map(str, eips)), *(each for eip in eips for each in _service(topology, eip))]
    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return text


def service_of(eip: IPAddress) -> str:
    """The name of the Service that has ``eip``, in namespace ``lab``."""
    return f"echo-{eip.exploded.replace(':', '-').replace('.', '-')}"


def _service(topology: Topology, eip: IPAddress) -> tuple[dict[str, Any], dict[str, Any]]:
    family = Family.of(eip)
    endpoints = [
        {"addresses": [str(address)], "nodeName": node}
        for node in topology.nodes
        for pod in topology.pods_of(node)
        for address in topology.host(pod).addresses
        if Family.of(address) is family
    ]
    spec = {"loadBalancerClass": "eip-speaker.io/speaker", "externalTrafficPolicy": "Local"}
    port = {"protocol": "UDP", "port": ECHO_PORT, "targetPort": POD_PORT}
    return service(service_of(eip), str(eip), family, port, endpoints, ipFamilies=[family.value], **spec)


# ── Objects, as their manifests have them ─────────────────────────────────────────────────────────────────────


def pool(name: str, addresses: Iterable[str], **spec: Any) -> dict[str, Any]:
    spec = {"addresses": [*addresses], **spec}
    return {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": name}, "spec": spec}


def service(
    name: str, eip: str | None, family: Family, port: dict[str, Any], endpoints: list[dict[str, Any]], **spec: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Service ``lab/NAME`` that asks for ``eip``, if for any in particular, and its EndpointSlice."""
    metadata = {"namespace": "lab", "name": name}
    annotations = {"eip-speaker.io/addresses": eip} if eip is not None else {}
    of_pods = {key: value for key, value in port.items() if key != "targetPort"} | {"port": port["targetPort"]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [port], **spec},
    }, {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
        "addressType": family.value,
        "ports": [of_pods],
        "endpoints": endpoints,
    }
