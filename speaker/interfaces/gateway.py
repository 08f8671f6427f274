"""Edge: asks the gateways of links once a second whether they are there."""

from collections.abc import Callable, Collection

from speaker.interfaces.answering import Answering, questions
from speaker.interfaces.asking import Asker, refused
from speaker.interfaces.neighbor import Answer, Question, ask
from speaker.interfaces.snapshot import Snapshot
from speaker.model import Link
from speaker.packets import sockets
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
    """The open askers and what they have heard."""

    def __init__(self, tell: Callable[[int, bool], None]) -> None:
        self._tell = tell
        self._answering = Answering()
        self._links: frozenset[int] = frozenset()
        self._askers: dict[Question, Asker] = {}

    def ask(self, snapshot: Snapshot, links: Collection[Link]) -> None:
        self._links = frozenset(link.index for link in links)
        wanted = questions(snapshot, links)
        for waiting in self._askers.values():
            waiting.read()
        for question in self._askers.keys() - wanted:
            self._askers.pop(question).close()
        for question, mac in self._answering.ask(wanted):
            if (asker := self._askers.get(question) or self._open(question)) is not None:
                asker.ask(ask(question, mac), listen=mac is None)  # one that answered the last time has a second
        self._tell_changes()

    def _open(self, question: Question) -> "Asker | None":
        """None where the link went away: its question stays unanswered, and is dropped with the next Snapshot."""
        try:
            self._askers[question] = Asker(question, self._heard)
        except OSError as error:
            if error.errno in sockets.GONE:
                return None
            raise refused(question, error) from error
        return self._askers[question]

    def _heard(self, question: Question, answer: Answer) -> None:
        self._answering.heard(question, answer.mac)
        self._tell_changes()

    def _tell_changes(self) -> None:
        for link, answers in self._answering.changes(self._links):
            self._tell(link, answers)

    def close(self) -> None:
        for asker in self._askers.values():
            asker.close()
