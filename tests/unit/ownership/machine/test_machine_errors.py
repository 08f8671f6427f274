"""Bugs of our own in the ownership machine: one EIP, one peer or one link is given up, and everything else goes on."""

from collections.abc import Callable

import pytest
from simulation.wrong_machines import made_of, part
from stepping import EIP, LIFE, LINK, advance, alone, hello, timed

from speaker.model import IPAddress
from speaker.ownership.events import (
    Drain,
    EligibilityChanged,
    HelloHeard,
    InternalError,
    LinkChanged,
    Order,
    RecordRead,
    SendHello,
    SetAside,
    Tick,
    Withdraw,
    Yielded,
    gone,
)
from speaker.ownership.hello import Hello
from speaker.ownership.machine.agenda import Agenda
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.hearing import Hearing
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.records import Records
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment

BAD = EIP + 1
"""The EIP that a bug concerns."""


class Unforeseen(Exception):
    """Raised when a test plays a bug."""


def contained(orders: list[Order]) -> list[tuple[str, str]]:
    return [(order.doing, order.what) for order in orders if isinstance(order, InternalError)]


def withdrawn(orders: list[Order]) -> list[tuple[IPAddress, Yielded]]:
    return [(order.eip, order.reason) for order in orders if isinstance(order, Withdraw)]


class CannotHold(Claims):
    """As long as ``broken``, judging BAD raises."""

    broken = False

    def _judge_held(self, x: Eip, now: float) -> float:
        if x.address == BAD and self.broken:
            raise Unforeseen
        return super()._judge_held(x, now)


def holder() -> Ownership:
    machine = alone(3, kind=made_of(CannotHold))
    advance(machine, 0.0, 1.0)
    machine.claims.broken = True
    return machine


def test_an_eip_whose_judgement_raises_is_let_go_and_the_others_are_kept() -> None:
    machine = holder()
    orders = machine.step(1.0, EligibilityChanged(BAD, LINK))
    assert withdrawn(orders) == [(BAD, Yielded.INTERNAL_ERROR)]
    assert contained(orders) == [("judge", str(BAD))]
    assert machine.held().keys() == {EIP, EIP + 2}
    said = [order.hello for order in advance(machine, 1.0, 1.2) if isinstance(order, SendHello)]
    assert said[-1].yielded.keys() == {BAD}, "the others are told at once"


def test_it_is_tried_again_soon_and_then_ever_less_often() -> None:
    machine = holder()
    machine.step(1.0, EligibilityChanged(BAD, LINK))
    orders = timed(machine, 1.0, 100.0)
    tried = [at for at, order in orders if isinstance(order, InternalError)]
    assert tried[0] == pytest.approx(1.4, abs=0.05)
    assert len(tried) < 12
    assert machine.held().keys() >= {EIP, EIP + 2}


def test_it_is_held_again_once_the_bug_does_not_show_any_more() -> None:
    machine = holder()
    machine.step(1.0, EligibilityChanged(BAD, LINK))
    machine.claims.broken = False
    advance(machine, 1.0, 1.6)
    assert machine.held().keys() == {EIP, BAD, EIP + 2}


def test_what_could_not_be_carried_out_for_an_eip_is_let_go_and_tried_again() -> None:
    machine = alone(2)
    advance(machine, 0.0, 1.0)
    assert withdrawn(machine.step(1.0, SetAside(EIP))) == [(EIP, Yielded.INTERNAL_ERROR)]
    assert machine.held().keys() == {EIP + 1}
    advance(machine, 1.0, 1.6)
    assert machine.held().keys() == {EIP, EIP + 1}


def test_news_of_an_eip_that_raise_never_leave_it_held_where_it_may_not_be() -> None:
    class CannotLetGo(Claims):
        def change_eligibility(self, event: EligibilityChanged, now: float) -> None:
            if event.link is None:
                raise Unforeseen
            super().change_eligibility(event, now)

    machine = alone(2, kind=made_of(CannotLetGo))
    advance(machine, 0.0, 1.0)
    orders = machine.step(1.0, EligibilityChanged(EIP, None))
    assert withdrawn(orders) == [(EIP, Yielded.INTERNAL_ERROR)]
    advance(machine, 1.0, 60.0)
    assert machine.held().keys() == {EIP + 1}


