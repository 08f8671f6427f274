"""The links that carry our hellos: each has a socket, which is opened again when it fails."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NoReturn, Protocol, TypeAlias

from speaker.errors import EdgeError
from speaker.layer2.link import Links
from speaker.model import IPAddress, Link, Mac, Speaker
from speaker.model.events import HellosFiltered, HellosReceived, HellosSent, LinkLost
from speaker.ownership.events import SendHello
from speaker.ownership.hello import Hello, order
from speaker.ownership.hellos.hellos import MAX_SENDERS, Hellos, Received
from speaker.ownership.inquirer import PAUSE
from speaker.ownership.machine.peers import PeerState
from speaker.system.retry import retrying
from speaker.system.supervise import BUGS, contained, report, supervised
from speaker.wire.messages import Events, PeerSeen

OVERDUE = 1.15
"""Times a peer's interval: when its next hello is later than that, the carrier may be gone, and the kernel is asked. As
long as hellos come, that is not necessary."""
RETRY_MAX = 5.0
"""The longest time between two tries to open a link's hello socket, in seconds: without one, nothing is held there."""
FILTERED_SECONDS = 1.0
"""How long EIPs answered by a node whose hellos do not arrive are collected before they are reported."""
UNANSWERED = "requests are not answered there"
CROWDED_SECONDS, CROWDED_PAUSE = 1.0, 0.01
"""After a flood of hellos, for how long and how often they are read without waiting for them."""

OpenHellos: TypeAlias = Callable[[Link, Callable[[Enum | None, int], None]], Hellos]
"""Opens the hellos of a link; its callback counts frames, as in ``Hellos``."""


@dataclass(slots=True)
class _Known:
    """What is known about one node on a link."""

    speaker: Speaker | None = None
    heard_at: float = float("-inf")
    """When its last hello came."""
    due: float = float("inf")
    """When its next hello is overdue."""
    informed: bool = False
    headless: bool = False


_STRANGER = _Known()


class Speakers:
    """The other speakers on one link, as heard since it was opened: who they are, and which are missed. Pure.

    Times are seconds of the caller's clock.
    """

    def __init__(self, now: float) -> None:
        self._known: dict[str, _Known] = {}
        self._answered: set[tuple[IPAddress, str | None, bool]] = set()
        """EIPs, who answered for them (a node, or a stranger), and whether the answer was to a probe."""
        self._answered_since = now
        """Answers since then have been counted; at most PAUSE ago."""
        self.filtered: dict[str, set[IPAddress]] = {}
        """Nodes none of whose hellos arrives → EIPs that they answer for, soon to be reported."""

    def _of(self, node: str) -> _Known:
        if (known := self._known.get(node)) is None:
            if len(self._known) >= MAX_SENDERS:
                del self._known[next(iter(self._known))]
            known = self._known[node] = _Known()
        return known

    # ── who ──

    def meet(self, hello: Hello, mac: Mac) -> Speaker | None:
        """A hello that counts says which MAC and which addresses its sender has. Returns None if they are unchanged."""
        known = self._of(hello.node)
        speaker = Speaker(mac, hello.addresses or (known.speaker.addresses if known.speaker is not None else ()))
        if known.speaker == speaker:
            return None
        known.speaker = speaker
        return speaker

    def items(self) -> Iterator[tuple[str, Speaker]]:
        return ((node, known.speaker) for node, known in self._known.items() if known.speaker is not None)

    def get(self, node: str) -> Speaker | None:
        return self._known.get(node, _STRANGER).speaker

    @property
    def macs(self) -> frozenset[Mac]:
        return frozenset(speaker.mac for _, speaker in self.items())

    def nodes(self, mac: Mac) -> Iterator[str]:
        """Nodes whose hellos come from this MAC."""
        return (node for node, speaker in self.items() if speaker.mac == mac)

    # ── what they know ──

    def inform(self, hello: Hello) -> bool:
        """Whether the hello's sender claims something by what the API says now, not before its start. Returns whether
        that is news."""
        known, knows = self._of(hello.node), hello.digest.count > 0 and not hello.recalled
        before, known.informed = known.informed, knows
        return before is not knows

    def is_informed(self, node: str) -> bool:
        return self._known.get(node, _STRANGER).informed

    def is_headless(self, node: str) -> bool:
        """It says that it has no working main process; an earlier release does not say so."""
        return self._known.get(node, _STRANGER).headless

    # ── whose hellos come ──

    def heard(self, hello: Hello, at: float, least: float) -> None:
        """``at``: when it arrived. ``least``: seconds until its sender's next one."""
        known = self._of(hello.node)
        known.headless, known.heard_at = hello.headless, at
        known.due = at + OVERDUE * max(least, hello.interval / 1000)

    def is_unheard(self, node: str, now: float, seconds: float) -> bool:
        """No hello of it came for so long."""
        return now - self._known.get(node, _STRANGER).heard_at >= seconds

    def miss(self, now: float) -> bool:
        """Returns whether some hello is overdue. Its sender is not awaited any more until it is heard again."""
        late = [known for known in self._known.values() if known.due <= now]
        for known in late:
            known.due = float("inf")
        return bool(late)

    # ── who answers ──

    def answer(self, eip: IPAddress, node: str | None, now: float, *, probed: bool) -> bool:
        """Somebody answered for ``eip``. Returns whether that counts: the same answer counts only once in a while."""
        if now - self._answered_since >= PAUSE:
            self._answered.clear()
            self._answered_since = now
        answered = eip, node, probed
        if answered in self._answered:
            return False
        self._answered.add(answered)
        return True


