"""Who reaches an EIP, from where: one estate, one way to ask, for whatever forwards.

::

    far ── router ── holder (eth1)         203.0.113.0/24, 2001:db8:2::/64; far is 198.18.0.10, 2001:db8:3::10
                     │  ├─ p1              pods, wired as Calico does it: a /32 and a /128, host routes to links
    client ── lan ───┤  └─ p2              that have no address of their own
                     │
                     other ── q            a second node with a pod

Reverse-path filters are strict (``rp_filter=1``) on every node. Nobody answers ARP or NDP for the EIPs here: who is to
send to them has the holder's MAC by heart, as after an answer of the speaker's. The nodes' default route is the client.
"""

import asyncio
import math
import selectors
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from speaker.forwarding.forwarder import Forwarder
from speaker.forwarding.ipvs.forwarder import IpvsForwarder
from speaker.forwarding.nftables.forwarder import NftablesForwarder, NftablesGuard
from speaker.forwarding.plan import plan
from speaker.lab.namespaces import Namespace
from speaker.model import (
    Assignment,
    Endpoint,
    Family,
    IPAddress,
    Protocol,
    Service,
    ServiceKey,
    ServicePort,
    TrafficPolicy,
    World,
)

EIP: Mapping[int, IPAddress] = {4: ip_address("192.0.2.200"), 6: ip_address("2001:db8:1::200")}
SECOND_EIP: Mapping[int, IPAddress] = {4: ip_address("203.0.113.200"), 6: ip_address("2001:db8:2::c8")}
"""Of the holder's second link."""
ADDRESSES = {
    "client": {4: "192.0.2.10", 6: "2001:db8:1::10"},
    "holder": {4: "192.0.2.1", 6: "2001:db8:1::1"},
    "other": {4: "192.0.2.2", 6: "2001:db8:1::2"},
    "p1": {4: "10.244.1.2", 6: "fd00:244:1::2"},
    "p2": {4: "10.244.1.3", 6: "fd00:244:1::3"},
    "q": {4: "10.244.2.2", 6: "fd00:244:2::2"},
    "far": {4: "198.18.0.10", 6: "2001:db8:3::10"},
}
NAMED = {address: name for name, addresses in ADDRESSES.items() for address in addresses.values()}
NAMED |= dict.fromkeys(("10.244.1.1", "fd00:244:1::1", "203.0.113.1", "2001:db8:2::1"), "holder")
NAMED |= {"203.0.113.254": "router", "2001:db8:2::fe": "router"}
NODE_OF = {"p1": "holder", "p2": "holder", "q": "other", "holder": "holder", "other": "other"}
PORT, TARGET = 80, 8080
"""Of the Service, and of its endpoints."""

NAMES = ("lan", "client", "holder", "other", "p1", "p2", "q", "router", "far")
LINES = {
    "client": "addr add 192.0.2.10/24 dev eth0; addr add 2001:db8:1::10/64 dev eth0 nodad",
    "holder": """
        addr add 192.0.2.1/24 dev eth0; addr add 2001:db8:1::1/64 dev eth0 nodad
        addr add 203.0.113.1/24 dev eth1; addr add 2001:db8:2::1/64 dev eth1 nodad
        route add default via 192.0.2.10; route add default via 2001:db8:1::10
        route add 10.244.2.0/24 via 192.0.2.2; route add fd00:244:2::/64 via 2001:db8:1::2""",
    "other": """
        addr add 192.0.2.2/24 dev eth0; addr add 2001:db8:1::2/64 dev eth0 nodad
        route add default via 192.0.2.10; route add default via 2001:db8:1::10
        route add 10.244.1.0/24 via 192.0.2.1; route add fd00:244:1::/64 via 2001:db8:1::1""",
    "router": """
        addr add 203.0.113.254/24 dev eth0; addr add 2001:db8:2::fe/64 dev eth0 nodad
        addr add 198.18.0.1/24 dev eth1; addr add 2001:db8:3::1/64 dev eth1 nodad""",
    "far": """
        addr add 198.18.0.10/24 dev eth0; addr add 2001:db8:3::10/64 dev eth0 nodad
        route add default via 198.18.0.1; route add default via 2001:db8:3::1""",
}
BRIDGE = """
    link add cni0 type bridge forward_delay 0 mcast_snooping 0; link set cni0 up
    addr add 10.244.1.1/24 dev cni0; addr add fd00:244:1::1/64 dev cni0 nodad
"""
"""Of a node whose pods are behind a bridge, as with flannel."""