def test_a_record_that_raises_concerns_its_eip_alone() -> None:
    class CannotRead(Records):
        def read(self, x: Eip, record: object, now: float) -> None:
            raise Unforeseen

    machine = alone(2, kind=made_of(CannotRead))
    advance(machine, 0.0, 1.0)
    assert contained(machine.step(1.0, RecordRead(EIP, gone(1)))) == [("read record", str(EIP))]
    assert machine.held().keys() == {EIP + 1}


@pytest.mark.parametrize(
    ("method", "doing"), [("kept_through", ["come back"]), ("listen_out", ["come back", "listen out"])]
)
def test_whoever_cannot_tell_what_it_may_keep_after_it_stood_still_keeps_nothing(method: str, doing: list[str]) -> None:
    class CannotTell(Rules):
        def kept_through(self, k: object, now: float) -> bool:
            raise Unforeseen

    def broken(*arguments: object) -> None:
        raise Unforeseen

    machine = alone(2, kind=made_of(CannotTell))
    advance(machine, 0.0, 1.0)
    if method != "kept_through":
        setattr(machine.known.segments[LINK], method, broken)
    orders = machine.step(1.0 + machine.times.dead, Tick())
    assert withdrawn(orders) == [(EIP, Yielded.FROZEN), (EIP + 1, Yielded.FROZEN)]
    assert [what for what, _ in contained(orders)] == doing


