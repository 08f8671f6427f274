"""Ctrl-C at any moment prints no traceback."""

import os
import signal
import subprocess
import sys

import pytest

IMPORTED = ("speaker.errors", "speaker.model", "asyncio", "speaker.cli")
"""Modules, early to late, after whose import somebody presses Ctrl-C."""


@pytest.mark.parametrize("module", IMPORTED)
@pytest.mark.parametrize("command", [["doctor"], ["status", "--watch"]], ids=lambda words: words[0])
def test_ctrl_c_at_any_moment_prints_no_traceback(module, command, tmp_path):
    told = [sys.executable, "-X", "importtime", "-m", "speaker", *command, "--runtime-dir", str(tmp_path)]
    with subprocess.Popen(told, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if line.split("|")[-1].strip() == module)
        os.kill(running.pid, signal.SIGINT)
        rest = running.stderr.read()
        assert "Traceback" not in rest, rest
        assert running.wait() in (130, -signal.SIGINT)


def test_run_on_a_directory_that_is_not_there_says_so_and_ends(tmp_path):
    command = [sys.executable, "-m", "speaker", "run", str(tmp_path / "gone"), "--runtime-dir", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"speaker: {tmp_path}/gone: must be a directory; --wait waits for one\n"
