"""What the nodes of a cluster see, put together."""

import json
from dataclasses import replace

import pytest
from examples import examples
from healthy import NOW, facts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_findings import EIP, HELD, HELD_BY_PEER, KNOWN, STRANGER, WELL, answered

from speaker.diagnosis.facts import Asked, Facts, Process, Unseen
from speaker.diagnosis.report import examination_lines, explanation_lines, whole_json
from speaker.diagnosis.together import SETTLED, examination, examining, explaining, explanation
from speaker.node.known.knowledge import Cut

HOLDER = replace(WELL, known=replace(KNOWN, eips=Cut((replace(HELD, since=NOW - 600),))))
OTHER = replace(
    WELL, known=replace(KNOWN, eips=Cut((HELD_BY_PEER,))), asked=(Asked(EIP, "eth0", "eip", ("02:00:00:01:00:12",)),)
)
GONE = Facts(EIP, now=NOW, process=Process("no speaker runs here"))
SEES_STRANGER = answered(STRANGER, held=HELD_BY_PEER)


def explained(*, silent=None, **seen):
    return explanation([explaining(node, each) for node, each in seen.items()], silent or {})


def examined(*, silent=None, **seen):
    return examination([examining(node, each) for node, each in seen.items()], silent or {})


def named(whole):
    return [(shared.finding.kind, shared.nodes) for shared in whole.found]


@pytest.mark.parametrize(
    ("seen", "silent", "code", "found"),
    [
        pytest.param({"n1": HOLDER, "n2": OTHER}, {}, 0, [], id="well"),
        pytest.param({"n1": HOLDER}, {"n2": "timeout"}, 0, [], id="who holds it knows"),
        pytest.param({"n2": OTHER}, {"n1": "timeout"}, 2, [], id="who holds it says nothing"),
        pytest.param({}, {"n1": "timeout"}, 2, [], id="nobody answers"),
        pytest.param({"n1": HOLDER, "n2": GONE}, {}, 1, [("speaker_gone", ("n2",))], id="another node has no speaker"),
        pytest.param(
            {"n2": GONE, "n3": SEES_STRANGER, "n4": SEES_STRANGER},
            {},
            1,
            [("speaker_gone", ("n2",)), ("stranger", ("n3", "n4"))],
            id="without a holder the first broken step of any node counts, each finding once",
        ),
        pytest.param(
            {"n1": replace(answered(STRANGER), known=HOLDER.known), "n2": GONE},
            {},
            1,
            [("stranger", ("n1",)), ("speaker_gone", ("n2",))],
            id="the word of the holder comes first",
        ),
    ],
)
def test_the_verdict_of_several_nodes(seen, silent, code, found):
    whole = explained(silent=silent, **seen)
    assert (whole.code, named(whole)) == (code, found)


@pytest.mark.parametrize(("seconds", "found"), [(SETTLED + 1, True), (SETTLED - 1, False)])
def test_two_who_hold_one_eip_are_named_unless_it_may_have_moved_between_the_questions(seconds, found):
    young = replace(WELL, known=replace(KNOWN, eips=Cut((replace(HELD, since=NOW - seconds),))))
    whole = explained(n1=HOLDER, n2=young)
    assert named(whole) == ([("two_holders", ("n1", "n2"))] if found else [])
    assert named(examined(n1=HOLDER, n2=young)) == named(whole)


def test_other_releases_are_named_by_the_doctor_alone():
    seen = {
        "n1": replace(HOLDER, version="1.0"),
        "n2": replace(OTHER, version="1.1"),
        "n3": replace(OTHER, version="1.1"),
    }
    assert explained(**seen).code == 0
    (shared,) = examined(**seen).found
    assert shared.finding.kind == "versions_apart"
    assert shared.finding.what == "nodes run different releases: 1.0 on n1; 1.1 on n2, n3"


def test_what_the_doctor_finds_is_told_once_with_every_node_that_sees_it():
    lines = "\n".join(
        examination_lines(examined(n1=GONE, n2=GONE, n3=HOLDER, silent={"n4": "its pod agent is Pending"}))
    )
    assert lines.startswith("1: n1, n2: no speaker runs here (speaker_gone)")
    assert "n4: no answer: its pod agent is Pending" in lines


def test_the_holders_whole_walk_is_shown_and_of_others_what_is_broken():
    text = "\n".join(
        explanation_lines(explained(n1=GONE, n2=HOLDER, n3=replace(OTHER, unseen=(Unseen("x", "no right"),))))
    )
    assert text.startswith(f"as n2 sees it, which holds {EIP}:\nok     speaker: node n1")
    assert "n1: broken: speaker\n       ! no speaker runs here" in text
    assert "n3: nothing is broken" in text
    assert "verdict: n1: no speaker runs here (speaker_gone)\n  why it matters: " in text
    assert text.endswith("not seen on n3: x: no right")


def test_a_machine_gets_the_same():
    told = json.loads(json.dumps(whole_json(explained(n1=HOLDER, n2=GONE, silent={"n3": "timeout"}))))
    assert (told["code"], told["silent"]) == (1, {"n3": "timeout"})
    assert [(each["kind"], each["nodes"]) for each in told["findings"]] == [("speaker_gone", ["n2"])]
    assert told["nodes"]["n1"]["verdict"] is None
    assert json.loads(json.dumps(whole_json(examined(n1=HOLDER))))["nodes"]["n1"]["findings"] == []


def test_no_node_speaks_to_the_terminal():
    whole = explained(silent={"\x1b[2Jn3": "\x1b[2J"}, **{"\x1b[2Jn1": GONE, "\x1b[2Jn2": OTHER})
    assert all(line.isprintable() for line in explanation_lines(whole))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(facts(), min_size=1, max_size=3))
def test_nodes_that_are_well_stay_so_together(seen):
    """Each drawn by itself: all may hold one EIP, and say so for 60 s, which is not told."""
    parts = {f"n{number}": each for number, each in enumerate(seen)}
    assert named(examined(**parts)) == []
    assert named(explained(**parts)) == []
