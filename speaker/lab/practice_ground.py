"""Where faults are practised: two nodes that share EIPs, a gateway, two clients; broken and repaired by commands.

The nodes serve a few Services that name their addresses, so that both nodes agree.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from speaker.errors import EdgeError
from speaker.lab import speakers
from speaker.lab.backends import Listener, backends
from speaker.lab.lan import Lan
from speaker.lab.speakers import SpeakerProcess, claimed, started
from speaker.lab.switch import nft
from speaker.lab.topology import switch_port
from speaker.model import Family, Protocol, format_mac
from speaker.node.control import NAME as CONTROL
from speaker.ownership.hellos.keys import generate

Site: TypeAlias = dict[str, dict[str, Any]]
"""Name → object; a fault changes a copy."""

WEB, LOCAL, FOREIGN, NAMED, FREE = "192.0.2.200", "192.0.2.201", "203.0.113.200", "192.0.2.205", "192.0.2.207"
"""EIPs: of any node's pods, of the holder's, beyond the subnet, on a link by name; and an address that nobody has."""
SIX = "2001:db8:0:1::200"
"""Of IPv6."""
EIPS = (WEB, LOCAL, FOREIGN, NAMED, SIX)
"""Of the site."""
PORT = 8080
"""That the pods listen on."""


def site() -> Site:
    """Every EIP has a pod on both nodes."""
    return {
        "lan": speakers.pool("lan", ["192.0.2.200-192.0.2.204", "192.0.2.206-192.0.2.209", SIX]),
        "foreign": speakers.pool("foreign", [f"{FOREIGN}/32"], interface="can_reach:192.0.2.1"),
        "named": speakers.pool("named", [f"{NAMED}/32"], interface="eth0"),
        **service("web", WEB),
        **service("local", LOCAL, externalTrafficPolicy="Local"),
        **service("foreign", FOREIGN),
        **service("named", NAMED),
        **service("six", SIX, ipFamilies=["IPv6"]),
    }


def service(name: str, address: str | None, **spec: Any) -> Site:
    """The Service ``lab/NAME`` and its EndpointSlice, called ``svc/NAME`` and ``eps/NAME``."""
    six = address is not None and ":" in address
    endpoints = [
        {"addresses": [_pod(number, six)], "nodeName": f"node{number}", "conditions": {"ready": True}}
        for number in (1, 2)
    ]
    port = {"port": 80, "targetPort": PORT}
    found = speakers.service(name, address, Family.IPV6 if six else Family.IPV4, port, endpoints, **spec)
    return dict(zip((f"svc/{name}", f"eps/{name}"), found, strict=True))


def _pod(number: int, six: bool) -> str:
    """The first one of that node."""
    return f"fd00:10:244:{number}::11" if six else f"10.244.{number}.11"


def written(objects: Site) -> str:
    text: str = yaml.safe_dump_all(deepcopy([*objects.values()]), sort_keys=False)
    return text


NODES = ("node1", "node2")
CONVERGENCE = 30.0
POLL = 0.05


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and how long it took."""

    told: dict[str, Any]
    code: int
    seconds: float

    @property
    def first(self) -> str:
        """The kind of what it names first; '' where it finds nothing wrong."""
        found = self.told.get("findings", [self.told.get("verdict")])
        return found[0]["kind"] if found and found[0] else ""

    @property
    def words(self) -> str:
        found = self.told.get("findings", [self.told.get("verdict")])
        return found[0]["what"] if found and found[0] else ""


