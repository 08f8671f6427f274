"""What `make test` says at its end, whatever its commands did: `.ci/lanes.py`."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

LANES = Path(__file__).parents[2] / ".ci" / "lanes.py"
TESTS = {
    "passes": "def test_1(): pass\ndef test_2(): pass",
    "fails": "def test_1(): assert 0\ndef test_2(): pass",
    "fails too": "def test_1(): assert 0\ndef test_2(): pass",
    "skips": """
import pytest
@pytest.mark.parametrize("n", range(3))
def test_1(n): pytest.skip("it rains" if n else "it snows")
""",
    "errors": "import pytest\n@pytest.fixture\ndef bad(): raise ValueError\ndef test_1(bad): pass",
    "cannot be read": "def",
    "crashes": "import os\ndef test_1(): os._exit(3)",
    "fails at first": """
import pathlib
def test_1():
    there = pathlib.Path(__file__).with_name("there")
    assert there.exists() or there.touch()
def test_2(): pass
""",
    "is skipped then": """
import pathlib, pytest
def test_1():
    there = pathlib.Path(__file__).with_name("there")
    if there.exists():
        pytest.skip("it rains")
    assert there.touch()
""",
    "cannot be read at first": """
import pathlib
there = pathlib.Path(__file__).with_name("there")
assert there.exists() or there.touch()
def test_1(): pass
""",
    "fails often": "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_1(n): assert 0",
    "fails at its end": "import pytest\ndef pytest_sessionfinish(session): session.exitstatus = 1",
}


@pytest.fixture
def lanes(tmp_path):
    """``lanes("passes", "fails")`` runs those tests at once and returns what that says."""

    def lane(name):
        if name not in TESTS:
            return name
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        (directory / "pytest.ini").touch()
        (directory / ("conftest.py" if "sessionfinish" in TESTS[name] else "test_it.py")).write_text(TESTS[name])
        return shlex.join([sys.executable, "-m", "pytest", str(directory)])

    def run(*names):
        return subprocess.run(
            [sys.executable, LANES, *map(lane, names)],
            env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("names", "status", "last", "said"),
    [
        (["passes", "passes", "skips"], 0, "4 passed, 0 failed, 3 skipped", "2 skipped: it rains\n"),
        (["fails", "passes", "skips"], 1, "3 passed, 1 failed, 3 skipped", "FAILED test_it::test_1: assert 0\n"),
        (["passes", "errors", "passes"], 1, "4 passed, 1 failed, 0 skipped", "0 passed, 1 failed, 0 skipped"),
        (["crashes", "passes"], 1, "2 passed, 1 failed, 0 skipped", "crashes: no report, exit status 3"),
        (["no-such-program", "passes"], 1, "2 passed, 1 failed, 0 skipped", "No such file or directory"),
        (["passes", "cannot be read", "passes"], 1, "4 passed, 1 failed, 0 skipped", "exit status 2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_command_runs_and_the_last_line_sums_them_up(lanes, names, status, last, said):
    done = lanes(*names)
    lines = done.stdout.splitlines()
    assert lines[-1] == last
    assert said in done.stdout
    assert sum(re.match(r" +\d+ s  \d+ passed", line) is not None for line in lines) == len(names)
    assert done.returncode == status


def test_commands_run_at_once(lanes, tmp_path):
    """Each waits for the other."""
    files = tmp_path / "first", tmp_path / "second"
    wait = "import pathlib, time\npathlib.Path({!r}).touch()\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)"
    done = lanes(*(shlex.join([sys.executable, "-c", wait.format(*map(str, each))]) for each in (files, files[::-1])))
    assert "Traceback" not in done.stdout


def test_a_lane_says_what_failed_and_why_and_does_not_list_what_was_skipped(lanes):
    done = lanes("errors", "skips")
    assert "FAILED test_it::test_1: failed on setup with" in done.stdout
    assert "SKIPPED" not in done.stdout


def test_a_command_that_fails_without_a_failed_test_is_a_failure(lanes):
    done = lanes("fails at its end")
    assert done.stdout.endswith("0 passed, 1 failed, 0 skipped\n")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("names", "status", "last"),
    [
        (["fails at first", "passes"], 0, "4 passed, 0 failed, 0 skipped"),
        (["fails at first", "fails", "passes"], 1, "5 passed, 1 failed, 0 skipped"),
    ],
)
def test_what_fails_beside_others_and_passes_by_itself_is_told_and_is_no_failure(lanes, names, status, last):
    done = lanes(*names)
    assert "FAILED AT FIRST test_it::test_1: AssertionError" in done.stdout
    assert done.stdout.splitlines()[-1] == last
    assert done.returncode == status


def test_second_runs_are_counted_against_what_may_have_them(lanes):
    assert "\n1 passed in a second run, 2 may; " in lanes("fails at first", "passes").stdout


@pytest.mark.parametrize("names", [["fails often"], ["fails at first", "fails", "fails too"]])
def test_where_more_have_failed_than_may_none_is_run_again(lanes, names):
    done = lanes(*names)
    assert "FAILED AT FIRST" not in done.stdout
    assert sum(done.stdout.count(word) for word in ("FFF", "F.")) == len(names)
    assert done.stdout.splitlines()[-1].split(", ")[1] == "3 failed"
    assert done.returncode == 1


@pytest.mark.parametrize("name", ["is skipped then", "cannot be read at first"])
def test_what_does_not_pass_by_itself_or_ended_early_stays_a_failure(lanes, name):
    done = lanes(name, "passes")
    assert done.stdout.endswith("2 passed, 1 failed, 0 skipped\n")
    assert "FAILED AT FIRST" not in done.stdout
    assert done.returncode == 1
