"""The release workflow, without GitHub: what it calls is there, and no job may do more than it has to."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from render import OVERLAYS

from speaker import __version__

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
ON = WORKFLOW[True]  # what YAML 1.1 reads in the word `on`
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PUBLISHING = {"packages", "contents", "id-token", "attestations"}


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in JOBS.items():
        for step in job["steps"]:
            yield name, step


def writes(job: str) -> set[str]:
    return {right for right, may in JOBS[job]["permissions"].items() if may == "write"}


def needs(job: str) -> set[str]:
    """All that must have gone well before."""
    first = JOBS[job].get("needs", [])
    found = {first} if isinstance(first, str) else set(first)
    return found.union(*map(needs, found))


def test_it_runs_for_a_version_tag_alone():
    assert ON == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}


def test_every_command_is_a_target_of_the_makefile_or_a_file_here():
    commands = [step["run"] for _, step in steps() if "run" in step]
    assert commands
    for command in commands:
        program, *words = command.removeprefix("sudo ").split()
        if program == "make":
            targets = {word for word in words if "=" not in word}
            assert targets
            assert targets <= TARGETS
        else:
            assert (ROOT / program).is_file(), command
            assert not words


def test_all_that_is_expanded_in_a_command_comes_from_the_environment():
    for _, step in steps():
        assert "${{" not in step.get("run", "")
        named = set(re.findall(r"\$(\w+)", step.get("run", "")))
        assert named <= step.get("env", {}).keys()


def test_nobody_has_a_right_unless_its_job_says_so():
    assert WORKFLOW["permissions"] == {}
    assert {job: sorted(writes(job)) for job in JOBS if writes(job)} == {
        "image": ["attestations", "id-token", "packages"],
        "release": ["attestations", "contents", "id-token"],
        "pypi": ["id-token"],
    }
    assert set().union(*map(writes, JOBS)) <= PUBLISHING


def test_nothing_goes_out_before_the_tests_have_passed():
    for job in JOBS:
        if writes(job):
            assert "test" in needs(job), job
    assert [step["run"] for name, step in steps() if name == "test" and "run" in step] == [
        "make tagged TAG=$TAG",
        "sudo .ci/run",
    ]


def test_what_is_signed_is_what_was_published():
    (build,) = (step for _, step in steps() if step.get("id") == "build")
    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"
    (signed,) = (step for _, step in steps() if "sign-image" in step.get("run", ""))
    assert signed["env"]["IMAGE"].endswith("@${{ steps.build.outputs.digest }}")


def test_no_step_keeps_the_right_to_push():
    for _, step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("used", sorted({step["uses"] for _, step in steps() if "uses" in step}))
def test_every_action_is_pinned(used):
    _, _, version = used.partition("@")
    (line, *_) = (line for line in TEXT.splitlines() if used in line)
    if re.fullmatch(r"[0-9a-f]{40}", version):
        assert re.search(r"# v\d+\.\d+\.\d+$", line), "says which version that is"
    else:
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version)
        assert "# by tag:" in line


@pytest.mark.parametrize(("tag", "fine"), [(f"v{__version__}", True), (__version__, False), ("v999.0.0", False)])
def test_a_tag_is_that_of_the_version_it_names(tag, fine):
    done = subprocess.run(["make", "tagged", f"TAG={tag}"], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode == 0) is fine


def test_the_released_files_are_those_that_are_told_of():
    told = (ROOT / "docs" / "releases.md").read_text()
    assert all(f"`{overlay}.yaml`" in told for overlay in OVERLAYS)
