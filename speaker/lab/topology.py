"""Who is on the lab's LAN, and where: pure, drawn once, built by ``lan.py``.

::

    client .100   gateway .1   host1 .50               admin .100
         │            │            │                        │
     ────┴─── lan ────┴──────┬─────┴────     ─── mgmt ──┬───┴───      both bridges in `switch`
                             │ eth0                eth1 │
                             └──────── node1 .11 ───────┘
                                           │
                                   ──┬─── pods ───┬──                 a bridge in the node
                                     │            │
                                 pod1 .11     pod2 .12

    lan  192.0.2.0/24     2001:db8:0:1::/64   (RFC 5737 and 3849: documentation ranges)
    mgmt 198.51.100.0/24  2001:db8:0:2::/64
    pods 10.244.N.0/24    fd00:10:244:N::/64  (node N's own)

203.0.113.0/24 is *used* on the LAN without being anybody's subnet: client and gateway look for it on the wire, so an
EIP from it works once the node knows, by ``can_reach``, on which link to answer. ``host1`` is a backend whose default
route passes the node by: it answers through it only when the node masquerades.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface, ip_network

from speaker.model import IPAddress, IPNetwork, Mac

IPInterface = IPv4Interface | IPv6Interface

#: Nodes hold .11 and more, hosts .50 and more, EIPs .200 and more.
MAX_NODES, MAX_EIPS = 30, 50


@dataclass(frozen=True, slots=True)
class Segment:
    """A bridge in the namespace of ``owner``, which holds ``addresses`` on it (a switch holds none)."""

    name: str
    owner: str
    addresses: tuple[IPInterface, ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    """One link of a host, plugged into a segment."""

    link: str
    segment: Segment
    mac: Mac
    addresses: tuple[IPInterface, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """``via`` None: the destination is on the link itself."""

    destination: IPNetwork
    link: str
    via: IPAddress | None = None


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    ports: tuple[Port, ...] = ()
    routes: tuple[Route, ...] = ()
    forwards: bool = False

    def port(self, link: str) -> Port:
        return next(port for port in self.ports if port.link == link)

    def port_on(self, segment: Segment) -> Port:
        return next(port for port in self.ports if port.segment == segment)

    def mac(self, link: str) -> Mac:
        return self.port(link).mac

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        return tuple(address.ip for port in self.ports for address in port.addresses)


@dataclass(frozen=True, slots=True)
class Topology:
    hosts: tuple[Host, ...]
    segments: tuple[Segment, ...]
    nodes: tuple[str, ...]
    backends: tuple[str, ...]
    observers: tuple[tuple[str, str], ...] = (("eth0", "client"), ("eth1", "admin"))
    """For each link name of the nodes, who sits on its segment and tries the EIPs announced there."""

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def observer(self, link: str) -> str | None:
        return dict(self.observers).get(link)

    def pods_of(self, node: str) -> tuple[str, ...]:
        """The hosts on the segments that ``node`` owns."""
        return tuple(host.name for host in self.hosts if any(port.segment.owner == node for port in host.ports))

    def backend_at(self, address: IPAddress) -> str | None:
        return next((name for name in self.backends if address in self.host(name).addresses), None)


LAN = Segment("lan", "switch")
MGMT = Segment("mgmt", "switch")
GATEWAY = "gateway"
FOREIGN_SUBNET = ip_network("203.0.113.0/24")


def switch_port(host: str, link: str) -> str:
    """What the other end of a host's cable is called in its switch."""
    return f"{host}-{link}"


def lab_topology(nodes: int = 1, clients: int = 1) -> Topology:
    """The lab's LAN with ``nodes`` nodes (1 to 30), two pods behind each; ValueError outside that.

    More than one of ``clients`` on the LAN are called client2, client3, …
    """
    if not 1 <= nodes <= MAX_NODES:
        raise ValueError(f"a lab has 1 to {MAX_NODES} nodes, not {nodes}")
    numbers = range(1, nodes + 1)
    pods = [pod for number in numbers for pod in _pods(number)]
    looks_for_foreign = Route(FOREIGN_SUBNET, "eth0")
    hosts = (
        Host("switch"),
        Host(GATEWAY, (_port("eth0", LAN, 1),), (looks_for_foreign,), forwards=True),
        *(
            Host(name, (_port("eth0", LAN, 99 + number),), (*_default_routes(), looks_for_foreign))
            for number, name in enumerate(("client", *(f"client{more}" for more in range(2, clients + 1))), 1)
        ),
        Host("admin", (_port("eth0", MGMT, 100),)),
        Host("host1", (_port("eth0", LAN, 50),), _default_routes()),
        *(_node(number, nodes) for number in numbers),
        *pods,
    )
    return Topology(
        hosts=hosts,
        segments=(LAN, MGMT, *(_pod_segment(number) for number in numbers)),
        nodes=tuple(f"node{number}" for number in numbers),
        backends=(*(pod.name for pod in pods), "host1"),
    )


def _node(number: int, nodes: int) -> Host:
    peers = [peer for peer in range(1, nodes + 1) if peer != number]
    to_other_pods = tuple(
        Route(ip_network(subnet), "eth0", ip_address(via))
        for peer in peers
        for subnet, via in (
            (f"10.244.{peer}.0/24", f"192.0.2.{10 + peer}"),
            (f"fd00:10:244:{peer}::/64", f"2001:db8:0:1::{10 + peer}"),
        )
    )
    ports = (_port("eth0", LAN, 10 + number), _port("eth1", MGMT, 10 + number))
    return Host(f"node{number}", ports, (*_default_routes(), *to_other_pods), forwards=True)


def _pods(number: int) -> Iterator[Host]:
    segment = _pod_segment(number)
    routes = tuple(
        Route(ip_network("0.0.0.0/0" if bridge.version == 4 else "::/0"), "eth0", bridge.ip)
        for bridge in segment.addresses
    )
    for at in (1, 2):
        yield Host(f"pod{2 * (number - 1) + at}", (_pod_port(segment, number, 10 + at),), routes)


def _pod_segment(number: int) -> Segment:
    return Segment(
        "pods", f"node{number}", (ip_interface(f"10.244.{number}.1/24"), ip_interface(f"fd00:10:244:{number}::1/64"))
    )


def _pod_port(segment: Segment, node: int, number: int) -> Port:
    addresses = (ip_interface(f"10.244.{node}.{number}/24"), ip_interface(f"fd00:10:244:{node}::{number}/64"))
    return Port("eth0", segment, _mac(44, node, number), addresses)


def _port(link: str, segment: Segment, number: int) -> Port:
    """``number`` is the last part of every address and of the MAC, so that people recognise it."""
    v4, v6, lan = ("192.0.2", "2001:db8:0:1", 1) if segment is LAN else ("198.51.100", "2001:db8:0:2", 2)
    addresses = (ip_interface(f"{v4}.{number}/24"), ip_interface(f"{v6}::{number}/64"))
    return Port(link, segment, _mac(lan, number // 100, number % 100), addresses)


def _mac(*last: int) -> Mac:
    """02:… is locally administered; the numbers read as decimal."""
    return Mac(bytes.fromhex("020000" + "".join(f"{number:02d}" for number in last)))


def _default_routes() -> tuple[Route, Route]:
    return (
        Route(ip_network("0.0.0.0/0"), "eth0", ip_address("192.0.2.1")),
        Route(ip_network("::/0"), "eth0", ip_address("2001:db8:0:1::1")),
    )
