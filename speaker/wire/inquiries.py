"""What the ownership machine has asked of the LAN (``events.Ask``), on all links. Nothing is open while nothing is
asked.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from speaker.errors import EdgeError
from speaker.interfaces.carrier import neighbors
from speaker.interfaces.rtnetlink import Neighbor
from speaker.model import IPAddress, Link, Mac, Speaker
from speaker.model.events import EdgeFailed, EdgeRecovered
from speaker.ownership.events import Ask, Question
from speaker.ownership.hello import Addresses
from speaker.ownership.inquirer import AsksLinks, Inquirer
from speaker.packets.asking import question_from
from speaker.wire.messages import Events

NEIGHBORS = 8
"""As many neighbours known to the kernel on a link are asked too: any answer shows that this node hears."""
OTHERS = 3
"""As many gateways, and as many other speakers, are asked together with a speaker that did not answer."""
SPEAKERS = 8
"""As many silent speakers are asked at a time, in turn."""
OVER_SECONDS = 10.0
"""So long after the last failure it counts as over, as there may be no further question for months."""
EDGE = "inquiry"


_Target: TypeAlias = tuple[IPAddress, Mac | None]
"""An address, and the only MAC that is asked for it; None: everybody is asked."""


class Inquiries:
    """``asker`` hears the answers, ``events`` hears what goes wrong."""

    def __init__(self, asker: AsksLinks, events: Events) -> None:
        self._asker, self._events = asker, events
        self._inquirers: dict[int, Inquirer] = {}
        self._neighbors: dict[int, list[Neighbor]] = {}
        """As they were when listening began."""
        self._failing: dict[int, str] = {}
        """Link → why it cannot be asked, as last reported."""
        self._over: dict[int, asyncio.TimerHandle] = {}
        self._turn = 0
        self.gateways: Mapping[int, Sequence[IPAddress]] = {}
        """By index of the link."""

    def ask(self, link: Link, own: Addresses, order: Ask | Question, speakers: Mapping[str, Speaker]) -> None:
        """Asks as ``events`` describes; ``speakers`` are all that are known. Errors are reported; the next call tries
        again."""
        talk = isinstance(order, Ask)
        try:
            inquirer = self._listening(link, talk=talk)
            if isinstance(order, Ask):
                targets = self._targets(link.index, order, speakers)
            else:
                targets = self._doubts(link.index, order, speakers)
            frames = (question_from(link.mac, own, *target) for target in targets if target[0] not in own)
            others = isinstance(order, Ask) or order.doubted
            inquirer.ask(order.eips, filter(None, frames), talk=talk, others=others)
        except EdgeError as error:
            self._refused(link.index, str(error))
        else:
            self._recovered(link.index)

    def _doubts(self, link: int, order: Question, speakers: Mapping[str, Speaker]) -> Iterable[_Target]:
        """The others come last: if not everything is sent, answers to what was sent say nothing about the rest."""
        targets: list[_Target] = [(eip, None) for eip in order.eips]
        if order.doubted:
            if (holder := speakers.get(order.node)) is not None:
                targets += [(eip, holder.mac) for eip in order.eips]
            self._turn += OTHERS
            others = [speaker for node, speaker in speakers.items() if node != order.node]
            targets += [(gateway, None) for gateway in self.gateways.get(link, ())[:OTHERS]]
            targets += [(a, None) for one in _in_turn(others, self._turn, OTHERS) for a in one.addresses]
        return targets

    def read(self, waited: float) -> bool:
        """Reads answers that wake nobody, and that have waited for at most so many seconds. Returns whether these are
        all."""
        read = [inquirer.read(waited) for inquirer in [*self._inquirers.values()] if inquirer.awaited]
        return all(read)

    def retell(self) -> None:
        """Somebody else listens from now on: what still fails is news."""
        self._failing.clear()

    def close(self, link: int) -> None:
        """Stop listening there."""
        if (inquirer := self._inquirers.pop(link, None)) is not None:
            inquirer.close()
        self._neighbors.pop(link, None)
        self._recovered(link)

    def _listening(self, link: Link, *, talk: bool) -> Inquirer:
        index = link.index
        if (inquirer := self._inquirers.get(index)) is None:
            inquirer = self._inquirers[index] = Inquirer(link, self._asker, self._events)
        if not talk:
            inquirer.open(talk=False)
        elif not inquirer.listens:
            inquirer.open()
            self._neighbors[index] = neighbors(index, NEIGHBORS)
        return inquirer

    def _targets(self, link: int, order: Ask, speakers: Mapping[str, Speaker]) -> Iterable[_Target]:
        """EIPs are asked of everybody, as a client would. Others, whose answers show that this node hears, are asked by
        their MACs, which disturbs nobody else."""
        targets: dict[IPAddress, Mac | None] = dict.fromkeys(order.eips)
        if order.anybody:
            known = {neighbor.address: neighbor.mac for neighbor in self._neighbors.get(link, [])}
            silent = [speakers[node] for node in order.nodes if node in speakers]
            self._turn += SPEAKERS
            for address, mac in (
                *((gateway, known.get(gateway)) for gateway in self.gateways.get(link, ())),
                *known.items(),
                *((address, one.mac) for one in _in_turn(silent, self._turn, SPEAKERS) for address in one.addresses),
            ):
                targets.setdefault(address, mac)
        return targets.items()

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
    """``most`` of them, beginning with the ``turn``-th, and round again."""
    start = turn % len(speakers) if speakers else 0
    return islice((*speakers[start:], *speakers[:start]), most)
