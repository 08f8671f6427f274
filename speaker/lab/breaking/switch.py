"""A switch that spoils frames: it drops what it is told to, port by port, while every carrier stays.

The bridge in ``switch`` forwards as before, and nftables sees each frame once for every port that it would leave by
(family bridge, hook forward). One script is one transaction, so a fault is there from one moment to the next.
Blocking, as ``faults.py``.
"""

import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from speaker.errors import EdgeError, Unsupported
from speaker.lab.breaking.sickness import Drop, Hosts
from speaker.lab.network.lan import Lan, netlink_in
from speaker.lab.network.namespaces import Namespace
from speaker.lab.network.topology import LAN, Segment, Topology, switch_port
from speaker.lab.watching.arp_listener import ETH_P_ALL
from speaker.lab.watching.prober import SO_TIMESTAMPNS
from speaker.lab.watching.sending import BUFFER, started
from speaker.packets.sockets import enlarge

HELLO = 0x88B5
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20  # <linux/if_packet.h>; not in Python's socket module
_TABLE = "speaker-lab-spoils"


def spoil(lan: Lan, drops: Sequence[Drop]) -> None:
    """From now on the LAN loses ``drops``, and nothing else. EdgeError where nft cannot be run or refuses."""
    with lan.namespace(LAN.owner).entered():
        _nft(script(lan.topology, drops))


@contextmanager
def delayed(lan: Lan, milliseconds: int) -> Iterator[None]:
    """Until the end of the block every frame on the LAN arrives so much later.

    What would leave by a port goes to a process instead, which sends it on when it is time. Few kernels outside of
    distributions have netem; Unsupported where this one cannot redirect frames either.
    """
    space = lan.namespace(LAN.owner)
    with ExitStack() as stack:
        sockets = []
        with netlink_in(space) as switch:
            for number, host in enumerate(sorted(hosts_on(lan.topology, LAN))):
                port = _port(lan.topology, host)
                held = _detour(space, switch, port, number)
                with space.entered():
                    sockets += [stack.enter_context(_raw(held, ETH_P_ALL)), stack.enter_context(_raw(port, 0))]
        with started({"do": "delay", "seconds": milliseconds / 1000}, sockets):
            yield


def _detour(space: Namespace, switch: IPRoute, port: str, number: int) -> str:
    """What would leave by ``port`` arrives at a link of its own instead: its name."""
    hold, held = f"hold{number}", f"held{number}"
    switch.link("add", ifname=hold, kind="veth", peer=held)
    for name in (hold, held):
        space.sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)  # it would talk to its link, and so to the host
        switch.link("set", index=_index(switch, name), state="up")
    try:
        switch.tc("add", "clsact", _index(switch, port))
        redirect = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": _index(switch, hold)}
        everything = {"protocol": ETH_P_ALL, "keys": ["0x0/0x0+0"], "target": 0x10000}
        switch.tc("add-filter", "u32", _index(switch, port), parent="ffff:fff3", action=redirect, **everything)
    except NetlinkError as refused:
        why = f"this kernel delays no frames: it cannot redirect them (cls_u32, act_mirred): {refused}"
        raise Unsupported(why) from refused
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


def script(topology: Topology, drops: Iterable[Drop]) -> str:
    """For ``nft -f``: exactly ``drops`` on the LAN. The switch itself, no station, is silent there. Pure."""
    rules = "\n".join(f"    {rule}" for rule in _rules(topology, drops))
    return f"""table bridge {_TABLE}
delete table bridge {_TABLE}
table bridge {_TABLE} {{
  chain output {{
    type filter hook output priority 0; policy drop;
  }}
  chain forward {{
    type filter hook forward priority 0;
{rules}
  }}
}}
"""


def _rules(topology: Topology, drops: Iterable[Drop]) -> Iterator[str]:
    for drop in drops:
        words = [f"iifname {_ports(topology, drop.senders)}", f"oifname {_ports(topology, drop.receivers)}"]
        if drop.hellos:
            words.append(f"ether type {HELLO:#06x}")
        if drop.claiming:
            words.append(f"arp saddr ip {drop.claiming}")
        if drop.percent < 100:
            words.append(f"numgen random mod 100 < {drop.percent}")
        yield " ".join([*words, "drop"])


def _ports(topology: Topology, hosts: Hosts) -> str:
    return f"{{ {', '.join(_quoted(_port(topology, host)) for host in sorted(hosts))} }}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _port(topology: Topology, host: str) -> str:
    return next(switch_port(host, port.link) for port in topology.host(host).ports if port.segment == LAN)


def _nft(text: str) -> None:
    try:
        done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EdgeError(f"cannot run nft, with which the lab spoils frames: {error}") from error
    if done.returncode != 0:
        raise EdgeError(f"nft: {' '.join(done.stderr.split())}")


def _index(netlink: IPRoute, link: str) -> int:
    index: int = netlink.link_lookup(ifname=link)[0]
    return index
