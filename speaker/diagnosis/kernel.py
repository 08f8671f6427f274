"""Edge: what this host's kernel is set to, and what it drops. Each look may be refused; then it says so."""

import asyncio
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from speaker.diagnosis.facts import Bound, Chain, Drops
from speaker.errors import EdgeError
from speaker.forwarding.ipvs.proc import FILE as IPVS_FILE
from speaker.forwarding.nftables import nft
from speaker.forwarding.sysctl import read
from speaker.interfaces import martians
from speaker.model import Link, format_mac
from speaker.netlink.messages import attributes
from speaker.netlink.numbers import IFA_ADDRESS, IFA_LOCAL, IFADDR, RTM_GETADDR
from speaker.netlink.requests import Netlink, Request
from speaker.system import programs
from speaker.system.decoding import UNFIT

GLOBAL = (
    *("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"),
    *("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"),
)
OF_A_LINK = ("forwarding", "rp_filter", "arp_ignore", "arp_announce", "accept_local", "proxy_arp")
ADDRESSES = 4096
CHAINS = 64
"""Base chains of others whose rules are read."""
RULES = 2000
"""Of one of them."""
SYS = Path("/sys/class/net")
"""It shows the network that it was mounted in: links of another one are passed over."""
PORTS = 1024
"""Of a bridge, that are looked at."""
_IFF_PROMISC = 0x100
_OURS = ("eip-speaker", "kube-proxy")
"""Tables whose rules are no obstacle: what is wrong with those shows elsewhere."""
_IFA_F_SECONDARY = 0x01
_HOOKS = {"ingress", "egress", "prerouting", "forward", "postrouting", "input", "output"}


def sysctls(links: Iterable[str]) -> Mapping[str, str]:
    """By name; those that there are. Raises EdgeError."""
    found = {name: read(name) for name in GLOBAL}
    found |= {
        f"net.ipv4.conf.{link}.{name}": read("net.ipv4.conf", link, name)
        for link in ("all", *links)
        for name in OF_A_LINK
    }
    return {name: value for name, value in found.items() if value}


def addresses(links: Mapping[int, Link]) -> tuple[Bound, ...]:
    """All that are bound, those of dummies among them, with their prefixes. Raises EdgeError."""
    try:
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            answers = netlink.dump(Request(RTM_GETADDR, IFADDR.pack(socket.AF_UNSPEC, 0, 0, 0, 0)))
        return tuple(_bound(answer, links) for answer in answers[:ADDRESSES])
    except (OSError, KeyError, ValueError, struct.error) as error:
        raise EdgeError(f"the kernel does not list addresses: {error}") from error


def _bound(answer: bytes, links: Mapping[int, Link]) -> Bound:
    _, prefix, flags, _, index = IFADDR.unpack_from(answer)
    found = attributes(answer, IFADDR.size)
    link = links[index].name if index in links else str(index)
    address = ip_address(found.get(IFA_LOCAL) or found[IFA_ADDRESS])
    secondary = address.version == 4 and bool(flags & _IFA_F_SECONDARY)  # of IPv6 it is a temporary one
    return Bound(link, str(address), prefix, secondary)


async def chains() -> tuple[Chain, ...]:
    """Base chains of other programs, with their rules. Raises EdgeError."""
    listed = [item["chain"] for item in await nft.list_chains() if isinstance(item.get("chain"), dict)]
    hooked = [chain for chain in listed if chain.get("hook") in _HOOKS and chain.get("type", "filter") == "filter"]
    others = [chain for chain in hooked if not str(chain.get("table", "")).startswith(_OURS)]
    return tuple(await asyncio.gather(*(_with_rules(chain) for chain in others[:CHAINS])))


async def _with_rules(chain: Mapping[str, Any]) -> Chain:
    family, table, name = (str(chain.get(part, "")) for part in ("family", "table", "name"))
    listing = await nft.list_object("chain", family, table, name)
    device = _devices(chain.get("dev"))
    if family == "netdev" and not device:  # older nft tells it people alone
        _, text, _ = await programs.run("nft", "list", "chain", family, table, name)
        head = text.decode(errors="replace").partition(" hook ")[2].partition(" priority ")[0]
        device = ",".join(re.findall(r'[^"\s{},=]+', head.partition(" device")[2].removeprefix("s")))
    return Chain(
        family,
        table,
        name,
        str(chain.get("hook")),
        str(chain.get("policy", "accept")),
        device,
        tuple(_rules(listing or b"{}"))[:RULES],
    )


def _devices(found: object) -> str:
    return ",".join(map(str, found)) if isinstance(found, list) else str(found or "")


def _rules(listing: bytes) -> Iterable[Any]:
    try:
        items = msgspec.json.decode(listing, type=dict[str, list[dict[str, Any]]]).get("nftables", [])
    except UNFIT as error:
        raise EdgeError(f"nft list chain: what it printed is no listing: {error}") from error
    return (item["rule"]["expr"] for item in items if isinstance(item.get("rule"), dict) and "expr" in item["rule"])


def has_ipvs() -> bool:
    return Path(IPVS_FILE).exists()


def legacy_tables() -> tuple[str, ...]:
    """Of iptables as it was before nftables; to list them would make those that are not there."""
    try:
        return (*Path("/proc/thread-self/net/ip_tables_names").read_text().split(),)
    except OSError:  # a kernel without them
        return ()


def dropped() -> Drops:
    """Since the kernel runs. Raises EdgeError."""
    total, reverse_path = martians.dropped()
    return Drops(total - reverse_path, reverse_path)


# ── what netlink does not tell of links ──


def is_wireless(link: Link, root: Path = SYS) -> bool:
    return _is_here(link, root) and (root / link.name / "phy80211").exists()


def deaf_ports(bridge: Link, root: Path = SYS) -> tuple[str, ...]:
    """Without hairpin mode, on a bridge that does not take for itself what it sends (promiscuous mode does that)."""
    if not _is_here(bridge, root) or int(_read(root / bridge.name / "flags") or "0", 16) & _IFF_PROMISC:
        return ()
    try:
        ports = sorted(islice((root / bridge.name / "brif").iterdir(), PORTS))
    except OSError:  # it is gone
        return ()
    return tuple(port.name for port in ports if _read(root / port.name / "brport" / "hairpin_mode") == "0")


def _is_here(link: Link, root: Path) -> bool:
    return _read(root / link.name / "ifindex") == str(link.index) and _read(root / link.name / "address") == format_mac(
        link.mac
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
