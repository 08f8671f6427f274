"""Three speakers on one LAN, one of them with faults planted into it, and neighbours that ask for every EIP.

The victim is kept busy while a place raises: what is asked of it changes, an address comes and goes, its key file is
written, people ask it how it is. So nearly every line that it has is passed several times a second.
"""

import asyncio
import os
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

import yaml
from fault_plan import Switches
from lab_speaker import Speaker
from speaker_processes import told_apart

from speaker.errors import EdgeError
from speaker.lab.lan import Lan
from speaker.lab.outage import Outage, asking, echoing, outages, probing
from speaker.lab.speakers import ECHO_PORT, POD_PORT, claimed, failover_manifests, holders, holds_most, lab_eips
from speaker.lab.topology import lab_topology
from speaker.model import IPAddress
from speaker.node.control import ask
from speaker.ownership.hellos.keys import generate
from speaker.ownership.parameters import Parameters

NODES, EIPS, HELLO_MS = 3, 8, 200
LINK = "eth0"
INTERVAL = 0.02
"""Seconds between two questions for one EIP."""
PROMISED_MS = Parameters.for_hello(HELLO_MS / 1000).worst_failover * 1000
UNNOTICED_MS = 150.0
"""A gap that the machine alone makes: beside other work an answer takes as long."""
STRANGER = "gateway"
"""Who asks for the victim's own EIP by NDP, again and again."""
STIR = 0.15
"""Seconds between two rounds of what keeps the victim busy."""
REACHED = 30.0
"""Seconds within which a place must have raised."""
RAISES = 0.4
"""Seconds for which it raises each time."""
LASTS = 3.0
"""Seconds for which what lasts does: longer than the peers take to notice, to take over, and to be answered for."""
HEALED = 90.0
"""Seconds after which everything must be as before, on a machine that does much else: what it took is in the table.
More than the minute for which a link that came back twice goes last (rule 14): nobody asks who holds nothing."""
TOLD = 30.0
"""Seconds after which ``status`` must have told of it at the latest: it is told at once where there is time."""
GUARD = 180.0
POLL = 0.03
STIRRED = ip_address("192.0.2.249"), ip_address("2001:db8:0:1::249")
"""EIPs of the victim's alone, which come and go."""


@dataclass
class Seen:
    """What neighbours, the log, the metric and ``status`` said of one fault. Times in milliseconds."""

    place: str
    raised: int = 0
    ended: bool = False
    replaced: bool = False
    """Another main process had to take over."""
    moved: Mapping[IPAddress, str] = field(default_factory=dict)
    """Each EIP that changed its holder, and who had it before."""
    out: Mapping[IPAddress, float] = field(default_factory=dict)
    """The longest that nobody answered a question for it, or a datagram through it."""
    never_back: tuple[IPAddress, ...] = ()
    logged: bool = False
    counted: bool = False
    told: bool = False
    healed_ms: float | None = None
    before: Mapping[IPAddress, str] = field(default_factory=dict)
    left: str = ""
    """What was not as before when it should have healed."""

    def __str__(self) -> str:
        yes = {True: "yes", False: "no"}
        victims = [out for eip, out in self.out.items() if self.before.get(eip) == "node1"]
        others = [out for eip, out in self.out.items() if self.before.get(eip) != "node1"]
        end = "ENDED" if self.ended else "again" if self.replaced else ""
        return (
            f"{self.place:64} {self.raised:6} {end:6} {len(self.moved):5} "
            f"{max(victims, default=0):6.0f} {max(others, default=0):6.0f} "
            f"{yes[self.logged]:>6} {yes[self.counted]:>7} {yes[self.told]:>5} "
            f"{'never' if self.healed_ms is None else f'{self.healed_ms:.0f}':>7} {self.left[:160]}"
        )


HEAD = (
    f"{'raised at':64} {'times':>6} {'':6} {'moved':>5} {'out':>6} {'others':>6} "
    f"{'logged':>6} {'counted':>7} {'told':>5} {'healed':>7}   (ms; promised: {PROMISED_MS:.0f})"
)


