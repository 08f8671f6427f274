"""What GitHub runs and asks, without GitHub: what workflows call is there, and no job may do more than it has to."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from render import OVERLAYS

from speaker import __version__
from speaker.cli import main

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
ON = WORKFLOW[True]  # what YAML 1.1 reads in the word `on`
CHECKING = (ROOT / ".github" / "workflows" / "check.yml").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PUBLISHING = {"packages", "contents", "id-token", "attestations"}


def steps(jobs: dict[str, dict[str, Any]] = JOBS) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in jobs.items():
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


@pytest.mark.parametrize("text", [TEXT, CHECKING], ids=["release", "check"])
def test_every_command_is_a_target_of_the_makefile_or_a_file_here(text):
    commands = [step["run"] for _, step in steps(yaml.safe_load(text)["jobs"]) if "run" in step]
    assert commands
    for command in commands:
        program, *words = command.removeprefix("sudo ").partition(" #")[0].split()
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
        "release": ["attestations", "contents", "id-token", "packages"],
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


def test_a_pull_request_is_checked_and_may_do_nothing():
    told = yaml.safe_load(CHECKING)
    assert told[True].keys() == {"pull_request", "push"}  # not pull_request_target, which has rights
    assert told["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in told["jobs"].values())
    assert [step["run"] for _, step in steps(told["jobs"]) if "run" in step] == [
        "make check", "make unit", "sudo make demo",
    ]  # fmt: skip
    for _, step in steps(told["jobs"]):
        if "uses" in step:
            assert step["uses"] in TEXT, "pinned as in the release"
            assert step["with"]["persist-credentials"] is False


def test_what_is_published_is_made_before():
    made = ["dist", "rendered", "chart", "plugin", "packages"]
    commands = " ".join(step["run"] for _, step in steps() if "run" in step)
    assert all(f" {target}" in commands for target in made)
    released = re.search(r"^RELEASED = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert released
    (attested,) = (
        step["with"]["subject-path"].split() for _, step in steps() if "subject-path" in step.get("with", {})
    )
    assert set(attested) == set(released[1].split())


def test_one_form_of_tag_for_image_and_chart():
    (build,) = (step for _, step in steps() if step.get("id") == "build")
    assert build["with"]["tags"].endswith(":${{ needs.test.outputs.version }}")
    (rendering,) = (step["env"]["IMAGE"] for _, step in steps() if "rendered" in step.get("run", ""))
    assert ":${{ needs.test.outputs.version }}@" in rendering
    assert "test" in needs("image")
    assert "test" in JOBS["release"]["needs"], "its output is read there"


def test_the_version_is_told_to_later_jobs(tmp_path):
    told = tmp_path / "output"
    environment = {**os.environ, "GITHUB_OUTPUT": str(told)}
    subprocess.run(
        ["make", "tagged", f"TAG=v{__version__}"], cwd=ROOT, check=True, env=environment, capture_output=True
    )
    assert told.read_text() == f"version={__version__}\n"


# ── What is updated, and what is asked ──


MANIFEST = {"github-actions": ".github/workflows", "docker": "Dockerfile", "pip": "pyproject.toml", "gomod": "go.mod"}


def test_what_is_pinned_is_kept_up_to_date():
    told = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    found = set()
    for update in told["updates"]:
        for pattern in update.get("directories", [update.get("directory")]):
            places = list(ROOT.glob(pattern.strip("/") + "/")) if pattern != "/" else [ROOT]
            assert places
            assert all((place / MANIFEST[update["package-ecosystem"]]).exists() for place in places)
            found.update(place for place in places if update["package-ecosystem"] == "gomod")
    assert found == {file.parent for file in (ROOT / "tests").rglob("go.mod")}


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda it: it.stem
)
def test_a_form_is_one_that_github_takes(form):
    """https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests"""
    told = yaml.safe_load(form.read_text())
    assert told.keys() == {"name", "description", "labels", "body"}
    asked = [each for each in told["body"] if each["type"] != "markdown"]
    assert len({each["id"] for each in asked}) == len(asked)
    for each in asked:
        assert each["type"] in ("textarea", "input", "dropdown")
        assert each["attributes"]["label"]
        assert ("options" in each["attributes"]) is (each["type"] == "dropdown")


def test_who_reports_a_fault_is_asked_for_what_the_doctor_says():
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text()
    commands = re.findall(r"`(?:speaker|kubectl eip) (doctor --json)`", text)
    assert commands
    for command in commands:
        with pytest.raises(SystemExit, match=r"^0$"):
            main([*command.split(), "--help"])
    forwarders = next(each for each in yaml.safe_load(text)["body"] if each.get("id") == "forwarder")
    assert set(forwarders["attributes"]["options"]) == {"none", *OVERLAYS} - {"default"}


# ── make image ──

ENGINE = """#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
case "$1 ${0##*/}" in "info docker") exit "${DAEMON:-0}" ;; esac
"""


@pytest.fixture
def make_image(tmp_path):
    """``make_image("docker", "kind", image=…, to=…)`` with these programs alone: what it called, and how it ended."""

    def run(*programs: str, image: str = "example.com/eip:1", to: str = "", **environment: str):
        place = tmp_path / "bin"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for program in programs:
            (place / program).write_text(ENGINE)
            (place / program).chmod(0o755)
        for tool in ("bash", "sh", "env", "dirname", "git", "mktemp", "rm"):
            (place / tool).symlink_to(shutil.which(tool) or "/missing")
        calls = tmp_path / "calls"
        calls.write_text("")
        done = subprocess.run(
            [ROOT / ".ci" / "image", image, *filter(None, [to])],
            env={"PATH": str(place), "CALLS": str(calls), **environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done, [line for line in calls.read_text().splitlines() if not line.endswith(" info")]

    return run


def test_an_image_is_built_by_the_first_engine_that_works(make_image):
    for programs, more, engine in (
        (("docker", "podman", "buildah"), {}, "docker"),
        (("podman", "buildah"), {}, "podman"),
        (("docker", "buildah"), {"DAEMON": "1"}, "buildah"),
        (("docker", "buildah"), {"ENGINE": "buildah"}, "buildah"),
    ):
        done, (call,) = make_image(*programs, **more)
        assert done.returncode == 0, done.stderr
        assert call.startswith(f"{engine} build ")
        assert call.endswith(" --tag example.com/eip:1 .")
        assert ("--format docker" in call) is (engine != "docker")
        assert "--label org.opencontainers.image.version=1" in call


@pytest.mark.parametrize(
    ("programs", "to", "last"),
    [
        (("docker",), "push", "docker push example.com/eip:1"),
        (("docker", "kind"), "kind", "kind load image-archive ARCHIVE --name kind"),
        (("podman", "k3s"), "k3s", "k3s ctr images import ARCHIVE"),
        (("buildah", "microk8s"), "microk8s", "microk8s ctr image import ARCHIVE"),
        (("buildah", "ctr"), "containerd", "ctr --namespace k8s.io images import ARCHIVE"),
    ],
)
def test_an_image_gets_to_where_nodes_find_it_and_leaves_no_file(make_image, programs, to, last):
    done, calls = make_image(*programs, to=to)
    assert done.returncode == 0, done.stderr
    archive = next((word for word in calls[-1].split() if word.endswith(".tar")), "ARCHIVE")
    assert calls[-1].replace(archive, "ARCHIVE") == last
    assert to == "push" or archive in calls[-2]
    assert not Path(archive).exists()


def test_without_an_engine_or_with_a_word_that_cannot_be_meant_it_says_so(make_image):
    for programs, words, told in (
        ((), {}, "needs docker, podman or buildah"),
        (("docker",), {"to": "minikube"}, "minikube: must be push, kind, k3s, microk8s or containerd"),
        (("docker",), {"image": "example.com:5000/eip"}, "must be NAME:TAG"),
    ):
        done, calls = make_image(*programs, **words)
        assert (done.returncode, calls) == (2, [])
        assert told in done.stderr


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