@dataclass
class Estate:
    """The namespaces by name. ``ask`` and ``ping`` say in words what came of it, so that tables can hold it."""

    namespaces: Mapping[str, Namespace]

    def __getitem__(self, name: str) -> Namespace:
        return self.namespaces[name]

    def ask(
        self,
        by: str,
        to: IPAddress | str,
        port: int = PORT,
        protocol: Protocol = Protocol.TCP,
        *,
        source: str = "",
        patience: float = 5.0,
    ) -> str:
        """``"p1 client"``: who answered, and whom he took for the client; else ``refused``, ``silent``, …"""
        target = ip_address(str(to))
        with self[by].entered():
            asking = _socket(target.version, protocol)
        with asking:
            asking.settimeout(patience)
            try:
                if source:
                    asking.bind((source, 0))
                asking.connect((str(target), port))
                name, client = _heard_from(asking, protocol, patience).decode().split()
            except TimeoutError:
                return "silent"
            except (ConnectionRefusedError, PermissionError):  # the latter is what a socket of the refusing host hears
                return "refused"
            except OSError as error:
                return error.strerror or "error"
            return f"{name} {NAMED.get(client, client)}"

    def asked(
        self,
        by: str,
        eips: Mapping[int, IPAddress] = EIP,
        protocols: Iterable[Protocol] = (Protocol.TCP, Protocol.UDP),
        **settings: Any,
    ) -> set[str]:
        """What came of it over each IP version and protocol."""
        return {self.ask(by, eip, protocol=protocol, **settings) for eip in eips.values() for protocol in protocols}

    def spread(self, by: str, to: IPAddress, *, first_port: int, connections: int = 8) -> int:
        """How many servers get what of this many TCP connections that are open at the same time."""
        with ExitStack() as stack:
            answers = set()
            for port in range(first_port, first_port + connections):
                with self[by].entered():
                    asking = stack.enter_context(_socket(to.version, Protocol.TCP))
                asking.settimeout(5)
                asking.bind(("", port))
                asking.connect((str(to), PORT))
                answers.add(asking.recv(200).decode().split()[0])
            return len(answers)

    @contextmanager
    def talking(self, by: str, to: IPAddress) -> Iterator[Callable[[], bool]]:
        """An established TCP connection; what it yields says whether it still is one."""
        with self[by].entered():
            asking = _socket(to.version, Protocol.TCP)
        with asking:
            asking.settimeout(5)
            asking.connect((str(to), PORT))
            asking.recv(200)
            asking.settimeout(1)

            def goes_on() -> bool:
                try:
                    asking.send(b"?")
                    return asking.recv(200) == b"?"
                except (TimeoutError, ConnectionError):
                    return False

            yield goes_on

    def ping(self, by: str, to: IPAddress | str, count: int = 1) -> bool:
        done = run(self[by], "ping", "-c", str(count), "-i", "0.2", "-W", "1", str(to), check=False)
        return f"{count} received" in done


def run(namespace: Namespace, *command: str, text: str | None = None, check: bool = True) -> str:
    with namespace.entered():
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{namespace.label}: {command}: {done.stderr}"
    return done.stdout


def ip(namespace: Namespace, *lines: str) -> None:
    parts = [part.strip() for line in lines for text in line.splitlines() for part in text.split(";")]
    run(namespace, "ip", "-batch", "-", text="\n".join(filter(None, parts)))


