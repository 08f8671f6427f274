"""A switch that spoils frames: it drops what it is told to, port by port, while every carrier stays.

The bridge in ``switch`` forwards as before, and nftables sees each frame once for every port that it would leave by
(family bridge, hook forward); where frames are counted, it sees each once (hook prerouting). One script is one
transaction, so a fault is there from one moment to the next. Frames that wait do so in a process to which the kernel
redirects them: few kernels outside of distributions have netem. Blocking, as ``faults.py``.
"""

import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from speaker.errors import EdgeError, Unsupported
from speaker.lab.breaking.sickness import Cast, Drop, Hold, Hosts
from speaker.lab.network.lan import Lan, index_of, netlink_in
from speaker.lab.network.namespaces import Namespace
from speaker.lab.network.topology import LAN, Segment, Topology, switch_port
from speaker.lab.watching.capture import ETH_P_ALL, SO_TIMESTAMPNS
from speaker.lab.watching.outage import BUFFER, HELLO, Order, started
from speaker.model import IPAddress
from speaker.packets.sockets import enlarge

SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20  # <linux/if_packet.h>; not in Python's socket module
_TABLE = "speaker-lab-spoils"


def spoil(lan: Lan, drops: Sequence[Drop]) -> None:
    """From now on the LAN loses ``drops``, and nothing else. EdgeError where nft cannot be run or refuses."""
    with lan.namespace(LAN.owner).entered():
        nft(script(lan.topology, drops))


@contextmanager
def delayed(lan: Lan, milliseconds: int) -> Iterator[None]:
    """Until the end of the block every frame on the LAN arrives so much later.

    Raises Unsupported where this kernel cannot redirect frames.
    """
    with _relay(lan, hosts_on(lan.topology, LAN), {"do": "delay", "seconds": milliseconds / 1000}) as relay:
        relay.redirect()
        yield


@contextmanager
def holding(lan: Lan, hold: Hold) -> Iterator["Relay"]:
    """What holds frames as ``hold`` says, from ``Relay.redirect`` on until ``Relay.release``. Raises as ``delayed``."""
    senders = [lan.topology.host(host).mac(lan.topology.host(host).port_on(LAN).link).hex() for host in hold.senders]
    with _relay(lan, hold.receivers, {"do": "burst", "seconds": hold.seconds, "senders": senders}) as relay:
        yield relay


@contextmanager
def _relay(lan: Lan, receivers: Hosts, order: Order) -> Iterator["Relay"]:
    """What leaves by the ports of ``receivers`` can go to a process with ``order`` instead, which sends it on."""
    space = lan.namespace(LAN.owner)
    ways = {_port(lan.topology, host): f"hold{number}" for number, host in enumerate(sorted(receivers))}
    with ExitStack() as stack:
        sockets = []
        for port, hold in ways.items():
            held = _detour(space, hold)
            with space.entered():
                sockets += [stack.enter_context(_raw(held, ETH_P_ALL)), stack.enter_context(_raw(port, 0))]
        with started(order, sockets):
            yield Relay(space, ways)


@dataclass(frozen=True, slots=True)
class Relay:
    """``ways``: for each port of the switch the link that takes what would leave by it."""

    space: Namespace
    ways: Mapping[str, str]

    def redirect(self) -> None:
        """From now on. Raises Unsupported."""
        try:
            with netlink_in(self.space) as switch:
                for port, hold in self.ways.items():
                    self._redirect(switch, port, hold)
        except NetlinkError as refused:
            why = f"this kernel delays no frames: it cannot redirect them (cls_u32, act_mirred): {refused}"
            raise Unsupported(why) from refused

    def release(self) -> None:
        """Frames go straight to their ports again; those that wait come with the next burst."""
        with netlink_in(self.space) as switch:
            for port in self.ways:
                switch.tc("del", "clsact", index_of(switch, port))

    def _redirect(self, switch: IPRoute, port: str, hold: str) -> None:
        switch.tc("add", "clsact", index_of(switch, port))
        redirect = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": index_of(switch, hold)}
        everything = {"protocol": ETH_P_ALL, "keys": ["0x0/0x0+0"], "target": 0x10000}
        switch.tc("add-filter", "u32", index_of(switch, port), parent="ffff:fff3", action=redirect, **everything)


