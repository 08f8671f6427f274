"""Peers that speak and do not answer, and nodes that no broadcast reaches: rules 36 and 37 of docs/ownership.md."""

from collections import deque
from collections.abc import Callable
from ipaddress import IPv6Address
from itertools import cycle, pairwise

import pytest
from stepping import EIP, LIFE, LINK, alone, beside, hello, of_kind, said, timed

from speaker.model import IPAddress
from speaker.ownership.events import Claim, EipAnswered, FrameHeard, Order, Question, Tick, Withdraw, Yielded
from speaker.ownership.hello import MAX_AGE, Accused, Heard
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.segment import PROVEN, ROUNDS, UNICASTS
from speaker.ownership.machine.unanswered import SAMPLE, TRIED

TIMES = alone().times
HELD = {EIP: 3}
MUTE = frozenset({Accused("a", 4)})
Orders = list[tuple[float, Order]]


# ── Broadcasts that do not come ───────────────────────────────────────────────────────────────────────────────


def reached_by_unicast(machine: Ownership, start: float, number: int, age: int = 20, **more: object) -> Orders:
    """One hello of "a" every 50 ms, which heard "b" ``age`` ms ago; and the gateway answers us."""
    heard = {"me": Heard(machine.incarnation, 400, LINK), "b": Heard(LIFE, age, 0)}
    orders = []
    for n in range(number):
        now = start + n / 20
        event = hello(machine, 5000 + n, HELD, "a", direct=True, heard=heard, **more)
        orders += [(now, order) for order in machine.step(now, event)]
        orders += [(now, order) for order in machine.step(now, FrameHeard(LINK, 4))]
        orders += timed(machine, now, now + 0.049)
    return orders


def holding_beside_two() -> Ownership:
    """At 1.13, after the last broadcasts of "a" and "b"."""
    machine = alone(2)
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    timed(machine, 1.0, 1.13)
    assert machine.holding(EIP + 1)
    return machine


def test_whom_only_unicast_reaches_is_deaf_though_its_questions_are_answered() -> None:
    machine = holding_beside_two()
    orders = reached_by_unicast(machine, 1.13, 12)
    ((at, gone),) = of_kind(orders, Withdraw)
    assert isinstance(gone, Withdraw)
    assert (gone.eip, gone.reason) == (EIP + 1, Yielded.DEAF)
    assert at == pytest.approx(1.13 + 7 * 0.05, abs=0.001), "with the eighth"
    assert said(orders)[-1][1].deaf
    assert machine.known.segments[LINK].peers.by_node["a"].is_alive(1.7, TIMES)


def test_a_broadcast_of_anybody_among_them_keeps_it_in_touch() -> None:
    machine = holding_beside_two()
    reached_by_unicast(machine, 1.13, 6)
    machine.step(1.43, FrameHeard(LINK))
    assert of_kind(reached_by_unicast(machine, 1.45, 7), Withdraw) == []


@pytest.mark.parametrize("what", ["hears nobody either", "is deaf itself"])
def test_who_is_no_better_off_is_no_reason_to_let_go(what: str) -> None:
    machine = holding_beside_two()
    age, deaf = (MAX_AGE, False) if what == "hears nobody either" else (20, True)
    assert of_kind(reached_by_unicast(machine, 1.13, 20, age, deaf=deaf), Withdraw) == []


def test_the_first_broadcast_ends_its_deafness() -> None:
    machine = holding_beside_two()
    reached_by_unicast(machine, 1.13, 12)
    beside(machine, 2.0, 2.2, {"a": HELD, "b": {}})
    assert not machine.known.segments[LINK].deaf


def test_the_last_of_two_takes_over_though_nothing_but_unicast_reaches_it() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD})
    orders = []
    for n in range(20):
        now = 1.0 + n / 20
        orders += [(now, order) for order in machine.step(now, FrameHeard(LINK, 4))]
        orders += timed(machine, now, now + 0.049)
    assert of_kind(orders, Claim)[0][0] < 0.9 + TIMES.dead + 0.1


def test_who_does_not_hear_us_is_sent_each_hello_by_unicast_too_one_number_below_the_broadcast() -> None:
    machine = alone()
    orders = beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    assert not any(order.direct for _, order in orders if hasattr(order, "direct"))
    for n in range(5):
        now = 1.0 + n / 10
        machine.step(now, hello(machine, 3000 + n, {}, "b"))
        heard = {"me": Heard(machine.incarnation, 200 + 100 * n, LINK)}
        machine.step(now, hello(machine, 3000 + n, HELD, "a", heard=heard))
        orders = timed(machine, now, now + 0.099)
    (order, *_) = [order for _, order in orders if hasattr(order, "direct")]
    assert order.direct == ("a",)
    assert order.copy() == order.hello._replace(direct=True, sequence=order.hello.sequence - 1)


