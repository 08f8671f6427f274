"""A LAN of two, `node` and `client`; a LinkResponder at work in the node; a raw socket in the client."""

import asyncio
import json
import math
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from typing import TypeVar

import pytest
from link_owner import LinkOwner

from speaker.errors import EdgeError
from speaker.lab.namespaces import Namespace
from speaker.layer2.holdings import AS_USUAL, Pace
from speaker.layer2.kernel import KernelResponder
from speaker.layer2.link import InKernel, LinkResponder, Links
from speaker.model import Family, Gratuitous, IPAddress, Link, Mac, Placement
from speaker.model.events import Announcements, Answers, Conflict, Ignorings, JoinFailed, SendFailures

T = TypeVar("T")

TURNS = 5  # of the loop, until a link is open
PATIENCE = 30.0  # seconds until a test gives up; nothing ever waits that long when all is well


_STAMPS = 35  # SO_TIMESTAMPNS_OLD, <asm-generic/socket.h>


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Counts:
    """An observer that a test can wait on."""

    def __init__(self):
        self.answers, self.reasons, self.announcements = Counter(), Counter(), Counter()
        self.refused: list[str] = []
        self.told: list[object] = []
        self.conflicts: list[tuple[IPAddress, Mac, bool]] = []
        self.errors: list[tuple[str, BaseException]] = []
        self._news = threading.Condition()

    def _count(self, counter: Counter, key: object, count: int) -> None:
        with self._news:
            counter[key] += count
            self._news.notify_all()

    def count(self, what: Answers | Ignorings | Announcements | SendFailures, number: int) -> None:
        match what:
            case Answers(family=family):
                self._count(self.answers, family, number)
            case Ignorings(reason=reason):
                self._count(self.reasons, reason, number)
            case Announcements(family=family):
                self._count(self.announcements, family, number)
            case SendFailures(family=family):
                self.send_failed(family, number)

    def send_failed(self, family: Family, number: int) -> None:
        raise AssertionError(f"{number} {family} packets found no room")

    def tell(self, event: Conflict | JoinFailed) -> None:
        with self._news:
            self.told.append(event)
            match event:
                case JoinFailed(error=error):
                    self.refused.append(error)
                case Conflict(eip=eip, mac=mac, held=held):
                    self.conflicts.append((eip, mac, held))
            self._news.notify_all()

    def internal_error(self, task: str, error: BaseException) -> None:
        with self._news:
            self.errors.append((task, error))
            self._news.notify_all()

    def wait_for(self, wanted: Callable[["Counts"], object]) -> None:
        with self._news:
            assert self._news.wait_for(lambda: wanted(self), PATIENCE), (self.answers, self.reasons, self.refused)


