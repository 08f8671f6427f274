"""Somebody on the LAN without the key: records hellos, then replays, forges and invents them as fast as it is told.

A process of its own (``python -m speaker.lab.breaking.stranger``), so that nothing else in the lab slows it down.
"""

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from speaker.errors import EdgeError
from speaker.lab.network.namespaces import Namespace

HELLO = 0x88B5
LISTENS = 1.0
"""Seconds it records before it begins."""
_TURN = 0.002
"""Seconds between two bursts."""
_SEQUENCE_AT = 34
"""Offset of a hello's sequence number (8 bytes), behind Ethernet's 14, the header's 12 and the incarnation's 8."""


@asynccontextmanager
async def flooding(namespace: Namespace, link: str, rate: int) -> AsyncIterator[Callable[[], int]]:
    """For the length of the block, which begins once it floods; what it yields tells afterwards how many were sent."""
    with namespace.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(HELLO))
    sock.bind((link, HELLO))
    order = json.dumps({"socket": sock.fileno(), "rate": rate})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "speaker.lab.breaking.stranger", order),
        pass_fds=[sock.fileno()],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    sock.close()
    assert process.stdin is not None
    assert process.stdout is not None
    sent = 0
    try:
        if not await process.stdout.readline():
            raise EdgeError("the stranger heard no hello to replay")
        yield lambda: sent
        process.stdin.close()
        sent = int(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def main() -> None:
    order = json.loads(sys.argv[1])
    sock = socket.socket(fileno=order["socket"])
    recorded = _record(sock)
    if not recorded:
        return
    print("floods", flush=True)  # noqa: T201
    os.set_blocking(0, False)
    chance = random.Random(1)  # noqa: S311 -- guards nothing
    began, sent = time.monotonic(), 0
    while _goes_on():
        due = int((time.monotonic() - began) * order["rate"])
        while sent < due:
            try:
                sock.send(_frame(chance, recorded))
            except BlockingIOError:
                break
            sent += 1
        time.sleep(_TURN)
    print(sent, flush=True)  # noqa: T201


def _goes_on() -> bool:
    """Until standard input ends."""
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


def _record(sock: socket.socket) -> list[bytes]:
    recorded: list[bytes] = []
    end = time.monotonic() + LISTENS
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            recorded.append(sock.recv(9000))
        except TimeoutError:
            break
    sock.settimeout(0)
    return recorded


def _frame(chance: random.Random, recorded: list[bytes]) -> bytes:
    frame = chance.choice(recorded)
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


if __name__ == "__main__":
    main()