# ── Answers that do not come ──────────────────────────────────────────────────────────────────────────────────


def questions(orders: Orders) -> list[tuple[float, Question]]:
    return [(at, order) for at, order in orders if isinstance(order, Question)]


def watching(machine: Ownership, start: float, end: float, peers: dict, *, answers: bool = False, others: bool = True):
    """What it orders beside ``peers``, where questions are answered or not; ``others``: by others than the peer."""
    orders = []
    for n in range(round((end - start) * 10)):
        now = start + n / 10
        for at, (node, (claims, accuses)) in enumerate(peers.items()):
            event = hello(machine, round((now + 1) * 1000) + at, claims, node, unanswered=accuses)
            orders += [(now, order) for order in machine.step(now, event)]
        new = timed(machine, now, now + 0.098)
        for _, question in questions(new):
            if answers:
                machine.step(now + 0.098, EipAnswered(question.eips[0], LINK, question.node))
            elif others and question.doubted:
                machine.step(now + 0.098, FrameHeard(LINK, 4))
        orders += new + [(now + 0.099, order) for order in machine.step(now + 0.099, Tick())]
    return orders


def accused(orders: Orders) -> list[float]:
    return [at for at, spoken in said(orders) if Accused("a", 4) in spoken.unanswered]


def test_what_a_peer_holds_is_asked_for_now_and_then_while_it_answers() -> None:
    asked = questions(watching(alone(), 0.0, 5.0, {"a": (HELD, ())}, answers=True))
    assert {question for _, question in asked} == {Question(LINK, "a", (EIP,))}
    assert 3 <= len(asked) <= 4
    assert all(b - a > SAMPLE - 0.001 for (a, _), (b, _) in pairwise(asked))


def late(machine: Ownership, by: float) -> tuple[float, Question]:
    """After a question its loop stands still for ``by`` seconds: when it goes on, and what it had asked."""
    orders: Orders = []
    start = machine.known.agenda.now
    while not questions(orders):
        orders = timed(machine, start, start := start + 0.01)
        machine.step(start, hello(machine, round((start + 1) * 1000), HELD, "a"))
    return start + by, questions(orders)[0][1]


@pytest.mark.parametrize("by", [0.15, 0.3])
def test_an_answer_that_waited_for_a_late_loop_is_an_answer_and_no_sign_of_that_moment(by: float) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD})
    now, asked = late(machine, by)
    assert machine.step(now, EipAnswered(asked.eips[0], LINK, "a", age=by, more=True)) == []
    assert machine.known.segments[LINK].frame_at == pytest.approx(now - by)
    assert machine.known.segments[LINK].peers.by_node["a"].answered_at <= now - by + 1e-6
    machine.step(now, Tick())
    (watch,) = machine.known.segments[LINK].watches.values()
    assert watch.rounds == 0
    more = questions(timed(machine, now, now + 0.2))
    assert not [question for _, question in more if question.doubted]


def test_of_both_ip_versions_each_eip_has_its_turn_however_many_there_are() -> None:
    many = {EIP + n: 3 for n in range(1, 1100)}
    few = {IPv6Address("2001:db8::1"): 3, IPv6Address("2001:db8::2"): 3}
    asked = questions(watching(alone(), 0.0, 8.0, {"a": ({**many, **few}, ())}, answers=True))
    found = [eip for _, question in asked for eip in question.eips]
    assert set(few) == {eip for eip in found if eip.version == 6}
    assert len({eip for eip in found if eip.version == 4}) >= 4, "another one each time"


def test_what_a_mute_holder_yields_says_so() -> None:
    us = frozenset({Accused("me", 4)})
    machine = alone()
    watching(machine, 0.0, 1.0, {"a": ({}, ()), "b": ({}, ())})
    assert of_kind(watching(machine, 1.0, 1.5, {"a": ({}, us), "b": ({}, us)}), Withdraw) == []
    orders = watching(machine, 1.5, 2.0, {"a": ({EIP: 9}, us), "b": ({}, us)})
    assert [(gone.eip, gone.reason) for _, gone in of_kind(orders, Withdraw)] == [(EIP, Yielded.UNANSWERED)]


def test_who_does_not_answer_is_asked_at_each_beat_and_accused_after_eight() -> None:
    orders = watching(alone(), 0.0, 4.0, {"a": (HELD, ()), "b": ({}, ())})
    first, *more = questions(orders)
    assert not first[1].doubted
    assert all(question.doubted for _, question in more)
    assert accused(orders)[0] == pytest.approx(first[0] + ROUNDS * 0.1, abs=0.03)


def test_who_gets_no_answer_of_anybody_accuses_nobody() -> None:
    assert accused(watching(alone(), 0.0, 6.0, {"a": (HELD, ()), "b": ({}, ())}, others=False)) == []


