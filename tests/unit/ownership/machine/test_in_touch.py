"""What a node may conclude from silence, and what the wire says instead: rules 6 to 17 of docs/ownership.md."""

from functools import partial

import pytest
from stepping import EIP, LIFE, LINK, Claims, alone, beside, hello, of_kind, said, timed

from speaker.model import IPAddress
from speaker.ownership.events import (
    Announce,
    ApiUp,
    Ask,
    Claim,
    EipAnswered,
    EligibilityChanged,
    Event,
    FrameHeard,
    LinkChanged,
    Record,
    RecordRead,
    Tick,
    Withdraw,
    WriteRecord,
    Yielded,
)
from speaker.ownership.hello import Heard, Incarnation
from speaker.ownership.machine.machine import Ownership

TIMES = alone().times
OTHER = LINK + 1
HELD = {EIP: 3}


def having_lost(*nodes: str, eips: int = 1, api: bool = False) -> Ownership:
    """At 1.0, after its peers' last hellos at 0.9; the first of them holds EIP, this node what else there is."""
    machine = alone(eips, api=api)
    beside(machine, 0.0, 1.0, {node: HELD if node == nodes[0] else {} for node in nodes})
    assert not machine.holding(EIP)
    return machine


def having_read(record: Record, holdings: dict[str, Claims], seconds: float, **more: object) -> Ownership:
    """It reads the record after having been beside these nodes for so long, and may hold EIP from then on."""
    machine = alone(0, api=True)
    machine.step(0.0, ApiUp())
    beside(machine, 0.0, seconds, holdings, **more)
    machine.step(seconds, RecordRead(EIP, record))
    machine.step(seconds, EligibilityChanged(EIP, LINK))
    return machine


def test_a_record_that_names_a_living_peer_is_its_word_until_its_next_hello() -> None:
    """That one, or the one with its claim, may be lost."""
    machine = having_read(Record("a", LIFE, 1, 1), {"a": {}}, 1.0)
    timed(machine, 1.0, 1.15)
    assert not machine.holding(EIP)
    beside(machine, 1.15, 1.35, {"a": {}})
    assert machine.holding(EIP), "it holds nothing, by its own word"


def test_a_record_that_comes_after_its_holder_let_go_delays_nothing() -> None:
    machine = alone(1, api=True)
    machine.step(0.0, ApiUp())
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}}, revision=1)  # newer ones go first
    machine.step(1.0, hello(machine, 5000, {}, "a", yielded=HELD, revision=1))
    machine.step(1.0, RecordRead(EIP, Record("a", LIFE, HELD[EIP], 1)))
    assert not machine.holding(EIP)
    timed(machine, 1.0, 1.15)
    assert machine.holding(EIP)


@pytest.mark.parametrize(("named", "life"), [("a", Incarnation(1)), ("b", LIFE), (None, LIFE)])
def test_a_record_of_nobody_that_lives_delays_nothing(named: str | None, life: Incarnation) -> None:
    machine = having_read(Record(named, life, 1, 1), {"a": {}}, 1.0)
    timed(machine, 1.0, 1.15)
    assert machine.holding(EIP)


@pytest.mark.parametrize(
    ("named", "life", "binds"),
    [
        ("a", LIFE, True),
        ("a", Incarnation(1), False),  # of another life: a recording, or it has restarted since
        ("b", LIFE, False),
        ("me", LIFE, False),
        (None, LIFE, False),
    ],
)
def test_who_does_not_hear_us_holds_what_the_record_says_while_it_speaks(
    named: str | None, life: Incarnation, binds: bool
) -> None:
    """This node came back behind a port that lets nothing out."""
    machine = having_read(Record(named, life, 1, 1), {"a": HELD}, 0.5, heard={})
    machine.step(0.5, FrameHeard(LINK))
    beside(machine, 0.5, 3.0, {"a": HELD}, heard={})
    assert machine.holding(EIP) is not binds
    timed(machine, 3.0, 3.5, hears=True)
    assert machine.holding(EIP), "it fell silent"


def test_who_does_not_hear_us_binds_nobody_whom_another_node_hears() -> None:
    machine = alone(0, api=True)
    machine.step(0.0, ApiUp())
    for n in range(10):
        machine.step(n / 10, hello(machine, 5000 + n, HELD, "a", heard={}))
        beside(machine, n / 10, (n + 1) / 10, {"b": {}})
        if n == 5:
            machine.step(0.6, RecordRead(EIP, Record("a", LIFE, 1, 1)))
            machine.step(0.6, EligibilityChanged(EIP, LINK))
    assert machine.holding(EIP)


