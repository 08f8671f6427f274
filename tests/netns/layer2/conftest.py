"""A LAN of two, `node` and `client`; a LinkSpeaker at work in the node; a raw socket in the client."""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import pytest

from speaker.errors import EdgeError
from speaker.lab.namespaces import Namespace
from speaker.layer2.answer import Ignored
from speaker.layer2.link import LinkSpeaker
from speaker.model import Family, Gratuitous, Link, Mac

PATIENCE = 10.0  # seconds until a test gives up; nothing ever waits that long when all is well


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Counts:
    """An observer that a test can wait on."""

    def __init__(self):
        self.answers, self.reasons, self.announcements = Counter(), Counter(), Counter()
        self.refused: list[Exception] = []
        self._news = threading.Condition()

    def _count(self, counter: Counter, key: object, count: int) -> None:
        with self._news:
            counter[key] += count
            self._news.notify_all()

    def answered(self, family: Family, count: int) -> None:
        self._count(self.answers, family, count)

    def ignored(self, family: Family, reason: Ignored, count: int) -> None:
        self._count(self.reasons, reason, count)

    def announced(self, family: Family, count: int) -> None:
        self._count(self.announcements, family, count)

    def send_failed(self, family: Family, count: int) -> None:
        raise AssertionError(f"{count} {family} packets found no room")

    def join_failed(self, error: Exception) -> None:
        with self._news:
            self.refused.append(error)
            self._news.notify_all()

    def wait_for(self, wanted: Callable[["Counts"], object]) -> None:
        with self._news:
            assert self._news.wait_for(lambda: wanted(self), PATIENCE), (self.answers, self.reasons, self.refused)


class Station:
    """A LinkSpeaker with a thread and an event loop of its own, all inside the namespace."""

    def __init__(self, namespace: Namespace, name: str, gratuitous: Gratuitous) -> None:
        self.counts = Counts()
        self.gratuitous = gratuitous
        self._namespace, self._name = namespace, name
        self._ready = threading.Event()
        self._over: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, name=f"speaker on {namespace.label}")

    def _work(self) -> None:
        try:
            with self._namespace.entered():
                asyncio.run(self._serve())
        except BaseException as error:
            self._over.append(error)
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        with LinkSpeaker(link_here(self._name), boottime, self.counts) as self.speaker:
            self.link = self.speaker.link
            self.speaker.extend(boottime() + 3600)
            self._ready.set()
            await self.speaker.run()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        if self._over:
            raise self._over[0]
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        unexpected = [one for one in self._over if not isinstance(one, asyncio.CancelledError | EdgeError)]
        if unexpected:
            raise unexpected[0]

    def failure(self) -> BaseException:
        """Why it ended; waits until it does."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it is still at work"
        return self._over[0]

    def _do(self, call: Callable[..., None], *arguments: object) -> None:
        async def inside() -> None:
            call(*arguments)

        asyncio.run_coroutine_threadsafe(inside(), self._loop).result(PATIENCE)

    def hold(self, *addresses: str) -> None:
        eips = [IPv6Address(one) if ":" in one else IPv4Address(one) for one in addresses]
        self._do(self.speaker.hold, dict.fromkeys(eips, self.gratuitous))

    def extend(self, seconds: float) -> None:
        self._do(self.speaker.extend, boottime() + seconds)

    def announce(self, *addresses: str) -> None:
        self._do(self.speaker.announce, [IPv6Address(one) if ":" in one else IPv4Address(one) for one in addresses])


class Ear:
    """Every frame of one EtherType that reaches a namespace's eth0, and a way to send there."""

    def __init__(self, namespace: Namespace, ethertype: int) -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ethertype))
            self._socket.bind(("eth0", ethertype))
            self.mac = link_here("eth0").mac
        self._socket.settimeout(PATIENCE)

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def until(self, wanted: Callable[[bytes], object]) -> bytes:
        """The first frame that is ``wanted``; fails after a while without."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            frame = self._socket.recv(2048)
            if wanted(frame):
                return frame
        raise AssertionError("not heard")

    def close(self) -> None:
        self._socket.close()


def link_here(name: str) -> Link:
    index = socket.if_nametoindex(name)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as any_socket:
        any_socket.bind((name, 0))
        return Link(index, name, Mac(any_socket.getsockname()[4]))


@dataclass(frozen=True)
class Lan:
    node: Namespace
    client: Namespace


@pytest.fixture
def lan(new_namespace, wire, sh) -> Lan:
    """eth0 to eth0; 192.0.2.1 and 2001:db8::1 are the node's, .2 and ::2 the client's."""
    lan = Lan(new_namespace("node"), new_namespace("client"))
    wire(lan.node, "eth0", lan.client, "eth0")
    for side, number in ((lan.node, 1), (lan.client, 2)):
        sh(side, f"ip addr add 192.0.2.{number}/24 dev eth0")
        sh(side, f"ip addr add 2001:db8::{number}/64 dev eth0 nodad")
    return lan


@pytest.fixture
def speaking(lan) -> Iterator[Callable[..., Station]]:
    """``speaking("192.0.2.10")`` puts a LinkSpeaker on the node's eth0 that holds these EIPs."""
    with ExitStack() as stack:

        def start(*addresses: str, gratuitous: Gratuitous = Gratuitous(burst=1)) -> Station:  # noqa: B008 - frozen
            station = stack.enter_context(Station(lan.node, "eth0", gratuitous))
            if addresses:
                station.hold(*addresses)
            return station

        yield start


@pytest.fixture
def ear() -> Iterator[Callable[[Namespace, int], Ear]]:
    with ExitStack() as stack:

        def listen(namespace: Namespace, ethertype: int) -> Ear:
            found = Ear(namespace, ethertype)
            stack.callback(found.close)
            return found

        yield listen


@pytest.fixture
def neighbour(sh) -> Callable[[Namespace, str], str | None]:
    """``neighbour(client, "192.0.2.10")``: the MAC its kernel has for that address."""

    def look(namespace: Namespace, address: str) -> str | None:
        shown = json.loads(sh(namespace, f"ip -j neigh show to {address} dev eth0") or "[]")
        return shown[0].get("lladdr") if shown else None

    return look


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Looks again and again (each look starts a program, that is pause enough) until it is so."""

    def wait(so: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE
        while not so():
            assert time.monotonic() < until, "it never came to be"

    return wait
