"""Whether the speaker's process runs, as /proc says it."""

import pytest

from speaker.diagnosis.facts import Process
from speaker.diagnosis.process import listener, read


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
    found = read(10, "late", proc(tmp_path, main=(own, 11), wire=(parents, 1)))
    assert found == Process("late", 10, told, 0x3000, 2)


def test_one_that_may_not_be_looked_at_has_no_state(tmp_path):
    assert read(10, "late", tmp_path) == Process("late", 10)


def test_where_nobody_listens_there_is_none(tmp_path):
    assert listener(tmp_path, "no speaker runs here") == Process("no speaker runs here")


def test_who_may_not_ask_does_not_know_whether_there_is_one(closed_off):
    assert listener(closed_off, "Permission denied") == Process("Permission denied", hidden=True)
