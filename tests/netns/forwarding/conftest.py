"""A client, a node that forwards, and real servers behind it; answered and asked with real sockets.

::

    client ── lan ── node ── one
                     node ── two

EIPs are 198.51.100.0/24 and 2001:db8:e::/64, which the client routes to the node: nobody has to answer ARP here.
"""

import asyncio
import selectors
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import pytest

from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.lab.namespaces import Namespace
from speaker.model import Protocol

EIP = {4: ip_address("198.51.100.10"), 6: ip_address("2001:db8:e::10")}


@dataclass(frozen=True)
class Lan:
    client: Namespace
    node: Namespace
    one: Namespace
    two: Namespace
    eip: dict[int, IPv4Address | IPv6Address] = field(default_factory=lambda: EIP)
    addresses: dict[str, dict[int, str]] = field(
        default_factory=lambda: {
            "client": {4: "192.0.2.100", 6: "2001:db8:2::100"},
            "node": {4: "192.0.2.1", 6: "2001:db8:2::1"},
            "one": {4: "10.0.1.2", 6: "2001:db8:a1::2"},
            "two": {4: "10.0.2.2", 6: "2001:db8:a2::2"},
            "towards one": {4: "10.0.1.1", 6: "2001:db8:a1::1"},
            "towards two": {4: "10.0.2.1", 6: "2001:db8:a2::1"},
        }
    )

    def real(self, name: str, version: int, **settings: Any) -> RealServer:
        return RealServer(ip_address(self.addresses[name][version]), 8080, **settings)


@pytest.fixture
def lan(new_namespace, wire, sh) -> Lan:
    made = Lan(*(new_namespace(label) for label in ("client", "node", "one", "two")))
    at = made.addresses
    for namespace in (made.client, made.node, made.one, made.two):
        # A router cannot solicit neighbours before its link-local address passed DAD, a second after the link is up.
        namespace.sysctl("net.ipv6.conf.default.accept_dad", 0)
    wire(made.client, "eth0", made.node, "lan")
    places = [(made.client, "eth0", "client"), (made.node, "lan", "node")]
    for namespace, name in ((made.one, "one"), (made.two, "two")):
        wire(namespace, "eth0", made.node, name)
        places += [(namespace, "eth0", name), (made.node, name, f"towards {name}")]
    for namespace, link, name in places:
        sh(namespace, f"ip addr add {at[name][4]}/24 dev {link}")
        sh(namespace, f"ip addr add {at[name][6]}/64 dev {link} nodad")
    sh(made.client, f"ip route add 198.51.100.0/24 via {at['node'][4]}")
    sh(made.client, f"ip route add 2001:db8:e::/64 via {at['node'][6]}")
    # The node itself has the EIPs on its LAN, as it would in a real one: packets to them have a way out.
    sh(made.node, "ip route add 198.51.100.0/24 dev lan")
    sh(made.node, "ip route add 2001:db8:e::/64 dev lan")
    for namespace in (made.one, made.two):
        for gateway in at[f"towards {namespace.label}"].values():
            sh(namespace, f"ip route add default via {gateway}")
    made.node.sysctl("net.ipv4.ip_forward", 1)
    made.node.sysctl("net.ipv6.conf.all.forwarding", 1)
    return made


@pytest.fixture
def inside() -> Callable[..., Any]:
    """``inside(namespace, function, *arguments)`` runs a coroutine function in a loop of its own, in the namespace."""

    def run(namespace: Namespace, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        async def main() -> Any:
            return await function(*arguments)

        with namespace.entered():
            return asyncio.run(main())

    return run


@pytest.fixture
def virtual_server(lan) -> Callable[..., VirtualServer]:
    """``virtual_server(4, port=80, real_servers=("one", "two"), …)`` on the EIP of that family; both by default."""

    def make(version: int = 4, protocol: Protocol = Protocol.TCP, port: int = 80, **settings: Any) -> VirtualServer:
        names = settings.pop("real_servers", ("one", "two"))
        real = tuple(name if isinstance(name, RealServer) else lan.real(name, version) for name in names)
        settings["sources"] = tuple(map(ip_network, settings.get("sources", ())))
        return VirtualServer(lan.eip[version], protocol, port, real_servers=real, **settings)

    return make


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    def make(*servers: VirtualServer, eips: tuple[Any, ...] = ()) -> Plan:
        return Plan(frozenset({*eips, *(server.address for server in servers)}), {each.key: each for each in servers})

    return make


# ── Real sockets ──────────────────────────────────────────────────────────────────────────────────────────────

PATIENCE = 30.0
"""Seconds; only a failure waits for so long."""
_KINDS = {Protocol.TCP: socket.SOCK_STREAM, Protocol.UDP: socket.SOCK_DGRAM}


def _socket(namespace: Namespace, version: int, protocol: Protocol) -> socket.socket:
    with namespace.entered():
        made = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, _KINDS[protocol])
    if version == 6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.settimeout(PATIENCE)
    return made


