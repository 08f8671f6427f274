"""Every line of a command block in the documentation runs in a test, or says what it needs that is not here.

Whatever a line says, its commands, flags, targets and files exist. ``documented.py`` has the two tables; a line that
neither knows fails, and so does an entry that no line has any more.
"""

import re
import subprocess
import sys

import pytest
from documented import LINES, NEEDS, ROOT, RUN, Line, first_word, lines_of, where

from speaker.cli import _parser
from speaker.tools.flags import parse


def name_of(line: Line) -> str:
    return f"{line.file}:{line.number}"


def test_the_blocks_are_found():
    assert len(LINES) > 60
    assert {line.file for line in LINES} >= {"README.md", "docs/operations.md", "docs/kubernetes.md"}


@pytest.mark.parametrize("line", LINES, ids=name_of)
def test_a_line_runs_in_a_test_or_says_what_it_needs(line):
    assert len(where(line)) == 1, f"{line.text}: {where(line)}"


@pytest.mark.parametrize("reason", [*RUN, *NEEDS])
def test_no_reason_outlives_its_lines(reason):
    pattern = {**RUN, **NEEDS}[reason]
    assert any(re.fullmatch(pattern, line.text) for line in LINES)
    tests = re.findall(r"\b(?:apiserver|netns|unit|cluster)/[\w/.]*", reason)
    assert [name for name in tests if not (ROOT / "tests" / name).exists()] == []


def with_program(name: str) -> list[Line]:
    return [line for line in LINES if first_word(line.text) == name]


@pytest.mark.parametrize("line", with_program("speaker"), ids=name_of)
def test_the_parser_takes_every_command_of_the_speaker(line):
    parse(_parser(), line.words[1:])


@pytest.mark.parametrize("line", with_program("make"), ids=name_of)
def test_make_knows_every_target(line):
    done = subprocess.run(["make", "--dry-run", *line.words[1:]], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", [line for line in with_program("pytest") if "--lf" not in line.words], ids=name_of)
def test_pytest_finds_every_test(line):
    asked = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *line.words[1:]]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("line", LINES, ids=name_of)
def test_every_file_of_ours_that_a_line_names_is_there(line):
    named = re.findall(r"(?<![\w./-])(?:manifests|tests|docs|speaker)/[\w./-]+", line.text)
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Do:\n\n    make demo      # now\n    speaker run \\\n        DIR\n\nand", ["make demo", "speaker run DIR"]),
        ("    $ speaker status\n    node n1\n    $ ip a\n", ["speaker status", "ip a"]),
        ("- a list\n    speaker of it\n", []),
        ("    a picture\n", []),
        ("```sh\nip a\n```\n```yaml\nip: 1\n```\n", ["ip a"]),
    ],
)
def test_a_block_is_what_is_indented_behind_a_blank_line_or_fenced_as_sh(text, found, tmp_path):
    (tmp_path / "page.md").write_text(text)
    assert [line.text for line in lines_of(tmp_path / "page.md", tmp_path)] == found