# ── Cables ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_says_by_another_link_that_it_has_no_carrier_is_waited_for_by_nobody() -> None:
    machine = having_lost("a", "b")
    machine.step(1.0, LinkChanged(OTHER, up=True))
    for n in range(3):  # so ours comes and goes, like that of "b": the steady "a" goes first
        machine.step(1.0 + n / 100, LinkChanged(LINK, up=False))
        machine.step(1.005 + n / 100, LinkChanged(LINK, up=True))
    by_other = {"heard": {"me": Heard(machine.incarnation, 10, OTHER)}, "link": 1}
    beside(machine, 1.1, 2.0, {"a": HELD})
    beside(machine, 2.0, 3.0, {"a": HELD, "b": {}}, demoted=False)
    machine.step(3.0, hello(machine, 4000, {}, "b", demoted=True))
    machine.step(3.0, hello(machine, 4001, {}, "a", **by_other)._replace(link=OTHER))
    left = hello(machine, 4002, {}, "a", **by_other, yielded=HELD)._replace(link=OTHER)
    assert Claim(EIP, LINK, 4, first=False) in machine.step(3.001, left)


# ── Deafness ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("nodes", [("a",), ("a", "b")])
def test_a_node_that_hears_nothing_takes_nothing_and_lets_go_and_says_so(nodes: tuple[str, ...]) -> None:
    machine = having_lost(*nodes, eips=2)
    assert machine.holding(EIP + 1)
    orders = timed(machine, 1.0, 5.0)
    assert of_kind(orders, Claim) == []
    ((at, gone),) = of_kind(orders, Withdraw)
    assert isinstance(gone, Withdraw)
    assert (gone.eip, gone.reason) == (EIP + 1, Yielded.DEAF)
    assert at == pytest.approx(0.9 + TIMES.dead)
    assert [hello.deaf for when, hello in said(orders) if when > at + 0.001][:1] == [True]


def test_whoever_is_about_to_be_deaf_asks_the_lan_at_once_also_where_the_last_one_said_that_it_goes() -> None:
    """Of two peers one fell silent and is vouched for by the other, which drains and ends."""
    machine = having_lost("a", "b", eips=2)
    vouches = {"heard": {"me": Heard(machine.incarnation, 10, LINK), "a": Heard(LIFE, 10, 0)}}
    beside(machine, 1.0, 2.0, {"b": {}}, hears=True, draining=True, **vouches)
    orders = timed(machine, 2.0, 1.9 + TIMES.dead)
    assert any(at < 1.9 + TIMES.suspect + 0.02 for at, order in of_kind(orders, Ask) if at >= 1.9 + TIMES.suspect)


def test_who_hears_again_lets_those_speak_who_died_to_its_ears_while_others_of_a_slower_pace_did_not() -> None:
    machine = alone()
    beside(machine, 0.0, 0.5, {"a": HELD})
    machine.step(0.5, hello(machine, 1500, {}, "slow", interval=300))
    beside(machine, 0.6, 1.0, {"a": HELD})
    timed(machine, 1.0, 1.23)
    orders = [(1.23, order) for order in machine.step(1.23, FrameHeard(LINK))]
    assert of_kind([*orders, *timed(machine, 1.23, 1.5)], Claim) == []


def test_who_heard_nothing_of_anybody_gives_the_dead_time_to_be_heard_before_it_takes_what_they_hold() -> None:
    machine = alone()
    beside(machine, 0.0, 0.9, {"a": HELD})
    machine.step(0.9, hello(machine, 1900, HELD, "a"))
    machine.step(0.9, hello(machine, 1900, {}, "slow", interval=300))
    orders = timed(machine, 0.9, 1.4)
    orders += [(1.4, order) for order in machine.step(1.4, FrameHeard(LINK))]
    orders += timed(machine, 1.4, 1.5)
    assert machine.known.segments[LINK].in_touch, "the slow one is not late yet"
    assert of_kind(orders, Claim) == []
    assert of_kind(timed(machine, 1.5, 1.7), Claim)[0][0] == pytest.approx(1.4 + TIMES.hello + TIMES.slot, abs=0.03)


def test_the_first_frame_ends_it_and_what_nobody_else_claims_by_then_is_taken() -> None:
    machine = having_lost("a", eips=2)
    timed(machine, 1.0, 5.0)
    machine.step(5.0, FrameHeard(LINK))
    assert not machine.known.segments[LINK].deaf
    orders = timed(machine, 5.0, 6.0, hears=True)
    assert [at for at, _ in of_kind(orders, Claim)] == [pytest.approx(5.0 + TIMES.dead, abs=0.02)] * 2


def test_what_others_took_meanwhile_is_left_to_them_when_a_deaf_node_hears_again() -> None:
    machine = having_lost("a", eips=2)
    timed(machine, 1.0, 5.0)
    machine.step(5.0, FrameHeard(LINK))
    orders = beside(machine, 5.09, 6.5, {"a": {EIP: 3, EIP + 1: 2}})
    assert of_kind(orders, Claim) == []


def test_a_frame_before_the_silence_proves_nothing() -> None:
    machine = having_lost("a")
    machine.step(1.0, FrameHeard(LINK))
    assert of_kind(timed(machine, 1.0, 5.0), Claim) == []


