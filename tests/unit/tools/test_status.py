"""The status of a cluster, put together of its nodes'; and what is shown of one that changes."""

import io
import json

import pytest
from test_ask import STATUS

from speaker.errors import EdgeError
from speaker.tools.agents import Answers
from speaker.tools.ask import describe_cluster as describe
from speaker.tools.ask import read, together, watch

HELD, BY_PEER, NOBODYS = STATUS["eips"]
OTHERS = [
    HELD | {"claimed": False, "holder": "n1"},
    BY_PEER | {"claimed": True, "since": 1767323000.0, "mac": "02:00:00:00:00:02"},
    NOBODYS,
]


def status(node, eips, **more):
    return read(node, json.dumps(STATUS | {"node": node, "eips": eips, "refused": [], "problems": []} | more).encode())


def whole(silent=None, **told):
    return together(Answers(told, silent or {}))


def test_every_eip_is_told_once_with_what_its_holder_says_of_it():
    found = whole(n1=status("n1", STATUS["eips"]), n2=status("n2", OTHERS))
    assert "\n".join(describe(found)) == (
        "EIP            HOLDER  TERM  LINK  SINCE (UTC)          SERVICES\n"
        "192.0.2.201    n1      7     eth0  2026-01-02 03:04:05  shop/web, shop/api\n"
        "198.51.100.9   nobody  -     -     -                    shop/far\n"
        "2001:db8::201  n2      12    eth0  2026-01-02 03:03:20  shop/web"
    )


def test_one_who_is_only_said_to_hold_it_is_in_doubt_and_who_is_silent_is_named():
    lines = [*describe(whole({"n2": "timeout"}, n1=status("n1", [BY_PEER])))]
    assert lines[1].split()[:2] == ["2001:db8::201", "n2?"]
    assert lines[-1] == "n2: no answer: timeout"


@pytest.mark.parametrize("since", [1e300, -1e300, 253_402_300_800])
def test_a_status_with_a_time_that_is_none_is_refused_so_that_all_others_can_be_shown(since):
    with pytest.raises(EdgeError, match="this is not a speaker's status"):
        status("n1", [HELD | {"since": since}])


def test_two_who_hold_it_are_both_named():
    lines = [*describe(whole(n1=status("n1", [HELD]), n2=status("n2", [HELD])))]
    assert "n1, n2" in lines[1]


def test_that_a_node_must_not_hold_what_another_holds_is_as_it_should_be():
    mine = NOBODYS | {"claimed": True, "holder": "n1"}
    del mine["reason"], mine["message"]
    assert whole(n1=status("n1", [mine]), n2=status("n2", [NOBODYS | {"holder": "n1"}]))["problems"] == []


def test_problems_are_told_with_the_nodes_that_have_them():
    told = {node: status(node, [], problems=["ip_forward is off"], draining=node == "n2") for node in ("n1", "n2")}
    assert [*describe(whole(**told))][2:] == ["n2: draining", "n1, n2: ip_forward is off"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"draining": 1, "eips": []}', b"\xff", b'{"draining": true}'])
def test_what_is_no_status_is_an_edge_error(body):
    with pytest.raises(EdgeError, match="not a speaker's status"):
        read("n1", body)


def test_nobody_speaks_to_the_terminal():
    hostile = "\x1b[2J"
    told = whole({hostile: hostile}, **{hostile: status(hostile, [HELD | {"services": [hostile]}], problems=[hostile])})
    assert all(line.isprintable() for line in describe(told))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watched(looks, out, *, as_json=False):
    """``looks``: lines, or an error, one after the other; then Ctrl-C."""
    left = [*looks]

    def look():
        found = left.pop(0)
        if isinstance(found, EdgeError):
            raise found
        return found

    def wait():
        if not left:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(look, out, wait, as_json)
    return out.getvalue()


def test_a_status_is_shown_again_when_it_is_another_and_not_else():
    said = watched([["a"], ["a"], ["b", "c"], ["b", "c"]], io.StringIO())
    assert [line for line in said.splitlines() if not line.endswith(" UTC")] == ["a", "", "b", "c", ""]


def test_on_a_terminal_it_takes_the_place_of_the_last_one():
    assert watched([["a"], ["b"]], Terminal()).count("\x1b[H\x1b[2J") == 2


def test_a_speaker_that_is_gone_is_shown_and_asked_again():
    said = watched([["a"], EdgeError("no speaker runs here"), ["a"]], io.StringIO())
    assert [line for line in said.splitlines() if line and not line.endswith(" UTC")] == [
        "a",
        "no speaker runs here",
        "a",
    ]


def test_a_machine_gets_a_line_for_every_change():
    said = watched([['{"a": 1}'], ['{"a": 1}'], EdgeError("gone")], Terminal(), as_json=True)
    assert [json.loads(line) for line in said.splitlines()] == [{"a": 1}, {"error": "gone"}]
