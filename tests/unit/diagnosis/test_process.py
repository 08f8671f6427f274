"""Whether the speaker's process runs, as /proc says it."""

import socket

import pytest

from speaker.diagnosis.facts import Process
from speaker.diagnosis.kernel import listener, process_of, spent
from speaker.node.control import NAME


def proc(directory, **states):
    for pid, (state, parent) in enumerate(states.values(), 10):
        (directory / str(pid)).mkdir()
        text = f"Name:\tspeaker\nState:\t{state} (words)\nPPid:\t{parent}\nCapEff:\t0000000000003000\nSeccomp:\t2\n"
        (directory / str(pid) / "status").write_text(text)
    return directory


@pytest.mark.parametrize(
    ("own", "parents", "told"), [("S", "S", "S"), ("T", "S", "T"), ("S", "T", "T"), ("R", "Z", "Z"), ("D", "S", "D")]
)
def test_the_worse_state_of_the_process_and_of_its_parent_is_told(tmp_path, own, parents, told):
    found = process_of(10, "late", proc(tmp_path, main=(own, 11), wire=(parents, 1)))
    assert found == Process("late", 10, told, 0x3000, 2)


def test_one_that_may_not_be_looked_at_has_no_state(tmp_path):
    assert process_of(10, "late", tmp_path) == Process("late", 10)


def test_where_nobody_listens_there_is_none(tmp_path):
    assert listener(tmp_path, "no speaker runs here") == Process("no speaker runs here")


def test_who_may_not_ask_does_not_know_whether_there_is_one(closed_off):
    assert listener(closed_off, "Permission denied") == Process("Permission denied", hidden=True)


def test_what_a_process_spent_is_read_whatever_its_name_is(tmp_path):
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "stat").write_text("10 (a) b (c)) S 1 1 1 0 -1 4194560 9 0 0 0 70 30 0 0 20 0 1 0 1 1 1")
    assert spent(10, tmp_path) == 100
    assert spent(11, tmp_path) == 0


def test_one_that_has_no_time_for_those_who_wait_is_not_taken_for_one_that_is_gone(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waiting:
        listening.bind(str(tmp_path / NAME))
        listening.listen(0)
        waiting.connect(str(tmp_path / NAME))
        assert listener(tmp_path, "late") == Process("late", state="R", busy=True)
