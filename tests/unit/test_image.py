"""The image without a container engine: its lock covers the project, and the steps of its build do what they say."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from speaker import __version__
from speaker.settings import DEFAULT_METRICS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SHARED = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
PATIENCE = 300.0
"""Seconds; against a hang, not an expectation."""

Instruction = tuple[str, str]


# ── The lock ──


def locked(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Package → its line without the hashes, and those."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    parts = [re.split(r"\s--hash=", line.strip()) for line in lines]
    found = {canonicalize_name((requirement := Requirement(first)).name): (requirement, rest)
             for first, *rest in parts}  # fmt: skip
    assert len(found) == len(lines), "a package has two lines"
    return found


LOCKS = {
    "requirements.txt": [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["mqtt"]],
    "requirements-build.txt": [*PROJECT["build-system"]["requires"], *PROJECT["dependency-groups"]["image"]],
}


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_of_a_lock_is_one_version_and_its_hashes(name):
    for requirement, hashes in locked(name).values():
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each.strip()) for each in hashes), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_covers_what_the_project_asks_for(name):
    found = locked(name)
    for wish in map(Requirement, LOCKS[name]):
        assert canonicalize_name(wish.name) in found, f"{wish}: run `make lock`"
        (version,) = found[canonicalize_name(wish.name)][0].specifier
        assert wish.specifier.contains(version.version), f"{wish}: run `make lock`"


# ── The Dockerfile ──


def stages() -> list[list[Instruction]]:
    text = (ROOT / "Dockerfile").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    found: list[list[Instruction]] = []
    for line in filter(str.strip, lines.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, " ".join(rest.split())))
    return found


def of(stage: list[Instruction], word: str) -> list[str]:
    return [rest for each, rest in stage if each == word]


def test_the_build_sees_what_it_copies_and_nothing_else():
    build, _ = stages()
    copied = {source for rest in of(build, "COPY") for source in rest.split()[:-1]}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied


PROGRAMS = {"nft": "nftables", "iptables-legacy-save": "iptables"}
"""That the speaker runs, and their packages."""


@pytest.mark.parametrize(("program", "package"), PROGRAMS.items())
def test_the_image_has_the_programs_that_the_speaker_runs(program, package):
    _, final = stages()
    (install,) = (rest for rest in of(final, "RUN") if "apt-get install" in rest)
    assert any(f'"{program}"' in file.read_text() for file in (ROOT / "speaker").rglob("*.py"))
    assert package in install.split()


@contextmanager
def answering(code: int) -> Iterator[str]:
    """ADDRESS:PORT of a server that answers everything with ``code``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("code", "well"), [(200, True), (503, False)])
def test_the_health_check_asks_the_speaker(code, well):
    _, final = stages()
    (rest,) = of(final, "HEALTHCHECK")
    program, *arguments = json.loads(rest.partition("CMD ")[2])
    assert program == "python"
    assert any(f"http://{DEFAULT_METRICS}/healthz" in each for each in arguments)
    with answering(code) as place:
        asked = [each.replace(DEFAULT_METRICS, place) for each in arguments]
        done = subprocess.run([sys.executable, *asked], capture_output=True, check=False, timeout=PATIENCE)
    assert (done.returncode == 0) is well


# ── Its build, by hand ──


@pytest.fixture(scope="module")
def out_of_reach(tmp_path_factory):
    """Skips where there is no package index: one small package of the lock is asked for."""
    wanted = str(locked("requirements.txt")["tenacity"][0].specifier)
    ask = ["install", "--quiet", "--no-deps", "--dry-run", "--target", str(tmp_path_factory.mktemp("pip"))]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *ask, "--retries=0", "--ignore-installed", f"tenacity{wanted}"],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"needs a package index: {done.stderr.strip().splitlines()[-1]}")


def carry_out(stage: list[Instruction], root: Path) -> None:
    """As a container engine would, with ``root`` for /; ``python`` is the one that runs this."""
    here = root
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def inside(text: str) -> str:
        return re.sub(r"(?<![\w.)/])/(?=opt/|src)", f"{root}/", text)

    for word, rest in stage:
        match word:
            case "FROM":
                pass
            case "WORKDIR":
                here = Path(inside(rest))
                here.mkdir(parents=True, exist_ok=True)
            case "ENV":
                environment |= dict(pair.split("=", 1) for pair in rest.split())
            case "COPY":
                *sources, target = rest.split()
                for source in sources:
                    copy(ROOT / source, (here / target / source) if target == "./" else here / target)
            case "RUN":
                done = subprocess.run(
                    ["sh", "-ec", inside(rest)], cwd=here, env=environment, capture_output=True, text=True,
                    check=False, timeout=PATIENCE,
                )  # fmt: skip
                assert done.returncode == 0, f"{rest}: {done.stdout}{done.stderr}"
            case _:
                raise AssertionError(f"{word}: is new here")


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def built(out_of_reach, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("image")
    build, _ = stages()
    carry_out(build, root)
    return root


def speaker(built: Path, *arguments: str) -> str:
    done = subprocess.run(
        [built / "opt/speaker/bin/speaker", *arguments], cwd=built, capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(built: Path, *arguments: str) -> str:
    done = subprocess.run(
        [built / "opt/build/bin/python", "-m", "pip", "--python", built / "opt/speaker/bin/python", *arguments],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


def test_what_was_built_runs_by_itself(built):
    assert speaker(built, "--version") == f"speaker {__version__}\n"
    speaker(built, "validate", str(ROOT / "manifests/examples"))
    speaker(built, "keygen", str(built / "key"))


def test_a_kubeconfig_is_read_without_the_clients_generated_models(built, tmp_path):
    assert not [*built.glob("opt/speaker/lib/python*/site-packages/kubernetes/**/models/v1_*.py")]
    cluster = {"server": "https://192.0.2.5:6443", "insecure-skip-tls-verify": True}
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": "t"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    (tmp_path / "config").write_text(json.dumps(told))
    ask = """import asyncio, pathlib, sys
from speaker.cluster.access import read_kubeconfig
async def read():
    server = await read_kubeconfig(pathlib.Path(sys.argv[1]))
    print(server.url, await server.authorization())
asyncio.run(read())"""
    done = subprocess.run(
        [built / "opt/speaker/bin/python", "-I", "-c", ask, tmp_path / "config"], capture_output=True, text=True,
        check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.stdout == "https://192.0.2.5:6443 Bearer t\n", done.stderr


def test_a_list_names_every_package_that_is_in_it_with_its_version(built):
    told = json.loads((built / "opt/speaker/sbom.cdx.json").read_text())
    assert told["bomFormat"] == "CycloneDX"
    found = {canonicalize_name(each["name"]): each["version"] for each in told["components"]}
    installed = {
        canonicalize_name(each["name"]): each["version"] for each in json.loads(pip(built, "list", "--format=json"))
    }
    assert installed.keys() > {canonicalize_name(Requirement(each).name) for each in LOCKS["requirements.txt"]}
    assert found == installed


def test_the_wheel_brings_what_systemd_reads_where_it_looks(built):
    for name, place in SHARED.items():
        assert (built / "opt/speaker" / place).read_bytes() == (ROOT / name).read_bytes()
    assert {str(file.relative_to(ROOT)) for file in (ROOT / "manifests/systemd").iterdir()} == SHARED.keys()


def test_the_wheel_has_every_file_of_the_package(built):
    (wheel,) = (built / "opt/wheel").glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("speaker/")}
    source = built / "src/speaker"
    assert inside == {f"speaker/{file.relative_to(source)}" for file in source.rglob("*") if file.is_file()}
