"""The programs that send probes, echo them, hold frames back, and flood the LAN with hellos: processes of their own,
which nothing else in the lab can delay.

Started by ``outage.py``, which makes their sockets inside the namespaces, and shares the memory in which the sender
notes when it sent what. Both end when their standard input does, so they never outlive the lab.
"""

import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from mmap import mmap
from typing import Any

BEAT = 0.002
"""Seconds: at most this often the sender wakes up, to send what is due by then."""
LAST_ANSWERS = 0.3
"""Seconds after the last probe in which its answer has to come."""
PROBE = struct.Struct("!Qd")
"""Its number; and, filled in by the echo, for how many seconds it lay there unread."""
TIMES = struct.Struct("@dd")
"""A probe's slot in the shared memory: when it was sent, when its answer was there; 0.0: never. Before the first slot
stand, in as many bytes, the time of probe 0 and the number of the next one."""
MOST_WAIT, LONGEST_FRAME = 100_000, 65_536
"""Frames that are held back at a time; of more the oldest are lost. And bytes of one."""
TIMESPEC = struct.Struct("@ll")
SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; not in Python's socket module
TIMESTAMP_ROOM, PKTINFO_ROOM = socket.CMSG_SPACE(TIMESPEC.size), socket.CMSG_SPACE(20)


def main() -> None:
    order = json.loads(sys.stdin.readline())
    sockets = [socket.socket(fileno=fd) for fd in order["sockets"]]
    if order["do"] == "flood":
        _send(order, sockets)
        return
    with suppress(PermissionError):  # root may; a prober that waits for its turn sees nothing in that time
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if order["do"] == "echo":
        _echo(sockets)
    elif order["do"] in ("delay", "burst"):
        _hold_back(sockets, order)
    else:
        _send(order, sockets)


def _hold_back(sockets: list[socket.socket], order: dict[str, Any]) -> None:
    """What arrives at every other socket leaves by the next one, when it is ``due``; until standard input ends.

    ``order["senders"]``: MACs; of everybody else nothing waits. What waits at the end leaves then.
    """
    ways = dict(zip(sockets[::2], sockets[1::2], strict=True))
    senders = {bytes.fromhex(mac) for mac in order.get("senders", ())}
    waiting: deque[tuple[float, socket.socket, bytes]] = deque(maxlen=MOST_WAIT)
    while (readable := _readable(list(ways), _left(waiting))) is not None:
        _deliver(waiting, time.monotonic())
        for sock in readable:
            with suppress(OSError):  # no more of them
                while True:
                    frame, ancillary, _, _ = sock.recvmsg(LONGEST_FRAME, TIMESTAMP_ROOM)
                    now = time.monotonic()
                    leaves = now if senders and frame[6:12] not in senders else due(order, now - lain(ancillary))
                    if leaves <= now:  # it would wait behind those of the next burst
                        _pass_on(ways[sock], frame)
                    else:
                        waiting.append((leaves, ways[sock], frame))
        _deliver(waiting, time.monotonic())
    _deliver(waiting, float("inf"))


def _left(waiting: deque[tuple[float, socket.socket, bytes]]) -> float | None:
    """Seconds until the first of them leaves."""
    return max(0.0, waiting[0][0] - time.monotonic()) if waiting else None


def _deliver(waiting: deque[tuple[float, socket.socket, bytes]], now: float) -> None:
    while waiting and waiting[0][0] <= now:
        _, way, frame = waiting.popleft()
        _pass_on(way, frame)


def _pass_on(way: socket.socket, frame: bytes) -> None:
    with suppress(OSError):  # nobody there: lost, as on a wire
        way.send(frame)