@contextmanager
def estate(*, bridged: bool = False) -> Iterator[Estate]:
    """``bridged``: the holder's pods are behind a bridge that has the pods' gateway address."""
    with ExitStack() as stack:
        made = Estate({name: stack.enter_context(Namespace(name)) for name in NAMES})
        for name, namespace in made.namespaces.items():
            # A router cannot solicit neighbours before its link-local address passed DAD, a second after it is up.
            namespace.sysctl("net.ipv6.conf.default.accept_dad", 0)
            ip(namespace, "link set lo up")
            if name in ("holder", "other", "router"):
                namespace.sysctl("net.ipv4.ip_forward", 1)
                namespace.sysctl("net.ipv6.conf.all.forwarding", 1)
            if name in ("holder", "other"):
                strict(namespace, "default", 1)
        ip(made["lan"], "link add br0 type bridge forward_delay 0 mcast_snooping 0; link set br0 up")
        for name in ("client", "holder", "other"):
            _wire(made, "lan", name, name, "eth0")
            ip(made["lan"], f"link set {name} master br0")
        _wire(made, "router", "eth0", "holder", "eth1")
        _wire(made, "router", "eth1", "far", "eth0")
        if bridged:
            ip(made["holder"], BRIDGE)
        for pod in ("p1", "p2", "q"):
            wire_pod = _pod_on_a_bridge if bridged and pod != "q" else _pod
            wire_pod(made, pod)
        for name, lines in LINES.items():
            ip(made[name], lines)
        for asker, link, eips in (("client", "eth0", EIP), ("other", "eth0", EIP), ("router", "eth1", SECOND_EIP)):
            for eip in eips.values():
                towards = mac("holder", link)
                ip(made[asker], f"neigh replace {eip} lladdr {towards} dev eth0 nud permanent")
        for name in ("client", "holder", "p1", "p2", "q"):
            stack.enter_context(serving(made[name], name))
        yield made


def strict(namespace: Namespace, link: str, rp_filter: int) -> None:
    for name in ("all", link):
        namespace.sysctl(f"net.ipv4.conf.{name}.rp_filter", rp_filter)


def mac(name: str, link: str) -> str:
    """Of every link here."""
    return f"02:00:00:00:{NAMES.index(name):02x}:{('eth0', 'eth1', *NAMES).index(link):02x}"


def _wire(made: Estate, a: str, a_link: str, b: str, b_link: str) -> None:
    peer = f"peer name {b_link} address {mac(b, b_link)} netns {made[b].path}"
    ip(made[a], f"link add {a_link} address {mac(a, a_link)} type veth {peer}", f"link set {a_link} up")
    ip(made[b], f"link set {b_link} up")


def _pod(made: Estate, pod: str) -> None:
    node = NODE_OF[pod]
    v4, v6 = ADDRESSES[pod][4], ADDRESSES[pod][6]
    _wire(made, node, pod, pod, "eth0")
    made[node].sysctl(f"net.ipv4.conf.{pod}.proxy_arp", 1)
    made[node].sysctl(f"net.ipv4.neigh.{pod}.proxy_delay", 0)
    ip(made[node], f"route add {v4}/32 dev {pod}; route add {v6}/128 dev {pod}; addr add fe80::1/64 dev {pod} nodad")
    ip(
        made[pod],
        f"addr add {v4}/32 dev eth0; addr add {v6}/128 dev eth0 nodad",
        "route add 169.254.1.1 dev eth0; route add default via 169.254.1.1",
        "route add default via fe80::1 dev eth0",
    )


def _pod_on_a_bridge(made: Estate, pod: str) -> None:
    """With what Kubernetes asks of such a bridge: hairpin mode, and a bridge that iptables and nft see into."""
    _wire(made, "holder", pod, pod, "eth0")
    ip(made["holder"], f"link set {pod} master cni0; link set {pod} type bridge_slave hairpin on")
    for program in ("iptables", "ip6tables"):
        made["holder"].sysctl(f"net.bridge.bridge-nf-call-{program}", 1)
    ip(
        made[pod],
        f"addr add {ADDRESSES[pod][4]}/24 dev eth0; addr add {ADDRESSES[pod][6]}/64 dev eth0 nodad",
        "route add default via 10.244.1.1; route add default via fd00:244:1::1",
    )


# ── Sockets ───────────────────────────────────────────────────────────────────────────────────────────────────