def test_evidence_does_not_last_for_ever_and_is_asked_for_again() -> None:
    machine = having_lost("a")
    timed(machine, 1.0, 1.15)
    machine.step(1.16, FrameHeard(LINK))
    orders = timed(machine, 1.16, 8.0)
    assert [order.eip for _, order in of_kind(orders, Claim)] == [EIP]
    ((at, gone),) = of_kind(orders, Withdraw)
    assert isinstance(gone, Withdraw)
    assert (at, gone.reason) == (pytest.approx(1.16 + TIMES.touch), Yielded.DEAF)
    assert len(of_kind(orders, Ask)) >= 10


def test_a_node_that_never_had_peers_needs_nobody() -> None:
    machine = alone()
    orders = timed(machine, 0.0, 20.0)
    assert len(of_kind(orders, Claim)) == 1
    assert of_kind(orders, Withdraw) == of_kind(orders, Ask) == []


def test_peers_that_said_that_they_go_are_not_missed() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD})
    beside(machine, 1.0, 1.2, {"a": HELD}, draining=True)
    orders = timed(machine, 1.2, 4.0)
    assert machine.holding(EIP)
    assert of_kind(orders, Withdraw) == []


def test_the_claims_of_a_deaf_peer_bind_nobody_whatever_their_term() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD})
    beside(machine, 1.0, 1.3, {"a": HELD}, deaf=True)
    assert machine.holding(EIP)
    beside(machine, 1.3, 2.0, {"a": {EIP: 99}}, deaf=True)
    assert machine.holding(EIP)


def test_a_node_that_nobody_hears_takes_nothing() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    orders = beside(machine, 1.0, 3.0, {"b": {}}, heard={})
    assert of_kind(orders, Claim) == []
    assert of_kind(beside(machine, 3.0, 4.0, {"b": {}}), Claim) != []


# ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_wire_is_asked_from_suspicion_on_for_what_the_silent_one_holds() -> None:
    machine = having_lost("a", "b", eips=2)
    orders = beside(machine, 1.0, 1.4, {"b": {}})
    asks = of_kind(orders, Ask)
    assert asks[0][0] == pytest.approx(0.9 + TIMES.suspect)
    assert {order.eips for _, order in asks} == {(EIP,)}
    assert {order.nodes for _, order in asks} == {("a",)}
    assert len(asks) >= 3


def test_whoever_answers_for_what_it_holds_lives_though_its_hellos_are_eaten() -> None:
    machine = having_lost("a", "b")
    orders = []
    for n in range(40):
        orders += beside(machine, 1.0 + n / 10, 1.1 + n / 10, {"b": {}})
        machine.step(1.1 + n / 10 - 1e-7, EipAnswered(EIP, LINK, "a"))
    assert of_kind(orders, Claim) == []
    orders = beside(machine, 5.0, 6.0, {"b": {}})
    assert [order.eip for _, order in of_kind(orders, Claim)] == [EIP], "once it answers no more"
    assert of_kind(orders, Claim)[0][0] <= 5.0 + TIMES.dead + 3 * TIMES.slot


def test_what_it_answers_for_no_more_while_it_does_for_others_it_let_go_unheard() -> None:
    machine = alone(3)
    other, third = EIP + 1, EIP + 2
    beside(machine, 0.0, 1.0, {"a": {EIP: 3, other: 3, third: 3}, "b": {}})
    orders = []
    for n in range(20):
        orders += beside(machine, 1.0 + n / 10, 1.1 + n / 10, {"b": {}})
        for answered in (EIP, third):
            machine.step(1.1 + n / 10 - 1e-7, EipAnswered(answered, LINK, "a"))
    assert [(order.eip, order.first) for _, order in of_kind(orders, Claim)] == [(other, True)], "and it asks before"
    assert machine.known.eips[other].weak


def test_who_answers_for_nothing_else_is_dead_or_alive_with_all_that_it_claims() -> None:
    machine = having_lost("a", "b")
    heard = {"me": Heard(machine.incarnation, 10, LINK), "a": Heard(LIFE, 10, 7)}
    assert of_kind(beside(machine, 1.0, 9.0, {"b": {}}, heard=heard), Claim) == []


def test_an_answer_from_another_speaker_says_that_clients_are_served() -> None:
    machine = having_lost("a", "b")
    beside(machine, 1.0, 1.2, {"b": {}})
    machine.step(1.2, EipAnswered(EIP, LINK, "b"))
    assert of_kind(beside(machine, 1.2, 1.5, {"b": {}}), Claim) == []
    assert of_kind(beside(machine, 1.5, 2.0, {"b": {}}), Claim) != []


def test_a_strangers_answer_blocks_nothing() -> None:
    machine = having_lost("a", "b")
    beside(machine, 1.0, 1.2, {"b": {}})
    machine.step(1.2, EipAnswered(EIP, LINK, None))
    assert of_kind(beside(machine, 1.2, 1.5, {"b": {}}), Claim) != []


