"""Two nodes that forward an EIP to the same backends, and established connections when it moves from one to the other.

::

              ┌─ one ─┐          ┌─ b1
    client ───┤       ├── back ──┼─ b2
              └─ two ─┘          └─ b3

The forwarders are real. What an announcement does is done to the neighbours' tables: the client's for the EIP and,
where backends see the client's address and so answer it through their gateway, the backends' for that.
"""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from pathlib import Path

from live_connections import Backend, Client, echoing, talking

from speaker.forwarding.forwarder import Forwarder, open_forwarder
from speaker.forwarding.handing_over import NextHop
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.forwarding.unknown_flows import open_unknown_flows
from speaker.lab.namespaces import Namespace
from speaker.model import Forwarding, Mac, Protocol

EIP, PORT = ip_address("192.0.2.200"), 80
GATEWAY = "10.0.0.254"
CLIENTS = tuple(f"192.0.2.{last}" for last in range(101, 121))
"""The client's addresses: more than one, so that hashes of them spread."""
BACKENDS = {name: ip_address(f"10.0.0.{last}") for last, name in enumerate(("b1", "b2", "b3"), 11)}
DIRECTORS = {"one": 1, "two": 2}


class Seen(Enum):
    """What a backend sees of a client, and which backends a node forwards to."""

    NODE = "the node's address"
    """``externalTrafficPolicy: Cluster``: masqueraded, all backends."""
    CLIENT = "the client's address"
    """No field of a Service comes to this: all backends, not masqueraded, and their way back moves with the EIP."""
    LOCAL = "the client's address, each node its own endpoints"
    """``externalTrafficPolicy: Local``."""


class Move(Enum):
    PLANNED = "planned"
    """The old holder goes on forwarding what still reaches it; connections talk all the time."""
    CRASH = "crash, the client speaks next"
    """The old holder's links are cut, then the EIP moves."""
    CRASH_IN_ANSWER = "crash, the backend speaks next"
    """The same, where the client has asked and the answer is yet to come."""


@dataclass(frozen=True)
class Mode:
    forwarding: Forwarding
    scheduler: str
    seen: Seen = Seen.NODE
    settings: dict[str, int] = field(default_factory=dict)
    """sysctls of both nodes, by name."""
    hands_over: bool = False
    """The new holder hands unknown flows over to the old one."""


class Scene:
    def __init__(self, stack: ExitStack) -> None:
        names = ("lan", "client", *DIRECTORS, *BACKENDS)
        self.namespaces = {name: stack.enter_context(Namespace(name)) for name in names}
        for namespace in self.namespaces.values():
            ip(namespace, "link set lo up")
        for bridge in ("front", "back"):
            ip(self["lan"], f"link add {bridge} type bridge", f"link set {bridge} up")
        self._join("front", "client", "eth0", *(f"{address}/24" for address in CLIENTS))
        for name, number in DIRECTORS.items():
            self._join("front", name, "eth0", f"192.0.2.{number}/24", mac=mac(name, "front"))
            self._join("back", name, "eth1", f"10.0.0.{number}/24", mac=mac(name, "back"))
            self[name].sysctl("net.ipv4.ip_forward", 1)
        self.backends: list[Backend] = []
        for name, address in BACKENDS.items():
            self._join("back", name, "eth0", f"{address}/24")
            ip(self[name], f"route add default via {GATEWAY}")
            self.backends.append(stack.enter_context(echoing(self[name])))

    def __getitem__(self, name: str) -> Namespace:
        return self.namespaces[name]

    def _join(self, bridge: str, name: str, link: str, *addresses: str, mac: str = "") -> None:
        port, place = f"{name}-{bridge}", f"address {mac}" if mac else ""
        peer = self[name]
        ip(
            self["lan"],
            f"link add {port} type veth peer name {link} {place} netns {peer.path}",
            f"link set {port} master {bridge} up",
        )
        ip(peer, f"link set {link} up", *(f"addr add {address} dev {link}" for address in addresses))

    def eip_to(self, director: str) -> None:
        ip(self["client"], f"neigh replace {EIP} lladdr {mac(director, 'front')} dev eth0 nud permanent")

    def gateway_to(self, director: str, backends: Iterable[str] = BACKENDS) -> None:
        for name in backends:
            ip(self[name], f"neigh replace {GATEWAY} lladdr {mac(director, 'back')} dev eth0 nud permanent")

    def cut(self, director: str) -> None:
        ip(self["lan"], *(f"link set {director}-{bridge} down" for bridge in ("front", "back")))


