"""A switch that spoils frames: it drops what it is told to, port by port, while every carrier stays.

The bridge in ``switch`` forwards as before. nftables sees each frame once for every port that it would leave by (family
bridge, hook forward); where frames are counted, it sees each once (hook prerouting). One script is one transaction, so
a fault begins from one moment to the next. Delayed frames wait in a process to which the kernel redirects them, because
few kernels outside of distributions have netem.

Cables are pulled there as well. Hosts notice nothing except, in some faults, that their carrier is gone. Every function
blocks for a millisecond or two and returns when the fault is in place. Inside an event loop, call it through
``in_thread``.
"""

import socket
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import permutations

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from speaker.errors import EdgeError, Unsupported
from speaker.lab.capture import ETH_P_ALL, SO_TIMESTAMPNS
from speaker.lab.lan import Lan, index_of, netlink_in
from speaker.lab.namespaces import Namespace
from speaker.lab.outage import BUFFER, HELLO, Order, started
from speaker.lab.sickness import Cast, Drop, Hold, Hosts
from speaker.lab.topology import LAN, Segment, Topology, switch_port
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


#: ``master`` 0 takes a port out of its bridge (rtnl_link(7)): it stays up, and so does the carrier at the other end.
_NO_BRIDGE = 0


def cut(lan: Lan, host: str, link: str = "eth0") -> None:
    """Nothing passes ``host``'s cable any more, in either direction, and its carrier stays."""
    _move(lan, host, link, None)


def mend(lan: Lan, host: str, link: str = "eth0") -> None:
    """The opposite of ``cut``."""
    _move(lan, host, link, lan.topology.host(host).port(link).segment.name)


def pull(lan: Lan, host: str, link: str = "eth0") -> None:
    """Pull ``host``'s cable: it loses the carrier."""
    with _at_the_switch(lan, host, link) as (switch, index):
        switch.link("set", index=index, state="down")


def plug(lan: Lan, host: str, link: str = "eth0") -> None:
    """The opposite of ``pull``."""
    with _at_the_switch(lan, host, link) as (switch, index):
        switch.link("set", index=index, state="up")


def distrust(lan: Lan, host: str, link: str = "eth0") -> None:
    """The switch learns no address from ``host``'s port any more (port security): whatever sender it makes up, nobody's
    packets go there instead."""
    with _at_the_switch(lan, host, link) as (switch, index):
        switch.brport("set", index=index, learning=0)


def split(lan: Lan, groups: Sequence[Collection[str]]) -> None:
    """The switch falls apart, from one moment to the next: each group of hosts still hears its own, and nobody else.

    Hosts in no group stay with the first. All carriers stay.
    """
    others = [frozenset(group) for group in groups[1:]]
    pieces = [hosts_on(lan.topology, LAN).difference(*others), *others]
    spoil(lan, [Drop(one, other) for one, other in permutations(pieces, 2)])


def heal(lan: Lan) -> None:
    """The opposite of ``split``: everybody hears everybody from one moment to the next."""
    spoil(lan, [])


def _move(lan: Lan, host: str, link: str, bridge: str | None) -> None:
    with _at_the_switch(lan, host, link) as (switch, index):
        switch.link("set", index=index, master=_NO_BRIDGE if bridge is None else index_of(switch, bridge))


@contextmanager
def _at_the_switch(lan: Lan, host: str, link: str) -> Iterator[tuple[IPRoute, int]]:
    """The switch that the host's link leads to, and its port there."""
    with netlink_in(lan.namespace(lan.topology.host(host).port(link).segment.owner)) as switch:
        yield switch, index_of(switch, switch_port(host, link))
