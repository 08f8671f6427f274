"""Which nodes are dead: only with most agents, the kubelet and the number of those that are away on one side."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.controller.sessions import (
    GAP,
    LIMIT,
    STALE,
    VOICES,
    WORD,
    Facts,
    Kubelets,
    Silence,
    Word,
    Words,
    dead,
    suspected,
)

NOW = 1000.0
SILENT = Silence(NOW - STALE, NOW)
NODES = "abcdef"


def words(at=NOW, **misses):
    return {agent: Word(frozenset(nodes), NOW, at) for agent, nodes in misses.items()}


def facts(nodes, said, *, down="", silent="abcdef", agents=None):
    ready = {node: node not in down for node in nodes}
    return Facts(ready, frozenset(nodes if agents is None else agents), said, dict.fromkeys(silent, SILENT))


STORIES = [
    ("both others miss it", facts("abc", words(b="a", c="a")), "a"),
    ("its kubelet renews its Lease", facts("abc", words(b="a", c="a"), silent="bc"), ""),
    ("one of two others misses it", facts("abc", words(b="a")), ""),
    ("one of one other misses it", facts("ab", words(b="a")), ""),
    ("two of three others miss it", facts("abcd", words(b="a", c="a")), "a"),
    ("half of four others miss it", facts("abcde", words(b="a", c="a")), ""),
    ("three of four others miss it", facts("abcde", words(b="a", c="a", d="a")), "a"),
    ("it misses all others, and they it", facts("abcd", words(a="bcd", b="a", c="a", d="a")), "a"),
    ("one that runs no agent is missed by nobody", facts("abcd", words(b="c", c="b"), agents="bcd"), ""),
    ("agents long dead are others too", facts("abcdef", words(b="a", c="a", d="")), ""),
    ("two words of which one is old", facts("abc", {**words(b="a"), **words(NOW - WORD - 0.1, c="a")}), ""),
    ("two words as old as a renewal", facts("abc", words(NOW - 15, b="a", c="a")), "a"),
    ("words that stood there when we came", facts("abc", words(-math.inf, b="a", c="a")), ""),
    ("the words of agents without a Node", facts("abc", words(x="a", y="a", b="a"), agents="abcxy"), ""),
    ("the words of agents without a session", facts("abc", words(b="a", c="a"), agents="ac"), ""),
    ("its own word", facts("abc", words(a="a", b="a")), ""),
    ("a node that is none", facts("abc", words(b="z", c="z"), silent="z"), ""),
    ("two of three miss each other", facts("abc", words(a="bc", b="ac", c="ab")), ""),
    ("two of six at once", facts("abcdef", words(a="ef", b="ef", c="ef", d="ef")), "ef"),
    ("three of six at once: a partition is likelier", facts("abcdef", words(a="def", b="def", c="def", d="ef")), ""),
    ("one more than a third with one that is not Ready", facts("abc", words(b="a", c="a"), down="b"), ""),
    ("it is not Ready by now: it is one all the same", facts("abc", words(b="a", c="a"), down="a"), "a"),
    ("one of six with one that is not Ready", facts("abcdef", words(b="a", c="a", d="a"), down="f"), "a"),
]


@pytest.mark.parametrize(("story", "known", "found"), STORIES, ids=[story for story, *_ in STORIES])
def test_who_is_dead(story, known, found):
    assert "".join(dead(known, NOW)) == found


def test_what_agents_said_before_we_came_has_the_kubelet_looked_at_and_nobody_marked():
    known = facts("abc", words(-math.inf, b="a", c="a"))
    assert (suspected(known, NOW), dead(known, NOW)) == ({"a": ("b", "c")}, {})
    assert suspected(known, NOW + WORD + 0.1) == {}


def test_those_that_agents_missed_before_we_came_count_among_the_many():
    written = words(a="def", b="def", c="e")
    assert dead(facts("abcdef", written), NOW) == {"e": ("a", "b", "c")}
    assert dead(facts("abcdef", {**written, **words(-math.inf, d="f", e="d")}), NOW) == {}


def test_who_says_so_is_named():
    assert dead(facts("abcd", words(d="a", b="a", c="")), NOW) == {"a": ("b", "d")}


@pytest.mark.parametrize(
    ("silence", "found"),
    [
        (Silence(NOW - STALE, NOW), True),
        (Silence(NOW - STALE + 0.1, NOW), False),
        (Silence(NOW - STALE - GAP, NOW - GAP), True),
        (Silence(NOW - 100, NOW - GAP - 0.1), False),
    ],
)
def test_a_kubelet_is_silent_by_what_was_seen_of_it_just_now(silence, found):
    known = facts("abc", words(b="a", c="a"))._replace(kubelets={"a": silence})
    assert bool(dead(known, NOW)) is found


NAMES = st.sampled_from(NODES)
SOME = st.frozensets(NAMES)
WORDS = st.dictionaries(
    NAMES, st.builds(Word, SOME, st.just(NOW), st.sampled_from([NOW, NOW - WORD, NOW - WORD - 1, -math.inf]))
)
SILENCES = st.dictionaries(NAMES, st.sampled_from([SILENT, Silence(NOW - 1, NOW), Silence(NOW - 60, NOW - 2 * GAP)]))
FACTS = st.builds(Facts, st.dictionaries(NAMES, st.booleans()), SOME, WORDS, SILENCES)


@given(known=FACTS)
def test_whatever_is_known_there_are_two_and_most_of_the_others_a_silent_kubelet_and_few_away(known):
    found = dead(known, NOW)
    for node, voices in found.items():
        others = (known.agents & known.nodes.keys()) - {node}
        assert len(voices) == len(set(voices)) >= VOICES
        assert set(voices) <= others
        assert 2 * len(voices) > len(others)
        assert all(node in known.words[agent].misses and NOW - known.words[agent].at <= WORD for agent in voices)
        assert known.kubelets[node] == SILENT
    if found:
        away = found.keys() | {node for node, ready in known.nodes.items() if not ready}
        assert LIMIT * len(away) <= len(known.nodes)


@given(known=FACTS, liar=NAMES, said=SOME)
def test_one_agent_that_lies_has_nobody_marked_whom_no_other_misses(known, liar, said):
    lied = known._replace(words={**known.words, liar: Word(said, NOW, NOW)})
    for node, voices in dead(lied, NOW).items():
        assert any(node in known.words[agent].misses for agent in voices if agent != liar)


@given(known=FACTS, node=NAMES)
def test_one_whose_kubelet_is_seen_to_live_is_never_marked(known, node):
    alive = known._replace(kubelets={**known.kubelets, node: Silence(NOW, NOW)})
    assert node not in dead(alive, NOW)


# ── What agents say ──

A, NOTHING = frozenset("a"), frozenset[str]()


def test_what_the_first_list_brings_counts_once_it_is_written_again():
    heard = Words()
    heard.heard({"b": A}, 1, 0)
    assert heard.now == {"b": Word(A, 0, -math.inf)}
    heard.heard({"b": A}, 1, 15)
    assert heard.now == {"b": Word(A, 15, 15)}
    assert heard.any_heard(15 + WORD)
    assert not heard.any_heard(15.1 + WORD)


def test_after_another_list_everybody_has_to_say_it_again():
    heard = Words()
    heard.heard({}, 1, 0)
    heard.heard({"b": A, "c": A}, 1, 1)
    heard.heard({"d": A}, 2, 2)
    assert {word.at for word in heard.now.values()} == {-math.inf}
    heard.heard({"c": A}, 2, 3)
    assert heard.now == {"b": Word(A, 1, -math.inf), "c": Word(A, 3, 3), "d": Word(A, 2, -math.inf)}


def test_who_misses_nobody_any_more_says_nothing():
    heard = Words()
    heard.heard({}, 1, 0)
    heard.heard({"b": A}, 1, 1)
    heard.heard({"b": None, "c": None}, 1, 2)
    assert heard.now == {}


# ── What is seen of kubelets ──

LOOKS = [
    ("one look says nothing", [(0, "7")], 0),
    ("the same version for a while", [(0, "7"), (2, "7"), (4, "7")], 4),
    ("a renewal", [(0, "7"), (2, "7"), (4, "8")], 0),
    ("a renewal a while ago", [(0, "7"), (2, "8"), (4, "8"), (6, "8")], 4),
    ("nobody looked for long", [(0, "7"), (2, "7"), (2.1 + GAP, "7")], 0),
    ("a look that failed", [(0, "7"), (2, ""), (4, "7")], 0),
    ("there is none", [(0, "7"), (2, "7"), (4, "")], None),
]


@pytest.mark.parametrize(("story", "looks", "silent"), LOOKS, ids=[story for story, *_ in LOOKS])
def test_for_how_long_a_kubelet_is_silent(story, looks, silent):
    kubelets = Kubelets()
    for at, version in looks:
        kubelets.looked("a", version, at, at)
    found = kubelets.silent.get("a")
    assert (found.at - found.since if found is not None else None) == silent


def test_silence_begins_with_an_answer_and_ends_with_a_question():
    kubelets = Kubelets()
    kubelets.looked("a", "7", 0, 1)
    kubelets.looked("a", "7", 3, 4)
    assert kubelets.silent == {"a": Silence(1, 3)}


def test_whom_nobody_misses_any_more_is_looked_at_anew_the_next_time():
    kubelets = Kubelets()
    kubelets.looked("a", "7", 0, 0)
    kubelets.only(set())
    kubelets.looked("a", "7", 2, 2)
    assert kubelets.silent == {"a": Silence(2, 2)}