@dataclass
class Ground:
    """``peers``: the nodes share their EIPs; else only the first of them runs. ``site``: as it is when all is well."""

    lan: Lan
    directory: Path
    peers: bool
    site: Site = field(default_factory=site)
    running: dict[str, SpeakerProcess] = field(default_factory=dict)
    _stacks: dict[str, AsyncExitStack] = field(default_factory=dict)
    _programs: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    _servers: list[asyncio.Server] = field(default_factory=list)
    forwarder: str = "nftables"

    @property
    def nodes(self) -> tuple[str, ...]:
        return NODES if self.peers else NODES[:1]

    # ── speakers ──

    def key(self, name: str = "key") -> str:
        path = self.directory / name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(generate(os.urandom(32)))
        return str(path)

    async def start(self, node: str, *more: str, key: str = "key", name: str | None = None, ahead: float = 0.0) -> None:
        """``name``: what it calls itself; ``ahead``: seconds by which its clock is wrong."""
        flags = ("--with-peers", "--key", self.key(key), *more) if self.peers else more
        stack = AsyncExitStack()
        speaker = await stack.enter_async_context(
            started(
                name or node,
                self.lan.namespace(node),
                self.directory / "manifests",
                self.directory / node,
                *("--forwarder", self.forwarder, *flags),
                grace=0,
                environment={"PYTHONPATH": str(self._clock(ahead))} if ahead else None,
            )
        )
        reading = asyncio.create_task(_read_on(speaker), name=f"log of {node}")
        stack.callback(reading.cancel)
        self.running[node], self._stacks[node] = speaker, stack

    async def stop(self, node: str) -> None:
        await self._stacks.pop(node).aclose()
        self.running.pop(node)
        for left in ("status.json", CONTROL):
            (self.directory / node / "run" / left).unlink(missing_ok=True)

    async def restart(self, node: str, *flags: str, **how: Any) -> None:
        """As ``start``. It runs again at the end, or has ended."""
        await self.stop(node)
        await self.start(node, *flags, **how)
        for _ in range(round(CONVERGENCE / POLL)):
            if self.running[node].process.returncode is not None or (self.directory / node / "run" / CONTROL).exists():
                break
            await asyncio.sleep(POLL)

    def _clock(self, ahead: float) -> Path:
        """A directory that makes Python's clock of the day wrong: a namespace has none of its own."""
        place = self.directory / "clock"
        place.mkdir(exist_ok=True)
        text = f"import time\nreal = time.time\ntime.time = lambda: real() + {ahead}\n"
        (place / "sitecustomize").with_suffix(".py").write_text(text)
        return place

    async def close(self) -> None:
        self.end_all()
        self.hush()
        for node in [*self.running]:
            await self.stop(node)

    def holder(self, eip: str = WEB) -> str:
        """By what each says of itself; the first node where nobody does."""
        return next((node for node in self.nodes if self._claims(node, eip)), self.nodes[0])

    def other(self, eip: str = WEB) -> str:
        return next(node for node in NODES if node != self.holder(eip))

    def _claims(self, node: str, eip: str) -> bool:
        return node in self.running and claimed(self.running[node].status()).get(ip_address(eip), False)

    async def settled(self) -> None:
        """Every EIP of the site as it should be has a holder, and every node's speaker has said so."""
        deadline = time.monotonic() + CONVERGENCE
        while not all(sum(self._claims(node, eip) for node in self.nodes) == 1 for eip in EIPS):
            if time.monotonic() > deadline:
                raise EdgeError(f"within {CONVERGENCE:g} s not every EIP had one holder")
            await asyncio.sleep(POLL)

    # ── what is asked for ──

    def write(self, change: Callable[[Site], object] | None = None) -> None:
        """The site, changed or as it should be."""
        objects = site() if change is not None else self.site
        if change is not None:
            change(objects)
        directory = self.directory / "manifests"
        directory.mkdir(parents=True, exist_ok=True)
        draft = self.directory / "draft"
        draft.write_text(written(objects))
        draft.replace(directory / "site.yaml")

    # ── hosts ──

    def sh(self, host: str, *lines: str) -> None:
        """Each a command inside the host, which must succeed."""
        for line in lines:
            with self.lan.namespace(host).entered():
                done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise EdgeError(f"{host}: {line}: {done.stderr.strip() or done.stdout.strip()}")

    def nft(self, host: str, script: str) -> None:
        with self.lan.namespace(host).entered():
            nft(script)

    def hairpin(self, node: str, *, on: bool) -> None:
        """Of its bridge for pods, as a CNI sets it."""
        state = "on" if on else "off"
        ports = (switch_port(pod, "eth0") for pod in self.lan.topology.pods_of(node))
        self.sh(node, *(f"bridge link set dev {port} hairpin {state}" for port in ports))

    def begin(self, host: str, line: str) -> None:
        """A program that goes on until ``end_all``."""
        with self.lan.namespace(host).entered():
            quiet = subprocess.DEVNULL
            self._programs.append(subprocess.Popen(line.split(), stdout=quiet, stderr=quiet))

    def end_all(self) -> None:
        while self._programs:
            program = self._programs.pop()
            program.kill()
            program.wait()

    async def serve(self, host: str, port: int, pages: Mapping[str, bytes]) -> None:
        """Answers HTTP on the host's loopback until ``hush``; what is no page is not found."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = (await reader.readline()).split()
            body = pages.get(asked[1].decode() if len(asked) > 1 else "")
            status = "404 Not Found" if body is None else "200 OK"
            length = len(body or b"")
            writer.write(f"HTTP/1.0 {status}\r\nContent-Length: {length}\r\n\r\n".encode() + (body or b""))
            writer.close()

        with self.lan.namespace(host).entered():
            sock = socket.create_server(("127.0.0.1", port))
        self._servers.append(await asyncio.start_server(answer, sock=sock))

    def hush(self) -> None:
        while self._servers:
            self._servers.pop().close()

    def mac(self, host: str) -> str:
        return format_mac(self.lan.topology.host(host).mac("eth0"))

    # ── asking ──

    async def tell(self, node: str, *command: str) -> tuple[int, bytes]:
        """``speaker COMMAND`` on that node: its exit code, and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "speaker", *command),
            *("--runtime-dir", str(self.directory / node / "run")),
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=self.lan.namespace(node).settle,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output

    async def say(self, node: str, *command: str) -> Said:
        """``speaker explain …`` or ``doctor`` on that node."""
        begun = time.monotonic()
        code, output = await self.tell(node, *command, "--json")
        try:
            told = json.loads(output)
        except ValueError as error:
            raise EdgeError(f"speaker {' '.join(command)} on {node} printed no JSON") from error
        return Said(told, code, time.monotonic() - begun)


async def _read_on(speaker: SpeakerProcess) -> None:
    """Reads its log, which would fill the pipe otherwise and stop the speaker."""
    async for _ in speaker.events():
        pass


@asynccontextmanager
async def ground(lan: Lan, directory: Path, *, peers: bool, forwarder: str = "nftables") -> AsyncIterator[Ground]:
    """A LAN on which everything works, until the block ends."""
    found = Ground(lan, directory, peers, forwarder=forwarder)
    pods = [Listener(pod, Protocol.TCP, PORT) for pod in ("pod1", "pod3")]
    async with backends(lan, [*pods, Listener("host1", Protocol.TCP, PORT)]):
        found.write()
        for node in NODES:
            found.hairpin(node, on=True)
        try:
            for node in found.nodes:
                await found.start(node)
            await found.settled()
            yield found
        finally:
            await found.close()
