"""Edge: begins a new connection as a client on the EIP's link would, and follows it and its answer through the rules.

The client's address is an unused one of the link's subnet. Its packet enters by a tap device; tc redirects it to where
packets of the link come in. ``nft monitor trace`` reports each rule that it meets. The tap ends with its descriptor,
and the tables that begin the trace end with the ``nft`` that owns them: nothing is left, however this process ends.
"""

import asyncio
import fcntl
import os
import re
import secrets
import struct
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import NamedTuple

from speaker.diagnosis.asking import Wanted, ask_links
from speaker.diagnosis.eip_checks import services_of
from speaker.diagnosis.facts import Facts, Walked
from speaker.diagnosis.returning import strangers
from speaker.errors import EdgeError, Unsupported, as_edge_error
from speaker.forwarding.nftables import nft
from speaker.interfaces.addresses import own_addresses
from speaker.interfaces.snapshot import Snapshot
from speaker.model import IPAddress, Link
from speaker.node.known.knowledge import KnownEip
from speaker.packets import checksum_of, word_sum

SECONDS = 6.0
"""Seconds for everything."""
EIPS, SOURCES = 2, 8
"""How many EIPs are tried, and how many source addresses are asked for until an unused one is found."""
_EACH = 32
"""Ports for each time that ``nft monitor`` is started."""
MONITORS = 3
"""How many times ``nft monitor`` is started: that of nft 1.1.3 sometimes crashes."""
_AGAIN, _QUIET, _ARRIVES, _ENOUGH = 0.3, 0.3, 5.0, 2.0
"""Seconds until a packet that nft did not report is sent again, until its next line, until the packet must have
arrived, and from then on for the answer."""
_TUN, _TUNSETIFF, _TAP_NO_PI = "/dev/net/tun", 0x400454CA, 0x1002
_SYN, _RST = 2, 4
_OPTIONS = bytes.fromhex("020405b4 0402 080a 00000001 00000000 01 030307")
"""MSS, SACK permitted, timestamps, window scale: firewalls drop a SYN without them (RFC 9293, 7323, 2018)."""
_ALL = 0x0003


class _Flow(NamedTuple):
    source: IPAddress
    sport: int
    eip: IPAddress
    port: int
    mac: bytes
    sequence: int


async def try_all(facts: Facts, snapshot: Snapshot) -> tuple[Walked, ...]:
    """For the first EIPs held here, one TCP port each. Raises EdgeError, or Unsupported without rights."""
    links = {link.name: link for link in snapshot.links.values()}
    held = (eip for eip in facts.knowledge.eips.first if eip.mine and eip.link in links)
    mine = [(eip, *to) for eip in held for to in first_port(facts, eip)]
    return tuple([await _try(snapshot, links[eip.link], eip, port, sources) for eip, port, sources in mine[:EIPS]])


