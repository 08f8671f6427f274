"""Asks the gateways of links once a second whether they are still there."""

from collections.abc import Callable, Collection
from contextlib import suppress

from speaker.errors import LinkGone
from speaker.interfaces.answering import Answering, questions
from speaker.interfaces.snapshot import Snapshot
from speaker.model import Link, Mac
from speaker.packets.asker import NEIGHBOUR_FRAMES, Asker
from speaker.packets.asking import Question, question, read_answer
from speaker.system.waiting import tick

EVERY = 1.0
"""Seconds between two questions to a gateway."""


async def watch_gateways(
    snapshot: Callable[[], Snapshot | None],
    links: Callable[[], Collection[Link]],
    tell: Callable[[int, bool], None],
    every: float = EVERY,
) -> None:
    """Calls ``tell(index, answers)`` for each of ``links`` as soon as that is known, and whenever it changes.
    One that answered the last time is read again at the next question: nothing wakes for its answer.

    A link is asked for the gateways of its default routes, ``every`` so many seconds; one without any answers. Works in
    the network namespace of the thread it runs in, until cancelled. Raises EdgeError, and Unsupported without
    CAP_NET_RAW.
    """
    watch = _Watch(tell)
    try:
        while True:
            if (seen := snapshot()) is not None:
                watch.ask(seen, links())
            await tick(every)
    finally:
        watch.close()


class _Watch:
    """The gateways that are asked, and what they answered."""

    def __init__(self, tell: Callable[[int, bool], None]) -> None:
        self._tell = tell
        self._answering = Answering()
        self._links: frozenset[int] = frozenset()
        self._gateways: dict[Question, _Gateway] = {}

    def ask(self, snapshot: Snapshot, links: Collection[Link]) -> None:
        self._links = frozenset(link.index for link in links)
        wanted = questions(snapshot, links)
        for waiting in self._gateways.values():
            waiting.read()
        for gone in self._gateways.keys() - wanted:
            self._gateways.pop(gone).close()
        for asked, mac in self._answering.ask(wanted):
            with suppress(LinkGone):  # its question stays unanswered, and is dropped with the next Snapshot
                if asked not in self._gateways:
                    self._gateways[asked] = _Gateway(asked, self._heard)
                self._gateways[asked].ask(mac)
        self._tell_changes()

    def _heard(self, asked: Question, mac: Mac) -> None:
        # A solicitation goes to the target's group every time, where few but the target listen.
        self._answering.heard(asked, mac if asked.target.version == 4 else None)
        self._tell_changes()

    def _tell_changes(self) -> None:
        for link, answers in self._answering.changes(self._links):
            self._tell(link, answers)

    def close(self) -> None:
        for gateway in self._gateways.values():
            gateway.close()


class _Gateway:
    """Its first answer ends the listening until the next question: whatever anybody sends, it costs a bounded number of
    frames a second. Raises EdgeError."""

    def __init__(self, asked: Question, heard: Callable[[Question, Mac], None]) -> None:
        self._asked, self._heard, self._left = asked, heard, 0
        self._asker = Asker.of_neighbour(asked)

    def ask(self, known: Mac | None) -> None:
        """Of ``known`` alone where it answered the last time, and so has until the next ``read`` to answer."""
        self._asker.drop(NEIGHBOUR_FRAMES)  # said again: the first one was enough
        self._left = NEIGHBOUR_FRAMES
        if known is None:
            self._asker.listen(self.read)
        self._asker.send(question(self._asked.mac, self._asked.source, self._asked.target, known))

    def read(self) -> None:
        """What is there, until the answer is."""
        for frame in self._asker.frames(self._left):
            self._left -= 1
            if (answer := read_answer(frame)) is not None:
                self._left = 0
                self._heard(self._asked, answer.mac)
                break
        if not self._left:
            self._asker.rest()

    def close(self) -> None:
        self._asker.rest()
        self._asker.close()