def peer_seen(link: str, peer: PeerState, speaker: Speaker | None) -> PeerSeen:
    mac, addresses = speaker if speaker is not None else (None, ())
    began = order(peer.incarnation)
    heard = peer.heard, peer.hears_us, peer.interval, began
    lost = peer.loss, peer.loses, peer.sick, peer.patience_ms
    return PeerSeen(peer.node, link, peer.alive, peer.draining, *heard, mac, addresses, *lost, peer.deaf)


class HelloLink:
    """A link that now carries our hellos. ``failed`` gets the reason when it stops. ``read``: hellos that were read but
    not processed yet."""

    def __init__(self, hellos: Hellos, now: float, failed: asyncio.Future[str]) -> None:
        self.hellos, self.link, self.failed = hellos, hellos.link, failed
        self.opened_at = self.left_at = self.groups_at = now
        self.read: deque[Received] = deque()
        self.speakers = Speakers(now)
        self.crowded_until = now
        self.arrived = 0
        """The kernel's count of urgent hellos when they were last read."""

    def fail(self, error: EdgeError) -> None:
        """In words, as the error itself refers to whoever met it, and so to this object."""
        if not self.failed.done():
            self.failed.set_result(str(error))


class HelloUser(Protocol):
    """The user of the links' hellos."""

    def opened(self, hello_link: HelloLink) -> None: ...

    def closed(self, link: int) -> None: ...

    def look(self) -> None:
        """A hello that is not routine waits: all hellos are read, and their consequences judged."""

    def heard(self, hello_link: HelloLink, received: Received) -> None:
        """An authentic, new hello. All that wait are heard before anything else happens."""