def test_what_nobody_answered_is_made_up_for_before_anybody_is_accused() -> None:
    peers = {"a": (HELD, ()), "b": ({}, ())}
    watching(machine := alone(), 0.0, 3.0, peers, others=False)
    at = accused(watching(machine, 3.0, 6.0, peers))[0]
    assert at == pytest.approx(3.0 + (ROUNDS + PROVEN) * 0.1, abs=0.03)


def test_an_answer_to_everybody_makes_up_for_a_round_that_nobody_answered_and_one_by_mac_for_none() -> None:
    machine = alone()
    watching(machine, 0.0, 3.0, {"a": (HELD, ()), "b": ({}, ())}, others=False)
    (watch,) = machine.known.segments[LINK].watches.values()
    assert watch.proven == -ROUNDS
    watch.answered(3.0)
    assert watch.proven == -ROUNDS
    watching(machine, 3.0, 6.4, {"a": (HELD, ()), "b": ({}, ())}, answers=True)
    assert watch.proven == -ROUNDS + 2


def test_answers_that_take_longer_than_a_round_are_those_of_the_peer_and_no_proof_of_others() -> None:
    machine, due, orders = alone(), deque[tuple[float, EipAnswered]](), []
    for n in range(100):
        now = n / 10
        machine.step(now, hello(machine, round((now + 1) * 1000), {EIP: 3, EIP + 1: 3, EIP + 2: 3}, "a"))
        while due and due[0][0] <= now:
            orders += [(now, order) for order in machine.step(now, due.popleft()[1])]
        new = timed(machine, now, now + 0.098)
        due += [(at + 0.25, EipAnswered(asked.eips[0], LINK, "a")) for at, asked in questions(new)]
        orders += new
    assert len(questions(orders)) > 10
    assert accused(orders) == []


def test_an_answer_of_one_ip_version_is_none_of_the_other() -> None:
    machine, found = alone(), []
    for n in range(60):
        now = n / 10
        machine.step(now, hello(machine, round((now + 1) * 1000), {EIP: 3, SIX: 3}, "a"))
        new = timed(machine, now, now + 0.098)
        if any(asked.doubted for _, asked in questions(new)):
            machine.step(now + 0.098, FrameHeard(LINK, 4))
            machine.step(now + 0.098, EipAnswered(SIX, LINK, "a"))
        found += accused(new)
    assert found


def test_what_one_of_several_says_moves_nothing_and_what_two_say_does() -> None:
    alone_with_it = watching(alone(), 0.0, 4.0, {"a": (HELD, ()), "b": ({}, ())})
    assert accused(alone_with_it)
    assert of_kind(alone_with_it, Claim) == []
    machine = alone()
    orders = watching(machine, 0.0, 4.0, {"a": (HELD, ()), "b": ({}, MUTE)})
    ((at, claim),) = of_kind(orders, Claim)
    assert claim == Claim(EIP, LINK, 4, first=False)
    assert at - questions(orders)[0][0] < 1.2


def test_the_only_other_node_is_believed_alone() -> None:
    orders = watching(alone(), 0.0, 4.0, {"a": (HELD, ())})
    assert [claim for _, claim in of_kind(orders, Claim)] == [Claim(EIP, LINK, 4, first=False)]


def test_two_others_are_believed_by_one_that_does_not_ask_itself() -> None:
    peers = {"a": (HELD, ()), "b": ({}, MUTE), "c": ({}, MUTE)}
    assert of_kind(watching(alone(), 0.0, 2.0, peers, answers=False, others=False), Claim)


def test_an_answer_ends_the_accusation() -> None:
    machine = alone()
    watching(machine, 0.0, 3.0, {"a": (HELD, ()), "b": ({}, ())})
    orders = watching(machine, 3.0, 6.0, {"a": (HELD, ()), "b": ({}, ())}, answers=True)
    assert not [at for at in accused(orders) if at > 4.2]


SIX = IPv6Address("2001:db8::1")


