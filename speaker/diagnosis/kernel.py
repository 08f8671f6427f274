"""Edge: this host's kernel settings, addresses and firewall rules. Raises EdgeError for what cannot be read."""

import asyncio
import ctypes
import errno
import os
import re
import shutil
import socket
import struct
import sys
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from speaker.diagnosis import firewall
from speaker.diagnosis.facts import Bound, Chain, Process, Unseen
from speaker.errors import EdgeError, NotDone, as_edge_error
from speaker.forwarding.ipvs.counters import FILE as IPVS_FILE
from speaker.forwarding.nftables import nft
from speaker.forwarding.sysctl import read
from speaker.interfaces import rtnetlink
from speaker.kubeproxy.sight import legacy_save
from speaker.layer2.kernel import bpf
from speaker.model import Family, IPAddress, Link, format_mac
from speaker.netlink.messages import IFA_ADDRESS, IFA_LOCAL, IFADDR, IFINFO, RTM_GETADDR, RTM_GETLINK, attributes
from speaker.netlink.requests import Netlink, Request
from speaker.node.control import NAME
from speaker.system import programs

GLOBAL = (
    *("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"),
    *("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"),
)
OF_A_LINK = (
    *("forwarding", "rp_filter", "arp_ignore", "arp_announce", "accept_local", "proxy_arp"),
    "ignore_routes_with_linkdown",
)
ADDRESSES = 4096
RULES, ELEMENTS = 2000, 4096
"""How many rules of a chain, and elements of a set, are read."""
Rules: TypeAlias = tuple[tuple[Chain, ...], Mapping[str, tuple[Any, ...]]]
"""Chains, and the elements of sets."""
_IP = {Family.IPV4: "ip", Family.IPV6: "ip6"}
_SAVE = {"ip": "iptables-nft-save", "ip6": "ip6tables-nft-save"}
_ONE = {"ip": "iptables-nft", "ip6": "ip6tables-nft"}
"""Programs that list one chain."""
AROUND = 64
"""Chains of other programs in the table where kube-proxy translates."""
_HANDLED = re.compile(r"^\s*(.*) # handle (\d+)$", re.MULTILINE)
_DORMANT = re.compile(r"^\tflags .*\bdormant\b", re.MULTILINE)
SYS = Path("/sys/class/net")
"""It shows the network namespace that it was mounted in; links of another namespace are skipped."""
PORTS = 1024
"""How many ports of a bridge are looked at."""
_IFF_PROMISC = 0x100
_IFA_F_SECONDARY = 0x01
_ARP = "input", "output"
_HOOKS = {"ingress", "egress", "prerouting", "forward", "postrouting", "input", "output"}


def sysctls(links: Iterable[str]) -> Mapping[str, str]:
    """The settings that exist, by name. Raises EdgeError."""
    found = {name: read(name) for name in GLOBAL}
    found |= {
        f"net.ipv4.conf.{link}.{name}": read("net.ipv4.conf", link, name)
        for link in ("all", *links)
        for name in OF_A_LINK
    }
    return {name: value for name, value in found.items() if value}


def addresses(links: Mapping[int, Link]) -> tuple[Bound, ...]:
    """All addresses bound on this host, including those on dummy links, with their prefixes. Raises EdgeError."""
    with as_edge_error("the kernel does not list addresses", (OSError, KeyError, ValueError, struct.error)):
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            answers = netlink.dump(Request(RTM_GETADDR, IFADDR.pack(socket.AF_UNSPEC, 0, 0, 0, 0)))
        return tuple(_bound(answer, links) for answer in answers[:ADDRESSES])


def _bound(answer: bytes, links: Mapping[int, Link]) -> Bound:
    _, prefix, flags, _, index = IFADDR.unpack_from(answer)
    found = attributes(answer, IFADDR.size)
    link = links[index].name if index in links else str(index)
    address = ip_address(found.get(IFA_LOCAL) or found[IFA_ADDRESS])
    secondary = address.version == 4 and bool(flags & _IFA_F_SECONDARY)  # of IPv6 it is a temporary one
    return Bound(link, str(address), prefix, secondary)


async def rules() -> Rules:
    """The chains of other programs, and the chains they jump to. Raises EdgeError."""
    listed = [item["chain"] for item in await nft.list_chains() if "chain" in item]
    hooked = [chain for chain in listed if chain.get("hook") in _HOOKS]
    tables = {(str(chain.get("family")), str(chain.get("table"))): None for chain in hooked}
    others = [each for each in tables if not each[1].startswith("eip-speaker") and each[1] != "kube-proxy"]
    names = {each: [str(one.get("name")) for one in listed if (one.get("family"), one.get("table")) == each]
             for each in others}  # fmt: skip
    return _joined(await asyncio.gather(*(_table(*each, names[each]) for each in others)))