def due(order: Mapping[str, Any], arrived: float) -> float:
    """When a frame leaves: with "delay" so many ``seconds`` later, with "burst" at the next multiple of them."""
    seconds: float = order["seconds"]
    return arrived + seconds if order["do"] == "delay" else (arrived // seconds + 1) * seconds


def _echo(sockets: list[socket.socket]) -> None:
    """Send every datagram back, from the address it was sent to, until standard input ends."""
    while True:
        readable = _readable(sockets)
        if readable is None:
            return
        for sock in readable:
            with suppress(BlockingIOError):
                while True:
                    _echo_one(sock)


def _readable(sockets: list[socket.socket], seconds: float | None = None) -> list[socket.socket] | None:
    """Those that have something to read, waited for at most that long; None when standard input has ended."""
    inputs: list[Any] = [sys.stdin, *sockets]
    readable, _, _ = select.select(inputs, [], [], seconds)
    return None if sys.stdin in readable else readable


def _echo_one(sock: socket.socket) -> None:
    data, ancillary, _, asker = sock.recvmsg(64, PKTINFO_ROOM + TIMESTAMP_ROOM)
    if len(data) != PROBE.size:
        return
    number, _ = PROBE.unpack(data)
    answer = PROBE.pack(number, lain(ancillary))
    own_address = [item for item in ancillary if item[0] == socket.IPPROTO_IPV6]
    with suppress(OSError):  # the address is not ours any more, or the asker out of reach
        sock.sendmsg([answer], own_address, 0, asker)


def lain(ancillary: list[tuple[int, int, bytes]]) -> float:
    """For how many seconds a datagram waited to be read, by the kernel's timestamp; 0 where it has none."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = TIMESPEC.unpack(data)
            arrived: float = seconds + nanoseconds / 1e9
            return max(0.0, time.time() - arrived)
    return 0.0


def _send(order: dict[str, Any], sockets: list[socket.socket]) -> None:
    send = _SENDING[order["do"]](sockets, order["targets"])
    answers = sockets if order["do"] == "probe" else []
    Sender(len(order["targets"]), order["interval"], mmap(order["memory"], 0), send, answers).run()


def _ask(sockets: list[socket.socket], targets: list[str]) -> Callable[[int], object]:
    frames = [bytes.fromhex(target) for target in targets]
    return lambda number: sockets[0].send(frames[number % len(frames)])


def _probe(sockets: list[socket.socket], targets: list[tuple[str, int]]) -> Callable[[int], object]:
    places = [tuple(target) for target in targets]
    return lambda number: sockets[at := number % len(places)].sendto(PROBE.pack(number, 0.0), places[at])


# ── A stranger, who has no key: records hellos, then replays, forges and invents them ──────────────────────────

RECORDS = 1.0
"""Seconds, before it begins."""
_SEQUENCE_AT = 34
"""Offset of a hello's sequence number (8 bytes), behind Ethernet's 14, the header's 12 and the incarnation's 8."""


def _flood(sockets: list[socket.socket], _: object) -> Callable[[int], object]:
    chance, recorded = random.Random(1), _recorded(sockets[0])  # noqa: S311 -- guards nothing
    if not recorded:
        sys.exit("the stranger heard no hello to replay")
    return lambda _: sockets[0].send(_mangled(chance, chance.choice(recorded)))


def _recorded(sock: socket.socket) -> list[bytes]:
    time.sleep(RECORDS)
    sock.setblocking(False)
    recorded = []
    with suppress(BlockingIOError):
        while True:
            recorded.append(sock.recv(9000))
    return recorded


def _mangled(chance: random.Random, frame: bytes) -> bytes:
    match chance.randrange(6):
        case 0 | 1:
            return frame
        case 2:  # newer than anything its node ever said
            newer = int.from_bytes(frame[_SEQUENCE_AT : _SEQUENCE_AT + 8]) + 2**32
            return frame[:_SEQUENCE_AT] + newer.to_bytes(8) + frame[_SEQUENCE_AT + 8 :]
        case 3:  # one bit is another
            at = chance.randrange(14, len(frame))
            return frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
        case 4:  # cut off, or followed by something
            return frame[: chance.randrange(20, len(frame))] if chance.random() < 0.5 else frame + b"\0" * 40
        case _:
            return frame[:14] + chance.randbytes(chance.randrange(46, 400))


_SENDING: Mapping[str, Callable[..., Callable[[int], object]]] = {"ask": _ask, "probe": _probe, "flood": _flood}


class Sender:
    """Sends probe number 0, 1, 2, …: every ``interval`` seconds one to each of ``count`` targets.

    Numbers follow the clock. When this process was late, those that were due long ago are left out, because many at
    once would say no more than one: their slots stay empty, and show how long it sent nothing.
    """

    def __init__(
        self, count: int, interval: float, memory: mmap, send: Callable[[int], object], answers: list[socket.socket]
    ) -> None:
        self._rate = count / interval
        self._at_once = max(1, round(self._rate * BEAT))
        self._memory, self._send, self._answers = memory, send, answers
        self._end = len(memory) // TIMES.size - 1

    def run(self) -> None:
        """Until standard input ends, or the memory."""
        begun = time.monotonic()
        number = 0
        while number < self._end:
            due = min(int((time.monotonic() - begun) * self._rate), self._end)
            for this in range(max(number, due - self._at_once), due):
                self._send_one(this)
            number = due
            TIMES.pack_into(self._memory, 0, begun, number)
            if not self._note_until(begun + (due + self._at_once) / self._rate):
                break
        time.sleep(LAST_ANSWERS)
        for sock in self._answers:
            self._note(sock)

    def _send_one(self, number: int) -> None:
        TIMES.pack_into(self._memory, slot(number), time.monotonic(), 0.0)
        with suppress(OSError):  # no way there now: sent in vain, as the empty answer will show
            self._send(number)

    def _note_until(self, until: float) -> bool:
        """Note answers until that time, and at least once; False when standard input ended before."""
        while True:
            left = until - time.monotonic()
            readable = _readable(self._answers, max(0.0, left))
            if readable is None:
                return False
            for sock in readable:
                self._note(sock)
            if left <= 0:
                return True

    def _note(self, sock: socket.socket) -> None:
        while True:
            try:
                answer, ancillary, _, _ = sock.recvmsg(64, TIMESTAMP_ROOM)
            except OSError:  # nothing more; or an ICMP error, which is no answer
                return
            if len(answer) != PROBE.size:
                continue
            number, unread = PROBE.unpack(answer)
            if number < self._end:
                # As if echo and prober had read at once: what is measured is the way, not how busy the machine is.
                there = time.monotonic() - lain(ancillary) - unread
                struct.pack_into("@d", self._memory, slot(number) + 8, there)


def slot(number: int) -> int:
    """Where in the shared memory."""
    return (number + 1) * TIMES.size


if __name__ == "__main__":
    main()