KINDS = {
    Protocol.TCP: (socket.SOCK_STREAM, 0),
    Protocol.UDP: (socket.SOCK_DGRAM, 0),
    Protocol.SCTP: (socket.SOCK_STREAM, socket.IPPROTO_SCTP),
}


def _has(protocol: Protocol) -> bool:
    try:
        socket.socket(socket.AF_INET, *KINDS[protocol]).close()
    except OSError:
        return False
    return True


PROTOCOLS = tuple(filter(_has, Protocol))
"""Those that this kernel has sockets for."""


def _socket(version: int, protocol: Protocol) -> socket.socket:
    made = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, *KINDS[protocol])
    if version == 6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


def _heard_from(asking: socket.socket, protocol: Protocol, patience: float) -> bytes:
    """A datagram is sent again each second: one that was lost says nothing of who reaches whom."""
    if protocol is not Protocol.UDP:
        return asking.recv(200)
    asking.settimeout(min(patience, 1.0))
    for _ in range(math.ceil(patience) - 1):
        asking.send(b"?")
        with suppress(TimeoutError):
            return asking.recv(200)
    asking.send(b"?")
    return asking.recv(200)


@contextmanager
def serving(namespace: Namespace, name: str, port: int = TARGET) -> Iterator[None]:
    """Answers on 0.0.0.0 and :: over every protocol that this kernel has, with its name and the client it sees."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for version, anywhere in ((4, "0.0.0.0"), (6, "::")):
            for protocol in PROTOCOLS:
                with namespace.entered():
                    listener = stack.enter_context(_socket(version, protocol))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((anywhere, port))
                if protocol is not Protocol.UDP:
                    listener.listen(64)
                selector.register(listener, selectors.EVENT_READ)
        stopped, stop = map(stack.enter_context, socket.socketpair())
        selector.register(stopped, selectors.EVENT_READ)

        def serve() -> None:
            while True:
                for key, _ in selector.select():
                    if key.fileobj is stopped:
                        return
                    _answer(key.fileobj, name, selector, stack)

        thread = threading.Thread(target=serve, name=f"server {name}")
        thread.start()
        try:
            yield
        finally:
            stop.send(b"x")
            thread.join()


def _answer(ready: Any, name: str, selector: selectors.BaseSelector, stack: ExitStack) -> None:
    """Connections stay open until the client closes them, and say what they hear."""
    if ready.type == socket.SOCK_DGRAM:
        _, client = ready.recvfrom(1000)
        ready.sendto(f"{name} {client[0]}".encode(), client)
    elif ready.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        connection, client = ready.accept()
        stack.enter_context(connection)
        selector.register(connection, selectors.EVENT_READ)
        connection.sendall(f"{name} {client[0]}".encode())
    elif heard := _heard(ready):
        ready.sendall(heard)
    else:
        selector.unregister(ready)
        ready.close()


def _heard(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1000)
    except ConnectionError:
        return b""


# ── Nodes that forward ────────────────────────────────────────────────────────────────────────────────────────

CLUSTER, LOCAL = TrafficPolicy.CLUSTER, TrafficPolicy.LOCAL
WEB = ServiceKey("default", "web")


def web(*protocols: Protocol, **fields: Any) -> Service:
    """A dual-stack Service with PORT for each protocol, TCP and UDP where none is named."""
    ports = tuple(ServicePort(each, PORT, each.lower()) for each in protocols or (Protocol.TCP, Protocol.UDP))
    return Service(WEB, ports, families=(Family.IPV4, Family.IPV6), **fields)


def endpoints(pod: str, service: Service, port: int = TARGET, **conditions: bool) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(ip_address(address), port, each.protocol, each.name, node=NODE_OF[pod], **conditions)
        for address in ADDRESSES[pod].values()
        for each in service.ports
    )


class Nodes:
    """The holder and the other node, each with a forwarder of the kind that ``make(node)`` makes."""

    def __init__(self, made: Estate, make: Callable[[str], Forwarder]) -> None:
        self.estate = made
        self._forwarders = {name: make(name) for name in ("holder", "other")}

    def serve(
        self,
        service: Service | None,
        *backends: str | tuple[Endpoint, ...],
        eips: Mapping[int, IPAddress] = EIP,
    ) -> None:
        """Bring both nodes to what the speaker would have them do for this Service; None: for nothing at all."""
        every = [endpoints(each, service) if isinstance(each, str) else each for each in backends if service]
        world = World(
            services={WEB: service} if service else {},
            endpoints={WEB: tuple(endpoint for each in every for endpoint in each)},
        )
        assigned = {WEB: Assignment(WEB, tuple(eips.values()), ("lan",) * len(eips))}
        for name, forwarder in self._forwarders.items():
            self.do(name, lambda each=forwarder, node=name: each.apply(plan(world, assigned, node)))

    def cleanup(self) -> None:
        for name, forwarder in self._forwarders.items():
            self.do(name, forwarder.cleanup)

    def do(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            return await work()

        with self.estate[name].entered():
            return asyncio.run(main())


@contextmanager
def nftables_nodes(*, bridged: bool = False) -> Iterator[Nodes]:
    with estate(bridged=bridged) as made:
        yield Nodes(made, lambda name: NftablesForwarder())


@contextmanager
def ipvs_nodes(directory: Path, *, bridged: bool = False) -> Iterator[Nodes]:
    with estate(bridged=bridged) as made:
        yield Nodes(made, lambda name: IpvsForwarder(directory / name, NftablesGuard()))


# ── What comes of it, whatever forwards ───────────────────────────────────────────────────────────────────────

REACHED = [
    (CLUSTER, ["p1"], {
        "client": "p1 client", "holder": "p1 holder", "p1": "p1 holder", "p2": "p1 p2",
        "other": "p1 other", "q": "p1 other",
    }),
    (CLUSTER, ["q"], {
        "client": "q holder", "holder": "q holder", "p1": "q holder", "p2": "q holder",
        "other": "q other", "q": "q other",
    }),
    (LOCAL, ["p1"], {
        "client": "p1 client", "holder": "p1 holder", "p1": "p1 holder", "p2": "p1 p2",
        "other": "p1 other", "q": "p1 q",
    }),
    (LOCAL, ["p1", "q"], {
        "client": "p1 client", "holder": "p1 holder", "p1": "p1 holder", "p2": "p1 p2",
        "other": "q other", "q": "q other",
    }),
    (CLUSTER, ["holder"], {
        "client": "holder client", "holder": "holder holder", "p1": "holder p1", "p2": "holder p2",
        "other": "holder other", "q": "holder other",
    }),
]  # fmt: skip
"""Policy, endpoints ("holder": a pod in the host's network), and for each client who answers it and sees it as whom."""

NOT_LET_IN = ip_network("198.51.100.0/24"), ip_network("2001:db8:ffff::/48")
"""``loadBalancerSourceRanges`` in which nobody here is."""

SPREAD = {
    **dict.fromkeys(("rr", "wrr", "lc", "wlc", "sed", "nq", "sh-port", "mh-port"), 2),
    **dict.fromkeys(("sh", "mh", "dh"), 1),
}
"""Over how many of two endpoints a scheduler spreads one client's connections."""
SPREAD_BY_IPVS = {**SPREAD, "lblc": 2, "lblcr": 2, "fo": 1}
SPREAD_BY_NFTABLES = {**SPREAD, **dict.fromkeys(("lblc", "lblcr", "fo", "ovf", "twos"), 2)}

READY: dict[str, bool] = {}
NOT_READY = {"ready": False, "serving": False}
ENDING = {"ready": False, "terminating": True}
CONDITIONS = [
    (READY, READY, {"p1", "p2"}),
    (READY, NOT_READY, {"p1"}),
    (READY, ENDING, {"p1"}),
    (NOT_READY, ENDING, {"p2"}),
    (ENDING, ENDING, {"p1", "p2"}),
    (NOT_READY, NOT_READY, {"refused"}),
    (NOT_READY, {"serving": False}, {"p2"}),  # with publishNotReadyAddresses
]
"""Of p1 and of p2, and who of them answers."""