def test_of_many_eips_no_more_are_asked_for_at_once_than_a_lan_bears_and_not_always_the_same() -> None:
    machine = alone(500)
    beside(machine, 0.0, 1.0, {"a": {EIP + n: 1 for n in range(500)}, "b": {}})
    asks = [order.eips for _, order in of_kind(beside(machine, 1.0, 1.2, {"b": {}}), Ask)]
    assert {len(eips) for eips in asks} == {8}, "the other that hears it asks for as many"
    assert len(set(asks)) == len(asks)


def test_a_peer_that_others_vouch_for_is_asked_for_rarely() -> None:
    machine = having_lost("a", "b")
    heard = {"me": Heard(machine.incarnation, 10, LINK), "a": Heard(LIFE, 40, LINK)}
    orders = beside(machine, 1.0, 6.0, {"b": {}}, heard=heard)
    assert len([at for at, _ in of_kind(orders, Ask) if at > 1.5]) <= 10


def test_a_peer_that_somebody_else_hears_lives_for_as_long_as_that_lasts() -> None:
    machine = having_lost("a", "b")
    heard = {"me": Heard(machine.incarnation, 10, LINK), "a": Heard(LIFE, 40, LINK)}
    assert of_kind(beside(machine, 1.0, 9.0, {"b": {}}, heard=heard), Claim) == []
    assert of_kind(beside(machine, 9.0, 10.0, {"b": {}}), Claim) != []


def test_a_peer_with_a_longer_interval_is_given_its_time() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}}, interval=300)
    orders = beside(machine, 1.0, 3.0, {"b": {}})
    at, _ = of_kind(orders, Claim)[0]
    assert at == pytest.approx(0.9 + 3 * TIMES.dead, abs=0.07)


# ── What was taken unheard ────────────────────────────────────────────────────────────────────────────────────


def holder() -> Ownership:
    """Holds EIP at term 1 beside a peer that heard it do so, and fell silent at 0.9."""
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": {}})
    assert machine.held() == {EIP: 1}
    timed(machine, 1.0, 1.15)
    machine.step(1.15, FrameHeard(LINK))
    timed(machine, 1.15, 2.0)
    return machine


def test_a_claim_on_what_a_silent_one_held_is_weak_and_says_so() -> None:
    machine = having_lost("a", "b", "c", eips=2)
    orders = beside(machine, 1.0, 2.0, {"b": {}})
    assert machine.holding(EIP)
    last = said(orders)[-1][1]
    assert (last.weak, EIP in last.claims) == (frozenset({EIP}), True)


def test_a_claim_is_weak_while_somebody_lives_by_the_word_of_others_who_may_hold_it() -> None:
    machine = alone()
    heard = {"me": Heard(machine.incarnation, 10, LINK), "a": Heard(LIFE, 10, 7)}
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    beside(machine, 1.0, 2.0, {"b": {}}, heard=heard)
    machine.step(2.0, EligibilityChanged(EIP + 1, LINK))
    beside(machine, 2.0, 3.0, {"b": {}}, heard=heard)
    assert machine.holding(EIP + 1)
    assert machine.known.eips[EIP + 1].weak


@pytest.mark.parametrize(
    ("what", "back", "weak"),
    [
        ("it is back, without what it held", {"a": {}, "b": {}, "c": {}}, False),
        ("somebody else is missing still", {"a": {}, "b": {}}, True),
        ("it is missing still", {"b": {}, "c": {}}, True),
    ],
)
def test_a_claim_is_weak_no_longer_once_nobody_is_unheard_who_may_hold_it(
    what: str, back: dict[str, Claims], weak: bool
) -> None:
    machine = having_lost("a", "b", "c", eips=2)
    beside(machine, 1.0, 2.0, {"b": {}})
    orders = beside(machine, 2.0, 2.9, back, incarnation=Incarnation(LIFE + 1))
    assert machine.known.eips[EIP].weak, "it may still be told of it"
    orders = beside(machine, 2.9, 3.6, back, incarnation=Incarnation(LIFE + 1))
    assert (machine.holding(EIP), machine.known.eips[EIP].weak) == (True, weak), what
    assert (said(orders)[-1][1].weak == frozenset()) is not weak


@pytest.mark.parametrize(
    "sign",
    [RecordRead(EIP, Record("a", LIFE, 3, 1)), EipAnswered(EIP, LINK, None, probed=True)],
    ids=["a record names it", "somebody answers"],
)
def test_a_claim_stays_weak_while_there_is_a_sign_of_another_holder(sign: Event) -> None:
    machine = having_lost("a", "b", "c", eips=2, api=True)
    beside(machine, 1.0, 2.0, {"b": {}})
    machine.step(2.0, sign)
    beside(machine, 2.0, 3.6, {"a": {}, "b": {}, "c": {}}, incarnation=Incarnation(LIFE + 1))
    assert machine.holding(EIP)
    assert machine.known.eips[EIP].weak


