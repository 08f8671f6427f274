"""The parts of the ownership machine: its times, scores, and what a hello tells of many claims."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import SettingError
from speaker.ownership.hello import EVERYTHING, Hello, Incarnation
from speaker.ownership.machine.claims import OwnClaims
from speaker.ownership.machine.peers import Peer
from speaker.ownership.parameters import Parameters
from speaker.ownership.score import claim_hash, fair_share, score

FIRST = IPv4Address("10.0.0.1")


@pytest.mark.parametrize("hello_ms", [10, 25, 50, 100, 200, 500, 1000])
def test_parameters_scale_with_the_hello_interval(hello_ms: int) -> None:
    assert Parameters.for_hello(hello_ms / 1000).hello == hello_ms / 1000


def test_the_defaults_are_those_of_the_default_hello() -> None:
    assert Parameters.for_hello(0.1) == Parameters()
    assert Parameters().worst_failover <= 0.5


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"suspect": 0.2}, "suspect must be above 2 x hello"),
        ({"dead": 0.28}, "dead must be at least suspect"),
        ({"dead": 0.3, "suspect": 0.201}, "dead must be above 3 x hello"),
        ({"self_lease": 0.25}, "self_lease must be between"),
        ({"self_lease": 0.14}, "self_lease must be between"),
        ({"listen": 0.3}, "listen must be above dead"),
        ({"record_grace": 0.2}, "record_grace"),
        ({"touch": 0.5}, "touch must be above"),
        ({"pace": 0.03}, "pace must be below slot"),
        ({"lease": 4.0}, "lease must be above"),
        ({"hello": 0.0}, "above 0"),
    ],
)
def test_parameters_that_cannot_work_are_refused(changes: dict[str, float], rule: str) -> None:
    with pytest.raises(SettingError, match=rule):
        replace(Parameters(), **changes)


def test_scores_are_part_of_the_protocol() -> None:
    assert score(FIRST, "node-a") == 0xAC11D5E16350362C
    assert score(IPv6Address("2001:db8::1"), "node-a") == 0x41459B3689C70BDB
    assert claim_hash(FIRST, 1) == 0x8D51CE6E5C36E3B6


def test_scores_spread_eips_evenly() -> None:
    nodes = [f"node-{n}" for n in range(5)]
    counts = Counter(max(nodes, key=lambda node: score(FIRST + n, node)) for n in range(5000))
    assert max(counts.values()) < 1.08 * 1000


def test_a_fair_share_has_a_little_slack() -> None:
    assert fair_share(100, 5) == 22
    assert fair_share(1, 5) == 1


@given(
    st.sets(st.integers(0, 300), max_size=80),
    st.integers(1, 20),
    st.sets(st.integers(0, 300), max_size=80),
)
def test_windows_bring_any_picture_in_step_within_one_round(held: set[int], per_hello: int, believed: set[int]) -> None:
    own = OwnClaims(Parameters(), per_hello)
    for n in held:
        own.add(FIRST + n, n + 1, now=0.0)
    peer = Peer(Hello("a", Incarnation(1), 0, 0), 0.0)
    peer.learn(Hello("a", Incarnation(1), 0, 0, claims={FIRST + n: 500 for n in believed}))
    for sequence in range(1, 2 + -(-len(held) // per_hello)):
        claims, covers = own.said(5.0, everything=False, beat=True)
        assert len(claims) <= per_hello
        peer.learn(Hello("a", Incarnation(1), sequence, 0, own.digest, claims=claims, covers=covers))
    assert peer.synced()
    assert peer.claims == own.terms


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=60), st.integers(1, 6))
def test_a_window_says_what_is_held_now_however_often_it_was_said_before(
    changes: list[tuple[int, int]], per_hello: int
) -> None:
    """A term of 0 lets it go."""
    own = OwnClaims(Parameters(), per_hello)
    for at, (n, term) in enumerate(changes):
        if term:
            own.add(FIRST + n, term, now=float(at))
        elif FIRST + n in own.terms:
            own.remove(FIRST + n, now=float(at))
        for again in range(3):
            claims, covers = own.said(at + 2 + again / 10, everything=False, beat=True)
            assert {eip: term for eip, term in own.terms.items() if eip in covers} == {
                eip: term for eip, term in claims.items() if eip in covers
            }


def test_a_change_is_told_for_a_second_besides_the_window() -> None:
    own = OwnClaims(Parameters(), 2)
    for n in range(9):
        own.add(FIRST + n, 1, now=0.0)
    own.said(2.0, everything=False, beat=True)
    own.add(FIRST + 8, 2, now=2.0)
    assert all(FIRST + 8 in own.said(2.0 + n / 10, everything=False, beat=True)[0] for n in range(9))
    assert own.said(2.5, everything=True, beat=True) == (own.terms, EVERYTHING)


def test_of_thousands_of_changes_each_is_told_once_and_the_latest_again() -> None:
    own = OwnClaims(Parameters(), 1)
    for n in range(40):
        own.add(FIRST + n, 1, now=0.0)
    at_once, _ = own.said(0.0, everything=False, beat=False)
    assert len(at_once) == 40
    own.add(FIRST + 40, 1, now=0.05)
    again, _ = own.said(0.1, everything=False, beat=True)
    assert FIRST + 40 in again
    assert len(again) <= 17


def test_what_was_yielded_is_repeated_for_a_second() -> None:
    own = OwnClaims(Parameters(), 10)
    own.add(FIRST, 3, now=0.0)
    own.remove(FIRST, now=1.0)
    assert own.recently_yielded(1.9) == {FIRST: 3}
    assert own.recently_yielded(2.1) == {}


def test_between_beats_only_what_was_let_go_since_is_told_where_it_is_much() -> None:
    own = OwnClaims(Parameters(), 2)
    for n in range(4):
        own.add(FIRST + n, 1, now=0.0)
    for n in range(3):
        own.remove(FIRST + n, now=0.5)
    assert len(own.yields_said(0.5, beat=False)) == 3
    own.remove(FIRST + 3, now=0.51)
    own.add(FIRST + 2, 2, now=0.51)
    assert own.yields_said(0.51, beat=False) == {FIRST + 3: 1}
    assert own.yields_said(0.515, beat=False) == {}
    assert own.yields_said(0.6, beat=True) == {FIRST: 1, FIRST + 1: 1, FIRST + 3: 1}


@given(st.sets(st.integers(0, 900), min_size=1, max_size=200), st.integers(1, 5), st.sets(st.integers(0, 900)))
def test_all_is_told_in_slices_that_a_peer_can_learn_between_two_answers(
    held: set[int], per_hello: int, believed: set[int]
) -> None:
    own, peer = OwnClaims(Parameters(), per_hello), Peer(Hello("a", Incarnation(1), 0, 0), 0.0)
    for n in held:
        own.add(FIRST + n, 1, now=0.0)
    peer.learn(Hello("a", Incarnation(1), 0, 0, claims={FIRST + n: 1 for n in believed}))
    own.said(3.0, everything=False, beat=True)
    now, sequence = 5.0, 0
    claims, covers = own.said(now, everything=True, beat=False)
    while True:
        assert len(claims) <= 16 * per_hello
        sequence += 1
        peer.learn(Hello("a", Incarnation(1), sequence, 0, own.digest, claims=claims, covers=covers))
        if own.next_slice_at() == float("inf"):
            break
        assert own.told_lately(now), "who asks meanwhile gets it anyway"
        now = own.next_slice_at()
        claims, covers = own.said(now, everything=False, beat=False)
    assert peer.claims == own.terms
    assert sequence <= -(-len(held) // (16 * per_hello))
    assert own.told_lately(now)
    assert not own.told_lately(now + Parameters().hello)


def test_between_two_slices_a_hello_tells_what_is_new() -> None:
    own = OwnClaims(Parameters(), 1)
    for n in range(40):
        own.add(FIRST + n, 1, now=0.0)
    own.said(0.0, everything=True, beat=False)
    own.add(FIRST + 40, 1, now=0.001)
    claims, _ = own.said(0.001, everything=False, beat=False)
    assert FIRST + 40 in claims
    assert len(claims) == 2
