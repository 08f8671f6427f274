"""Asks the gateways of links once a second whether they are still there.

Their answers are a soft criterion, which lowers a node's rank and never vetoes (ownership.md, 10). A link is silent if
in one family each of its gateways has left ``PATIENCE`` questions in a row unanswered. Within a family one gateway
stands in for another (several default routes, a pair of routers); an IPv6 router does not stand in for an IPv4 one.
Questions are counted, not seconds, so that a speaker that was frozen itself blames nobody.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from speaker.errors import LinkGone
from speaker.interfaces.snapshot import Gateway, LinkAddress, Snapshot
from speaker.model import Link, Mac
from speaker.packets.asker import NEIGHBOUR_FRAMES, Asker
from speaker.packets.asking import Question, question, read_answer
from speaker.system.waiting import tick

PATIENCE = 3
"""Questions, one after the other, that a gateway may leave unanswered."""


def questions(snapshot: Snapshot, links: Iterable[Link]) -> frozenset[Question]:
    """One for each gateway on these links that we have an address to ask from."""
    by_index = {link.index: link for link in links}
    return frozenset(
        Question(gateway.link, by_index[gateway.link].mac, source.address, gateway.address)
        for gateway in snapshot.gateways
        if gateway.link in by_index and (source := _source(gateway, snapshot)) is not None
    )


def _source(gateway: Gateway, snapshot: Snapshot) -> LinkAddress | None:
    """The first address of that link and family, but one in the gateway's subnet before all others."""
    own = [
        bound
        for bound in snapshot.addresses
        if bound.link == gateway.link and bound.address.version == gateway.address.version and not bound.tentative
    ]
    return min(own, key=lambda bound: gateway.address not in bound.subnet, default=None)


@dataclass(slots=True)
class _Asked:
    answers: bool | None = None
    """None: not known yet."""
    unanswered: int = 0
    mac: Mac | None = None


class Answering:
    """What was asked, what was answered, and what was last reported about it."""

    def __init__(self) -> None:
        self._asked: dict[Question, _Asked] = {}
        self._told: dict[int, bool] = {}

    def ask(self, wanted: Collection[Question]) -> list[tuple[Question, Mac | None]]:
        """A new round: what to ask, each with the MAC the gateway was last heard at, where it answered since."""
        self._asked = {question: self._asked.get(question) or _Asked() for question in wanted}
        for asked in self._asked.values():
            if asked.unanswered >= PATIENCE:
                asked.answers = False
        round_ = [(question, asked.mac if not asked.unanswered else None) for question, asked in self._asked.items()]
        for asked in self._asked.values():
            asked.unanswered += 1
        return round_

    def heard(self, question: Question, mac: Mac | None) -> None:
        if (asked := self._asked.get(question)) is not None:
            asked.answers, asked.unanswered, asked.mac = True, 0, mac

    def changes(self, links: Collection[int]) -> list[tuple[int, bool]]:
        """The links whose state is known and was not told yet. One without a gateway to ask counts as answering."""
        self._told = {link: told for link, told in self._told.items() if link in links}
        changed = [(link, now) for link in links if (now := self._answers(link)) not in (None, self._told.get(link))]
        self._told.update(changed)
        return changed

    def _answers(self, link: int) -> bool | None:
        families: dict[int, list[bool | None]] = {}
        for each, asked in self._asked.items():
            if each.link == link:
                families.setdefault(each.target.version, []).append(asked.answers)
        verdicts = [_any(answers) for answers in families.values()]
        if False in verdicts:
            return False
        return None if None in verdicts else True


def _any(answers: list[bool | None]) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False


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
