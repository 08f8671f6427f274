"""Packets from outside that the kernel dropped because of their source address, which only two counters show.

The source of a *martian* packet is bound here: if an EIP is bound for forwarding, the host drops what others send from
that address, such as an upstream balancer's health probes (docs/forwarding.md, "Who reaches an EIP, from where"). The
kernel counts those of all network namespaces together, including those of pods. So when that counter rises, they are
counted on our own links as they come in. A strict *reverse path filter* (``rp_filter=1``) drops packets that arrive on
another link than the way back to their source leads through.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from speaker.errors import as_edge_error
from speaker.interfaces.rtnetlink import read_address
from speaker.interfaces.snapshot import OF_SERVICES, Snapshot
from speaker.model import IPAddress, Link
from speaker.netlink.messages import IFADDR, RTM_GETADDR
from speaker.netlink.requests import Netlink, Request
from speaker.packets import PACKET_BROADCAST, PACKET_HOST
from speaker.packets.asker import heard
from speaker.packets.bpf import ACCEPT, LOAD_PKTTYPE, load_half, load_word, only_if
from speaker.system.threads import in_thread

RT_CACHE = Path("/proc/thread-self/net/stat/rt_cache")
"""The same in every network namespace."""
NETSTAT = Path("/proc/thread-self/net/netstat")
"""Of the calling thread's network namespace; ``/proc/net`` is that of the process's first thread."""
FRAMES = 1024
"""Counted on one link each time, at most."""
SOURCES, _SOURCE_AT = 200, 26
"""EIPs that are looked for, as a jump of BPF goes 255 instructions far; and where a frame has its source."""
_ETH_P_IP = 0x0800


class Martians:
    """Those that came in from an EIP bound here, as far as anybody listened."""

    def __init__(self) -> None:
        self._counted: int | None = None
        """By the kernel, for all network namespaces and causes."""
        self._seen = 0

    async def look(self, links: Iterable[Link], snapshot: Snapshot | None, seconds: float) -> tuple[int, int]:
        """How many so far, and how many packets the reverse path filter dropped. Listens on ``links`` for ``seconds``
        where the kernel has counted any since the last look. Raises EdgeError."""
        before, self._counted = self._counted, martian_sources()
        if before is not None and self._counted > before and snapshot is not None:
            eips = await in_thread(bound_for_services, snapshot.links)
            self._seen += await coming_in(links, eips, seconds)
        return self._seen, reverse_path_drops()


async def coming_in(links: Iterable[Link], eips: Iterable[IPAddress], seconds: float) -> int:
    """How many IPv4 packets come in from one of ``eips``, which are bound here. Raises EdgeError, Unsupported without
    CAP_NET_RAW."""
    sources = [int(each) for each in eips if each.version == 4][:SOURCES]
    if not sources:
        return 0
    to_us = only_if(LOAD_PKTTYPE, PACKET_HOST, PACKET_BROADCAST)
    program = (*to_us, *only_if(load_half(12), _ETH_P_IP), *only_if(load_word(_SOURCE_AT), *sources), ACCEPT)
    found = await asyncio.gather(*(heard(link, program, seconds, FRAMES) for link in links))
    return sum(map(len, found))


def bound_for_services(links: Mapping[int, Link]) -> list[IPAddress]:
    """The addresses of Services that are bound on this host, by whomever. Raises EdgeError."""
    indexes = {index for index, link in links.items() if link.name in OF_SERVICES}
    with as_edge_error("the kernel does not list addresses"), Netlink(socket.NETLINK_ROUTE) as kernel:
        answers = kernel.dump(Request(RTM_GETADDR, IFADDR.pack(socket.AF_INET, 0, 0, 0, 0)))
    bound = (read_address(answer, 0, len(answer)) for answer in answers)
    return [each.address for each in bound if each is not None and each.link in indexes]


def martian_sources(path: Path = RT_CACHE) -> int:
    """How many packets this kernel dropped for a source address of its own, or by a reverse path filter.

    Raises EdgeError where the kernel does not say.
    """
    return _read(path, count)


def reverse_path_drops(path: Path = NETSTAT) -> int:
    """How many packets this network namespace's reverse path filter dropped. Raises EdgeError as above."""
    return _read(path, count_reverse_path)


def _read(path: Path, counted: Callable[[str], int]) -> int:
    with as_edge_error(str(path), (OSError, ValueError, IndexError)):
        return counted(path.read_text())


def count(text: str) -> int:
    """The sum of ``in_martian_src``: a header line, then a line of hexadecimal numbers for every CPU.

    Raises ValueError or IndexError when ``text`` is nothing of the kind.
    """
    header, *cpus = text.splitlines()
    column = header.split().index("in_martian_src")
    return sum(int(line.split()[column], 16) for line in cpus)


def count_reverse_path(text: str) -> int:
    """``IPReversePathFilter`` of the first pair of lines, names and decimal numbers. Raises as ``count``."""
    names, numbers, *_ = text.splitlines()
    return int(numbers.split()[names.split().index("IPReversePathFilter")])