async def legacy_rules() -> Rules:
    """The same for old iptables (without nftables). Raises EdgeError, or Unsupported if its program is missing."""
    found: list[Rules] = [
        (tuple(firewall.chains(_IP[family], f"{firewall.OLD}{table}", await legacy_save(family, table))), {})
        for family in Family
        for table in ("raw", "mangle", "nat", "filter", "security")
    ]
    return _joined([*found, (tuple(old_arp()), {})])


def old_arp(names: Path = Path("/proc/thread-self/net/arp_tables_names")) -> Iterator[Chain]:
    """Chains of old arptables, whose rules are not read."""
    for table in _read(names).split():
        text = f"arptables-legacy -t {table} -L, which is not read"
        yield from (Chain("arp", table, hook, hook, "accept", "", ([{"queue": None}],), (text,)) for hook in _ARP)


def _joined(found: Iterable[Rules]) -> Rules:
    every = [*found]
    return tuple(chain for chains, _ in every for chain in chains), dict(ChainMap(*(dict(sets) for _, sets in every)))


async def _table(family: str, table: str, names: Iterable[str]) -> Rules:
    if family in _ONE and table == "nat" and any(name.startswith(firewall.KUBE) for name in names):
        return await _around_kube_proxy(family, table, [name for name in names if not name.startswith(firewall.KUBE)])
    listing = await nft.list_object("table", family, table) or b'{"nftables": []}'
    text = saved = b""
    with suppress(NotDone):  # nft 1.1.3 crashes at some rules of iptables
        _, text, _ = await programs.run("nft", "--numeric", "--handle", "list", "table", family, table)
    if b'"xt"' in listing and (program := shutil.which(_SAVE.get(family, ""))) is not None:
        _, saved, _ = await programs.run(program, "--table", table)
    unlisted = f"nft list table {family} {table}: its output is not a listing"
    with as_edge_error(unlisted, (KeyError, TypeError, ValueError)):
        items = nft.listed(listing, f"table {family} {table}")
        found, sets = listed_rules(family, table, items, text.decode(errors="replace"))
        return tuple(firewall.completed(found, firewall.chains(family, table, saved.decode(errors="replace")))), sets


async def _around_kube_proxy(family: str, table: str, names: Iterable[str]) -> Rules:
    """Without kube-proxy's own chains: there may be ten thousand, and they are not followed."""
    program, saved = shutil.which(_ONE[family]), []
    for name in islice(names, AROUND):
        text = f"-A {name} -j rules-that-could-not-be-read"
        if program is not None:
            status, listed, _ = await programs.run(program, "--table", table, "--list-rules", name)
            text = listed.decode(errors="replace") if status == 0 else text
        saved.append(f":{name} ACCEPT [0:0]\n{text}")
    return tuple(firewall.chains(family, table, "\n".join(saved))), {}


def listed_rules(family: str, table: str, items: Iterable[Mapping[str, Any]], text: str) -> Rules:
    """``items``: a table as nft lists it in JSON; ``text``: the same in nft's own syntax, with handles."""
    if _DORMANT.search(text):
        return (), {}
    texts = {int(handle): rule for rule, handle in _HANDLED.findall(text)}
    rules: dict[str, list[tuple[Any, str]]] = {}
    sets, listed = {}, []
    for kind, item in (next(iter(each.items())) for each in items):
        if kind == "rule":
            rule = item.get("expr", []), texts.get(item.get("handle"), "a rule that nft does not print")
            rules.setdefault(item["chain"], []).append(rule)
        elif kind == "chain":
            listed.append(item)
        elif kind in ("set", "map") and len(item.get("elem", ())) <= ELEMENTS and not _limits(item):
            sets[f"{family} {table} {item['name']}"] = tuple(item.get("elem", ()))
    chains = []
    for item in listed:
        own = rules.get(name := item["name"], [])
        if len(own) > RULES:
            own = [*own[:RULES], ([{"queue": None}], f"the rules of {name} after the first {RULES}")]
        hook, nat = item.get("hook", ""), item.get("type") == "nat"
        device = _devices(item.get("dev")) or (_device_in(text, name) if family == "netdev" else "")
        both = tuple(rule for rule, _ in own), tuple(text for _, text in own)
        policy, priority = item.get("policy", "accept"), item.get("prio", 0)
        chains.append(Chain(family, table, name, hook, policy, device, *both, priority, nat))
    return tuple(chains), sets


