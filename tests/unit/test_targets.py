"""Every test runs in a target of the Makefile, and every target in CI: each time, or when its turn comes."""

import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = [str(path.relative_to(ROOT)) for path in sorted(TESTS.rglob("test_*.py"))]
MAKEFILE, RUN = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
LONG = re.compile(r"""mark\.long\(part="([\w-]+)"\)""")

SEARCHES = "searches"
"""Tests that ``make test`` has too."""


def said(variable: str) -> list[str]:
    found = re.search(rf"^{variable}\s*:= (.*)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    return found[1].split()


PATIENT, GUEST, CLUSTER, PARTS, CLUSTER_PARTS = map(said, ("PATIENT", "GUEST", "CLUSTER", "PARTS", "CLUSTER_PARTS"))


def commands(*target: str) -> list[list[str]]:
    """What the target calls pytest with."""
    done = subprocess.run(["make", "--dry-run", *target], capture_output=True, text=True, check=True, cwd=ROOT)
    words = shlex.split(done.stdout.replace("\\\n", " "))
    return [shlex.split(word) for word in words if "bin/pytest " in word]


def runs(command: list[str], file: str) -> bool:
    """By where it stands."""

    def names(place: str) -> bool:
        return file == place or file.startswith(f"{place}/")

    ignored = [word.removeprefix("--ignore=") for word in command if word.startswith("--ignore=")]
    return any(map(names, command)) and not any(map(names, ignored))


@pytest.mark.parametrize(
    ("target", "but"),
    [
        (["test"], CLUSTER),
        (["test-api"], [*PATIENT, *GUEST, *CLUSTER]),
        *((["test-long", f"PART={part}"], [*GUEST, *CLUSTER]) for part in PARTS if part != SEARCHES),
    ],
    ids=lambda words: " ".join(words),
)
def test_each_file_is_in_one_command_of_a_target_but_for_what_others_run(target, but):
    assert len(FILES) > 300
    called = commands(*target)
    wrong = {file: found for file in FILES if (found := sum(runs(command, file) for command in called)) != 1}
    assert wrong == {file: 0 for file in FILES if any(file.startswith(f"{place}/") for place in but)}


def test_what_a_mark_takes_out_of_make_test_another_target_runs():
    (api,), *short = commands("test-api"), *([each] for each in commands("test"))
    assert [command[command.index("-m") + 1] for [command] in short] == ["not long and not apiserver"] * 3
    assert api[api.index("-m") + 1] == "apiserver and not long"
    for place, marks in [*((place, "apiserver") for place in PATIENT), *((place, "apiserver|long") for place in GUEST)]:
        for path in (ROOT / place).rglob("*.py"):
            assert path == Path(__file__) or not re.search(rf"mark\.({marks})\b", path.read_text()), path


def parts(place: Path) -> dict[str, set[str]]:
    """Part → files with tests of it."""
    found: dict[str, set[str]] = {}
    for path in place.rglob("*.py"):
        for part in LONG.findall(path.read_text()) if path != Path(__file__) else ():
            found.setdefault(part, set()).add(str(path.relative_to(ROOT)))
    return found


def test_every_long_test_is_in_a_part_that_make_knows_and_no_part_is_empty():
    of_clusters = parts(ROOT / CLUSTER[0])
    assert of_clusters.keys() == set(CLUSTER_PARTS)
    others = {part for part, files in parts(TESTS).items() if files - of_clusters.get(part, set())}
    assert {*others, SEARCHES} == set(PARTS)
    assert not set(PARTS) & set(CLUSTER_PARTS)


TURN = re.compile(r'^  "(.*):(.*)"$', re.MULTILINE)


def test_what_ci_does_not_run_each_time_has_its_turn():
    on_clusters, others = zip(*TURN.findall(RUN), strict=True)
    assert sorted(on_clusters) == sorted(CLUSTER_PARTS)
    assert sorted(" ".join(others).split()) == sorted([*PARTS, "test-api"])


@pytest.mark.parametrize("part", ["core", *CLUSTER_PARTS])
def test_a_part_of_the_cluster_is_chosen_by_its_mark(part):
    (command,) = commands("test-cluster", f"PART={part}")
    assert command[command.index("-m") + 1] == ("not long" if part == "core" else f"long(part='{part}')")


def test_what_is_compiled_of_the_simulation_is_there():
    lists = runpy.run_path(str(ROOT / ".ci" / "compiled.py"))
    paths = [ROOT / "speaker" / "ownership" / f"{name}.py" for name in lists["MACHINE"]]
    paths += [ROOT / "tests" / "simulation" / f"{name}.py" for name in lists["SIMULATION"]]
    assert [path for path in paths if not path.exists()] == []


def test_parts_are_chosen_together():
    (command,) = commands("test-cluster", "PART=core moves")
    assert command[command.index("-m") + 1] == "not long or long(part='moves')"
    (command,) = commands("test-long", "PART=soak alerts")
    assert command[command.index("-m") + 1] == "long(part='soak') or long(part='alerts')"
    everything = {part for command in commands("test-long") for part in re.findall(r"part='(\w+)'", " ".join(command))}
    assert everything == set(PARTS) - {SEARCHES}


def test_whose_turn_it_is_is_said_and_comes_from_the_commit_alone(tmp_path):
    """Without anything that ``.ci/run`` runs: ``make`` is another one here."""
    (make := tmp_path / "make").write_text('#!/bin/sh\necho "made $*"\n')
    make.chmod(0o755)

    def ran(turn: int) -> list[str]:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TURN": str(turn)}
        done = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.splitlines()

    number = len(TURN.findall(RUN))
    seen = [ran(turn) for turn in range(2 * number)]
    assert {tuple(said[1:3]) for said in seen} == {("made check", "made test")}
    assert {said[3] for said in seen} == {
        f"made test-cluster PART=core {part} MODE={mode}" for part in CLUSTER_PARTS for mode in ("iptables", "nftables")
    }
    assert len({said[4] for said in seen}) == number
    assert all(said[0].endswith(said[4].replace("made", "and make", 1)) for said in seen)
    assert seen[3][0].startswith("TURN=3: ")
