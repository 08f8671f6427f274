"""What GitHub runs, run here: every `run:` of the workflows in order, in a copy of this checkout, with a program that
only writes down what it is told in place of each that would sign or publish."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from speaker import __version__

ROOT = Path(__file__).resolve().parents[2]
DIGEST = f"sha256:{'0123456789abcdef' * 4}"

ELSEWHERE = {
    "make check": "CONTRIBUTING.md has it, and .ci/run runs it",
    "make unit": "`make test`, which .ci/run runs, has all of it",
    "sudo make demo": "the README has it, and tests/netns/lab plays the same scenarios",
    "sudo .ci/run": "it is what runs this",
}
"""Command → why it is not run again."""
STAND_INS = {
    "cosign": "signing takes GitHub's identity",
    "gh": "a release takes GitHub",
    "helm": "the chart goes to a registry",
}
"""Program → why another is run in its place."""


class Step(NamedTuple):
    workflow: str
    job: str
    command: str
    env: dict[str, str]


def steps() -> Iterator[Step]:
    """In the order in which GitHub runs them."""
    for name in ("check", "release"):
        jobs: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())[
            "jobs"
        ]
        for job, told in jobs.items():
            for step in told["steps"]:
                if "run" in step:
                    env = {**told.get("env", {}), **step.get("env", {})}
                    yield Step(
                        name, job, step["run"].partition(" #")[0], {key: filled(each) for key, each in env.items()}
                    )


EXPRESSIONS = {
    "github.repository": "example/eip",
    "github.ref_name": f"v{__version__}",
    "github.actor": "somebody",
    "github.token": "",
    "needs.test.outputs.version": __version__,
    "needs.image.outputs.digest": DIGEST,
    "steps.build.outputs.digest": DIGEST,
    "env.IMAGE": "ghcr.io/example/eip",
}


def filled(text: str) -> str:
    """As GitHub fills it in."""
    for name, value in EXPRESSIONS.items():
        text = text.replace(f"${{{{ {name} }}}}", value)
    assert "${{" not in text, "EXPRESSIONS lacks it"
    return text


def test_every_step_is_run_here_or_has_a_reason_why_not():
    commands = [each.command for each in steps()]
    assert ELSEWHERE.keys() <= {*commands}
    assert len(commands) - len(ELSEWHERE) == 7


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What git has of this checkout, and what is new in it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git, and a checkout")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """What stand-ins were told, a line each; they are in ``bin`` beside it. Of what they are given as a file of the
    release each has to be there."""
    (tmp_path / "bin").mkdir()
    file = tmp_path / "told"
    for name in STAND_INS:
        tool = tmp_path / "bin" / name
        tool.write_text(
            f'#!/bin/sh\necho {name} "$@" >>{file}\n'
            'for word; do\n  case "$word" in\n    dist/*.sigstore.json) : >"$word" ;;\n'
            f'    dist/*) [ -f "$word" ] || exit 9 ;;\n  esac\ndone\necho Digest: {DIGEST}\n'
        )
        tool.chmod(0o755)
    return file


@pytest.mark.long(part="practice")
def test_every_step_does_what_it_should_in_order(copy, told, kubectl):
    base = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTEST", "VIRTUAL_ENV"))}
    base |= {"PATH": f"{told.parent / 'bin'}:{os.environ['PATH']}", "PYTHON": str(Path(sys.executable).resolve())}
    for step in steps():
        if step.command not in ELSEWHERE:
            done = subprocess.run(
                ["sh", "-c", step.command], cwd=copy, env=base | step.env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{step}: {done.stderr[-2000:]}{done.stdout[-2000:]}"
    made = {str(each.relative_to(copy / "dist")) for each in (copy / "dist").rglob("*") if each.is_file()}
    said = told.read_text().splitlines()
    signed = {line.split()[-1].removeprefix("dist/") for line in said if line.startswith("cosign sign-blob")}
    assert signed >= {f"manifests/{name}.yaml" for name in ("default", "assist", "ipvs", "nftables", "cleanup")}
    assert signed >= {"eip.yaml", "kubectl-eip.tar.gz", f"chart/eip-speaker-{__version__}.tgz"}
    assert {Path(each).suffix for each in signed} == {".yaml", ".tgz", ".gz", ".whl", ".deb", ".rpm"}
    assert {f"{each}.sigstore.json" for each in signed} <= made
    (release,) = (line.split() for line in said if line.startswith("gh "))
    published = {word.removeprefix("dist/") for word in release if word.startswith("dist/")}
    assert signed <= published
    assert release[3] == f"v{__version__}"
    pushed = f"ghcr.io/example/eip/charts/eip-speaker@{DIGEST}"
    assert {f"cosign sign --yes {pushed}", f"cosign sign --yes ghcr.io/example/eip@{DIGEST}"} <= {*said}
    assert f"ghcr.io/example/eip:{__version__}@{DIGEST}" in (copy / "dist/manifests/default.yaml").read_text()
    assert "REPOSITORY" not in (copy / "dist/eip.yaml").read_text()