def _limits(listed: Any) -> bool:
    """Whether a set has a limit for each element, so that an element is found sometimes only."""
    match listed:
        case {"elem": list(members)} if not isinstance(listed.get("stmt"), list):
            return any(map(_limits, members))
        case {"elem": dict(of)} | {"stmt": [dict(of), *_]}:
            return not firewall.CONDITIONS.isdisjoint(of)
        case [key, _]:
            return _limits(key)
    return False


def _devices(found: object) -> str:
    return ",".join(map(str, found)) if isinstance(found, list) else str(found or "")


def _device_in(text: str, chain: str) -> str:
    """Older versions of nft do not print it in JSON."""
    head = text.partition(f"chain {chain} {{")[2].partition(" hook ")[2].partition(" priority ")[0]
    return ",".join(re.findall(r'[^"\s{},=]+', head.partition(" device")[2].removeprefix("s")))


def route(netlink: Netlink, to: IPAddress, source: IPAddress | None, incoming: int, mark: int = 0) -> tuple[int, int]:
    """Asks the kernel where it would send a packet (``rtnetlink.route_question``): the link's index and 0, or 0 and an
    errno. Raises EdgeError."""
    try:
        question = rtnetlink.route_question(to, source, incoming, mark)
        return rtnetlink.route_answer(netlink.ask(Request(rtnetlink.RTM_GETROUTE, question))), 0
    except OSError as error:
        return 0, error.errno or errno.EIO


_GET_FILTER, _GET_POLICY, _IFLA_XDP, _NETLINK_XFRM = 46, 21, 43, 6
_TCMSG = struct.Struct("=BxxxiIII")
_SIDES = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}
_DIRECTION, _OF_SOCKETS = 160, 3
"""Where struct xfrm_userpolicy_info has the direction; from this number on, of sockets."""


def unread(links: Iterable[Link]) -> tuple[Unseen, ...]:
    """What may drop packets of these links and is not read here: programs on them, and IPsec. Raises EdgeError."""
    links = [*links]
    with as_edge_error("the kernel does not list programs on links", (OSError, struct.error)):
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            found = [each for link in links for each in _programs_at(netlink, link)]
        return (*found, *_policies(), *_in_ebpf(links))


def _programs_at(netlink: Netlink, link: Link) -> Iterator[Unseen]:
    for side, parent in _SIDES.items():
        filters = netlink.dump(Request(_GET_FILTER, _TCMSG.pack(0, link.index, 0, parent, 0)))
        own = {_priority(each) for each in filters if b"eip_speaker" in each}
        if not own >= {*map(_priority, filters)}:
            yield Unseen(f"what tc does with packets of {link.name}", f"tc filter show dev {link.name} {side}")
    told = attributes(netlink.ask(Request(RTM_GETLINK, rtnetlink.link_question(link.index))), IFINFO.size)
    if any(attributes(told.get(_IFLA_XDP, b"")).get(2, b"")):
        yield Unseen(f"what an XDP program does with packets of {link.name}", f"ip link show {link.name}")


def _priority(listed: bytes) -> int:
    return int(_TCMSG.unpack_from(listed)[-1]) >> 16


def _policies() -> Iterator[Unseen]:
    try:
        with Netlink(_NETLINK_XFRM) as netlink:
            policies = netlink.dump(Request(_GET_POLICY, b""))
    except EdgeError:  # a kernel without IPsec
        return
    except OSError as error:
        yield Unseen("what IPsec does with packets", str(error.strerror))
        return
    if any(each[_DIRECTION] < _OF_SOCKETS for each in policies):
        yield Unseen("what IPsec does with packets", "ip xfrm policy")


_PROGRAM, _INFO, _QUERY, _LINK, _NEXT_LINK = 13, 15, 16, 30, 31
_TCX, _NETFILTER, _NAME_AT = {"ingress": 46, "egress": 47}, 10, 64
"""Types of attachment, the type of a link, and where struct bpf_prog_info has the name (<linux/bpf.h>)."""
_MOST_PROGRAMS = 64
"""At one place, as in the kernel (BPF_MPROG_MAX)."""


