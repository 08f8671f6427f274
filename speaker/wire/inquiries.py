"""What the ownership machine has asked of the LAN (``events.Ask``), on all links. Nothing is open while nothing is
asked."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from speaker.errors import EdgeError
from speaker.interfaces.neighbor_cache import neighbors
from speaker.interfaces.rtnetlink import Neighbor
from speaker.model import IPAddress, Link, Mac, Speaker
from speaker.model.events import EdgeFailed, EdgeRecovered
from speaker.ownership.events import Ask, Question
from speaker.ownership.hello import Addresses
from speaker.ownership.inquirer import Inquirer
from speaker.packets.asking import Answer, question_from
from speaker.wire.messages import Events

NEIGHBORS = 8
"""That the kernel knows on a link: asked as well, as anybody's answer says that this node hears."""
OTHERS = 3
"""Gateways and other speakers that are asked together with one that did not answer, of each."""
SPEAKERS = 8
"""Silent ones that are asked at a time, in turn."""
OVER_SECONDS = 10.0
"""Without a question that is refused, after which that counts as over: there may be none for months."""
EDGE = "inquiry"


class Inquiries:
    """``heard`` and ``answered`` are told the index of the link, ``heard`` also what ``FrameHeard`` says.
    ``ours``: whether a MAC is one of this host's."""

    def __init__(
        self,
        ours: Callable[[Mac], bool],
        heard: Callable[[int, int | None], None],
        answered: Callable[[int, Answer], None],
        events: Events,
    ) -> None:
        self._ours, self._heard, self._answered, self._events = ours, heard, answered, events
        self._inquirers: dict[int, Inquirer] = {}
        self._neighbors: dict[int, list[Neighbor]] = {}
        """As they were when listening began."""
        self._failing: dict[int, str] = {}
        """Link → why it cannot be asked, as last told."""
        self._over: dict[int, asyncio.TimerHandle] = {}
        self._turn = 0
        self.gateways: Mapping[int, Sequence[IPAddress]] = {}
        """By the index of the link."""

    def ask(
        self, link: Link, own: Addresses, eips: Sequence[IPAddress], speakers: Sequence[Speaker], *, anybody: bool
    ) -> None:
        """As ``events.Ask`` says; ``speakers`` are the silent ones. What goes wrong is told; the next call tries
        again."""
        try:
            inquirer = self._listening(link)
            others = self._others(link.index, speakers) if anybody else ()
            inquirer.ask(eips, self._questions(link, own, eips, others))
        except EdgeError as error:
            self._refused(link.index, str(error))
        else:
            self._recovered(link.index)

    def carry_out(self, link: Link, own: Addresses, order: Ask | Question, speakers: Mapping[str, Speaker]) -> None:
        """As ``events`` says; ``speakers`` are all that are known. What goes wrong is told; the next call tries
        again."""
        if isinstance(order, Ask):
            silent = [speakers[node] for node in order.nodes if order.anybody and node in speakers]
            self.ask(link, own, order.eips, silent, anybody=order.anybody)
            return
        try:
            inquirer = self._listening(link, talk=False)
            inquirer.ask(order.eips, self._doubts(link, own, order, speakers), talk=False, others=order.doubted)
        except EdgeError as error:
            self._refused(link.index, str(error))
        else:
            self._recovered(link.index)

    def _doubts(self, link: Link, own: Addresses, order: Question, speakers: Mapping[str, Speaker]) -> Iterator[bytes]:
        """The others come last: where only so much leaves, their answers say nothing of what did not."""
        targets: list[tuple[IPAddress, Mac | None]] = [(eip, None) for eip in order.eips]
        if order.doubted:
            if (holder := speakers.get(order.node)) is not None:
                targets += [(eip, holder.mac) for eip in order.eips]
            self._turn += OTHERS
            others = [speaker for node, speaker in speakers.items() if node != order.node]
            targets += [(gateway, None) for gateway in self.gateways.get(link.index, ())[:OTHERS]]
            targets += [(a, None) for one in _in_turn(others, self._turn, OTHERS) for a in one.addresses]
        for address, mac in targets:
            if address not in own and (frame := question_from(link.mac, own, address, mac)) is not None:
                yield frame

    def retell(self) -> None:
        """Somebody else listens from now on: what goes wrong still is news."""
        self._failing.clear()

    def close(self, link: int) -> None:
        """Hear nothing there any more."""
        if (inquirer := self._inquirers.pop(link, None)) is not None:
            inquirer.close()
        self._neighbors.pop(link, None)
        self._recovered(link)

    def _listening(self, link: Link, *, talk: bool = True) -> Inquirer:
        index = link.index
        if (inquirer := self._inquirers.get(index)) is None:
            inquirer = self._inquirers[index] = Inquirer(
                link,
                self._ours,
                lambda version: self._heard(index, version),
                lambda answer: self._answered(index, answer),
                self._events,
            )
        if not talk:
            inquirer.open(talk=False)
        elif not inquirer.listens:
            inquirer.open()
            self._neighbors[index] = neighbors(index, NEIGHBORS)
        return inquirer

    def _others(self, link: int, speakers: Sequence[Speaker]) -> Iterable[tuple[IPAddress, Mac | None]]:
        """Whose answer says that this node hears."""
        known = {neighbor.address: neighbor.mac for neighbor in self._neighbors.get(link, [])}
        self._turn += SPEAKERS
        return (
            *((gateway, known.get(gateway)) for gateway in self.gateways.get(link, ())),
            *known.items(),
            *((address, one.mac) for one in _in_turn(speakers, self._turn, SPEAKERS) for address in one.addresses),
        )

    def _questions(
        self, link: Link, own: Addresses, eips: Iterable[IPAddress], others: Iterable[tuple[IPAddress, Mac | None]]
    ) -> Iterator[bytes]:
        """The EIPs of everybody, as a client would; the others by their MACs, which disturbs nobody else."""
        targets: dict[IPAddress, Mac | None] = dict.fromkeys(eips)
        for address, mac in others:
            targets.setdefault(address, mac)
        for address, mac in targets.items():
            if address not in own and (frame := question_from(link.mac, own, address, mac)) is not None:
                yield frame

    def _refused(self, link: int, words: str) -> None:
        if self._failing.get(link) != words:
            self._failing[link] = words
            self._events.tell(EdgeFailed(EDGE, words))
        if (over := self._over.get(link)) is not None:
            over.cancel()
        self._over[link] = asyncio.get_running_loop().call_later(OVER_SECONDS, self._recovered, link)

    def _recovered(self, link: int) -> None:
        if (over := self._over.pop(link, None)) is not None:
            over.cancel()
        if self._failing.pop(link, None) is not None and not self._failing:
            self._events.tell(EdgeRecovered(EDGE))


def _in_turn(speakers: Sequence[Speaker], turn: int, most: int) -> Iterator[Speaker]:
    """``most`` of them, from the ``turn``-th on, and round again."""
    start = turn % len(speakers) if speakers else 0
    return islice((*speakers[start:], *speakers[:start]), most)
