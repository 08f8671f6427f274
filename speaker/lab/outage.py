"""How long an EIP was out, as its clients saw it: probes at a fixed rate, and when each was sent and answered.

``probing`` sends datagrams through the EIPs, and so measures everything: the client's neighbour table, which follows
gratuitous ARP as the kernel decides, the node's forwarding, and the backend. ``asking`` is a client that knows nobody:
it broadcasts ARP requests and neighbour solicitations, and anybody may answer.
"""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from math import inf
from mmap import mmap
from typing import Any

from speaker.errors import EdgeError
from speaker.lab.capture import Capture, Reply, capturing
from speaker.lab.namespaces import Namespace
from speaker.lab.prober import SO_TIMESTAMPNS, TIMES, slot
from speaker.model import IPAddress, Mac
from speaker.packets.sockets import enlarge
from speaker.system.threads import in_thread

Order = Mapping[str, Any]
"""What ``prober.main`` reads."""
INTERVAL = 0.002
"""Seconds between two probes of one EIP."""
PATIENCE = 0.3
"""Seconds after which an answer is not waited for any more."""
LATE = 0.05
"""Seconds on the way, without what echo and prober left it lying, after which an answer comes too late to count: a node
that holds datagrams back until another one has the EIP does not serve it meanwhile."""
POLL = 0.03
"""Seconds between two looks at the answers."""
HELLO = 0x88B5
STRANGERS = ip_address("ff02::1")
"""What a flood is for, as samples name it: everybody."""
STARTS = 30.0
"""Seconds until the prober must have begun."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One probe of ``eip``; both times are CLOCK_MONOTONIC seconds, ``answered`` None: never, or later than LATE."""

    eip: IPAddress
    sent: float
    answered: float | None


@dataclass(frozen=True, slots=True)
class Outage:
    """The longest time that an EIP was out, and how many of all its probes were lost.

    From the last answered probe before to the first answered probe after, by when they were sent. ``began``: when that
    last one was sent; None when nothing was lost, and ``ms`` is 0. What the prober itself was late at either end is not
    in ``ms``, because nobody knows what would have been answered then, but in ``unsure_ms``: the outage was between
    ``ms`` and the sum of both. ``over``: an answered probe followed.
    """

    ms: float
    lost: int
    sent: int
    began: float | None = None
    unsure_ms: float = 0.0
    over: bool = True


def outages(samples: Iterable[Sample], interval: float = INTERVAL) -> Mapping[IPAddress, Outage]:
    """For each EIP probed every ``interval`` seconds, its longest outage."""
    return {eip: _longest(probes, interval) for eip, probes in by_eip(samples).items()}


def out_in_sum(samples: Iterable[Sample], interval: float = INTERVAL) -> Mapping[IPAddress, float]:
    """For each EIP the seconds that it was out, all its outages together: each from its first lost probe to the next
    answered one, or where the prober was late to when that was due."""
    return {
        eip: sum(_out(probes, first, last, interval) for first, last in _lost_runs(probes))
        for eip, probes in by_eip(samples).items()
    }