def _in_ebpf(links: Iterable[Link]) -> Iterator[Unseen]:
    """Programs that neither tc nor nft lists, but for the speaker's own. To name one takes CAP_SYS_ADMIN."""
    try:
        for link in links:
            for side, where in _TCX.items():
                if not all(_info(_PROGRAM, each)[_NAME_AT:].startswith(b"eip_speaker") for each in _tcx(link, where)):
                    yield Unseen(
                        f"what tcx does with packets of {link.name} ({side})", f"bpftool net show dev {link.name}"
                    )
        if any(int.from_bytes(_info(_LINK, each)[:4], sys.byteorder) == _NETFILTER for each in _links()):
            yield Unseen("what eBPF programs do in netfilter", "bpftool link show")
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):  # as older kernels say, which have none
            why = "listing them takes CAP_SYS_ADMIN" if isinstance(error, PermissionError) else str(error.strerror)
            yield Unseen("what eBPF programs do in tcx and netfilter", why)


def _tcx(link: Link, where: int) -> Iterable[int]:
    """Numbers of the programs there."""
    found = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    asked = bytearray(struct.pack("=4IQI36x", link.index, where, 0, 0, ctypes.addressof(found), len(found)))
    with suppress(FileNotFoundError):
        bpf(_QUERY, asked)
        return found[: struct.unpack_from("=I", asked, 24)[0]]
    return ()


def _links() -> Iterator[int]:
    """Numbers of all links, of all network namespaces."""
    asked = bytearray(12)
    with suppress(FileNotFoundError):
        while True:
            bpf(_NEXT_LINK, asked)
            asked[:4] = asked[4:8]
            yield int.from_bytes(asked[:4], sys.byteorder)


def _info(kind: int, number: int) -> bytes:
    told = ctypes.create_string_buffer(256)
    asked = bytearray(struct.pack("=III", number, 0, 0))
    with suppress(FileNotFoundError), os.fdopen(bpf(kind, asked), "rb", 0) as opened:
        bpf(_INFO, bytearray(struct.pack("=IIQ", opened.fileno(), len(told), ctypes.addressof(told))))
    return told.raw


def has_ipvs() -> bool:
    return Path(IPVS_FILE).exists()


# ── what netlink does not tell of links ──


def below(link: Link, root: Path = SYS) -> tuple[str, ...]:
    """The link that a VLAN or macvlan is on."""
    if not _is_here(link, root):
        return ()
    return tuple(sorted(each.name.removeprefix("lower_") for each in (root / link.name).glob("lower_*")))


def is_wireless(link: Link, root: Path = SYS) -> bool:
    return _is_here(link, root) and (root / link.name / "phy80211").exists()


def deaf_ports(bridge: Link, root: Path = SYS) -> tuple[str, ...]:
    """Ports without hairpin mode, on a bridge that does not receive its own frames (promiscuous mode does that)."""
    if not _is_here(bridge, root) or int(_read(root / bridge.name / "flags") or "0", 16) & _IFF_PROMISC:
        return ()
    try:
        ports = sorted(islice((root / bridge.name / "brif").iterdir(), PORTS))
    except OSError:  # it is gone
        return ()
    return tuple(port.name for port in ports if _read(root / port.name / "brport" / "hairpin_mode") == "0")


def _is_here(link: Link, root: Path) -> bool:
    index, mac = _read(root / link.name / "ifindex"), _read(root / link.name / "address")
    return (index, mac) == (str(link.index), format_mac(link.mac))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# ── The speaker's main process, as /proc shows it: the one that listens on the control socket ─────────────────

PROC = Path("/proc")
_UCRED = struct.Struct("=iII")
_WORST = "TtDZX"
"""Process states (proc(5)) in which a process does nothing, worst last; all others come before them."""


def listener(runtime_dir: Path, words: str = "") -> Process:
    """``words``: why it did not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(0.5)
            asking.connect(str(runtime_dir / NAME))
            pid, _, _ = _UCRED.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    except PermissionError:
        return Process(words, hidden=True)
    except BlockingIOError:  # somebody listens, and has no time for those who wait already
        return Process(words, state="R", busy=True)
    except OSError:
        return Process(words)
    return process_of(pid, words)


def process_of(pid: int, words: str = "", proc: Path = PROC) -> Process:
    """As much as may be read from /proc."""
    told = _status(proc, pid)
    if not told:
        return Process(words, pid)
    parent = _status(proc, int(told.get("PPid", "0")))
    states = [each.get("State", "?")[:1] for each in (told, parent) if each]
    capabilities = told.get("CapEff")
    return Process(
        words,
        pid,
        min(states, key=lambda state: _WORST.find(state) % 99),
        int(capabilities, 16) if capabilities is not None else None,
        int(told.get("Seccomp", "0")),
    )


def spent(pid: int, proc: Path = PROC) -> int:
    """Clock ticks of CPU that it has used, as in proc(5); 0 if that cannot be read."""
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return 0


def _status(proc: Path, pid: int) -> dict[str, str]:
    try:
        lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
