"""What CI has no time for in one run comes first in another."""

import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

CI = Path(__file__).parents[2] / ".ci"
sys.path.insert(0, str(CI))

import by_turns  # noqa: E402

pytest_plugins = ["pytester"]

FILE = """
import pytest
@pytest.mark.parametrize("number", range(50))
def test(number): print("ran", number)
"""


@given(st.integers(0, 200))
def test_all_tests_stay_and_each_comes_first_in_some_turn(count):
    tests = list(range(count))
    turns = [by_turns.rotated(tests, turn) for turn in range(count)]
    assert all(sorted(turn) == tests for turn in turns)
    assert count % by_turns.STEP == 0 or {turn[0] for turn in turns} == set(tests)


def played(pytester, monkeypatch, minutes: str):
    monkeypatch.setenv("PYTHONPATH", str(CI))
    monkeypatch.setenv("TURN", "1")
    monkeypatch.setenv("MINUTES", minutes)
    pytester.makepyfile(FILE)
    return pytester.runpytest_subprocess("-p", "by_turns", "-rs", "-s")


def test_a_turn_begins_further_on(pytester, monkeypatch):
    done = played(pytester, monkeypatch, "5")
    done.assert_outcomes(passed=50)
    done.stdout.re_match_lines([r".*ran 37", r".*ran 49", r".*ran 0", r".*ran 36"])


def test_what_there_is_no_time_for_is_skipped_and_says_so(pytester, monkeypatch):
    done = played(pytester, monkeypatch, "0")
    done.assert_outcomes(skipped=50)
    done.stdout.fnmatch_lines([f"*{by_turns.REASON}*"])