def first_port(facts: Facts, eip: KnownEip) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The first TCP port, and who may reach it."""
    ports = ((port, each.sources) for each in services_of(facts, eip) for port in each.ports)
    return ((int(port[4:]), sources) for port, sources in islice((p for p in ports if p[0].startswith("TCP ")), 1))


async def _try(snapshot: Snapshot, link: Link, eip: KnownEip, port: int, ranges: tuple[str, ...]) -> Walked:
    address = ip_address(eip.address)
    source = await _nobodys(snapshot, link, address, ranges)
    mac = b"\x02" + secrets.token_bytes(5)
    flow = _Flow(source, _EACH * (1250 + secrets.randbelow(600)), address, port, mac, secrets.randbits(31))
    asked, answer = read_trace(*await _follow(link, flow))
    if not asked.seen:
        raise EdgeError("the injected packet was not seen to arrive: this kernel's tc may lack u32 or mirred")
    return Walked(eip.address, port, str(source), asked.dropped, asked.last, answer.seen, answer.dropped, answer.out)


async def _nobodys(snapshot: Snapshot, link: Link, eip: IPAddress, ranges: tuple[str, ...]) -> IPAddress:
    subnets = [bound.subnet for bound in snapshot.addresses if bound.link == link.index and eip in bound.subnet]
    hosts = (host for subnet in subnets for host in strangers(snapshot, subnet, eip))
    let_in = [network for network in map(ip_network, ranges) if network.version == eip.version]
    fit = (each for each in hosts if not ranges or any(each in network for network in let_in))
    wanted = [Wanted(each, "free") for each in islice(fit, SOURCES)]
    asked = await ask_links({link.name: link}, own_addresses(snapshot, [link]), {link.name: wanted})
    taken = {each.address for each in asked if each.macs}
    for each in wanted:
        if str(each.address) not in taken:
            return each.address
    raise EdgeError(f"no unused address in the subnet of {eip} may reach it, so none can be tried")


async def _follow(link: Link, flow: _Flow) -> tuple[list[str], str]:
    """The lines reported, and the name of the tables."""
    name = f"eip-speaker-try-{os.getpid()}-{flow.sport}"
    async with _tap(link) as tap, _program("nft", "-i") as owner:
        assert owner.stdin is not None
        owner.stdin.write(_tables(name, link, flow).encode())
        await owner.stdin.drain()
        await _until_there(name)
        for again in range(MONITORS):
            new = flow._replace(sport=flow.sport + again * _EACH)
            async with _program("nft", "monitor", "trace") as told:  # it reads the names of rules once, when it begins
                lines = await _told(link, new, name, tap, told)
            if lines is not None:
                return lines, name
    raise EdgeError("nft monitor trace ended each time before it reported the packet")


async def _told(link: Link, flow: _Flow, name: str, tap: int, told: asyncio.subprocess.Process) -> list[str] | None:
    """None if the monitor ended too early. Each packet begins a connection: one sent twice belongs to an open one."""
    lines: list[str] = []
    seen, begun, sports = False, time.monotonic(), iter(range(flow.sport, flow.sport + _EACH))
    try:
        while not _finished(lines, name, time.monotonic() - begun):
            if not seen:
                flow = flow._replace(sport=next(sports, flow.sport))
                os.write(tap, _frame(flow, link, _SYN, flow.sequence))
            more, ended = await _more(told, _QUIET if seen else _AGAIN)
            lines += more
            if ended and not _finished(lines, name, 0.0):
                return None
            if not seen and read_trace(lines, name)[0].seen:
                seen, begun = True, time.monotonic()
        return lines
    finally:
        for sport in range(flow.sport - flow.sport % _EACH, flow.sport + 1):
            with suppress(OSError):  # or the endpoint waits for its client
                os.write(tap, _frame(flow._replace(sport=sport), link, _RST, flow.sequence + 1))


def _finished(lines: list[str], name: str, seconds: float) -> bool:
    """``seconds``: since the packet arrived, or since it was first sent."""
    asked, answer = read_trace(lines, name)
    return seconds > (_ENOUGH if asked.seen else _ARRIVES) or bool(asked.dropped or answer.dropped or answer.seen)


async def _more(told: asyncio.subprocess.Process, seconds: float) -> tuple[list[str], bool]:
    """Lines, until none comes for ``seconds``; and whether the monitor has ended."""
    assert told.stdout is not None
    lines: list[str] = []
    with suppress(TimeoutError):
        while len(lines) < 10_000:
            async with asyncio.timeout(seconds):
                line = await told.stdout.readline()
            if not line:
                return lines, True
            lines.append(line.decode(errors="replace").rstrip("\n"))
    return lines, False


async def _until_there(name: str) -> None:
    for _ in range(50):
        if await nft.list_object("table", "inet", name) is not None:
            return
    raise EdgeError(f"nft -i did not make the table {name}: does this nft know the flag owner?")


def _tables(name: str, link: Link, flow: _Flow) -> str:
    """One line each, as ``nft -i`` reads them. With the owner flag, each table ends with the process that made it."""
    ip = "ip" if flow.eip.version == 4 else "ip6"
    begun = f"ether saddr {flow.mac.hex(':')} {ip} saddr {flow.source} {ip} daddr {flow.eip} tcp dport {flow.port}"
    accepts = "tcp flags & (syn | ack) == syn | ack"
    answers = f"{accepts} ct direction reply ct original {ip} saddr {flow.source} meta nftrace set 1"
    hooks = "".join(
        f"chain {hook} {{ type filter hook {hook} priority -199; {answers}; }}; " for hook in ("prerouting", "output")
    )
    return (
        f'add table netdev {name} {{ flags owner; chain in {{ type filter hook ingress device "{link.name}" '
        f"priority -1000; {begun} meta nftrace set 1; }}; }}\nadd table inet {name} {{ flags owner; {hooks}}}\n"
    )


@asynccontextmanager
async def _program(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    try:
        running = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe if "monitor" in command else asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise Unsupported(f"{command[0]}: {error.strerror}") from error
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            running.kill()
        await running.wait()


@asynccontextmanager
async def _tap(link: Link) -> AsyncIterator[int]:
    """Yields a descriptor: what is written to it comes in on the link. Raises Unsupported, EdgeError."""
    name = f"eip-try{secrets.token_hex(3)}"
    try:
        tap = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unsupported(f"{_TUN}: {error.strerror}") from error
    try:
        with as_edge_error(f"a tap device for the link {link.name}"):
            fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP_NO_PI))
            await _redirect(name, link)
            yield tap
    finally:
        os.close(tap)


async def _redirect(name: str, link: Link) -> None:
    """Uses the link's MAC, as the kernel would take its packets for another host's otherwise. pyroute2 is imported
    late: it takes a second on a slow machine."""
    from pyroute2 import AsyncIPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    to_link = {"kind": "mirred", "direction": "ingress", "action": "redirect", "ifindex": link.index}
    everything = {"protocol": _ALL, "keys": ["0x0/0x0+0"], "target": 0x10000}
    with as_edge_error(f"a tap device for the link {link.name}", NetlinkError):
        async with AsyncIPRoute() as kernel:
            (tap,) = await kernel.link_lookup(ifname=name)
            await kernel.link("set", index=tap, address=link.mac.hex(":"), state="up")
            await kernel.tc("add", "clsact", tap)
            await kernel.tc("add-filter", "u32", tap, parent="ffff:fff2", action=to_link, **everything)


def _frame(flow: _Flow, link: Link, flags: int, sequence: int) -> bytes:
    """An empty TCP segment; a SYN has the options that clients send."""
    options = _OPTIONS if flags == _SYN else b""
    words = 5 + len(options) // 4 << 4
    head = struct.pack("!HHIIBBHHH", flow.sport, flow.port, sequence & 0xFFFFFFFF, 0, words, flags, 64240, 0, 0)
    head += options
    addresses = flow.source.packed + flow.eip.packed
    summed = checksum_of(word_sum(addresses + struct.pack("!HH", 6, len(head)) + head))
    tcp = head[:16] + struct.pack("!H", summed) + head[18:]
    if flow.eip.version == 6:
        return link.mac + flow.mac + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(tcp), 6, 64) + addresses + tcp
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + addresses
    return link.mac + flow.mac + b"\x08\x00" + ip[:10] + struct.pack("!H", checksum_of(word_sum(ip))) + ip[12:] + tcp


# ── What ``nft monitor trace`` prints: which rule dropped a connection or its answer, and how far they came ──────

_LINE = re.compile(r"trace id (\w+) (\w+) (\S+) (\S+) (packet|rule|verdict|policy|unknown rule handle \d+):? ?(.*)")
_VERDICT = re.compile(r"\(verdict (\w+).*\)\s*$")
_OUT = re.compile(r'\boif "([^"]+)"')


@dataclass(slots=True)
class Traced:
    """One packet's trace. ``dropped``: the chain and the rule. ``last``: the last chain that it met. ``out``: the link
    that it was to leave by there."""

    seen: bool = False
    dropped: str = ""
    last: str = ""
    out: str = ""


def read_trace(lines: Iterable[str], own: str) -> tuple[Traced, Traced]:
    """The trace begun by the netdev table ``own``, and the one begun by the inet table ``own``."""
    ways: dict[str, Traced] = {}
    asked, answer = Traced(), Traced()
    for found in filter(None, map(_LINE.match, lines)):
        number, family, table, chain, what, rest = found.groups()
        way = ways.setdefault(number, Traced())
        if table != own:
            _on(way, f"chain {family} {table} {chain}", what, rest)
        elif what == "rule":  # the packet itself passes the other table too, and meets none there
            way.seen = True
            asked, answer = (way, answer) if family == "netdev" else (asked, way)
    return asked, answer


def _on(way: Traced, where: str, what: str, rest: str) -> None:
    if what == "packet":
        out = _OUT.search(rest)
        way.last, way.out = where, out[1] if out else way.out
    verdict = _VERDICT.search(rest)
    if what == "policy" and rest.strip() == "drop":
        way.dropped = f"{where}, by its policy"
    elif verdict is not None and verdict[1] == "drop":
        way.dropped = f"{where}, by {rest[: verdict.start()].strip() or what}"