def by_eip(samples: Iterable[Sample]) -> Mapping[IPAddress, list[Sample]]:
    """In order of time."""
    found: dict[IPAddress, list[Sample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: sample.sent):
        found[sample.eip].append(sample)
    return found


def _out(probes: Sequence[Sample], first: int, last: int, interval: float) -> float:
    after = probes[last + 1].sent if last + 1 < len(probes) else inf
    return probes[last].sent - probes[first].sent + min(after - probes[last].sent, interval)


def _longest(probes: list[Sample], interval: float) -> Outage:
    runs = [_outage(probes, first, last, interval) for first, last in _lost_runs(probes)]
    lost = sum(probe.answered is None for probe in probes)
    return max(
        (Outage(run.ms, lost, len(probes), run.began, run.unsure_ms, run.over) for run in runs),
        key=lambda run: run.ms,
        default=Outage(0.0, 0, len(probes)),
    )


def _lost_runs(probes: Sequence[Sample]) -> Iterator[tuple[int, int]]:
    """First and last index of every run of probes without an answer."""
    first = None
    for at, probe in enumerate(probes):
        if probe.answered is None:
            first = at if first is None else first
        elif first is not None:
            yield first, at - 1
            first = None
    if first is not None:
        yield first, len(probes) - 1


def _outage(probes: Sequence[Sample], first: int, last: int, interval: float) -> Outage:
    before = probes[first - 1].sent if first else probes[first].sent
    over = last + 1 < len(probes)
    after = probes[last + 1].sent if over else probes[last].sent
    known = probes[last].sent - probes[first].sent
    known += min(probes[first].sent - before, interval) + min(after - probes[last].sent, interval)
    return Outage(known * 1000, 0, 0, before, (after - before - known) * 1000, over)


def stall_ms(samples: Iterable[Sample]) -> float:
    """The longest that the prober itself sent nothing to one EIP, in milliseconds: what it cannot see is shorter."""
    gaps = (later.sent - earlier.sent for asked in by_eip(samples).values() for earlier, later in pairwise(asked))
    return max(gaps, default=0.0) * 1000


# ── through the EIP: datagrams ────────────────────────────────────────────────────────────────────────────────


class Probes:
    """A running stream of probes; readable while it runs and after it."""

    def __init__(
        self, targets: Sequence[IPAddress], interval: float, memory: mmap, process: subprocess.Popen[str]
    ) -> None:
        self._targets, self._memory, self._process = targets, memory, process
        self._rate = len(targets) / interval

    def samples(self, since: float = 0.0) -> tuple[Sample, ...]:
        """All probes sent from ``since`` on, but for those of the last PATIENCE seconds that wait for their answer."""
        asked = time.monotonic() - PATIENCE
        begun, following = TIMES.unpack_from(self._memory, 0)
        count = len(self._targets)
        first = max(0, int((since - begun) * self._rate)) // count * count  # none is sent before its time
        used = self._memory[slot(first) : slot(int(following))]
        return tuple(
            Sample(self._targets[number % count], sent, answered if 0 < answered <= sent + LATE else None)
            for number, (sent, answered) in enumerate(TIMES.iter_unpack(used))
            if sent and sent >= since and (answered or sent < asked)
        )

    async def answering(self, since: float, eips: Iterable[IPAddress] | None = None, seconds: float = 30.0) -> None:
        """Return when each of ``eips`` (None: all) answered a probe sent after ``since``.

        Raises EdgeError when that takes longer than ``seconds``.
        """
        missing = set(self._targets if eips is None else eips)
        end = time.monotonic() + seconds
        while True:
            recent = self.samples(max(since, time.monotonic() - 2 * PATIENCE))
            missing -= {sample.eip for sample in recent if sample.answered is not None}
            if not missing:
                return
            if time.monotonic() > end:
                raise EdgeError(f"no answer from {', '.join(sorted(map(str, missing)))} in {seconds:.0f} s")
            self.check()
            await asyncio.sleep(POLL)

    def check(self) -> None:
        """Raises EdgeError when the prober has ended, which it never does by itself."""
        if self._process.poll() is not None:
            raise EdgeError(f"the prober ended with exit code {self._process.returncode}")

    async def begun(self) -> None:
        """Return when the first probe was sent."""
        end = time.monotonic() + STARTS
        while not TIMES.unpack_from(self._memory, 0)[1]:
            self.check()
            if time.monotonic() > end:
                raise EdgeError(f"the prober sent nothing in {STARTS:.0f} s")
            await asyncio.sleep(POLL)


@asynccontextmanager
async def _probes(
    order: Order, targets: Sequence[IPAddress], interval: float, sockets: Sequence[socket.socket]
) -> AsyncIterator[Probes]:
    async with sending(order, len(targets), interval, sockets) as (memory, process):
        probes = Probes(targets, interval, memory, process)
        await probes.begun()
        yield probes


@asynccontextmanager
async def probing(
    namespace: Namespace, targets: Iterable[tuple[IPAddress, int]], interval: float = INTERVAL
) -> AsyncIterator[Probes]:
    """Every ``interval`` seconds a datagram from ``namespace`` to each of ``targets`` (EIP and UDP port), until the end
    of the block. Whatever is there has to send it back: see ``echoing``. Raises EdgeError when the prober fails.
    """
    wanted = list(targets)
    with ExitStack() as stack:
        sockets = [stack.enter_context(probe_socket(namespace, address.version)) for address, _ in wanted]
        order = {"do": "probe", "targets": [(str(address), port) for address, port in wanted]}
        async with _probes(order, [address for address, _ in wanted], interval, sockets) as probes:
            yield probes


@asynccontextmanager
async def flooding(namespace: Namespace, link: str, rate: int) -> AsyncIterator[Probes]:
    """A stranger on ``link`` sends so many hellos a second, forged from those that it hears, until the end of the
    block, which begins once it floods. Raises EdgeError when it hears none."""
    with namespace.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(HELLO))
    with sock:
        sock.bind((link, HELLO))
        async with _probes({"do": "flood", "targets": [str(STRANGERS)]}, [STRANGERS], 1 / rate, [sock]) as probes:
            yield probes


