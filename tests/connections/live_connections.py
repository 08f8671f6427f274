"""TCP connections that talk for as long as a test likes: backends that echo, and a client of hundreds of them.

Every end is a process of its own in its network namespace, so that nothing of a test holds it up. Each connection sends
a number, must get it back, and sends the next within a second. ``check`` says what has become of them.

Started as a program, this file is either end: the standard library has to do, since a guest imports slowly.
"""

import fcntl
import json
import os
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

TICK = 1.0
"""Seconds between two numbers of a connection."""
NUMBER = struct.Struct("!Q")


class Process:
    """One end. It stops with its ``stdin``, thus at the latest with the test."""

    def __init__(self, namespace: Any, *arguments: str) -> None:
        with namespace.entered():
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self._process.args} ended"
        return line.strip()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Backend(Process):
    def freeze(self) -> None:
        """It says nothing until ``thaw``; its kernel still takes what it is told."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)


class Client(Process):
    def check(self, patience: float = 60.0) -> dict[str, int]:
        """How many connections are ``alive``: get an answer to what they say from now on within ``patience`` seconds;
        how many were ``reset``, and how many are ``silent``. They go on talking."""
        return self._ask(f"check {patience}")

    def hush(self) -> None:
        """Nothing more is said until the next ``check``."""
        self._ask("hush")

    def last_word(self) -> None:
        """Each says one number more, which arrives, and nothing after that until the next ``check``."""
        self._ask("last_word")

    def _ask(self, line: str) -> dict[str, int]:
        self.say(line)
        answer: dict[str, int] = json.loads(self.hear())
        return answer


@contextmanager
def echoing(namespace: Any, port: int = 8080, address: str = "0.0.0.0") -> Iterator[Backend]:
    """A backend on ``address``: every IPv4 one of the namespace; every IPv6 one is ``::``."""
    process = Backend(namespace, "echo", str(port), address)
    try:
        assert process.hear() == "ready"
        yield process
    finally:
        process.close()


@contextmanager
def talking(
    namespace: Any, address: Any, port: int, count: int, sources: Sequence[str] = ("0.0.0.0",)
) -> Iterator[Client]:
    """``count`` established connections from the ``sources`` in turn, all of which have been answered once."""
    client = Client(namespace, "talk", str(address), str(port), str(count), *sources)
    try:
        assert client.hear() == "ready"
        yield client
    finally:
        client.close()


def tell(line: str) -> None:
    """Our ``Process``."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# ── The backend ───────────────────────────────────────────────────────────────────────────────────────────────


def echo(port: int, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=1024)
    tell("ready")
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listener:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket) and not echoed(key.fileobj):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def echoed(connection: socket.socket) -> bool:
    """False once the connection has ended."""
    with suppress(ConnectionError):
        if heard := connection.recv(1000):
            connection.sendall(heard)
            return True
    return False


# ── The client ────────────────────────────────────────────────────────────────────────────────────────────────


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.said = self.heard = 0
        """The last number."""
        self.broken = False
        self._rest = b""

    def say(self) -> None:
        """The next number, if the last was answered."""
        if self.said == self.heard and not self.broken:
            self.said += 1
            self._do(lambda: self.sock.sendall(NUMBER.pack(self.said)))

    def hear(self) -> None:
        self._do(self._hear)

    def _hear(self) -> None:
        heard = self.sock.recv(1000)
        self.broken = not heard
        self._rest += heard
        while len(self._rest) >= NUMBER.size:
            (number,), self._rest = NUMBER.unpack(self._rest[: NUMBER.size]), self._rest[NUMBER.size :]
            if number != self.said:
                raise ConnectionError(f"{number} is not what was said")
            self.heard = number

    def _do(self, work: Any) -> None:
        try:
            work()
        except OSError:
            self.broken = True


def talk(address: str, port: int, count: int, sources: Sequence[str]) -> None:
    connections = [
        Connection(socket.create_connection((address, port), 60, source_address=(sources[each % len(sources)], 0)))
        for each in range(count)
    ]
    with selectors.DefaultSelector() as selector:
        # Not in the order that they were made in: whoever takes turns must not happen to repeat itself.
        random.Random(1).shuffle(connections)
        for connection in connections:
            connection.say()
            connection.hear()
            selector.register(connection.sock, selectors.EVENT_READ, connection)
        selector.register(sys.stdin, selectors.EVENT_READ)
        tell("ready")
        talking = connections
        while True:
            while not converse(selector, talking, TICK):
                pass
            match sys.stdin.readline().split():
                case ["check", patience]:
                    answer, talking = checked(selector, connections, float(patience)), connections
                case ["hush"]:
                    answer, talking = settled(selector, connections), []
                case ["last_word"]:
                    answer, talking = settled(selector, connections), []
                    say_all(connections)
                case _:
                    return
            tell(json.dumps(answer))


def say_all(connections: Sequence[Connection]) -> None:
    """Until the other end's kernel has all of it: nothing is sent again."""
    for connection in connections:
        connection.say()
    while any(unacknowledged(each.sock) for each in connections if not each.broken):
        time.sleep(0.01)


def unacknowledged(sock: socket.socket) -> int:
    """Bytes (tcp(7), SIOCOUTQ)."""
    (count,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    return int(count)


def settled(selector: selectors.BaseSelector, connections: Sequence[Connection]) -> dict[str, int]:
    """Hear the answers to all that was said."""
    while any(each.said != each.heard and not each.broken for each in connections):
        converse(selector, [], TICK / 20)
    return {}


def checked(selector: selectors.BaseSelector, connections: Sequence[Connection], patience: float) -> dict[str, int]:
    # What is on its way may have been answered before: the next one counts.
    wanted = {each: each.said + 1 for each in connections}
    deadline = time.monotonic() + patience
    while (left := [each for each in connections if not each.broken and each.heard < wanted[each]]) and (
        time.monotonic() < deadline
    ):
        converse(selector, left, TICK / 20)
    broken = sum(each.broken for each in connections)
    counts = {"alive": len(connections) - broken - len(left), "reset": broken, "silent": len(left)}
    return {name: count for name, count in counts.items() if count}


def converse(selector: selectors.BaseSelector, connections: Sequence[Connection], seconds: float) -> bool:
    """These say something, all are heard; whether somebody asks for them."""
    for connection in connections:
        connection.say()
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            if key.data is None:
                return True
            key.data.hear()
            if key.data.broken:
                selector.unregister(key.fileobj)
    return False


def main() -> None:
    match sys.argv[1:]:
        case ["echo", port, address]:
            echo(int(port), address)
        case ["talk", address, port, count, *sources]:
            talk(address, int(port), int(count), sources)


if __name__ == "__main__":
    main()