class Inside:
    """An event loop in a thread of its own, inside a namespace. ``work`` is what it does."""

    def __init__(self, namespace: Namespace) -> None:
        self.counts = Counts()
        self._namespace = namespace
        self._ready = threading.Event()
        self._over: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name=f"speaker on {namespace.label}")

    async def work(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            with self._namespace.entered():
                asyncio.run(self._begin())
        except BaseException as error:
            self._over.append(error)
        finally:
            self._ready.set()

    async def _begin(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        await self.work()

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

    def do(self, call: Callable[..., T], *arguments: object) -> T:
        """``call`` in the loop's thread, between two of its turns."""

        async def inside() -> T:
            return call(*arguments)

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(PATIENCE)


class Station(Inside):
    """A LinkResponder at work on ``eth0``, with every EIP announced as ``gratuitous`` says.

    ``holding`` it holds from the start; with ``held_back`` its loop then stands still until ``go``.
    """

    def __init__(
        self,
        namespace: Namespace,
        holding: tuple[str, ...],
        gratuitous: Gratuitous,
        policy: LinkOwner,
        pace: Pace,
        in_kernel: InKernel | None,
    ) -> None:
        super().__init__(namespace)
        self._in_kernel = in_kernel
        self._held, self._gratuitous, self._policy, self._pace = set(holding), gratuitous, policy, pace
        self._may_go = threading.Event()
        self._may_go.set()
        self._ahead = 0.0

    def hold_back(self) -> None:
        self._may_go.clear()

    def go(self) -> None:
        self._may_go.set()

    async def work(self) -> None:
        self.link = link_here("eth0")
        self.speaker = LinkResponder(self.link, self.counts, self._owner(), self._pace, self._in_kernel)
        async with asyncio.TaskGroup() as tasks:
            self.speaker.start(tasks)
            self.speaker.extend(boottime() + 3600)
            self.speaker.take(self._eips(self._held))
            for _ in range(TURNS):  # its sockets are open then
                await asyncio.sleep(0)
            self._proving = tasks.create_task(_proving(self.speaker.answers if self._in_kernel else lambda: None))
            self._ready.set()
            assert self._may_go.wait(PATIENCE)  # the whole loop with it: it is to miss what arrives meanwhile

    def _owner(self) -> LinkOwner:
        return replace(self._policy, lost=self._lost, clock=self._clock)

    def _lost(self, _: Link, error: Exception) -> None:
        """It would try again: the test is to see why."""
        self._over.append(error)
        self._proving.cancel()
        self.speaker.stop()

    def _eips(self, addresses: Iterable[str]) -> dict[bytes, Gratuitous]:
        return dict.fromkeys(map(packed, addresses), self._gratuitous)

    def hold(self, *addresses: str) -> None:
        """These and no others."""
        gone, new = self._held - set(addresses), set(addresses) - self._held
        self._held = set(addresses)
        self.do(self.speaker.drop, [packed(one) for one in gone])
        self.do(self.speaker.take, self._eips(one for one in addresses if one in new))

    def claim(self, *addresses: str) -> None:
        """Take these for the first time ever."""
        self._held |= set(addresses)
        self.do(self.speaker.take, self._eips(addresses), [packed(one) for one in addresses])

    def _clock(self) -> float:
        return boottime() + self._ahead

    def extend(self, seconds: float) -> None:
        self.do(self.speaker.extend, self._clock() + seconds)

    def later(self, seconds: float) -> None:
        """Moves its clock on, and has it look at it."""
        self._ahead += seconds
        self.extend(-1)
        self.extend(3600)

    def announce(self, *addresses: str) -> None:
        self.do(self.speaker.announce, [packed(one) for one in addresses])


class Fleets(Inside):
    """A Links at work; ``do`` calls its methods."""

    def __init__(
        self, namespace: Namespace, before_answer: Callable[[], None], oldest: float, in_kernel: InKernel | None
    ) -> None:
        super().__init__(namespace)
        self._in_kernel = in_kernel
        self._before_answer, self._oldest = before_answer, oldest
        self.lost: list[Exception] = []
        self.failed: list[bytes] = []
        self._lost = threading.Event()

    def do(self, call: Callable[..., T], *arguments: object) -> T:
        """As everywhere, and what it opens is open then."""

        async def inside() -> T:
            result = call(*arguments)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            return result

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(PATIENCE)

    def hold(self, link: Link, eip: IPAddress) -> None:
        """For an hour."""
        self.do(self.layer2.extend, boottime() + 3600)
        self.do(self.layer2.take, {eip: Placement(link, Gratuitous(burst=1))})

    def wait_for_loss(self) -> None:
        """Until a link's sockets failed."""
        assert self._lost.wait(PATIENCE)

    async def work(self) -> None:
        def lost(_: Link, error: Exception) -> None:
            self.lost.append(error)
            self._lost.set()

        failed = lambda _, address: self.failed.append(address)  # noqa: E731
        owner = LinkOwner(self._before_answer, self._oldest, failed=failed, lost=lost)
        async with Links(self.counts, owner, in_kernel=self._in_kernel) as self.layer2:
            self._ready.set()
            await _proving(lambda: [self.layer2.answers_on(index) for index, _ in socket.if_nameindex()])


class Ear:
    """Every frame of one EtherType that reaches a link of a namespace, and a way to send there."""

    def __init__(self, namespace: Namespace, ethertype: int, name: str) -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ethertype))
            self._socket.bind((name, ethertype))
            self.mac = link_here(name).mac
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

    def never(self, unwanted: Callable[[bytes], object], seconds: float) -> bool:
        """Whether nothing ``unwanted`` comes for that long."""
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if unwanted(self._socket.recv(2048)):
                    return False
        except TimeoutError:
            pass
        finally:
            self._socket.settimeout(PATIENCE)
        return True

    def drain(self) -> None:
        """An answer in the kernel comes before the request is sent, and finds no room behind what was not read."""
        self.never(lambda _: False, 0.01)

    def to_us(self, frame: bytes) -> bool:
        """Addressed to this station alone: an answer."""
        return frame[:6] == self.mac

    def close(self) -> None:
        self._socket.close()