class HelloLinks:
    """The links that should carry hellos, by index, while they do.

    ``clock`` returns seconds; each link is served by one of ``tasks``. Hellos and answers live together: what ends
    either of them on a link ends what is claimed there, is reported, and the link is tried again (rule 35). The same
    happens to a link on which no hello was sent for ``self_lease`` seconds.
    """

    def __init__(
        self,
        user: HelloUser,
        layer2: Links,
        open_hellos: OpenHellos,
        self_lease: float,
        clock: Callable[[], float],
        events: Events,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._user, self._layer2, self._open_hellos, self._self_lease = user, layer2, open_hellos, self_lease
        self._clock, self._events, self._tasks = clock, events, tasks
        self._open: dict[int, HelloLink] = {}
        self._serving: dict[tuple[int, Mac, int], asyncio.Task[NoReturn]] = {}
        """By index, MAC and MTU."""
        self._no_carrier: set[int] = set()
        self.indexes: frozenset[int] = frozenset()
        """Of all links that should carry hellos."""
        self.doubted = asyncio.Event()
        """Set if some link may have no carrier."""

    def close(self) -> None:
        """No link carries hellos any more."""
        for task in self._serving.values():
            task.cancel()

    def __iter__(self) -> Iterator[HelloLink]:
        return iter(list(self._open.values()))

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def links(self) -> dict[int, Link]:
        """By index."""
        return {index: hello_link.link for index, hello_link in self._open.items()}

    def get(self, link: int) -> HelloLink | None:
        """Found like all links that are heard before anything is answered (rule 28); if that fails, no hello is
        sent."""
        return next((hello_link for hello_link in self if hello_link.link.index == link), None)

    # ── who is there ── ``states``: by the index of the link, as the machine has them.

    def peers(self, states: Mapping[int, Iterable[PeerState]]) -> list[PeerSeen]:
        heard = self._heard(states)
        return [peer_seen(each.link.name, peer, each.speakers.get(peer.node)) for _, each, peer in heard]

    def informed(self, states: Mapping[int, Iterable[PeerState]]) -> bool:
        """Whether a living peer holds what it may by what it reads in the API."""
        return any(peer.alive and each.speakers.is_informed(peer.node) for _, each, peer in self._heard(states))

    def manned(self, states: Mapping[int, Iterable[PeerState]]) -> frozenset[int]:
        """Links on which a living peer with a working main process hears us, and is not leaving."""
        return frozenset(
            index
            for index, each, peer in self._heard(states)
            if peer.heard and peer.hears_us and peer.alive and not peer.draining
            if not each.speakers.is_headless(peer.node)
        )

    def _heard(self, states: Mapping[int, Iterable[PeerState]]) -> Iterator[tuple[int, HelloLink, PeerState]]:
        for index, peers in states.items():
            if (hello_link := self._open.get(index)) is not None:
                yield from ((index, hello_link, peer) for peer in peers)

    # ── what is asked ──

    def serve(self, links: Collection[Link]) -> None:
        """These links and no others. A link whose MAC or MTU changed is a different one."""
        wanted = {(link.index, link.mac, link.mtu): link for link in links}
        for gone in self._serving.keys() - wanted.keys():
            self._serving.pop(gone).cancel()
        for new in wanted.keys() - self._serving.keys():
            work = supervised("hellos", partial(self._serve_link, wanted[new]), self._events)
            self._serving[new] = self._tasks.create_task(work, name="hellos")
        self.indexes = frozenset(link.index for link in links)
        self._no_carrier &= self.indexes
        self.doubted.set()

    def carrier(self, link: int, up: bool) -> None:
        """The kernel is asked more often than it reports on its own."""
        (self._no_carrier.discard if up else self._no_carrier.add)(link)

    def send(self, hello_link: HelloLink, order: SendHello, now: float) -> None:
        """Sends a hello, unless requests are not answered there: a hello promises that they are (rule 35)."""
        link = hello_link.link
        if not self._is_answered(link):
            hello_link.fail(EdgeError(f"{link.name}: {UNANSWERED}"))
            return
        left = self._leaves(hello_link, order)
        if left:
            hello_link.left_at = now
            self._keep_word(hello_link, now + self._self_lease)
        elif now - hello_link.left_at >= self._self_lease:
            hello_link.fail(EdgeError(f"{link.name}: no hello left for {self._self_lease} s"))
        if left is not None:
            self._events.count(HellosSent(link.name, left), 1)

    def _is_answered(self, link: Link) -> bool:
        with contained("send hello", self._events):
            return self._layer2.answers_on(link.index)
        return False

    def _leaves(self, hello_link: HelloLink, order: SendHello) -> bool | None:
        """Whether the broadcast was sent. False: there is no room. None: it was refused, or met a bug of ours."""
        try:
            for node in order.direct:
                if (speaker := hello_link.speakers.get(node)) is not None:
                    hello_link.hellos.send(order.copy(), speaker.mac)
            return hello_link.hellos.send(order.hello)
        except EdgeError as error:
            hello_link.fail(error)
        except BUGS as error:
            report("send hello", error, self._events)
        return None

    def _keep_word(self, hello_link: HelloLink, until: float) -> None:
        try:
            self._layer2.extend(until, hello_link.link.index)
        except BUGS as error:
            hello_link.fail(EdgeError(f"{hello_link.link.name}: {UNANSWERED}"))
            report("send hello", error, self._events)

    def hear(self) -> bool:
        """Reads every hello that waits. Returns whether one of them is not routine: once it was read, nothing else
        wakes us for it."""
        news = False
        try:
            for hello_link in self:
                news |= self._hear_or_drop(hello_link)
        except BUGS:
            self.give_up()
            raise
        return news

    def give_up(self) -> None:
        """No hello can be read: all links are opened again."""
        for hello_link in self._open.values():
            hello_link.fail(EdgeError(f"{hello_link.link.name}: hellos cannot be read"))

    def drop_queued(self) -> None:
        """Discards those that wait."""
        for hello_link in self:
            hello_link.read.clear()
            hello_link.hellos.drop_queued()

    def lost(self, link: Link, error: BaseException) -> None:
        """Whatever ended its answers or its hellos also ends its claims, until it is answered on again: a claim that
        nobody answers for is worse than none."""
        hello_link = self._open.get(link.index)
        if hello_link is not None and hello_link.link.mac == link.mac:
            hello_link.fail(EdgeError(f"{link.name}: {UNANSWERED}: {error}"))
        if not isinstance(error, EdgeError):
            report("link", error, self._events)
        self._events.tell(LinkLost(link, str(error)))

    # ── hellos that do not come ──

    def miss(self) -> None:
        """If a hello is overdue, the carrier may be gone. ``hear`` comes first, so that no node is late whose hello
        lies here unread."""
        now = self._clock()
        for hello_link in self:
            if hello_link.speakers.miss(now):
                self.doubted.set()

    def note_filtered(self, hello_link: HelloLink, node: str, eip: IPAddress) -> None:
        """``node`` answers for ``eip``, but none of its hellos arrives."""
        filtered = hello_link.speakers.filtered
        if node not in filtered:
            filtered[node] = set()
            loop = asyncio.get_running_loop()
            loop.call_later(FILTERED_SECONDS, self._tell_filtered, hello_link.link.index, node)
        filtered[node].add(eip)

    def _tell_filtered(self, link: int, node: str) -> None:
        if (hello_link := self._open.get(link)) is None or node not in hello_link.speakers.filtered:
            return
        eips, speaker = frozenset(hello_link.speakers.filtered.pop(node)), hello_link.speakers.get(node)
        # After a cut it may answer shortly before its first hello comes.
        if speaker is not None and hello_link.speakers.is_unheard(node, self._clock(), FILTERED_SECONDS):
            self._events.tell(HellosFiltered(hello_link.link, node, speaker.mac, eips))

    # ── what follows ──

    async def _serve_link(self, link: Link) -> None:
        tell = partial(self.lost, link)
        async for attempt in retrying(tell, on=EdgeError, multiplier=0.05, limit=RETRY_MAX, steady=RETRY_MAX):
            with attempt:
                await self._serve_once(link)

    async def _serve_once(self, link: Link) -> None:
        if link.index in self._no_carrier:
            raise EdgeError(f"{link.name}: no carrier")
        if not self._is_answered(link):
            raise EdgeError(f"{link.name}: {UNANSWERED}")
        loop = asyncio.get_running_loop()

        with self._open_hellos(link, partial(self._count, link.name)) as hellos:
            hello_link = self._open[link.index] = HelloLink(hellos, self._clock(), loop.create_future())

            loop.add_reader(hellos, self._user.look)
            try:
                self._user.opened(hello_link)
                raise EdgeError(await hello_link.failed)
            finally:
                loop.remove_reader(hellos)
                if self._open.get(link.index) is hello_link:
                    del self._open[link.index]
                    self._user.closed(link.index)

    def _count(self, link: str, rejected: Enum | None, number: int) -> None:
        self._events.count(HellosReceived(link, rejected), number)

    def _hear_or_drop(self, hello_link: HelloLink) -> bool:
        """What a bug of ours keeps from being read is discarded; otherwise it would be tried again without a pause."""
        try:
            return self._hear(hello_link)
        except BUGS as error:
            report("hear", error, self._events)
            hello_link.read.clear()
            hello_link.hellos.drop_queued()
            return False

    def _hear(self, hello_link: HelloLink) -> bool:
        news, arrived = False, self._layer2.arrived(hello_link.link.index)
        try:
            hello_link.read.extend(hello_link.hellos.receive())
        except EdgeError as error:
            hello_link.fail(error)
            return news
        while hello_link.read:  # the first one may have the effect that none of them counts
            received = hello_link.read.popleft()
            news |= not received.hello.routine
            self._user.heard(hello_link, received)
        if not hello_link.hellos.crowded:  # what the kernel counted a moment ago may not be in our socket yet
            self._layer2.heard(hello_link.link.index, hello_link.arrived)
            hello_link.arrived = arrived
        self._come_back(hello_link)
        return news

    def _come_back(self, hello_link: HelloLink) -> None:
        """A flood of frames that claim to be routine would wake nobody, and push the rest out of the queue."""
        now, loop = self._clock(), asyncio.get_running_loop()
        if hello_link.hellos.crowded:
            hello_link.crowded_until = now + CROWDED_SECONDS
            loop.call_soon(self._user.look)
        elif now < hello_link.crowded_until:
            loop.call_later(CROWDED_PAUSE, self._user.look)