def test_a_claim_stays_weak_whose_last_holder_was_never_heard_though_the_record_is_ours_by_now() -> None:
    machine = alone(0, api=True)
    machine.step(0.0, ApiUp())
    machine.step(0.0, RecordRead(EIP, Record("z", LIFE, 1, 1)))
    machine.step(0.0, EligibilityChanged(EIP, LINK))
    beside(machine, 0.0, 2.0, {"b": {}})
    assert machine.known.eips[EIP].weak
    machine.step(2.0, RecordRead(EIP, Record("me", machine.known.incarnation, 2, 2)))
    beside(machine, 2.0, 5.0, {"b": {}})
    assert machine.holding(EIP)
    assert machine.known.eips[EIP].weak


def test_the_larger_part_of_a_lan_takes_for_good() -> None:
    machine = having_lost("a", "b", "c")
    beside(machine, 1.0, 2.0, {"b": {}, "c": {}})
    assert machine.holding(EIP)
    assert not machine.known.eips[EIP].weak


def test_who_was_silent_for_a_minute_counts_no_more() -> None:
    machine = having_lost("a", "b", "c", "d", eips=1)
    beside(machine, 1.0, 70.0, {"b": {}})
    machine.step(70.0, hello(machine, 71_000, {EIP: 9}, "b"))
    beside(machine, 70.0, 70.2, {"b": {EIP: 9}, "e": {}})
    beside(machine, 70.2, 71.2, {"e": {}})
    assert machine.holding(EIP)
    assert not machine.known.eips[EIP].weak


@pytest.mark.parametrize(
    "makes_way", [{"draining": True}, {"deaf": True}], ids=["who says that it goes", "who says that it is deaf"]
)
def test_a_claim_on_what_one_gives_up_is_not(makes_way: dict[str, object]) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    beside(machine, 1.0, 1.3, {"a": HELD, "b": {}}, **makes_way)
    assert machine.holding(EIP)
    assert not machine.known.eips[EIP].weak


def test_at_a_heal_who_held_on_stands_at_a_term_above() -> None:
    machine = holder()
    orders = [(2.0, order) for order in machine.step(2.0, hello(machine, 9000, {EIP: 2}, "a", weak=frozenset({EIP})))]
    assert machine.held() == {EIP: 3}
    assert of_kind(orders, Withdraw) == []
    orders += timed(machine, 2.0, 2.05)
    assert of_kind(orders, Announce) != []
    assert said(orders)[-1][1].claims == {EIP: 3}


def test_it_stands_as_soon_as_the_other_hears_it_and_not_only_when_claims_change() -> None:
    machine = holder()
    machine.step(2.0, hello(machine, 9000, {EIP: 2}, "a", weak=frozenset({EIP}), heard={}))
    machine.step(2.01, hello(machine, 9001, {EIP: 2}, "a", weak=frozenset({EIP})))
    assert machine.held() == {EIP: 3}


def test_of_two_that_each_held_it_alone_one_stands_for_good() -> None:
    machine = alone()
    timed(machine, 0.0, 2.0)
    assert machine.held() == {EIP: 1}
    orders = [(2.0, order) for order in machine.step(2.0, hello(machine, 1, {EIP: 2}, "a", weak=frozenset({EIP})))]
    orders += timed(machine, 2.0, 2.1)
    assert [order.reason for _, order in of_kind(orders, Withdraw)] == [Yielded.BETTER_CLAIM]
    assert said(orders)[-1][1].claims == {}, "or the other would stand as well, and so on"


def test_who_holds_what_we_hold_hears_at_once_that_its_broadcasts_reach_us_again() -> None:
    machine = holder()
    machine.step(2.0, hello(machine, 9000, {EIP: 1}, "a", weak=frozenset({EIP}), direct=True))
    orders = timed(machine, 2.0, 2.02)
    assert not any(each.heard["a"].age < 1000 for _, each in said(orders))
    orders = [(2.02, order) for order in machine.step(2.02, hello(machine, 9001, {EIP: 1}, "a", weak=frozenset({EIP})))]
    orders += timed(machine, 2.02, 2.02 + TIMES.pace)
    assert [each.heard["a"].age < 1000 for _, each in said(orders)] == [True]


def test_who_does_not_hear_us_took_it_for_good_reason() -> None:
    machine = holder()
    orders = beside(machine, 2.0, 3.0, {"a": {EIP: 2}}, weak=frozenset({EIP}), heard={})
    ((at, gone),) = of_kind(orders, Withdraw)
    assert isinstance(gone, Withdraw)
    assert gone.reason is Yielded.BETTER_CLAIM
    assert at == pytest.approx(2.0 + TIMES.hello, abs=0.01)


