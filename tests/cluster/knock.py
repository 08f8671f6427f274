"""A client that opens one new connection after the other to each address, and counts those that fail.

A connection has *failed* if nobody took it. It was *cut* if it was taken, and then no answer came: its EIP moved just
then, and connections do not move with their EIP (docs/forwarding.md). It was *sent again* if its kernel sent something
of it twice, and *slow* if it took its time without that: the machine had other things to do. A datagram has failed if
nobody answers it: it is not sent again.

    knock.py RATE LEAST TARGET...

until its input ends, and each target was asked LEAST times; then it prints what has become of them, as JSON. RATE is
connections a second, to all targets together; a target is ADDRESS (port 80), ADDRESS,PORT or ADDRESS,PORT,udp.
The standard library has to do: it runs inside a network namespace. ``knocking`` is the other side.
"""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

RATE = 100
"""Connections a second, unless told otherwise."""
PATIENCE = 3.0
"""Seconds after which a connection has failed: more than the one after which a lost SYN is sent again."""
SLOW = 0.9
"""Seconds."""


@dataclass
class Tally:
    asked: int = 0
    failed: int = 0
    cut: int = 0
    again: int = 0
    slow: int = 0
    outcomes: list[tuple[float, bool]] = field(default_factory=list)
    """When a connection was begun, and whether it was answered."""

    def answered(self, begun: float, now: float, *, again: bool = False) -> str:
        """``again``: something of it was sent again. What is to be told of it, if anything."""
        self.asked += 1
        self.outcomes.append((begun, True))
        slow = now - begun > SLOW and not again
        self.again += again
        self.slow += slow
        return AGAIN if again else f"slower than {SLOW} s" if slow else ""

    def refused(self, begun: float) -> None:
        self.asked += 1
        self.failed += 1
        self.outcomes.append((begun, False))

    def longest(self) -> float:
        """Seconds from the first failure of a row to the next connection that was answered, as they were begun."""
        longest, down_since = 0.0, None
        for begun, answered in sorted(self.outcomes):
            if not answered:
                down_since = begun if down_since is None else down_since
            elif down_since is not None:
                longest, down_since = max(longest, begun - down_since), None
        return longest

    def told(self) -> Mapping[str, float]:
        counted = {"asked": self.asked, "failed": self.failed, "cut": self.cut, "again": self.again, "slow": self.slow}
        return {**counted, "longest": round(self.longest(), 2)}


CUT, AGAIN, UNANSWERED = "cut", "sent again", "no answer"


class Taken(Exception):
    """Raised when a connection ends without its answer that somebody had taken."""


FIRST_PORT, PORTS = 33000, 32000
PORT_EACH = 50
"""Rounds a second, at most: no port comes again within ten minutes. Where there are no more connections either, each
has a port of its own: IPVS mixes up two connections from one port to one pod, whichever EIPs they are for."""


def port_of(number: int) -> int:
    """The client's, in a round."""
    return FIRST_PORT + number % PORTS


def bound(address: str, number: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A socket that has its own port. The kernel would choose one again after a minute at this rate, for which somebody
    on the way may still know a connection that was never closed there."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with suppress(OSError):  # another program has it
        made.bind(("", port_of(number)))
    return made


async def ask(address: str, port: int, number: int) -> bool:
    """Whether something of it had to be sent again."""
    with closing(bound(address, number)) as connecting:
        await connect(connecting, address, port)
        reader, writer = await asyncio.open_connection(sock=connecting)
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                if b" 200 " not in await reader.read():
                    raise Taken
            return told(connecting).sent_again > 0
        except (ConnectionError, TimeoutError) as error:
            raise Taken from error
        finally:
            writer.close()


async def connect(connecting: socket.socket, address: str, port: int) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().sock_connect(connecting, (address, port))
    except ConnectionResetError as error:
        # One that nobody took is *refused*: this one was taken, and reset before this program looked.
        raise Taken from error
    except TimeoutError:
        # Where the machine lets this program sleep, it may have been taken at once.
        if told(connecting).state != ESTABLISHED:
            raise


ESTABLISHED = 1


class Told(NamedTuple):
    """What the kernel knows of a connection: ``struct tcp_info`` (include/uapi/linux/tcp.h)."""

    state: int
    sent_again: int
    """Segments, a SYN too."""


def told(connection: socket.socket) -> Told:
    return Told(*struct.unpack_from("B99xI", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)))


class Answer(asyncio.DatagramProtocol):
    def __init__(self, told: "asyncio.Future[None]") -> None:
        self._told = told

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._told.done():
            self._told.set_result(None)

    def error_received(self, exc: Exception) -> None:
        if not self._told.done():
            self._told.set_exception(exc)


LENGTHS = 1000
"""By its length a datagram is found again on the nodes."""


async def ask_by_datagram(address: str, port: int, number: int) -> None:
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    asking = bound(address, number, socket.SOCK_DGRAM)
    asking.connect((address, port))
    transport, _ = await loop.create_datagram_endpoint(lambda: Answer(told), sock=asking)
    try:
        transport.sendto(b"x" * (1 + number % LENGTHS))
        async with asyncio.timeout(PATIENCE):
            await told
    finally:
        transport.close()