def mac(director: str, bridge: str) -> str:
    return f"02:00:00:00:0{DIRECTORS[director]}:0{1 + (bridge == 'back')}"


def ip(namespace: Namespace, *lines: str) -> None:
    with namespace.entered():
        text = "\n".join(lines)
        done = subprocess.run(["ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{namespace.label}: {done.stderr}")


def backends_of(mode: Mode, director: str) -> list[str]:
    names = list(BACKENDS)
    if mode.seen is Seen.LOCAL:
        return names[:1] if director == "one" else names[1:]
    return names


def plan_of(mode: Mode, director: str) -> Plan:
    local = mode.seen is Seen.LOCAL
    reals = tuple(RealServer(BACKENDS[name], 8080, local=local) for name in backends_of(mode, director))
    server = VirtualServer(
        EIP, Protocol.TCP, PORT, scheduler=mode.scheduler, masquerade=mode.seen is Seen.NODE, real_servers=reals
    )
    return Plan(frozenset({EIP}), {server.key: server})


def forward(namespace: Namespace, forwarding: Forwarding, plan: Plan, runtime_dir: Path) -> None:
    async def apply() -> None:
        forwarder: Forwarder = await open_forwarder(forwarding, runtime_dir)
        await forwarder.apply(plan)

    with namespace.entered():
        asyncio.run(apply())


def hand_over(namespace: Namespace, to: str) -> None:
    """Unknown flows to the EIP that reach this node go to the other."""

    async def bring() -> None:
        speakers = frozenset(Mac(bytes.fromhex(mac(name, "front").replace(":", ""))) for name in DIRECTORS)
        next_hop = NextHop("eth0", ip_address(f"192.0.2.{DIRECTORS[to]}"))
        await (await open_unknown_flows()).bring_to({EIP: next_hop}, speakers)

    with namespace.entered():
        asyncio.run(bring())


@contextmanager
def connected(mode: Mode, count: int) -> Iterator[tuple[Scene, Client]]:
    """``count`` connections through node one; node two forwards the EIP as well."""
    with ExitStack() as stack:
        scene = Scene(stack)
        for director in DIRECTORS:
            runtime_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moves-")))
            forward(scene[director], mode.forwarding, plan_of(mode, director), runtime_dir)
            for name, value in mode.settings.items():
                scene[director].sysctl(name, value)
        for director in ("two", "one"):
            scene.eip_to(director)
            scene.gateway_to(director, backends_of(mode, director))
        client = stack.enter_context(talking(scene["client"], EIP, PORT, count, CLIENTS))
        if (before := client.check()) != {"alive": count}:
            raise RuntimeError(f"before any move: {before}")
        yield scene, client


def move(scene: Scene, client: Client, kind: Move, mode: Mode) -> None:
    if kind is Move.CRASH:
        client.hush()
    elif kind is Move.CRASH_IN_ANSWER:
        client.hush()
        for backend in scene.backends:
            backend.freeze()
        client.last_word()
    if kind is not Move.PLANNED:
        scene.cut("one")
    if mode.hands_over:
        hand_over(scene["two"], to="one")
    scene.eip_to("two")
    if kind is Move.PLANNED:
        client.check(1)  # the way back moves later: it is somebody else's
    if mode.seen is Seen.CLIENT:
        scene.gateway_to("two")
    for backend in scene.backends:
        backend.thaw()


def survivors(mode: Mode, kind: Move, count: int = 200, patience: float = 60.0) -> dict[str, int]:
    """What has become of ``count`` connections, as ``Client.check`` says it."""
    with connected(mode, count) as (scene, client):
        move(scene, client, kind, mode)
        return client.check(patience)
