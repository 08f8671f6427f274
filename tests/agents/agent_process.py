"""The real agent (or controller) as a process of its own inside a namespace; killed with this one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from real_api import bound_to_us
from speaker_processes import told_apart

from speaker.lab.namespaces import Namespace
from speaker.lab.speakers import claimed, parse_event
from speaker.model import IPAddress

PYTHON = os.environ.get("EIP_SPEAKER_PYTHON", sys.executable)
"""What runs the speaker: a virtual environment without what only tests need, say."""


class Process:
    """``speaker COMMAND …``; started when made. What it logs is in ``log``, that of earlier ones included."""

    def __init__(self, place: Namespace, log: Path, *command: str) -> None:
        self.log = log
        self._said_before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out, place.entered():
            self.process = subprocess.Popen(
                [PYTHON, "-m", "speaker", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=out,
                preexec_fn=_settle(),
            )

    def said(self) -> list[dict[str, Any]]:
        """The lines of its log so far; what is no JSON comes as ``{"event": line}``."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            return [dict(parse_event(line.decode().rstrip())) for line in log if line.endswith(b"\n")]

    def check(self) -> None:
        """It runs."""
        assert self.process.poll() is None, "".join(str(line) for line in self.said()[-20:])

    def kill(self) -> None:
        """SIGKILL, for it and the processes it started; returns when it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> None:
        """SIGTERM, as the kubelet sends it: to the first process only."""
        self.process.terminate()


def _settle() -> Callable[[], None]:
    bound = bound_to_us()

    def settle() -> None:
        bound()
        os.setsid()  # a group of its own: see Process.kill

    return settle


class Agent(Process):
    def __init__(self, node: str, place: Namespace, directory: Path, *flags: str) -> None:
        self.node, self.runtime_dir = node, directory / "run"
        self.runtime_dir.mkdir(parents=True, exist_ok=True)
        self._status = self.runtime_dir / "status.json"
        self._status.unlink(missing_ok=True)  # of a life before
        common = ("--runtime-dir", str(self.runtime_dir), "--forwarder", "none", "--log-format", "json")
        super().__init__(place, directory / "log", "agent", "--node", node, *common, *flags)

    def status(self) -> Mapping[str, Any]:
        """What it says that it does; empty until it has said anything."""
        with suppress(FileNotFoundError):
            found: Mapping[str, Any] = json.loads(self._status.read_bytes())
            return found
        return {}

    def holds(self) -> set[IPAddress]:
        return {eip for eip, holds in claimed(self.status()).items() if holds}

    def kill_main(self) -> None:
        """Its main process: the wire process starts another."""
        os.kill(told_apart(self.process.pid)["main"], signal.SIGKILL)

    def ask(self, command: str) -> str:
        """``speaker COMMAND`` at its control socket; what that printed."""
        words = (PYTHON, "-m", "speaker", command, "--runtime-dir", str(self.runtime_dir))
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"speaker {command} at {self.node}: {done.stderr}{done.stdout}"
        return done.stdout