@contextmanager
def echoing(places: Iterable[tuple[Namespace, int]]) -> Iterator[None]:
    """UDP datagrams to these ports, on any address of these namespaces, are sent back from the address they were sent
    to. A process of its own does it for all."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(echo_socket(namespace, port)) for namespace, port in places]
        with started({"do": "echo"}, sockets):
            yield


# ── asking who has it: ARP and NDP ────────────────────────────────────────────────────────────────────────────


class Asks:
    """A running round of requests and who answers them; readable while it runs and after it."""

    def __init__(self, probes: Probes, capture: Capture) -> None:
        self._probes, self._capture = probes, capture

    def replies(self) -> tuple[Reply, ...]:
        """Answers, and what was announced unasked."""
        return self._capture.replies()

    def samples(self, since: float = 0.0) -> tuple[Sample, ...]:
        """Each request since then and its first answer: those that came before the next request for that EIP."""
        answers: dict[IPAddress, list[float]] = defaultdict(list)
        for reply in self._capture.replies():
            if not reply.unasked:
                answers[reply.address].append(reply.at)
        return tuple(matched(self._probes.samples(since), answers))


def matched(asked: Iterable[Sample], answers: Mapping[IPAddress, Sequence[float]]) -> Iterator[Sample]:
    for eip, samples in by_eip(asked).items():
        times, came = [sample.sent for sample in samples], sorted(answers.get(eip, ()))
        for sent, following in zip(times, [*times[1:], float("inf")], strict=True):
            first = bisect_right(came, sent)
            answered = first < len(came) and came[first] <= following
            yield Sample(eip, sent, came[first] if answered else None)


@asynccontextmanager
async def asking(namespace: Namespace, link: str, eips: Iterable[IPAddress], interval: float) -> AsyncIterator[Asks]:
    """Out of ``link`` in ``namespace``, a request for each of ``eips`` every ``interval`` seconds, evenly spread.

    By ARP or neighbour solicitation, as by a host without an entry. The kernel's own table there learns from the
    answers: a client whose table matters has to sit somewhere else.
    """
    wanted = list(eips)
    with ExitStack() as stack:
        capture = stack.enter_context(capturing(namespace, link))
        with namespace.entered():
            sock = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            sock.bind((link, 0))
            mac = Mac(sock.getsockname()[4])
            frames = [_request(mac, eip).hex() for eip in wanted]
        order = {"do": "ask", "targets": frames}
        async with _probes(order, wanted, interval, [sock]) as probes:
            yield Asks(probes, capture)
        await asyncio.sleep(PATIENCE)  # for the answers to what was asked last


def _request(mac: Mac, eip: IPAddress) -> bytes:
    """As the namespace we are in would ask for it."""
    sender = own_address(eip)
    if isinstance(eip, IPv4Address):
        return arp_request(mac, IPv4Address(sender), eip)
    return solicitation(mac, IPv6Address(sender), eip)


def arp_request(mac: Mac, sender: IPv4Address, target: IPv4Address) -> bytes:
    """A whole Ethernet frame (RFC 826), written apart from the speaker's own codec."""
    header = struct.pack("!6s6sH", b"\xff" * 6, mac, 0x0806)
    return header + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, sender.packed, bytes(6), target.packed)