def asks(
    machine: Ownership,
    eips: list[IPAddress],
    answers: Callable[[Question], bool],
    *,
    accused: frozenset[Accused] = frozenset(),
    prompt: float = 15.0,
    others: bool = True,
    beside: dict[str, int] = {"b": 1},  # noqa: B006
) -> list[float]:
    """For 15 s: when "a", which holds ``eips`` and answers some questions, was accused. ``beside``: the other nodes,
    and how many EIPs each holds. They accuse those ``accused``. ``prompt``: until then they answer everybody's
    questions; ``others``: so do the rest, for their addresses."""
    version, found = eips[0].version, []
    peers = {"a": dict.fromkeys(eips, 3), **{node: {max(eips) + 1: 3} if some else {} for node, some in beside.items()}}
    for n in range(150):
        now = n / 10
        for at, (node, claims) in enumerate(peers.items()):
            blames = frozenset() if node == "a" else accused
            machine.step(now, hello(machine, round((now + 1) * 1000) + at, claims, node, unanswered=blames))
        new = timed(machine, now, now + 0.098)
        for _, question in questions(new):
            if (now < prompt or question.doubted) if question.node == "b" else answers(question):
                machine.step(now + 0.098, EipAnswered(question.eips[0], LINK, question.node))
            if question.doubted and others:
                machine.step(now + 0.098, FrameHeard(LINK, version))
        found += [at for at, spoken in said(new) if Accused("a", version) in spoken.unanswered]
        assert not [spoken for _, spoken in said(new) if Accused("b", version) in spoken.unanswered]
    return found


def by_its_mac(question: Question) -> bool:
    return question.doubted


@pytest.mark.parametrize("eip", [EIP, SIX], ids=["ipv4", "ipv6"])
def test_who_answers_only_by_its_mac_is_accused(eip: IPAddress) -> None:
    assert asks(alone(), [eip], by_its_mac)[0] == pytest.approx(UNICASTS * SAMPLE, abs=SAMPLE)


@pytest.mark.parametrize(
    ("prompt", "others"),
    [(0.0, True), (3.0, True), (15.0, False)],
    ids=["all answer late", "all answer late by now", "our questions reach nobody else"],
)
def test_who_answers_only_by_its_mac_is_not_accused_if_others_do_no_better(prompt: float, others: bool) -> None:
    assert asks(alone(), [SIX], by_its_mac, prompt=prompt, others=others) == []


def test_who_does_not_answer_by_its_mac_each_time_may_just_lose_frames() -> None:
    second = cycle([False, True])
    assert asks(alone(), [SIX], lambda question: question.doubted and next(second)) == []


def test_one_answer_by_mac_that_is_lost_costs_one_sample() -> None:
    each = iter([True, True, True, False, *[True] * 99])
    found = asks(alone(), [EIP], lambda question: question.doubted and next(each))
    assert found[0] - asks(alone(), [EIP], by_its_mac)[0] == pytest.approx(SAMPLE, abs=0.5)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("beside", [{"b": 0}, {}], ids=["a third node", "nobody"])
def test_where_nobody_else_holds_anything_a_third_node_and_any_answer_will_do(beside, others: bool) -> None:
    found = asks(alone(), [EIP], by_its_mac, others=others, beside=beside)
    assert bool(found) == (others and bool(beside))


def test_an_eip_that_nobody_answers_for_says_nothing_of_those_beside_it() -> None:
    assert asks(alone(), [SIX, SIX + 1], lambda question: question.eips != (SIX,)) == []


def test_whoever_was_mute_before_is_so_for_longer_although_it_answers_by_its_mac() -> None:
    machine, mute = alone(), Accused("a", 6)
    machine.known.segment(LINK, 0.0).tries[mute] = 1
    begun, *_ = asks(machine, [SIX], by_its_mac, accused=frozenset({mute}))
    assert machine.known.segments[LINK].tried[mute] == pytest.approx(begun + 2 * TRIED, abs=0.2)


def test_an_answer_to_everybody_ends_it() -> None:
    mute = Accused("a", 6)
    asks(machine := alone(), [SIX], lambda question: machine.known.agenda.now > 12.0 or question.doubted,
         accused=frozenset({mute}))  # fmt: skip
    assert mute not in machine.known.segments[LINK].tried


def test_who_was_mute_itself_takes_nothing_for_that_reason_for_a_while() -> None:
    machine = alone()
    us = frozenset({Accused("me", 4)})
    watching(machine, 0.0, 1.0, {"a": (HELD, ()), "b": ({}, us), "c": ({}, us)}, answers=True)
    later = {"a": (HELD, ()), "b": ({}, MUTE), "c": ({}, MUTE)}
    assert of_kind(watching(machine, 1.0, 4.0, later), Claim) == []
    assert of_kind(watching(machine, 4.0, TRIED + 3.0, later), Claim)


def test_where_three_were_mute_one_after_the_other_it_stays_where_it_is() -> None:
    machine = alone()
    for n, node in enumerate("xyz"):
        watching(
            machine,
            float(n),
            n + 0.5,
            {
                node: ({}, ()),
                "b": ({}, frozenset({Accused(node, 4)})),
                "c": ({}, frozenset({Accused(node, 4)})),
                "a": (HELD, ()),
            },
            answers=True,
        )
    orders = watching(machine, 3.0, 6.0, {"a": (HELD, ()), "b": ({}, MUTE), "c": ({}, MUTE)})
    assert of_kind(orders, Claim) == []