def test_a_claim_made_in_our_hearing_is_no_such_claim() -> None:
    machine = holder()
    machine.step(2.0, hello(machine, 9000, {EIP: 2}, "a"))
    assert not machine.holding(EIP)


def test_who_took_it_unheard_yields_to_the_one_that_stands() -> None:
    machine = having_lost("a", "b")
    beside(machine, 1.0, 2.0, {"b": {}})
    assert machine.held() == {EIP: 4}
    beside(machine, 2.0, 2.1, {"a": {EIP: 3}, "b": {}})
    assert machine.held() == {EIP: 4}, "it has not said yet that it stands"
    machine.step(2.1, hello(machine, 9000, {EIP: 5}, "a"))
    assert machine.held() == {}


# ── Whose turn ────────────────────────────────────────────────────────────────────────────────────────────────


def failover_with(demoted_me: bool, **others: object) -> float:
    machine = alone()
    machine.step(0.0, EligibilityChanged(EIP, LINK, demoted=demoted_me))
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}, "c": {}, "d": {}}, **others)
    return of_kind(beside(machine, 1.0, 2.0, {"b": {}, "c": {}, "d": {}}, **others), Claim)[0][0]


def test_a_reason_that_all_share_is_no_reason() -> None:
    plain = failover_with(demoted_me=False)
    assert failover_with(demoted_me=True, demoted=True) == pytest.approx(plain)
    assert failover_with(demoted_me=True) == pytest.approx(0.9 + TIMES.dead + TIMES.ranks * TIMES.slot, abs=0.01)
    assert failover_with(demoted_me=False, demoted=True) == pytest.approx(0.9 + TIMES.dead, abs=0.01)


@pytest.mark.parametrize("behind", [None, EIP, EIP + 1])
def test_a_reason_that_is_of_one_eip_alone_puts_this_node_last_for_that_one_only(behind: IPAddress | None) -> None:
    def taken(behind: IPAddress | None) -> dict[IPAddress, float]:
        machine = alone()
        for eip in (EIP, EIP + 1):
            machine.step(0.0, EligibilityChanged(eip, LINK, behind=eip == behind))
        beside(machine, 0.0, 1.0, {"a": {EIP: 3, EIP + 1: 3}, "b": {}, "c": {}, "d": {}})
        claims = of_kind(beside(machine, 1.0, 2.0, {"b": {}, "c": {}, "d": {}}), Claim)
        return {claim.eip: at for at, claim in claims}

    last = {behind: pytest.approx(0.9 + TIMES.dead + TIMES.ranks * TIMES.slot, abs=0.01)} if behind else {}
    assert taken(behind) == {eip: pytest.approx(at) for eip, at in taken(None).items()} | last


@pytest.mark.parametrize(("flaps", "wait"), [(1, 0.0), (2, TIMES.dead), (3, TIMES.dead), (9, TIMES.dead)])
def test_a_link_that_comes_and_goes_lets_others_go_first(flaps: int, wait: float) -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    now = 1.0
    for _ in range(flaps):
        machine.step(now, LinkChanged(LINK, up=False))
        machine.step(now + 0.05, LinkChanged(LINK, up=True))
        beside(machine, now + 0.05, now + 0.65, {"a": HELD, "b": {}})
        now += 0.65
    orders = beside(machine, now, now + 10.0, {"b": {}})
    dies_at = now - 0.1 + TIMES.dead
    assert of_kind(orders, Claim)[0][0] == pytest.approx(dies_at + wait, abs=0.07)


def test_where_all_links_come_and_go_nobody_waits() -> None:
    machine = alone()
    beside(machine, 0.0, 1.0, {"a": HELD, "b": {}})
    now = 1.0
    for _ in range(4):
        machine.step(now, LinkChanged(LINK, up=False))
        machine.step(now + 0.05, LinkChanged(LINK, up=True))
        beside(machine, now + 0.05, now + 0.65, {"a": HELD, "b": {}}, demoted=True)
        now += 0.65
    orders = beside(machine, now, now + 2.0, {"b": {}}, demoted=True)
    assert of_kind(orders, Claim)[0][0] == pytest.approx(now - 0.1 + TIMES.dead, abs=0.07)
    assert said(orders)[0][1].demoted


def test_what_it_holds_it_keeps_and_takes_where_there_is_nobody_else() -> None:
    machine = alone()
    now = 1.0
    timed(machine, 0.0, now)
    for _ in range(5):
        machine.step(now, LinkChanged(LINK, up=False))
        machine.step(now + 0.05, LinkChanged(LINK, up=True))
        now += 0.05
    assert [at for at, _ in of_kind(timed(machine, now, 5.0), Claim)] == [pytest.approx(now + TIMES.listen)]