class Deaf(Hearing):
    """Hellos of "bad" raise, ``at`` one of two places."""

    at = "learn"

    def _peek(self, place: str, peer: Peer) -> None:
        if peer.node == "bad" and place == self.at:
            raise Unforeseen

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        self._peek("learn", peer)
        super()._learn(segment, peer, hello, now)

    def _answer_requests(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        self._peek("answer", peer)
        super()._answer_requests(segment, peer, hello, now)


@pytest.mark.parametrize("at", ["learn", "answer"])
def test_a_peer_whose_hellos_raise_counts_as_silent_and_the_others_are_heard(at: str) -> None:
    machine = alone(2, kind=made_of(Deaf))
    machine.hearing.at = at
    orders, now = [], 0.0
    for sequence in range(30):
        orders += machine.step(now, hello(machine, sequence, {BAD: 3}, node="bad"))
        orders += machine.step(now, hello(machine, sequence, {EIP: 3}, node="good"))
        orders += advance(machine, now, now + 0.1)
        now += 0.1
    assert ("hear", "bad") in contained(orders)
    assert {peer.node for peer in machine.peers(now)[LINK] if peer.alive} == {"good"}
    assert machine.held().keys() == {BAD}, "what only a peer that is not understood claims is served"
    assert machine.holder(EIP, now) == ("good", 3)


def test_one_hello_that_raises_is_one_lost_hello() -> None:
    machine = alone(1, kind=made_of(Deaf))
    machine.hearing.at = "never"
    now = 0.0
    for sequence in range(20):
        machine.hearing.at = "learn" if sequence == 10 else "never"
        machine.step(now, hello(machine, sequence, {EIP: 3}, node="bad"))
        advance(machine, now, now + 0.1)
        now += 0.1
    assert machine.holder(EIP, now) == ("bad", 3)
    assert machine.held() == {}


@pytest.mark.parametrize("failed", [4, 20, 150])
def test_a_silence_that_is_a_bug_of_ours_teaches_no_patience(failed: int) -> None:
    machine, now = alone(1, kind=made_of(Deaf)), 0.0
    for sequence in range(failed + 20):
        machine.hearing.at = "answer" if 10 <= sequence < failed + 10 else "never"
        machine.step(now, hello(machine, sequence, {EIP: 3}, node="bad", clock=100 * sequence))
        advance(machine, now, now + 0.1)
        now += 0.1
    bad = machine.known.segments[LINK].peers.by_node["bad"]
    assert bad.dead_after(machine.times) == machine.times.dead


def test_a_claim_that_was_half_learnt_is_heeded_all_the_same() -> None:
    class Torn(Agenda):
        def look_at(self, addresses: object) -> None:
            if self.torn:
                self.torn = False
                raise Unforeseen
            super().look_at(addresses)  # type: ignore[arg-type]

        torn = False

    machine = alone(1, kind=made_of(Torn))
    advance(machine, 0.0, 1.0)
    machine.step(1.0, hello(machine, 0))
    assert machine.held().keys() == {EIP}
    machine.known.agenda.torn = True
    orders = machine.step(1.0, hello(machine, 1, {EIP: 9}))
    assert withdrawn(orders) == [(EIP, Yielded.BETTER_CLAIM)]


def test_a_link_whose_hello_raises_does_not_silence_the_others() -> None:
    class Mute(Ownership):
        def _hello(self, segment: Segment, now: float) -> Hello:
            if segment.link == LINK:
                raise Unforeseen
            return super()._hello(segment, now)

    machine = alone(1, kind=Mute)
    machine.step(0.0, LinkChanged(LINK + 1, up=True))
    orders = advance(machine, 0.0, 1.0)
    assert {order.link for order in orders if isinstance(order, SendHello)} == {LINK + 1}
    assert ("speak", f"link {LINK}") in contained(orders)


STAGES: list[tuple[str, Callable[[Ownership], object]]] = [
    ("Ownership._take_in", lambda machine: Drain(on=False)),
    ("Silence._watch", lambda machine: hello(machine, 1)),
    ("Rules.must_listen", lambda machine: hello(machine, 1)),
    ("Rules.claim_at", lambda machine: hello(machine, 1)),
    ("Claims._judge_free", lambda machine: hello(machine, 1)),
    ("Claims._judge_held", lambda machine: hello(machine, 1)),
    ("Ownership._hello", lambda machine: hello(machine, 1)),
    ("Moves._follow", lambda machine: hello(machine, 1)),
    ("Moves.hear", lambda machine: hello(machine, 1)),
    ("Name.climb", lambda machine: hello(machine, 1)),
    ("Ownership._change_link", lambda machine: LinkChanged(LINK + 7, up=True)),
    ("Known.rivals", lambda machine: hello(machine, 1)),
]


@pytest.mark.parametrize(("place", "event"), STAGES, ids=[row[0] for row in STAGES])
def test_whatever_always_raises_no_step_does_and_none_follows_another_without_a_pause(
    place: str, event: Callable[[Ownership], HelloHeard]
) -> None:
    class Misjudging(Rules):
        pass

    def broken(*arguments: object) -> object:
        raise Unforeseen

    machine = alone(2, kind=made_of(Misjudging))
    advance(machine, 0.0, 1.0)
    kind, method = place.split(".")
    setattr(part(machine, kind), method, broken)
    machine.step(1.0, event(machine))
    now, steps = 1.0, 0
    while now < 3.0:
        now = max(machine.next_wake(now), now + 1e-6)
        machine.step(now, hello(machine, 2 + steps))
        steps += 1
    assert steps < 600


def test_a_peer_is_understood_again_once_the_bug_does_not_show_any_more() -> None:
    machine = alone(1, kind=made_of(Deaf))
    now = 0.0
    for sequence in range(10):
        machine.step(now, hello(machine, sequence, {EIP: 3}, node="bad"))
        now += 0.1
    machine.hearing.at = "never"
    for sequence in range(10, 20):
        machine.step(now, hello(machine, sequence, {EIP: 9}, node="bad"))
        advance(machine, now, now + 0.1)
        now += 0.1
    assert machine.peers(now)[LINK][0].incarnation == LIFE
    assert machine.holder(EIP, now) == ("bad", 9)
