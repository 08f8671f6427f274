"""Levelling holdings: the fewest moves, and only those that help."""

from collections import Counter
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.ownership.balance import Move, MovePlan, plan

FIRST = IPv4Address("10.0.0.1")
Holdings = dict[str, list[IPv4Address]]


def holdings(*counts: int) -> Holdings:
    """Node ``a`` holds the first of ``counts`` EIPs, ``b`` the second, and so on."""
    eips = iter(FIRST + n for n in range(sum(counts)))
    return {"abcdefghij"[i]: [next(eips) for _ in range(count)] for i, count in enumerate(counts)}


def everything(held: Holdings) -> set[IPv4Address]:
    return {eip for eips in held.values() for eip in eips}


def counts_after(held: Holdings, moves: list[Move]) -> Counter[str]:
    counts = Counter({node: len(eips) for node, eips in held.items()})
    counts.update(move.target for move in moves)
    counts.subtract(move.source for move in moves)
    return counts


@pytest.mark.parametrize(
    ("counts", "moves"),
    [
        ((), 0),
        ((5,), 0),
        ((2, 1), 0),
        ((3, 1), 1),
        ((10, 10, 0), 6),
        ((7, 7, 6, 0, 0), 8),
        ((1, 0, 0, 0), 0),
        ((200, 200, 200, 200, 200), 0),
        ((250, 250, 250, 250, 0), 200),
    ],
)
def test_only_the_surplus_moves(counts: tuple[int, ...], moves: int) -> None:
    held = holdings(*counts)
    assert len(plan(held, "a", everything(held))) == moves


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_nobody_holds_two_more_than_another_afterwards_and_nobody_both_gives_and_takes(counts: list[int]) -> None:
    held = holdings(*counts)
    moves = plan(held, "a", everything(held))
    after = counts_after(held, moves).values()
    assert max(after) - min(after) <= 1
    assert not {move.source for move in moves} & {move.target for move in moves}
    assert all(move.eip in held[move.source] for move in moves)
    assert len({move.eip for move in moves}) == len(moves)


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.sets(st.integers(0, 71)))
def test_what_this_node_may_not_hold_goes_to_others_who_are_level_among_themselves(
    counts: list[int], able: set[int]
) -> None:
    held = holdings(*counts)
    may_hold = {FIRST + n for n in able} | set(held["a"])
    moves = plan(held, "a", may_hold)
    assert all(move.eip in may_hold for move in moves if move.target == "a")
    after = counts_after(held, moves)
    others = [count for node, count in after.items() if node != "a"]
    assert max(others) - min(others) <= 1
    assert after["a"] <= max(others) + 1


def test_the_plan_is_the_same_wherever_it_is_made() -> None:
    held = holdings(9, 3, 0)
    backwards = {node: eips[::-1] for node, eips in reversed(held.items())}
    assert plan(held, "a", everything(held)) == plan(backwards, "c", everything(held))


def test_a_course_asks_for_a_few_and_counts_what_came_of_them() -> None:
    moves = [Move(FIRST + n, "a", "b") for n in range(4)]
    move_plan = MovePlan(moves)
    assert move_plan.ask(3, now=0.0) == moves[:3]
    holders = {FIRST: "b", FIRST + 1: "a", FIRST + 2: "c"}
    move_plan.follow(holders, fit={"a", "b"}, now=0.1, patience=1.0)
    assert (move_plan.moved, move_plan.refused, list(move_plan.asked)) == (1, 1, [FIRST + 1])
    assert move_plan.ask(3, now=0.1) == moves[3:]
    move_plan.follow({FIRST + 1: "a", FIRST + 3: "a"}, fit={"a", "b"}, now=1.0, patience=1.0)
    assert (move_plan.refused, list(move_plan.asked)) == (2, [FIRST + 3])
    move_plan.follow({FIRST + 3: "a"}, fit={"a"}, now=1.05, patience=1.0)
    assert (move_plan.moved, move_plan.refused, move_plan.finished) == (1, 3, True)


# ── Preferred nodes ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_eip_goes_where_it_is_preferred_most_and_nothing_leaves_for_there_being_more() -> None:
    held = holdings(3, 3, 0)
    everywhere = {eip: {"a": 80, "b": 0, "c": 30} for eip in everything(held)}
    moves = plan(held, "b", everything(held), everywhere)
    assert {(move.source, move.target) for move in moves} == {("b", "a")}
    assert counts_after(held, moves) == {"a": 6, "b": 0, "c": 0}


def test_the_others_share_what_is_not_tied_to_one_node() -> None:
    held = holdings(10, 10, 0)
    tied = {eip: {"a": 80, "b": 0, "c": 0} for eip in held["a"]}
    assert counts_after(held, plan(held, "c", everything(held), tied)) == {"a": 10, "b": 5, "c": 5}


def test_what_this_node_may_not_hold_does_not_come_to_it_however_much_it_is_preferred() -> None:
    held = holdings(0, 2, 0)
    weights = {eip: {"a": 80, "b": 0, "c": 30} for eip in everything(held)}
    assert {move.target for move in plan(held, "a", set(), weights)} == {"c"}


SOME_WEIGHTS = st.lists(st.lists(st.sampled_from([0, 30, 80]), min_size=6, max_size=6), min_size=1, max_size=20)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), SOME_WEIGHTS, st.integers(0, 5))
def test_afterwards_all_are_preferred_where_they_are_and_each_moves_once(
    counts: list[int], given_weights: list[list[int]], every: int
) -> None:
    held = holdings(*counts)
    eips = sorted(everything(held))
    weights = {
        eip: dict(zip("abcdef", given_weights[n % len(given_weights)], strict=True))
        for n, eip in enumerate(eips)
        if n % 6 >= every
    }
    moves = plan(held, "a", everything(held), weights)
    assert len({move.eip for move in moves}) == len(moves)
    assert all(move.eip in held[move.source] and move.source != move.target for move in moves)
    target = {move.eip: move.target for move in moves}
    for node, there in held.items():
        for eip in there:
            if eip in weights:
                assert weights[eip][target.get(eip, node)] == max(weights[eip][each] for each in held)
    assert plan(held, "a", everything(held), {}) == plan(held, "a", everything(held))