Why = dict[str, tuple[int, str, str]]
"""Target and what befell its connections → how many, when it did first, and last: as logs write time."""


class Harmed(NamedTuple):
    """A connection that failed, was sent again or was slow."""

    target: str
    port: int
    """The client's."""
    begun: float
    """Time of day."""
    fate: str


TOLD = 4
"""Connections of each fate that are told one by one."""


class Fates:
    """Of connections that were not answered in time."""

    def __init__(self) -> None:
        self.why: Why = {}
        self.harmed: list[Harmed] = []

    def note(self, target: str, number: int, begun: float, fate: str) -> None:
        now = time.time()
        told = time.strftime("%T", time.gmtime(now)) + f".{now % 1 * 1000:03.0f}"
        key = f"{target}: {fate}"
        count, first, _ = self.why.get(key, (0, told, ""))
        self.why[key] = count + 1, first, told
        if fate != CUT and sum(each.fate == fate for each in self.harmed) < TOLD:
            self.harmed.append(Harmed(target, port_of(number), begun, fate))


async def once(target: str, number: int, tally: Tally, fates: Fates) -> None:
    loop = asyncio.get_running_loop()
    address, _, way = target.partition(",")
    port, _, kind = way.partition(",")
    begun, clock = loop.time(), time.time()
    try:
        if kind == "udp":
            await ask_by_datagram(address, int(port), number)
            again = False
        else:
            again = await ask(address, int(port or 80), number)
    except Taken:
        tally.asked += 1
        tally.cut += 1
        fates.note(target, number, clock, CUT)
    except (OSError, TimeoutError) as error:
        tally.refused(begun)
        fates.note(target, number, clock, os.strerror(error.errno) if error.errno else UNANSWERED)
    else:
        if fate := tally.answered(begun, loop.time(), again=again):
            fates.note(target, number, clock, fate)


async def knock(rate: float, least: int, targets: Sequence[str]) -> Mapping[str, Any]:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def end() -> None:
        loop.remove_reader(sys.stdin)
        ended.set()

    loop.add_reader(sys.stdin, end)
    tallies = {target: Tally() for target in targets}
    fates = Fates()
    async with asyncio.TaskGroup() as group:
        due, rounds, first = loop.time(), 0, int(time.time() * PORT_EACH)
        while rounds < least or not ended.is_set():
            for place, target in enumerate(targets):
                number = rounds * len(targets) + place if rate <= PORT_EACH else rounds
                group.create_task(once(target, first + number, tallies[target], fates))
            rounds += 1
            due = max(due + len(targets) / rate, loop.time())
            await asyncio.sleep(due - loop.time())
    counted = {target: tally.told() for target, tally in tallies.items()}
    return {"targets": counted, "why": fates.why, "harmed": fates.harmed}


@dataclass
class Knocked:
    """What the clients met; empty until the block has ended."""

    targets: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    why: Why = field(default_factory=dict)
    harmed: Sequence[Harmed] = ()
    """The first of them."""

    def all(self, name: str, targets: Sequence[str] = ()) -> int:
        """``asked``, ``failed``, ``cut``, ``again`` or ``slow``, of these targets together, or of all."""
        return sum(int(self.targets[target][name]) for target in targets or self.targets)

    def longest(self, targets: Sequence[str] = ()) -> float:
        """Seconds that any of these targets, or of all, took no connection."""
        return max(self.targets[target]["longest"] for target in targets or self.targets)

    def befell(self) -> Iterator[str]:
        """How many had which fate, those apart that were answered in time."""
        found: Counter[str] = Counter()
        for key, (count, *_) in self.why.items():
            found[key.partition(": ")[2]] += count
        yield from (f"{count} {fate}" for fate, count in found.items())

    def __str__(self) -> str:
        asked, failed, cut, again, slow = map(self.all, ("asked", "failed", "cut", "again", "slow"))
        told = f"{asked} new connections, {failed} failed, {cut} cut, {again} sent again, {slow} slow"
        return told + (f"; the longest time without an answer {self.longest()} s; {dict(self.why)}" if self.why else "")


@contextmanager
def knocking(inside: Sequence[str], targets: Sequence[str], rate: float = RATE, least: int = 0) -> Iterator[Knocked]:
    """Clients for the length of the block, and until each target was asked ``least`` times; ``inside`` are the words
    that put a command where they stand."""
    process = subprocess.Popen(
        [*inside, sys.executable, "-I", "-S", __file__, str(rate), str(least), *targets],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    knocked = Knocked()
    try:
        yield knocked
    finally:
        said, _ = process.communicate()
    found = json.loads(said)
    knocked.targets, knocked.why = found["targets"], found["why"]
    knocked.harmed = [Harmed(*each) for each in found["harmed"]]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(knock(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))) + "\n")