@pytest.fixture
def open_socket() -> Callable[[Namespace, int, Protocol], socket.socket]:
    """``open_socket(namespace, version, protocol)``: a socket of that namespace that gives up at last."""
    return _socket


def _answer(listener: socket.socket, name: str) -> None:
    if listener.type == socket.SOCK_STREAM:
        connection, client = listener.accept()
        with suppress(ConnectionError), connection:  # whoever asked may have given up
            connection.sendall(f"{name} {client[0]}".encode())
    else:
        question, client = listener.recvfrom(65535)
        listener.sendto(f"{name} {client[0]} {len(question)}".encode(), client)


@contextmanager
def _serving(namespace: Namespace, name: str, port: int) -> Iterator[None]:
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for version, anywhere in ((4, "0.0.0.0"), (6, "::")):
            for protocol in _KINDS:
                listener = stack.enter_context(_socket(namespace, version, protocol))
                listener.bind((anywhere, port))
                if protocol is Protocol.TCP:
                    listener.listen(64)
                selector.register(listener, selectors.EVENT_READ)
        stopped, stop = map(stack.enter_context, socket.socketpair())
        selector.register(stopped, selectors.EVENT_READ)

        def serve() -> None:
            while True:
                for key, _ in selector.select():
                    if key.fileobj is stopped:
                        return
                    _answer(key.fileobj, name)

        thread = threading.Thread(target=serve, name=f"server {name}")
        thread.start()
        try:
            yield
        finally:
            stop.send(b"x")
            thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., None]]:
    """``serve(namespace, name, port)`` answers on 0.0.0.0 and ::, TCP and UDP, with its name and the client it sees."""
    with ExitStack() as stack:
        yield lambda namespace, name, port=8080: stack.enter_context(_serving(namespace, name, port))


@pytest.fixture
def servers(lan, serve) -> None:
    serve(lan.one, "one")
    serve(lan.two, "two")


@pytest.fixture
def ask() -> Callable[..., list[str]]:
    """``ask(namespace, address, port, …)`` connects, returns the words of the answer; OSError where refused or lost."""

    def question(
        namespace: Namespace,
        address: Any,
        port: int = 80,
        protocol: Protocol = Protocol.TCP,
        *,
        source: str = "",
        source_port: int = 0,
        size: int = 1,
        timeout: float = PATIENCE,
    ) -> list[str]:
        target = ip_address(address)
        with _socket(namespace, target.version, protocol) as asking:
            asking.settimeout(timeout)
            asking.bind((source, source_port))
            asking.connect((str(target), port))
            if protocol is Protocol.UDP:
                asking.send(b"?" * size)
            return asking.recv(200).decode().split()

    return question


@pytest.fixture
def counted(ask) -> Callable[..., dict[str, int]]:
    """``counted(times, namespace, address, …)``: how often which server answered."""

    def count(times: int, *arguments: Any, **settings: Any) -> dict[str, int]:
        names = [ask(*arguments, **settings)[0] for _ in range(times)]
        return {name: names.count(name) for name in sorted(set(names))}

    return count


@pytest.fixture
def bound(lan: Lan, sh: Any) -> None:
    """The EIPs are on the node, as IPVS needs them."""
    sh(lan.node, f"ip addr add {lan.eip[4]}/32 dev lo")
    sh(lan.node, f"ip addr add {lan.eip[6]}/128 dev lo nodad")


@pytest.fixture
def speak_as_the_eip(lan: Lan, sh: Any) -> Callable[..., None]:
    """``speak_as_the_eip(4, Protocol.UDP, 22)``: the client sends one packet from this port of the EIP to its own port
    4000, by way of the node, which then takes what comes back for replies to the EIP."""

    from scapy.layers.inet import IP, TCP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether

    def speak(version: int, protocol: Protocol = Protocol.TCP, port: int = 22) -> None:
        # What comes back to the client must not make its kernel end the connection.
        sh(lan.client, "nft add table inet mine")
        sh(lan.client, "nft add chain inet mine in { type filter hook prerouting priority raw ; }")
        sh(lan.client, "nft add rule inet mine in tcp flags & (syn | ack) == syn drop")
        sh(lan.client, "nft add rule inet mine in udp length 9 drop")
        ping = f"ping -c 1 -W 30 {lan.addresses['node'][version]}"
        assert "1 received" in sh(lan.client, ping)
        neighbours = sh(lan.client, f"ip -{version} neigh show {lan.addresses['node'][version]} dev eth0")
        mac = neighbours.split("lladdr ")[1].split()[0]
        ip = (IP if version == 4 else IPv6)(src=str(lan.eip[version]), dst=lan.addresses["client"][version])
        inner = UDP(sport=port, dport=4000) if protocol is Protocol.UDP else TCP(sport=port, dport=4000, flags="S")
        with lan.client.entered():
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with raw:
            raw.bind(("eth0", 0))
            raw.send(bytes(Ether(dst=mac, src=raw.getsockname()[4]) / ip / inner / b"x"))
        assert "1 received" in sh(lan.client, ping), "by now it has been forwarded"

    return speak