def _detour(space: Namespace, hold: str) -> str:
    """What is sent into ``hold`` arrives at a link of its own: its name."""
    held = hold.replace("hold", "held")
    with netlink_in(space) as switch:
        switch.link("add", ifname=hold, kind="veth", peer=held)
        for name in (hold, held):
            space.sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)  # it would talk to its link, and so to the host
            switch.link("set", index=index_of(switch, name), state="up")
    return held


def _raw(link: str, protocol: int) -> socket.socket:
    """Sends past what redirects: right to the device."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setblocking(False)
    enlarge(sock, BUFFER)
    sock.bind((link, protocol))
    return sock


def hosts_on(topology: Topology, segment: Segment) -> Hosts:
    return frozenset(host.name for host in topology.hosts if any(port.segment == segment for port in host.ports))


def script(topology: Topology, drops: Sequence[Drop]) -> str:
    """For ``nft -f``: exactly ``drops`` on the LAN. The switch itself, no station, is silent there. Pure."""
    counted = "\n".join(f"    {rule}" for drop in drops if drop.over for rule in _over(topology, drop))
    rules = "\n".join(f"    {rule}" for drop in drops if not drop.over for rule in _rules(topology, drop))
    return f"""table bridge {_TABLE}
delete table bridge {_TABLE}
table bridge {_TABLE} {{
  chain output {{
    type filter hook output priority 0; policy drop;
  }}
  chain prerouting {{
    type filter hook prerouting priority 0;
{counted}
  }}
  chain forward {{
    type filter hook forward priority 0;
{rules}
  }}
}}
"""


def _over(topology: Topology, drop: Drop) -> Iterator[str]:
    """A broadcast is one frame here; in the forward hook it is one for each port."""
    yield f"iifname {_ports(topology, drop.senders)} limit rate over {drop.over}/second burst {drop.over} packets drop"


def _rules(topology: Topology, drop: Drop) -> Iterator[str]:
    words = [f"iifname {_ports(topology, drop.senders)}", f"oifname {_ports(topology, drop.receivers)}"]
    if drop.hellos:
        words.append(f"ether type {HELLO:#06x}")
    if drop.claiming:
        words.append(_claiming(ip_address(drop.claiming)))
    if drop.cast is not Cast.ANY:
        group_bit = "01:00:00:00:00:00"
        words.append(f"ether daddr & {group_bit} {'==' if drop.cast is Cast.MANY else '!='} {group_bit}")
    if drop.percent < 100:
        words.append(f"numgen random mod 100 < {drop.percent}")
    yield " ".join([*words, "drop"])


def _claiming(address: IPAddress) -> str:
    """The sender of an ARP packet; the target of a neighbour advertisement, after 40 bytes of IPv6 and 8 of ICMPv6."""
    if address.version == 4:
        return f"arp saddr ip {address}"
    return f"icmpv6 type nd-neighbor-advert @nh,384,128 0x{address.packed.hex()}"


def _ports(topology: Topology, hosts: Hosts) -> str:
    names = (f'"{_port(topology, host)}"' for host in sorted(hosts))
    return f"{{ {', '.join(names)} }}"


def _port(topology: Topology, host: str) -> str:
    return switch_port(host, topology.host(host).port_on(LAN).link)


def nft(text: str) -> None:
    """Runs the script in the namespace that the calling thread is in. Raises EdgeError."""
    try:
        done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EdgeError(f"cannot run nft, with which the lab spoils frames: {error}") from error
    if done.returncode != 0:
        raise EdgeError(f"nft: {' '.join(done.stderr.split())}")
