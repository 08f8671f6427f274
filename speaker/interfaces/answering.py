"""Whether a link's gateways answer: a soft criterion, which lowers a node's rank and never vetoes (ownership.md, 10).

A link is silent if in one family each of its gateways has left ``PATIENCE`` questions in a row unanswered. Within a
family one gateway stands in for another (several default routes, a pair of routers); an IPv6 router does not stand in
for an IPv4 one. Questions are counted, not seconds, so that a speaker that was frozen itself blames nobody.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from speaker.interfaces.snapshot import Gateway, LinkAddress, Snapshot
from speaker.model import Link, Mac
from speaker.packets.asking import Question

PATIENCE = 3


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
        for question, asked in self._asked.items():
            if question.link == link:
                families.setdefault(question.target.version, []).append(asked.answers)
        verdicts = [_any(answers) for answers in families.values()]
        if False in verdicts:
            return False
        return None if None in verdicts else True


def _any(answers: list[bool | None]) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False
