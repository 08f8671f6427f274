"""What happens in the wire process, on its way to the main process."""

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping

from speaker.model import Incarnation, IPAddress, Link, events
from speaker.ownership.events import NameClash, NameFree, PeersAddress
from speaker.ownership.machine.peers import PeerState
from speaker.system.supervise import described
from speaker.system.waiting import tick
from speaker.wire.messages import Events, FromWire, ToMain, WireEvent

MAX_WAITING = 64 * 2**20
"""Bytes that a main process may leave unread before it is replaced."""
MAIN_TASK = "main process"
"""The name under which a main process without progress is counted among unexpected errors."""
MAX_FAILURES = 100
"""Failures of links that wait for a listener; more are not reported."""
MAX_DELAYS = 1000
"""Delays that wait to be reported; beyond that, only the longest is."""
COUNT_SECONDS = 2.0
"""Counts are passed on at most so long after the first of them, and whenever the reader is awake anyway."""
FORGETTING = 60.0
"""Seconds after which peers are counted again even if none changed, so that those long gone are forgotten."""


class EventSender:
    """Sends transitions at once, and counts a few times a second, to the reader of ``channel``; None: there is none.
    ``messages.Events``."""

    def __init__(self, channel: ToMain | None = None) -> None:
        self.channel = channel
        self._counts: Counter[events.Countable] = Counter()
        self._delays: list[tuple[float, float]] = []
        self._counted = asyncio.Event()
        """Set if there is something to pass on."""
        self._bugs: set[tuple[str, str]] = set()
        """Task and place of those that were reported."""
        self._untold: dict[Hashable, WireEvent] = {}
        """What happened while nobody listened and is not in ``Resumed``: claims that stand, by EIP, with the seconds
        that they took then; bugs, by task and place, the first of each; what failed; and how often this process froze.
        """
        self._ending = False

    def send(self, message: FromWire) -> None:
        """Without a main process the message is dropped: the next one gets the whole state, and the claims and bugs
        that nobody heard of. A main process that does not read for too long is cut off."""
        if self.channel is not None:
            self.channel.send(message)
            if self.channel.waiting > MAX_WAITING:
                self.channel.abort()

    async def run(self) -> None:
        """Endless."""
        while True:
            await self._counted.wait()
            await tick(COUNT_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Nothing, while there is no main process that has read nearly everything that it was sent."""
        is_read = self.channel is not None and self.channel.waiting < MAX_WAITING // 64
        if is_read and (self._counts or self._delays):
            self.send(events.Counts(dict(self._counts), self._delays))
            self._counts.clear()
            self._delays = []
            self._counted.clear()

    def start_over(self) -> None:
        """Somebody else listens from now on."""
        self._bugs.clear()

    def retell(self) -> None:
        """Sends what happened while nobody listened."""
        untold, self._untold = self._untold, {}
        for event in untold.values():
            if isinstance(event, events.BugMet):
                self._bugs.add((event.task, event.place))
            self.send(event)

    def end(self) -> None:
        """The listener is asked to end as well: what is met from now on is among the ``last_words``."""
        self._ending = True

    def last_words(self) -> tuple[list[events.BugMet | events.LinkLost | events.JoinFailed], dict[str, int]]:
        """What nobody will hear about any more, and how many more bugs were met, by task."""
        again = {what.task: count for what, count in self._counts.items() if isinstance(what, events.BugsMetAgain)}
        return [
            event
            for event in self._untold.values()
            if isinstance(event, events.BugMet | events.LinkLost | events.JoinFailed)
        ], again

    def count(self, what: events.Countable, number: int) -> None:
        self._counts[what] += number
        self._counted.set()

    def loop_delay(self, late: float, busy: float) -> None:
        self._delays.append((late, busy))
        self._counted.set()
        if len(self._delays) > MAX_DELAYS:
            self._delays = [(max(late for late, _ in self._delays), max(busy for _, busy in self._delays))]

    def tell(self, event: WireEvent) -> None:
        if isinstance(event, events.EipYielded):
            self._untold.pop(event.eip, None)
        if self.channel is not None:
            self.send(event)
        else:
            self._keep(event)

    def _keep(self, event: WireEvent) -> None:
        match event:
            case events.EipClaimed(eip=eip):
                self._untold[eip] = event
            case events.WasFrozen():
                self._untold[object()] = event
            case events.LinkLost() | events.JoinFailed():
                failures = sum(isinstance(one, events.LinkLost | events.JoinFailed) for one in self._untold.values())
                if failures < MAX_FAILURES:
                    self._untold[object()] = event
            case _:
                self.send(event)  # dropped there: the next main process gets the whole state

    def internal_error(self, task: str, error: BaseException) -> None:
        """The first error from a line of code is sent with its traceback, later ones as a number."""
        words, place, trace = described(error)
        key, bug, listened = (task, place), events.BugMet(task, words, place, trace), self.channel is not None
        if key in (self._bugs if listened else self._untold):
            self.count(events.BugsMetAgain(task), 1)
        elif listened:
            self._bugs.add(key)
            self.send(bug)
        if not listened or self._ending:
            self._untold.setdefault(key, bug)

    def replaced(self, words: str, stacks: str) -> None:
        """A main process made no progress; the next one reports it. ``stacks``: where its threads and loops stood."""
        self._untold[MAIN_TASK, words] = events.BugMet(MAIN_TASK, words, "the main process", stacks)


class News:
    """What was last reported about peers, names and addresses: ``events`` hears what changed, and a new main process
    hears all of it."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.incarnation: Incarnation | None = None
        self._alive: Mapping[tuple[int, str], bool] = {}
        """By index of the link, and node."""
        self._heard: dict[tuple[int, str], None] = {}
        """Nodes that were reported as alive, and not as silent since."""
        self._claims_heard = 0
        """Changes of others' claims that were reported."""
        self._counted: dict[str, tuple[int, int]] = {}
        """Name of the link → how many are alive there, and how many silent."""
        self._peers_changed: int | None = None
        self._counted_at = float("-inf")
        self._peers_own: dict[IPAddress, PeersAddress] = {}
        """EIPs that are a peer's own addresses."""
        self._clash: NameClash | None = None

    def retell(self) -> None:
        """What a new main process must hear, and is not in ``Resumed``."""
        self._counted.clear()
        self._heard.clear()
        self._alive = {}
        self._peers_changed = None
        if self._clash is not None:
            self._events.tell(self._clash)
        for event in self._peers_own.values():
            self._events.tell(event)

    def life(self, incarnation: Incarnation, claims_heard: int = 0) -> None:
        """``claims_heard``: how many changes of others' claims there have been."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self._events.tell(events.LifeBegan(incarnation))
        if claims_heard != self._claims_heard:
            self._claims_heard = claims_heard
            self._events.count(events.PeersClaims(), 1)

    def tell(self, event: PeersAddress | NameClash | NameFree) -> None:
        """What the machine says, and the part of it that a new main process must hear."""
        match event:
            case PeersAddress(eip=eip, node=node):
                self._peers_own.pop(eip, None)
                if node is not None:
                    self._peers_own[eip] = event
            case NameClash():
                self._clash = event
            case NameFree():
                self._clash = None
        self._events.tell(event)

    def may_have_changed(self, peers_changed: int, now: float) -> bool:
        """Whether there may be news for ``peers``. ``peers_changed``: how many changes there have been."""
        if peers_changed == self._peers_changed and now < self._counted_at + FORGETTING:
            return False
        self._peers_changed, self._counted_at = peers_changed, now
        return True

    def peers(
        self, states: Mapping[int, Iterable[PeerState]], links: Mapping[int, Link], fresh: Collection[int] = ()
    ) -> bool:
        """Reports who lives on the ``links`` that carry hellos (``states``, by their index), and who is silent without
        having announced it. On a link that no longer carries them nobody is counted. Silence there is reported when it
        carries them again and is not one of the ``fresh`` links, where nobody has had the time to be heard yet. Returns
        whether anything is news."""
        alive = {(index, peer.node): peer.alive for index, some in states.items() for peer in some}
        gone = {(index, peer.node) for index, some in states.items() for peer in some if peer.draining}
        changed = alive != self._alive
        self._alive = alive
        for index, node in dict.fromkeys((*alive, *self._heard)):
            lives = alive.get((index, node), False)
            if not lives and index in fresh:
                continue
            if ((index, node) in self._heard) is not lives and (link := links.get(index)) is not None:
                if lives:
                    self._heard[index, node] = None
                else:
                    del self._heard[index, node]
                self._events.tell(events.PeerChanged(node, link, lives))
        counts = dict.fromkeys(self._counted, (0, 0))
        for index, link in links.items():
            number = sum(lives for (at, _), lives in alive.items() if at == index)
            silent = sum(one[0] == index and not lives and one not in gone for one, lives in alive.items())
            counts[link.name] = number, 0 if index in fresh else silent
        for name, count in counts.items():
            if self._counted.get(name) != count:
                self._counted[name] = count
                self._events.tell(events.PeersCounted(name, *count))
        if fresh:
            self._peers_changed = None  # there will be more to report soon, though nothing changes
        return changed
