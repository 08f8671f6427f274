"""Judgements by themselves: what the machine is told to do, from what it knows. Time is virtual, in seconds."""

import ast
import inspect
from ipaddress import IPv4Address

import pytest

from speaker.ownership.events import Yielded
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.machine import rules
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment
from speaker.ownership.parameters import Parameters
from speaker.ownership.score import score

LINK = 2
TIMES = Parameters()
BETTER, WORSE = sorted(("a", "b"), key=lambda node: score(IPv4Address("10.0.0.1"), node), reverse=True)


@pytest.fixture
def known() -> Known:
    known = Known(WORSE, 0.0, TIMES, api=True, revision=0)
    segment = known.segments[LINK] = Segment(WORSE, LINK, TIMES, 64, 0.0)
    segment.up = True
    return known


@pytest.fixture
def x() -> Eip:
    x = Eip(IPv4Address("10.0.0.1"))
    x.link = LINK
    return x


def heard(known: Known, node: str, now: float, *, hears_us: bool = True, **more: object) -> Peer:
    peer = Peer(Hello(node, Incarnation(1), 0, 0, **more), now)  # type: ignore[arg-type]
    peer.hears_us_at = now if hears_us else peer.hears_us_at
    known.segments[LINK].peers.by_node[node] = peer
    return peer


def test_no_judgement_changes_anything() -> None:
    changed = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(inspect.getsource(rules)))
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
    ]
    assert changed == []


@pytest.mark.parametrize(
    ("theirs", "their_weak", "ours", "our_weak", "better"),
    [
        (3, False, 2, False, True),
        (2, False, 3, False, False),
        (3, True, 2, False, True),  # whatever it knew: rule 29 sees to it
        (2, False, 2, False, True),  # its score
        (2, True, 2, False, False),
        (2, False, 2, True, True),
    ],
)
def test_the_higher_term_is_the_better_claim_and_then_the_one_that_knew(
    known, x, theirs: int, their_weak: bool, ours: int, our_weak: bool, better: bool
) -> None:
    peer = heard(known, BETTER, 1.0)
    peer.weak.update([x.address] if their_weak else [])
    x.term, x.weak = ours, our_weak
    assert Rules().beats(known, x, peer, theirs) is better


def test_what_may_not_be_held_is_let_go_for_the_first_reason(known, x) -> None:
    segment = known.segments[LINK]
    assert Rules().unfit(known, x) is None
    segment.deaf = True
    assert Rules().unfit(known, x) is Yielded.DEAF
    x.owner = BETTER
    assert Rules().unfit(known, x) is Yielded.PEERS_ADDRESS
    segment.up = False
    assert Rules().unfit(known, x) is Yielded.LINK_DOWN
    x.link = None
    assert Rules().unfit(known, x) is Yielded.INELIGIBLE


@pytest.mark.parametrize(
    ("draining", "hands_over", "away_at", "held_since", "stands"),
    [
        (False, False, 0.0, 0.0, True),
        (True, False, 0.0, 0.0, False),
        (False, True, 0.0, 0.0, False),
        (False, False, 8.9, 0.0, False),
        (False, False, 0.0, 8.95, False),
    ],
)
def test_who_goes_or_hands_over_or_was_away_or_has_only_just_come_has_nothing_to_stand_for(
    known, x, draining: bool, hands_over: bool, away_at: float, held_since: float, stands: bool
) -> None:
    known.draining_since, known.away_at, x.held_since = 4.0 if draining else None, away_at, held_since
    known.segments[LINK].hands_over = hands_over
    assert Rules().held_on(known, x, 9.0) is stands


def test_who_claimed_it_without_knowing_of_anybody_has_nothing_to_stand_for(known, x) -> None:
    known.segments[LINK].claimed_alone = frozenset({x.address})
    assert not Rules().held_on(known, x, 9.0)


@pytest.mark.parametrize(
    ("draining", "rival", "waits"),
    [(False, False, True), (False, True, True), (True, True, True), (True, False, False)],
)
def test_a_name_stays_in_the_record_for_a_moment_unless_it_goes_and_nobody_else_is_there(
    known, x, draining: bool, rival: bool, waits: bool
) -> None:
    x.yielded_at, known.draining_since = 5.0, 4.0 if draining else None
    if rival:
        heard(known, BETTER, 5.0).claims[x.address] = 2
        x.rivals[LINK] = {BETTER}
    assert Rules().release_at(known, x, 5.1) == (5.0 + TIMES.record_grace if waits else 5.1)


@pytest.mark.parametrize(
    ("heard_at", "frame_at", "now", "in_touch"),
    [
        (None, float("-inf"), 9.0, True),  # nobody was ever here
        (9.0, float("-inf"), 9.1, True),
        (8.0, float("-inf"), 9.0, False),
        (8.0, 8.1, 9.0, False),  # before it was missed
        (8.0, 8.9, 9.0, True),
        (8.0, 8.9, 8.9 + TIMES.touch, False),
    ],
)
def test_who_fell_silent_leaves_us_out_of_touch_until_a_frame_reaches_us(
    known, heard_at: float | None, frame_at: float, now: float, in_touch: bool
) -> None:
    segment = known.segments[LINK]
    segment.frame_at = frame_at
    if heard_at is not None:
        heard(known, BETTER, heard_at)
    assert Rules().in_touch(known, segment, now) is in_touch


def test_who_is_heard_by_nobody_whom_it_hears_is_not_in_touch(known) -> None:
    peer = heard(known, BETTER, 9.0, hears_us=False)
    assert not Rules().in_touch(known, known.segments[LINK], 9.1)
    peer.deaf = True
    assert Rules().in_touch(known, known.segments[LINK], 9.1), "it could not hear us"
