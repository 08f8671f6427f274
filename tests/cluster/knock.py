"""A client that opens one new connection after the other to each address, and counts those that fail.

A connection has *failed* if nobody took it. It was *cut* if it was taken and then reset before its answer: its EIP
moved just then, and connections do not move with their EIP (docs/forwarding.md).

    knock.py ADDRESS...     until its input ends; then it prints what has become of them, as JSON

The standard library has to do: it runs inside a network namespace. ``Knocking`` is the other side.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

EVERY = 0.04
"""Seconds from one connection to the next, to each address."""
PATIENCE = 3.0
"""Seconds after which a connection has failed: more than the one after which a lost SYN is sent again."""
LATE = 0.9
"""Seconds: a SYN was lost on the way, or an answer."""


@dataclass
class Tally:
    asked: int = 0
    failed: int = 0
    cut: int = 0
    late: int = 0
    longest: float = 0.0
    """Seconds from the first failure of a row to the next connection that was answered."""
    _down_since: float = 0.0

    def answered(self, begun: float, now: float) -> None:
        self.asked += 1
        self.late += now - begun > LATE
        if self._down_since and begun > self._down_since:
            self.longest = max(self.longest, begun - self._down_since)
            self._down_since = 0.0

    def lost(self, begun: float) -> None:
        self.asked += 1
        self.failed += 1
        self._down_since = self._down_since or begun


async def once(address: str, tally: Tally, why: Counter[str]) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    taken = False
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address, 80)
            taken = True
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                if b" 200 " not in await reader.read():
                    raise ConnectionError("no answer")
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        if taken and isinstance(error, ConnectionError):
            tally.asked += 1
            tally.cut += 1
        else:
            tally.lost(begun)
            why[f"{type(error).__name__} {getattr(error, 'strerror', None) or ''}".strip()] += 1
    else:
        tally.answered(begun, loop.time())


async def knock(addresses: Sequence[str]) -> Mapping[str, Any]:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    tallies = {address: Tally() for address in addresses}
    why: Counter[str] = Counter()
    async with asyncio.TaskGroup() as group:
        due = loop.time()
        while not ended.is_set():
            for address in addresses:
                group.create_task(once(address, tallies[address], why))
            due = max(due + EVERY, loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await ended.wait()
    counted = {
        address: {name: round(value, 2) for name, value in vars(tally).items() if not name.startswith("_")}
        for address, tally in tallies.items()
    }
    return {"addresses": counted, "why": why}


@dataclass
class Knocked:
    """What the clients met; empty until the block has ended."""

    addresses: Mapping[str, Mapping[str, float]]
    why: Mapping[str, int]

    def all(self, name: str) -> int:
        """``asked``, ``failed``, ``cut`` or ``late``, of all addresses together."""
        return sum(int(each[name]) for each in self.addresses.values())

    def longest(self, addresses: Sequence[str] = ()) -> float:
        """Seconds that any of these addresses, or of all, took no connection."""
        return max(self.addresses[address]["longest"] for address in addresses or self.addresses)

    def __str__(self) -> str:
        asked, failed, cut, late = map(self.all, ("asked", "failed", "cut", "late"))
        told = f"{asked} new connections, {failed} failed, {cut} cut, {late} later than {LATE} s"
        return told + (f"; the longest time without an answer {self.longest()} s; {dict(self.why)}" if self.why else "")


@contextmanager
def knocking(inside: Sequence[str], addresses: Sequence[str]) -> Iterator[Knocked]:
    """Clients for the length of the block; ``inside`` are the words that put a command where they stand."""
    process = subprocess.Popen(
        [*inside, sys.executable, "-I", "-S", __file__, *addresses],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    knocked = Knocked({}, {})
    try:
        yield knocked
    finally:
        said, _ = process.communicate()
    found = json.loads(said)
    knocked.addresses, knocked.why = found["addresses"], found["why"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(knock(sys.argv[1:]))) + "\n")