# ── The record ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_binds_whoever_has_heard_nothing_at_all() -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    machine.step(0.1, RecordRead(EIP, Record("other", Incarnation(1), 3, 1)))
    orders = timed(machine, 0.1, 5.0)
    assert of_kind(orders, Claim) == []
    assert len(of_kind(orders, Ask)) >= 5
    machine.step(5.0, FrameHeard(LINK))
    (at, _), *_ = of_kind(timed(machine, 5.0, 6.0), Claim)
    assert at == pytest.approx(5.0 + TIMES.dead), "the other has time to say that it holds it"
    assert machine.known.eips[EIP].weak, "nobody knows whether the other only went unheard"


@pytest.mark.parametrize(
    ("read_at", "record"),
    [
        pytest.param(0.1, Record("me", Incarnation(1), 3, 1), id="our own"),
        pytest.param(0.6, Record("other", Incarnation(1), 3, 1), id="another's, read when we held it"),
    ],
)
def test_whoever_begins_to_hear_waits_only_for_what_a_record_gives_to_others(read_at: float, record: Record) -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    timed(machine, 0.1, read_at)
    machine.step(read_at, RecordRead(EIP, record))
    timed(machine, read_at, 1.0)
    machine.step(1.0, FrameHeard(LINK))
    assert machine.holding(EIP)
    assert machine.ready


def test_whoever_begins_to_hear_when_it_has_nearly_listened_long_enough_waits_as_long() -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    machine.step(0.1, RecordRead(EIP, Record("other", Incarnation(1), 3, 1)))
    timed(machine, 0.1, 0.35)
    machine.step(0.35, FrameHeard(LINK))
    assert of_kind(timed(machine, 0.35, 1.0), Claim)[0][0] == pytest.approx(0.35 + TIMES.dead)


def test_what_a_record_gives_to_one_that_is_heard_second_is_left_to_it() -> None:
    """A port that was silent since our start passes again: the first whom we hear holds nothing."""
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    machine.step(0.1, RecordRead(EIP, Record("b", LIFE, 3, 1)))
    timed(machine, 0.1, 2.0)
    orders = beside(machine, 2.0, 2.1, {"a": {}}) + beside(machine, 2.1, 4.0, {"a": {}, "b": HELD})
    assert of_kind(orders, Claim) == []


@pytest.mark.parametrize("by_hello", [False, True])
def test_who_was_deaf_since_its_start_hears_everybody_out_before_it_takes_what_records_name(by_hello: bool) -> None:
    machine = alone(api=True)
    machine.step(0.1, ApiUp())
    machine.step(0.1, RecordRead(EIP, Record("b", Incarnation(1), 3, 1)))
    timed(machine, 0.1, 5.0)
    machine.step(5.0, hello(machine, 1, node="a") if by_hello else FrameHeard(LINK))
    orders = timed(machine, 5.0, 5.0 + 0.9 * TIMES.dead)
    orders += beside(machine, 5.0 + 0.9 * TIMES.dead, 7.0, {"b": HELD})
    assert of_kind(orders, Claim) == []
    assert not machine.holding(EIP)


def test_what_waited_while_we_were_away_is_no_evidence() -> None:
    machine = having_lost("a")
    machine.step(3.0, FrameHeard(LINK))
    assert machine.step(3.0, Tick()) is not None
    assert not machine.known.segments[LINK].in_touch


# ── What is held in name only ─────────────────────────────────────────────────────────────────────────────────


def disputed() -> Ownership:
    """Claimed EIP at 0.4, and was told at 0.46 that somebody else answers for it."""
    machine = alone(api=True)
    machine.step(0.0, ApiUp())
    timed(machine, 0.0, 0.45)
    machine.step(0.46, EipAnswered(EIP, LINK, None, probed=True))
    return machine


def test_a_late_answer_to_what_was_asked_before_the_claim_disputes_nothing() -> None:
    machine = alone(api=True)
    machine.step(0.0, ApiUp())
    timed(machine, 0.0, 0.45)
    machine.step(0.46, EipAnswered(EIP, LINK, "a"))
    assert [order for _, order in timed(machine, 0.46, 0.5 + TIMES.hello) if isinstance(order, WriteRecord)] != []


def test_no_record_says_that_it_is_held_here() -> None:
    machine = disputed()
    written = [at for at, order in timed(machine, 0.46, 3.0) if isinstance(order, WriteRecord)]
    assert written == [pytest.approx(0.46 + TIMES.disputed)], "once it is disputed no more"


def test_a_claim_on_what_somebody_answers_for_is_weak_and_says_so() -> None:
    machine = disputed()
    assert {EIP} in [hello.weak for _, hello in said(timed(machine, 0.46, 0.7))]


def test_once_a_peer_says_that_it_let_it_go_it_is_answered_at_once() -> None:
    machine = disputed()
    orders = machine.step(0.5, hello(machine, 0, {}, yielded={EIP: 1}))
    assert Claim(EIP, LINK, 1, first=False) in orders
    assert machine.holding(EIP)