async def _proving(prove: Callable[[], object]) -> None:
    """As before each hello: with it what the kernel answered is counted."""
    while True:
        await asyncio.sleep(0.05)
        prove()


def packed(address: str) -> bytes:
    return ip_address(address).packed


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


@pytest.fixture(params=[None, partial(KernelResponder, hellos=None)], ids=["sockets", "kernel"])
def in_kernel(request) -> InKernel | None:
    """What answers plain requests: our sockets alone, or the kernel before them."""
    return request.param


@pytest.fixture
def speaking(lan, in_kernel) -> Iterator[Callable[..., Station]]:
    """``speaking("192.0.2.10")`` puts a LinkResponder on the node's eth0 that holds these EIPs."""
    with ExitStack() as stack:

        def start(
            *addresses: str,
            gratuitous: Gratuitous = Gratuitous(burst=1),  # noqa: B008 - frozen
            before: Callable[[], None] = lambda: None,
            oldest: float = math.inf,
            held_back: bool = False,
            excuses: Callable[[int, bytes, Mac], bool] = lambda link, address, mac: True,
            ours: Callable[[Mac], bool] = lambda mac: False,
            trial: float = 0.0,
            pace: Pace = AS_USUAL,
        ) -> Station:
            policy = LinkOwner(before, oldest, excuses, trial, ours)
            station = Station(lan.node, addresses, gratuitous, policy, pace, in_kernel)
            if held_back:
                station.hold_back()
            return stack.enter_context(station)

        yield start


@pytest.fixture
def stamping(lan) -> Iterator[None]:
    """The kernel stamps what arrives. It begins a little after the first socket of the host that asks for it
    (``net_enable_timestamp`` leaves it to a worker); until then what is read is stamped."""
    with lan.client.entered():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, _STAMPS, 1)
        sock.bind(("127.0.0.1", 0))
        end = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < end, "the kernel stamps nothing"
            sock.sendto(b"?", sock.getsockname())
            time.sleep(0.01)
            read = time.time()
            _, ((_, _, stamp),), _, _ = sock.recvmsg(1, 64)
            seconds, nanoseconds = struct.unpack("@ll", stamp)
            if seconds + nanoseconds * 1e-9 < read - 0.005:
                break
        yield


@pytest.fixture
def layer2(lan, in_kernel) -> Iterator[Callable[..., Fleets]]:
    """``layer2()`` starts ``Links`` in the node's namespace that holds nothing yet; no request is too old for it."""
    with ExitStack() as stack:

        def start(before_answer: Callable[[], None] = lambda: None, oldest: float = math.inf) -> Fleets:
            return stack.enter_context(Fleets(lan.node, before_answer, oldest, in_kernel))

        yield start


@pytest.fixture
def layer2_with(lan) -> Iterator[Callable[[InKernel], Fleets]]:
    """As ``layer2``, with what answers in the kernel."""
    with ExitStack() as stack:
        yield lambda in_kernel: stack.enter_context(Fleets(lan.node, lambda: None, math.inf, in_kernel))


@pytest.fixture
def ear() -> Iterator[Callable[..., Ear]]:
    with ExitStack() as stack:

        def listen(namespace: Namespace, ethertype: int, name: str = "eth0") -> Ear:
            found = Ear(namespace, ethertype, name)
            stack.callback(found.close)
            return found

        yield listen


@pytest.fixture
def link() -> Callable[[Namespace, str], Link]:
    """``link(node, "eth0")`` as netlink would tell of it."""

    def look(namespace: Namespace, name: str) -> Link:
        with namespace.entered():
            return link_here(name)

    return look


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
