"""For owners of EIPs: virtual time, links that note what they are asked, hello sockets that the test speaks through,
and a machine that orders what it is told to."""

import asyncio
import selectors
import socket
from collections import Counter
from types import SimpleNamespace

import pytest

from speaker.errors import EdgeError
from speaker.ownership.events import Tick
from speaker.ownership.hello import Incarnation
from speaker.ownership.hellos.hellos import Received
from speaker.ownership.parameters import Parameters
from speaker.ownership.preference import Preferred


class _Skipping(selectors.SelectSelector):
    """Whoever waits is waked at once, and the clock put on."""

    now = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for ever"
            self.now += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._virtual = _Skipping()
        super().__init__(self._virtual)

    def time(self):
        return self._virtual.now


class Notes:
    """Whatever is called is noted."""

    def __init__(self):
        self.all = []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **named: self.all.append((name, *args, *named.values()))

    def of(self, *names):
        """Calls by these names, in order."""
        return [call for call in self.all if call[0] in names]

    def take(self):
        """Since the call before."""
        noted, self.all = self.all, []
        return noted


class Events(Notes):
    """Events as they are told, what is only counted with its number; other calls as ever."""

    def tell(self, event):
        self.all.append(event)

    def count(self, what, number):
        self.all.append((what, number))

    def of(self, *kinds):
        """Events and counts of these types, calls by these names; in order."""
        types, names = tuple(kind for kind in kinds if isinstance(kind, type)), [*kinds]
        heads = [(one, one[0] if isinstance(one, tuple) else one) for one in self.all]
        return [one for one, head in heads if isinstance(head, types) or head in names]


class Links(Notes):
    """What answers on the links, without any. ``fails``: EIPs that cannot be taken; ``taken``: somebody else uses
    them."""

    def __init__(self, observer, owner):
        super().__init__()
        self.lost, self.before_answer, self.oldest = owner.lost, owner.before_answering, owner.request_age
        self.excuses, self.ours, self.failed = owner.excuses, owner.is_ours, owner.failed
        self.fails, self.taken, self.answering, self.held = set(), set(), True, {}
        self.in_kernel, self.proven = [], Counter()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.all.append(("left",))

    def take(self, placements, probe=()):
        if self.fails.intersection(placements):
            raise ZeroDivisionError("a bug")
        self.held |= placements
        self.all.append(("take", dict(placements), set(probe)))

    def drop(self, addresses):
        addresses = list(addresses)
        for address in addresses:
            self.held.pop(address, None)
        self.all.append(("drop", addresses))

    def ask_from(self, link, own):
        pass

    def is_unproven(self, address):
        return address in self.held and address in self.taken

    def answers_on(self, link):
        self.proven[link] += 1
        if isinstance(self.answering, Exception):
            raise self.answering
        return self.answering

    def arrived(self, link):
        return len(self.in_kernel)

    def heard(self, link, arrived):
        self.all.append(("heard", link, arrived)) if self.in_kernel else None


class Sockets:
    """Of hellos, by the index of the link. ``refused``: it cannot be opened, for this reason."""

    def __init__(self):
        self.open, self.opened, self.refused = {}, 0, ""

    def __call__(self, link, count):
        if self.refused:
            raise EdgeError(self.refused)
        self.opened += 1
        return HelloSocket(self, link)


class HelloSocket:
    def __init__(self, sockets, link):
        self._sockets, self.link = sockets, link
        self.sent, self.waiting, self.room, self.refused, self.dropped = [], [], True, "", 0
        self.direct, self.of_others = [], []
        self.crowded = False

    def __enter__(self):
        self._near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._near.setblocking(False)
        self._sockets.open[self.link.index] = self
        return self

    def __exit__(self, *_):
        del self._sockets.open[self.link.index]
        self._near.close()
        self._far.close()

    def fileno(self):
        return self._near.fileno()

    def arrives(self, hello, mac):
        self.waiting.append(Received(hello, mac, 0.0))
        self._far.send(b"1")

    def send(self, hello, to=None):
        if self.refused:
            raise EdgeError(self.refused)
        if to is not None:
            self.direct.append((hello, to))
        elif self.room:
            self.sent.append(hello)
        return self.room

    def receive(self):
        if self.refused:
            raise EdgeError(self.refused)
        found, self.waiting = self.waiting, []
        for _ in found:
            self._near.recv(1)
        return found

    def others(self):
        found, self.of_others = self.of_others, []
        return found

    def drop_queued(self):
        self.dropped += 1
        self.receive()


class Machine:
    """Notes what it is told, and orders what the test gave it to order at the next event."""

    node, times, incarnation, watch_at = "us", Parameters(), Incarnation(7), float("inf")

    def __init__(self):
        self.told, self.orders, self.believes = [], [], True
        self.draining_since = self.rebalancing = None
        self.ready, self.wakes_in, self.known, self.seen = True, 1e6, None, {}
        self.spoken_again = 0
        self.speaking, self.refuses_links = set(), False
        self.claims_heard, self.terms = 0, {}

    def step(self, now, event):
        if not isinstance(event, Tick):
            self.told.append(event)
        orders, self.orders = self.orders, []
        return orders

    def next_wake(self, now):
        return now + self.wakes_in

    def uses(self, link):
        return not self.refuses_links

    def believed(self, link, hello):
        return self.believes

    def peers(self, now):
        return self.seen

    @property
    def peers_changed(self):
        return repr(self.seen)

    def holder(self, eip, now):
        return self.known

    def preferred(self, eip, now):
        return Preferred("them", 80, 0, 1.0, None)

    def heard_on(self, eip, node):
        return 2

    def term(self, eip):
        return self.terms[eip]

    def held_before(self, eip):
        return "before"

    def speaks_for(self, link, node, eip, now):
        return (link, node, eip) in self.speaking

    def speak_again(self):
        self.spoken_again += 1

    def take(self):
        """What it was told since the call before."""
        told, self.told = self.told, []
        return told


@pytest.fixture
def virtually():
    """``virtually(story)`` runs ``story()`` in virtual time."""

    def run(story):
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            return runner.run(story())

    return run


@pytest.fixture
def parts():
    """What owners are made of here."""
    return SimpleNamespace(
        events=Events(), sockets=Sockets(), machine=Machine(), links=Links,
        clock=lambda: asyncio.get_running_loop().time(),
    )  # fmt: skip
