"""``kubectl eip``: a script that hands its words to ``speaker``, and the manifest by which krew installs it."""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from speaker import __version__

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "manifests" / "krew" / "kubectl-eip"


@pytest.fixture
def run(tmp_path):
    """``run("status", "--json")``, where ``speaker`` says what it was given."""
    speaker = tmp_path / "speaker"
    speaker.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n')
    speaker.chmod(0o755)

    def plugin(*words, path=f"{tmp_path}:{os.environ['PATH']}"):
        environment = os.environ | {"PATH": path}
        return subprocess.run([PLUGIN, *words], capture_output=True, text=True, check=False, env=environment)

    return plugin


@pytest.mark.parametrize("words", [("plan", "a dir", "b"), ("validate", "a dir"), ("help", "explain"), ("help",)])
def test_words_and_exit_codes_go_through_as_they_are(words, run):
    done = run(*words)
    assert (done.returncode, done.stdout) == (7, "".join(f"{word}|" for word in words))


@pytest.mark.parametrize("words", [("status", "--json"), ("doctor",), ("explain", "192.0.2.10", "--context", "a b")])
def test_what_looks_at_a_host_looks_at_the_cluster(words, run):
    command, *more = words
    assert run(*words).stdout == "".join(f"{word}|" for word in (command, "--cluster", *more))


@pytest.mark.parametrize("words", [(), ("--context", "prod"), ("--watch",)])
def test_no_command_shows_the_state_of_the_cluster(words, run):
    assert run(*words).stdout == "".join(f"{word}|" for word in ("status", "--cluster", *words))


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_is_the_speakers(word, run):
    assert run(word).stdout == "help|"


@pytest.mark.parametrize("word", ["run", "cleanup", "drain", "agent"])
def test_what_changes_a_host_is_no_business_of_kubectls(word, run):
    done = run(word)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"kubectl eip: {word}: must be one of explain ")


def test_without_the_speaker_it_says_what_is_missing(run, tmp_path):
    (tmp_path / "nothing").mkdir()
    done = run("status", path=str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert "pip install eip-speaker" in done.stderr


def test_the_manifest_names_what_make_plugin_packs(tmp_path):
    for tool in ("make", "tar", "gzip", "sha256sum"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    for part in ("Makefile", "LICENSE", "speaker/__init__.py", "manifests/krew/kubectl-eip", "manifests/krew/eip.yaml"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    subprocess.run(["make", "plugin", "REPOSITORY=example/eip"], check=True, cwd=tmp_path, capture_output=True)
    packed = tmp_path / "dist" / "kubectl-eip.tar.gz"
    (platform,) = (manifest := yaml.safe_load((tmp_path / "dist" / "eip.yaml").read_text()))["spec"]["platforms"]
    assert manifest["spec"]["version"] == f"v{__version__}"
    assert manifest["metadata"]["name"] == "eip"
    assert platform["sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert platform["uri"] == f"https://github.com/example/eip/releases/download/v{__version__}/kubectl-eip.tar.gz"
    with tarfile.open(packed) as archive:
        assert archive.getnames() == [file["from"] for file in platform["files"]]
        assert archive.getmember(platform["bin"]).mode & 0o111