def solicitation(mac: Mac, sender: IPv6Address, target: IPv6Address) -> bytes:
    """A whole Ethernet frame (RFC 4861 §4.3), to the target's solicited-node group; apart from that codec too."""
    group = SOLICITED_NODE + target.packed[13:]
    message = struct.pack("!4x16sBB6s", target.packed, 1, 1, mac)
    size = 4 + len(message)
    words = struct.unpack("!34H", sender.packed + group + struct.pack("!HHHH", size, 58, 135 << 8, 0) + message)
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    header = struct.pack("!6s6sH", b"\x33\x33" + group[12:], mac, 0x86DD)
    ip = struct.pack("!IHBB16s16s", 6 << 28, size, 58, 255, sender.packed, group)
    return header + ip + struct.pack("!BBH", 135, 0, ~total & 0xFFFF) + message


SOLICITED_NODE = IPv6Address("ff02::1:ff00:0").packed[:13]
"""What the groups of all addresses begin with (RFC 4291 §2.7.1)."""


# ── Sockets made inside a namespace, and the processes of ``prober.py`` that use them ─────────────────────────

LONGEST = 600.0
"""Seconds after which no more probes are sent; the memory they would need is made only when it is used."""
BUFFER = 4 << 20
"""Bytes; the kernel's default holds 50 ms of 5,000 probes a second."""
IPV6_RECVPKTINFO = 49  # <linux/in6.h>


@asynccontextmanager
async def sending(
    order: Order, count: int, interval: float, sockets: Sequence[socket.socket]
) -> AsyncIterator[tuple[mmap, subprocess.Popen[str]]]:
    """A sender to ``count`` targets, each probed every ``interval`` seconds; and the memory that it shares.

    At the end of the block it stops sending, and the last answers are waited for. The memory stays readable.
    """
    memory_fd = os.memfd_create("probes")
    try:
        os.ftruncate(memory_fd, slot(int(LONGEST / interval) * count))
        memory = mmap(memory_fd, 0)
        with started({**order, "interval": interval, "memory": memory_fd}, sockets, memory_fd) as process:
            yield memory, process
            assert process.stdin is not None
            process.stdin.close()
            await in_thread(process.wait, within=inf)
    finally:
        os.close(memory_fd)


@contextmanager
def started(order: Order, sockets: Sequence[socket.socket], *fds: int) -> Iterator[subprocess.Popen[str]]:
    """``prober.py`` with these sockets; the end of its input ends it."""
    numbers = [sock.fileno() for sock in sockets]
    with subprocess.Popen(
        [sys.executable, "-m", "speaker.lab.prober"],
        stdin=subprocess.PIPE,
        text=True,
        pass_fds=(*numbers, *fds),
        start_new_session=True,  # a Ctrl-C at the terminal is for the lab
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({**order, "sockets": numbers}) + "\n")
        process.stdin.flush()
        yield process


def own_address(towards: IPAddress) -> IPAddress:
    """The address from which this namespace would send there; sends nothing."""
    family = socket.AF_INET6 if towards.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect((str(towards), 9))
        return ip_address(sock.getsockname()[0])


def _udp_socket(namespace: Namespace, version: int) -> socket.socket:
    with namespace.entered():
        sock = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    enlarge(sock, BUFFER)
    return sock


def probe_socket(namespace: Namespace, version: int) -> socket.socket:
    """One for each EIP, with room for a few datagrams only.

    While the kernel does not know where an EIP is, it keeps what was sent there, to send it later. In one socket for
    all that takes the others' room, and it has probes answered from a time in which nobody answered.
    """
    sock = _udp_socket(namespace, version)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 0)  # the least that the kernel grants (SOCK_MIN_SNDBUF)
    return sock


def echo_socket(namespace: Namespace, port: int) -> socket.socket:
    sock = _udp_socket(namespace, 6)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
    sock.bind(("::", port))
    return sock
