"""Rule 40: how much is lost between whom, whose link that is, and what its node does."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from simulation.families import FAMILIES
from simulation.schedule import Limits, Schedule
from simulation.world import World
from stepping import EIP, LINK, Claims, alone, beside, hello, of_kind, said, timed

from speaker.ownership.events import Claim, LinkChanged, Withdraw
from speaker.ownership.hello import Heard
from speaker.ownership.machine.loss import Arrivals, Losses, sick, well
from speaker.ownership.machine.machine import Ownership


def heard(sequences: Iterable[int], links: int = 1) -> Arrivals:
    arrivals = Arrivals()
    for sequence in sequences:
        arrivals.hear(sequence, links)
    return arrivals


# ── What was lost ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sequences", "links", "percent"),
    [
        (range(40), 1, 0),
        (range(0, 80, 2), 1, 50),
        (range(0, 80, 2), 2, 0),
        ([*range(20), *range(21, 41)], 1, 3),
        (range(0, 160, 4), 2, 50),
        ([*range(20), *range(220, 230)], 1, 12),
        ([n for n in range(40) for _ in range(3)], 1, 0),
    ],
    ids=["none", "each second", "on two links", "one", "each second on two links", "an outage", "in parts"],
)
def test_lost_is_a_sequence_that_never_came(sequences: Iterable[int], links: int, percent: int) -> None:
    assert heard(sequences, links).percent == percent


def test_of_a_peer_that_does_not_say_on_how_many_links_it_speaks_nothing_is_known() -> None:
    assert heard(range(0, 80, 2), 0).percent == 0


def test_a_link_more_or_less_is_no_loss() -> None:
    arrivals = heard(range(40))
    for sequence in (41, 43, 45):
        arrivals.hear(sequence, 2)
    for sequence in (46, 47, 48):
        arrivals.hear(sequence, 1)
    assert arrivals.percent == 0


def test_what_was_dropped_here_is_no_loss() -> None:
    arrivals = heard(range(20))
    for begin in range(30, 130, 10):
        arrivals.pause()
        arrivals.hear(begin, 1)
    assert arrivals.percent == 0


def test_what_was_overtaken_is_no_loss() -> None:
    arrivals = heard(n for n in range(40) if n not in (31, 37))
    arrivals.hear_late(37)
    assert arrivals.percent == 3
    for elsewhere in (31, 37, 39, -(1 << 40), 1 << 40):
        arrivals.hear_late(elsewhere)
    assert arrivals.percent == 0


def test_hellos_that_overtake_each_other_make_nobody_sick() -> None:
    machine = alone()
    for first in range(1, 81, 2):
        for sequence in (first + 1, first):
            machine.step(first / 20, hello(machine, sequence, links=1))
    assert machine.known.segments[LINK].peers.by_node["peer"].arrivals.percent == 0


def test_what_is_said_of_a_loss_changes_in_steps() -> None:
    arrivals, told = Arrivals(), []
    for sequence in [*range(40), *range(40, 90, 2), *range(90, 140)]:
        arrivals.hear(sequence, 1)
        told.append(arrivals.said)
    assert [after for before, after in pairwise(told) if before != after] == [18, 34, 50, 34, 21, 0]


# ── Whose link ────────────────────────────────────────────────────────────────────────────────────────────────


def seen(me: str, bad: Iterable[str], nodes: str = "abcd", percent: int = 50) -> list[Losses]:
    """By ``me``, where the paths of ``bad`` ("ab": between a and b) lose so much, as both ends say."""
    lost: Mapping[str, dict[str, int]] = {
        node: {other: percent for other in nodes if f"{node}{other}" in bad or f"{other}{node}" in bad}
        for node in nodes
    }
    return [Losses(node, lost[me].get(node, 0), lost[node]) for node in nodes if node != me]


@pytest.mark.parametrize(
    ("nodes", "bad", "whose"),
    [
        ("abcd", [], ""),
        ("abcd", ["ab"], ""),
        ("abcd", ["ab", "ac"], "a"),
        ("abcd", ["ab", "ac", "ad"], "a"),
        ("abcd", ["ab", "ac", "ad", "bc", "bd"], "ab"),
        ("abcd", ["ab", "ac", "ad", "bc", "bd", "cd"], ""),
        ("abc", ["ab", "ac"], "a"),
        ("abc", ["ab", "ac", "bc"], ""),
        ("ab", ["ab"], ""),
        ("abcde", ["ab", "ac", "ad", "ae"], "a"),
        ("abcde", ["ab", "cd"], ""),
    ],
)
def test_it_is_the_link_of_who_loses_most_and_everybody_says_the_same(nodes: str, bad: list[str], whose: str) -> None:
    assert [sick(me, seen(me, bad, nodes)) for me in nodes] == [set(whose)] * len(nodes)


def test_one_way_is_enough() -> None:
    losses = [Losses("b", 0, {"a": 50}), Losses("c", 0, {"a": 50})]
    assert sick("a", losses) == {"a"}
    assert sick("a", [Losses("b", 50, {}), Losses("c", 50, {})]) == {"a"}


def test_others_are_well_where_most_of_them_lose_little_of_each_other() -> None:
    assert well("a", seen("a", ["ab", "ac", "ad"]), {"a"}) == {"b", "c", "d"}
    assert well("a", seen("a", ["ab", "ac"], "abc"), {"a"}) == {"b", "c"}
    assert well("a", seen("a", ["ab"], "ab"), {"a"}) == set()
    poor = [Losses("b", 50, {"a": 50, "c": 18}), Losses("c", 50, {"a": 50})]
    assert well("a", poor, {"a"}) == set()


# ── What the node does ────────────────────────────────────────────────────────────────────────────────────────

BESIDE: dict[str, Claims] = {"b": {}, "c": {}}
LINKS = 100
"""By so much the sequences of ``beside`` grow."""
LOSES = {"links": LINKS, "lost": {"me": 48}}


def holder(**more: object) -> Ownership:
    """Holds EIP at 2.0, beside two peers."""
    machine = alone()
    beside(machine, 0.0, 2.0, {"b": {}, "c": {}}, **more)
    assert machine.holding(EIP)
    return machine


def told(machine: Ownership, start: float, end: float, holdings: dict, **more: object) -> list:
    return said(beside(machine, start, end, holdings, **more))


def test_a_holder_whose_hellos_most_peers_lose_hands_over_at_the_next_beat_and_answers_until_somebody_does() -> None:
    machine = holder(links=LINKS)
    orders = beside(machine, 2.0, 2.5, BESIDE, **LOSES)
    first = next((at, one) for at, one in said(orders) if one.draining)
    assert first[0] <= 2.1
    assert first[1].demoted
    assert of_kind(orders, Withdraw) == []
    taken = hello(machine, 10_000, {EIP: machine.term(EIP) + 1}, "b", **LOSES)
    withdrawn = [order for order in machine.step(2.51, taken) if isinstance(order, Withdraw)]
    assert [order.eip for order in withdrawn] == [EIP]
    assert not any(one.draining for _, one in told(machine, 2.6, 3.0, {"b": {EIP: 9}, "c": {}}, **LOSES))


def test_what_nobody_takes_is_offered_for_as_long_as_a_drain_lasts_and_again_a_minute_later() -> None:
    machine = holder(links=LINKS)
    hellos = told(machine, 2.0, 66.0, BESIDE, **LOSES)
    offers = [at for at, one in hellos if one.draining]
    assert machine.holding(EIP)
    assert all(at < 5.2 or at >= 62.0 for at in offers)
    assert min(offers) < 2.2
    assert max(offers) > 62.0


@pytest.mark.parametrize(
    ("holdings", "losses"),
    [
        ({"b": {}}, {"links": LINKS, "lost": {"me": 48}}),
        (BESIDE, {"links": LINKS, "lost": {"me": 33}}),
        (BESIDE, {"links": LINKS, "lost": {"me": 48, "b": 48, "c": 48}}),
        (BESIDE, {"links": LINKS, "lost": {"me": 48, "b": 20, "c": 20}}),
        (BESIDE, {"links": 0, "lost": {"me": 48}}),
    ],
    ids=["one peer", "not bad", "all alike", "others not well", "peers that do not count"],
)
def test_it_hands_over_nothing_where_it_may_not_be_its_own_link(holdings: dict, losses: dict) -> None:
    machine = alone()
    beside(machine, 0.0, 2.0, holdings, links=LINKS)
    hellos = told(machine, 2.0, 6.0, holdings, **losses)
    assert not any(one.draining or one.demoted for _, one in hellos)


def test_it_goes_last_until_a_minute_after_it_was_sick() -> None:
    machine = holder(links=LINKS)
    told(machine, 2.0, 3.0, BESIDE, **LOSES)
    demoted = [at for at, one in told(machine, 3.0, 66.0, BESIDE, links=LINKS) if one.demoted]
    assert 62.8 <= max(demoted) <= 63.1


def test_a_sick_link_takes_nothing_from_another_that_hands_over() -> None:
    machine = alone()
    beside(machine, 0.0, 2.0, {"b": {EIP: 3}, "c": {}, "d": {}}, links=LINKS)
    for n in range(10):
        at = 2.0 + n / 10
        machine.step(at, hello(machine, 9000 + n, {EIP: 3}, "b", draining=True, demoted=True, links=1, lost={"me": 48}))
        orders = [*machine.step(at, hello(machine, 9000 + n, {}, "c", **LOSES))]
        orders += [*machine.step(at, hello(machine, 9000 + n, {}, "d", **LOSES))]
        orders += [order for _, order in timed(machine, at, at + 0.09)]
        if n > 1:
            assert not any(isinstance(order, Claim) for order in orders)


def test_of_two_links_only_the_sick_one_is_left() -> None:
    machine = holder(links=LINKS)
    machine.step(2.0, LinkChanged(LINK + 1, up=True))
    hellos = told(machine, 2.0, 3.0, BESIDE, **LOSES)
    assert {one.link for _, one in hellos if one.draining} == {LINK}
    assert {one.links for _, one in hellos if one.sequence > 0} >= {4}


def test_what_we_lose_is_said_and_what_we_do_not_is_not() -> None:
    machine = alone()
    now = 0.0
    for n in range(60):
        now = n / 10
        machine.step(now, hello(machine, 2 * n, {}, "b", links=1))
        machine.step(now, hello(machine, n, {}, "c", links=1))
        hellos = said(timed(machine, now, now + 0.09))
    assert {node for one in hellos for node in one[1].lost} == {"b"}
    assert {state.node: state.loss for state in machine.peers(now)[LINK]} == {"b": 50, "c": 0}


# ── In the simulation ─────────────────────────────────────────────────────────────────────────────────────────


def played(schedule: Schedule) -> World:
    world = World(schedule).run()
    assert world.promises.broken is None, world.promises.broken
    return world


@pytest.mark.parametrize("seed", range(6))
def test_a_sick_link_is_left_within_three_seconds(seed: int) -> None:
    schedule = FAMILIES["sick"][0](seed)
    fault = replace(schedule.faults[0], share=0.5)
    node = fault.nodes[0]
    played(replace(schedule, faults=(fault,), limits=replace(schedule.limits, left=(node, fault.at + 3.0))))


@pytest.mark.parametrize(("loss", "delay"), [(0.07, 0.002), (0.1, 0.02)])
def test_where_all_links_lose_alike_nothing_moves(loss: float, delay: float) -> None:
    for seed in range(3):
        quiet = Limits(causeless=False, quiet_after=3.0, one_answer=1.0)
        world = played(Schedule(seed, 4, 6, loss=loss, delay=delay, end=30.0, limits=quiet))
        assert all(host.machine.known.segments[1].sick_at < 0 for host in world.hosts)


def test_bursts_are_no_loss() -> None:
    """All that a peer said arrives, a second at a time."""
    arrivals, machine = Arrivals(), alone()
    for second in range(10):
        for n in range(10):
            arrivals.hear(second * 10 + n, 1)
            beat = hello(machine, second * 10 + n, {}, "b", links=1, heard={"me": Heard(machine.incarnation, 10, LINK)})
            machine.step(second + 1.0, beat)
    assert arrivals.percent == 0
    assert machine.peers(11.0)[LINK][0].loss == 0
