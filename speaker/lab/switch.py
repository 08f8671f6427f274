"""A switch that spoils frames: it drops what it is told to, port by port, while every carrier stays.

The bridge in ``switch`` forwards as before, and nftables sees each frame once for every port that it would leave by
(family bridge, hook forward). One script is one transaction, so a fault is there from one moment to the next. Delay is
netem's, where the kernel has it. Blocking, as ``faults.py``.
"""

import subprocess
from collections.abc import Iterable, Iterator, Sequence

from pyroute2.netlink.exceptions import NetlinkError

from speaker.errors import EdgeError, Unsupported
from speaker.lab.lan import Lan, netlink_in
from speaker.lab.sickness import Drop, Hosts
from speaker.lab.topology import LAN, Segment, Topology, switch_port

HELLO = 0x88B5
_TABLE = "speaker-lab-spoils"


def spoil(lan: Lan, drops: Sequence[Drop]) -> None:
    """From now on the LAN loses ``drops``, and nothing else. EdgeError where nft cannot be run or refuses."""
    with lan.namespace(LAN.owner).entered():
        _nft(script(lan.topology, drops))


def slow_down(lan: Lan, milliseconds: int) -> None:
    """Every frame takes so long from the switch to the host that it is for. Unsupported without netem in the kernel."""
    with netlink_in(lan.namespace(LAN.owner)) as switch:
        for host in hosts_on(lan.topology, LAN):
            (index,) = switch.link_lookup(ifname=_port(lan.topology, host))
            try:
                switch.tc("add", "netem", index, "1:", delay=milliseconds * 1000, limit=10_000)
            except NetlinkError as refused:
                why = f"this kernel delays no frames: it has no netem (CONFIG_NET_SCH_NETEM): {refused}"
                raise Unsupported(why) from refused


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
