"""Builds a topology: one network namespace per host, veth pairs for cables, bridges for switches.

Everything lives as long as the ``with`` block, and no longer than this process, because namespaces have no name. It
uses only netlink (no ``ip`` program) and is synchronous: build it before an event loop runs.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol, Self

from pyroute2 import IPRoute

from speaker.lab.namespaces import Namespace
from speaker.lab.timeline import Timeline
from speaker.lab.topology import Host, Port, Segment, Topology, switch_port
from speaker.model import IPAddress, Mac, format_mac

_IPV4 = "rp_filter", "arp_ignore", "arp_announce"
ZERO = (
    *(f"net.ipv4.conf.{of}.{name}" for of in ("all", "default") for name in _IPV4),
    *("net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6", "net.ipv6.conf.default.accept_dad"),
)
"""Settings that are 0 in every namespace: a new one copies the host's of IPv4 (net.core.devconf_inherit_init_net),
and a demo should not depend on them. accept_dad=0: a second of duplicate address detection (RFC 4862 §5.4) before an
address works proves nothing in a LAN that we drew ourselves."""


class Lan:
    """``with Lan(topology) as lan: lan.namespace("client")``. Raises OSError where namespaces are refused."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._stack = ExitStack()
        self._namespaces: dict[str, Namespace] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._build(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def namespace(self, host: str) -> Namespace:
        return self._namespaces[host]

    def _build(self, stack: ExitStack) -> None:
        for host in self.topology.hosts:
            self._namespaces[host.name] = stack.enter_context(Namespace(host.name))
            _configure(self._namespaces[host.name], host)
        with ExitStack() as hands:
            netlink = {name: hands.enter_context(netlink_in(space)) for name, space in self._namespaces.items()}
            for link in netlink.values():
                link.link("set", index=1, state="up")
            for segment in self.topology.segments:
                _make_bridge(netlink[segment.owner], segment)
            for host in self.topology.hosts:
                for port in host.ports:
                    _plug_in(netlink, host, port, self._namespaces[host.name].fileno())
                    _fall_silent(self._namespaces[port.segment.owner], switch_port(host.name, port.link))
                _add_routes(netlink[host.name], host)


def netlink_in(namespace: Namespace) -> IPRoute:
    """A netlink socket that stays inside ``namespace`` wherever it is used; not for threads with a running loop."""
    with namespace.entered():
        return IPRoute()


def index_of(netlink: IPRoute, link: str) -> int:
    index: int = netlink.link_lookup(ifname=link)[0]
    return index


def neighbours(namespace: Namespace) -> Mapping[IPAddress, Mac]:
    """The namespace's neighbour table, resolved entries only. Blocking; not in a thread with a running loop."""
    with netlink_in(namespace) as netlink:
        entries: list[Any] = list(netlink.get_neighbours())
    return {
        ip_address(entry.get("NDA_DST")): Mac(bytes.fromhex(mac.replace(":", "")))
        for entry in entries
        if (mac := entry.get("NDA_LLADDR")) and entry.get("NDA_DST")
    }


def _configure(namespace: Namespace, host: Host) -> None:
    forwarding = int(host.forwards)
    for name in ZERO:
        namespace.sysctl(name, 0)
    namespace.sysctl("net.ipv4.ip_forward", forwarding)
    namespace.sysctl("net.ipv6.conf.all.forwarding", forwarding)


def _make_bridge(netlink: IPRoute, segment: Segment) -> None:
    netlink.link("add", ifname=segment.name, kind="bridge")
    index = index_of(netlink, segment.name)
    netlink.link("set", index=index, state="up")
    for address in segment.addresses:
        netlink.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen)


def _plug_in(netlink: Mapping[str, IPRoute], host: Host, port: Port, namespace_fd: int) -> None:
    switch, mine = netlink[port.segment.owner], netlink[host.name]
    socket_name = switch_port(host.name, port.link)
    switch.link(
        "add",
        ifname=socket_name,
        kind="veth",
        peer={"ifname": port.link, "address": format_mac(port.mac), "net_ns_fd": namespace_fd},
    )
    switch.link("set", index=index_of(switch, socket_name), master=index_of(switch, port.segment.name), state="up")
    index = index_of(mine, port.link)
    mine.link("set", index=index, state="up")
    for address in port.addresses:
        mine.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen)


def _fall_silent(switch: Namespace, port: str) -> None:
    """Out of its bridge it would solicit routers: to a host whose cable is cut a sign that somebody is there."""
    switch.sysctl(f"net.ipv6.conf.{port}.disable_ipv6", 1)


def _add_routes(netlink: IPRoute, host: Host) -> None:
    for route in host.routes:
        way: dict[str, Any] = {"oif": index_of(netlink, route.link)}
        if route.via is not None:
            way["gateway"] = str(route.via)
        else:
            way["scope"] = "link"
        netlink.route("add", dst=str(route.destination), **way)


# ── What every scenario gets, and returns ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Stage:
    """``directory`` is the scenario's own, empty but for ``manifests``; both go away with the lab."""

    lan: Lan
    timeline: Timeline
    directory: Path
    manifests: Path
    responder: str = "socket"


class Outcome(Protocol):
    """A scenario's result: ``ok`` decides the exit code, ``as_json`` is the one object that ``--json`` prints."""

    @property
    def ok(self) -> bool: ...

    def as_json(self) -> dict[str, Any]: ...