class FaultLab:
    """``with FaultLab(directory, places, constants) as lab: await lab.suffers(place)``. From one thread only."""

    victim = "node1"
    responder = "socket"

    def __init__(
        self, directory: Path, places: Sequence[str], constants: Mapping[str, float], hello_ms: int = HELLO_MS
    ) -> None:
        self._directory, self._places, self._constants, self._hello_ms = directory, places, constants, hello_ms
        self.eips = lab_eips(EIPS)
        self._asked = [eip for eip in self.eips if isinstance(eip, IPv4Address)]
        self._stack = ExitStack()
        self._stir_lock = threading.Lock()
        self.table: list[Seen] = []

    def __enter__(self) -> "FaultLab":
        with ExitStack() as stack:
            self.lan = stack.enter_context(Lan(lab_topology(NODES)))
            self.names = {self.lan.topology.host(node).mac(LINK): node for node in self.lan.topology.nodes}
            pods = [pod for node in self.lan.topology.nodes for pod in self.lan.topology.pods_of(node)]
            stack.enter_context(echoing((self.lan.namespace(pod), POD_PORT) for pod in pods))
            self.speakers = dict(self._speakers(generate(os.urandom(32))))
            for speaker in self.speakers.values():
                speaker.start()
                stack.callback(speaker.kill)
            with self.lan.namespace(STRANGER).entered():
                self._stranger = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            self._stranger.setblocking(False)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _speakers(self, key: str) -> Iterator[tuple[str, Speaker]]:
        manifests = failover_manifests(self.lan.topology, self.eips)
        for node in self.lan.topology.nodes:
            home = self._directory / node
            environment: Mapping[str, str] = {}
            if node == self.victim:
                self.switches = Switches(home / "faults", self._places, self._constants)
                environment = self.switches.environment
            speaker = Speaker(node, self.lan, home, environment, self._hello_ms, key)
            speaker.responder = self.responder
            (speaker.manifests / "shared.yaml").write_text(manifests)
            yield node, speaker

    # ── One fault ──

    async def suffers(self, place: str, raises: float = RAISES) -> Seen:
        """Raise there once, and then for so many seconds; what came of it, once it is over."""
        before = await self.whole()
        victim, seen = self.speakers[self.victim], Seen(place, before=before)
        errors, logged = await asyncio.to_thread(victim.errors_counted), victim.logged()
        problems = victim.status().get("problems", [])
        main = told_apart(victim.process.pid).get("main")
        async with AsyncExitStack() as stack:
            asks = await stack.enter_async_context(asking(self.lan.namespace("host1"), LINK, self._asked, INTERVAL))
            targets = [(eip, ECHO_PORT) for eip in self.eips]
            probes = await stack.enter_async_context(probing(self.lan.namespace("client"), targets, INTERVAL))
            await probes.answering(time.monotonic())
            since = time.monotonic()
            await stack.enter_async_context(self._stirring(victim))
            self.switches.order(place, 1)
            await self._until(lambda: self.switches.raised(place) > 0 or victim.ended, REACHED)
            await asyncio.sleep(RAISES / 2)
            with self.switches.always(place):
                ends = time.monotonic() + raises
                while (left := ends - time.monotonic()) > 0:
                    await asyncio.sleep(min(left, RAISES))
                    seen.told |= await self._tells(victim, problems)
            over, passed = time.monotonic(), self.switches.passed(place)
            seen.raised, seen.ended = self.switches.raised(place), victim.ended
            seen.replaced = not seen.ended and told_apart(victim.process.pid).get("main") != main
            if seen.ended:
                victim.kill()
                victim.start()
            await self._heal(seen, over, passed, problems)
        said = victim.said(logged)
        seen.logged = f"injected at {place}" in said
        seen.counted = await asyncio.to_thread(victim.errors_counted) > errors
        self._judge(seen, since, [*asks.samples(since)], [*probes.samples(since)])
        last = {reply.address: reply.mac for reply in asks.replies()}
        seen.moved = {eip: before[eip] for eip, mac in last.items() if eip in before and self.names[mac] != before[eip]}
        self.table.append(seen)
        return seen

    async def _heal(self, seen: Seen, over: float, passed: int, problems: Sequence[str]) -> None:
        """Until it is as before, and the place was passed again, since ``over``; and until it was told."""
        seen.left, now = "?", over
        while (seen.left and now < over + HEALED) or (not seen.told and now < over + TOLD):
            seen.left = await self._unlike(problems)
            if not seen.left and self.switches.passed(seen.place) == passed:
                seen.left = "it has not been passed again"
            now = time.monotonic()
            if not seen.left and seen.healed_ms is None:
                seen.healed_ms = (now - over) * 1000
            seen.told |= self._new(self.speakers[self.victim], problems)
            await asyncio.sleep(POLL)

    def _judge(self, seen: Seen, since: float, *samples: Iterable[Any]) -> None:
        longest: dict[IPAddress, list[Outage]] = {eip: [] for eip in self.eips}
        for some in samples:
            for eip, outage in outages(some, INTERVAL).items():
                longest[eip].append(outage)
        seen.out = {eip: max(outage.ms for outage in found) for eip, found in longest.items()}
        seen.never_back = tuple(eip for eip, found in longest.items() if not all(one.over for one in found))

    async def _tells(self, victim: Speaker, problems: Sequence[str]) -> bool:
        told = (await asyncio.to_thread(victim.asked)).get("problems", [])
        return any(problem not in problems for problem in told) or self._new(victim, problems)

    def _new(self, victim: Speaker, problems: Sequence[str]) -> bool:
        return any(problem not in problems for problem in victim.status().get("problems", []))

    async def _unlike(self, problems: Sequence[str]) -> str:
        """What is not as it was before; empty where everything is."""
        victim = self.speakers[self.victim]
        if victim.ended:
            return "it has ended"
        told = victim.status().get("problems", ["no status"])
        if more := [problem for problem in told if problem not in problems]:
            return more[0]
        found = self._holders()
        return "; ".join(f"{eip}: {them}" for eip, them in found.items() if len(them) != 1)

    # ── The lab as it should be ──

    async def whole(self) -> dict[IPAddress, str]:
        """Wait until everything is well, and the victim holds something; who holds what."""
        for speaker in self.speakers.values():
            if speaker.ended:
                speaker.start()
        deadline = time.monotonic() + GUARD
        while True:
            found = self._holders()
            whose = {eip: them[0] for eip, them in found.items() if len(them) == 1}
            if len(whose) == len(self.eips):
                if self.victim in whose.values():
                    return whose
                await asyncio.to_thread(self._rebalance)
            assert time.monotonic() < deadline, (found, [one.said()[-3000:] for one in self.speakers.values()])
            await asyncio.sleep(POLL)

    def _rebalance(self) -> None:
        if held := {eip: them[0] for eip, them in self._holders().items() if them}:
            self._say(holds_most(held), "rebalance")

    def _say(self, node: str, command: str) -> None:
        with suppress(EdgeError):
            list(ask(self.speakers[node].runtime_dir, command, timeout=5.0))

    def _holders(self) -> Mapping[IPAddress, list[str]]:
        return holders(self.eips, {node: claimed(speaker.status()) for node, speaker in self.speakers.items()})

    async def _until(self, holds: Any, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                return False
            await asyncio.sleep(POLL)
        return True

    # ── Keeping the victim busy ──

    @asynccontextmanager
    async def _stirring(self, victim: Speaker) -> AsyncIterator[None]:
        stirs = asyncio.create_task(self._stir(victim))
        try:
            yield
        finally:
            stirs.cancel()
            with suppress(asyncio.CancelledError):
                await stirs

    async def _stir(self, victim: Speaker) -> None:
        try:
            for number in range(1 << 30):
                await asyncio.to_thread(self._stir_once, victim, number)
                await asyncio.sleep(STIR)
        finally:  # a Service without endpoints is a problem for as long as it is there
            await asyncio.to_thread(self._stir_once, victim, 1)

    def _stir_once(self, victim: Speaker, number: int) -> None:
        there = number % 2 == 0
        with self._stir_lock:
            draft = victim.manifests / ".draft"
            draft.write_text(stirred(there, 8000 + number % 500))
            draft.replace(victim.manifests / "stir.yaml")
            self._in(self.victim, f"ip addr {'replace' if there else 'del'} 10.255.0.1/32 dev lo")
        os.utime(victim.key)
        self._in(STRANGER, f"ip -6 neigh flush dev {LINK}")
        with suppress(OSError):
            self._stranger.sendto(b"?", (str(STIRRED[1]), ECHO_PORT))
        for path in ("/metrics", "/healthz"):
            victim.get(path)
        victim.asked()

    def _in(self, host: str, line: str) -> None:
        """Whether there is anything for it to do or not."""
        with self.lan.namespace(host).entered():
            subprocess.run(line.split(), check=False, stderr=subprocess.DEVNULL)


def stirred(there: bool, port: int) -> str:
    """A manifest that nobody else has."""
    if not there:
        return ""
    pool = {
        "apiVersion": "eip-speaker.io/v1alpha1",
        "kind": "Eip",
        "metadata": {"name": "stirred"},
        "spec": {"addresses": [str(eip) for eip in STIRRED]},
    }
    text: str = yaml.safe_dump_all([pool, *(_service(eip, port) for eip in STIRRED)])
    return text


def _service(eip: IPAddress, port: int) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "lab",
            "name": f"stirred-{eip.version}",
            "annotations": {"eip-speaker.io/addresses": str(eip)},
        },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "eip-speaker.io/speaker",
            "ipFamilies": [f"IPv{eip.version}"],
            "ports": [{"protocol": "UDP", "port": port, "targetPort": POD_PORT}],
        },
    }