@pytest.mark.parametrize("answer_first", [True, False])
def test_neither_the_probe_nor_its_answer_keeps_an_eip_from_its_clients_whose_holder_gave_way(
    answer_first: bool,
) -> None:
    machine = alone()
    timed(machine, 0.0, 0.45)
    said_so = hello(machine, 0, {}, yielded={EIP: 1})
    answered = EipAnswered(EIP, LINK, None, probed=True)
    orders = [
        order
        for event in ([answered, said_so] if answer_first else [said_so, answered])
        for order in machine.step(0.46, event)
    ]
    assert Claim(EIP, LINK, 1, first=False) in orders
    assert not machine.known.eips[EIP].disputed_until > 0.46


def test_a_claim_that_nobody_heard_is_weak() -> None:
    """Others are heard all the time, and stop to hear us."""
    machine = alone(2)
    beside(machine, 0.0, 1.0, {"a": HELD})
    beside(machine, 1.1, 1.2, {"a": {}}, heard={}, yielded=HELD)
    orders = beside(machine, 1.2, 2.0, {"a": {}}, heard={})
    assert machine.holding(EIP)
    assert said(orders)[-1][1].weak == {EIP}


def test_whoever_claims_it_has_it_whatever_its_term() -> None:
    machine = disputed()
    orders = machine.step(0.5, hello(machine, 0, {EIP: 1}, weak=frozenset({EIP})))
    assert [order.reason for order in orders if isinstance(order, Withdraw)] == [Yielded.BETTER_CLAIM]


@pytest.mark.parametrize("draining", [True, False])
def test_nobody_yields_to_a_node_that_answers_and_is_about_to_yield(draining: bool) -> None:
    """Otherwise both do at once, and nobody answers: the claim and the last hello of a drained node cross."""
    machine = alone(2)
    beside(machine, 0.0, 1.0, {"a": {EIP: 2}})
    beside(machine, 1.1, 1.2, {"a": {}}, yielded={EIP: 2})
    beside(machine, 1.2, 2.0, {"a": {}})
    assert machine.term(EIP) == 3
    machine.step(2.01, EipAnswered(EIP, LINK, None, probed=True))
    orders = machine.step(2.02, hello(machine, 4000, {EIP: 2}, node="a", draining=draining))
    assert any(isinstance(order, Withdraw) for order in orders) is not draining


# ── Taking over from another load balancer ────────────────────────────────────────────────────────────────────

BY_TAKING_OVER = partial(Ownership, take_over=True)


def beside_one_in_name(kind: type[Ownership], *, draining: bool) -> list[Claim]:
    """What is claimed once ``a``, which holds EIP in name as a stranger answers for it, is gone or goes."""
    machine = alone(kind=kind)
    weak = {"weak": frozenset(HELD)}
    beside(machine, 0.0, 1.0, {"a": HELD}, **weak)
    orders = (
        beside(machine, 1.0, 2.0, {"a": HELD}, **weak, draining=True)
        if draining
        else timed(machine, 1.0, 2.0, hears=True)
    )
    return [order for _, order in orders if isinstance(order, Claim)]


@pytest.mark.parametrize("draining", [True, False])
@pytest.mark.parametrize(("kind", "asks"), [(BY_TAKING_OVER, True), (Ownership, False)])
def test_who_takes_over_asks_the_wire_for_what_a_peer_holds_in_name(
    kind: type[Ownership], asks: bool, draining: bool
) -> None:
    assert [claim.first for claim in beside_one_in_name(kind, draining=draining)] == [asks]


@pytest.mark.parametrize("answer_first", [True, False])
def test_to_who_takes_over_it_is_no_proof_that_a_peer_gave_way(answer_first: bool) -> None:
    """The stranger answers all the same."""
    machine = alone(kind=BY_TAKING_OVER)
    timed(machine, 0.0, 0.45)
    events = [EipAnswered(EIP, LINK, None, probed=True), hello(machine, 0, {}, yielded={EIP: 1})]
    for event in events if answer_first else reversed(events):
        assert of_kind([(0.46, order) for order in machine.step(0.46, event)], Claim) == []
    assert machine.known.eips[EIP].disputed_until > 0.46


@pytest.mark.parametrize("hold", [0.35, 0.5, 1.0, 2.0])
def test_a_lan_that_delivers_in_bursts_of_one_length_is_asked_for_nobody(hold: float) -> None:
    """Rule 38: whoever lived through one silence is suspect only after a longer one."""
    machine, orders = alone(), []
    for burst in range(1, 9):
        at = burst * hold
        for sequence in range(round((at - hold) * 10), round(at * 10)):
            news = hello(machine, sequence + 1, {EIP: 9}, clock=sequence * 100, interval=100, links=1)
            orders += [(at, order) for order in machine.step(at, news)]
        orders += timed(machine, at, at + hold - 1e-6)
    assert not [at for at, _ in of_kind(orders, Ask) if at > 3 * hold]
    assert machine.known.segments[LINK].in_touch
