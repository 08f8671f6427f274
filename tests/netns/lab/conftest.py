"""A lab's LAN in this process, and the lab as its users run it: a command."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from speaker.lab.lan import Lan
from speaker.lab.topology import lab_topology

LAB = (sys.executable, "-W", "error", "-m", "speaker", "lab")


@pytest.fixture
def lan(namespaces) -> Iterator[Callable[[int], Lan]]:
    """``lan(nodes)`` builds one."""
    with ExitStack() as stack:
        yield lambda nodes: stack.enter_context(Lan(lab_topology(nodes)))


@dataclass(frozen=True)
class KeptLab:
    """A running ``speaker lab --keep`` whose scenario is over."""

    process: subprocess.Popen[str]
    story: str
    mark: str
    """In the environment of each of its processes."""

    def enter(self, host: str) -> list[str]:
        """The ``nsenter …`` words that the lab itself tells its users, for ``host``."""
        label = f"{host}: "
        line = next(line.strip() for line in self.story.splitlines() if line.strip().startswith(label))
        return line.removeprefix(label).split()

    def run(self, host: str, line: str) -> str:
        done = subprocess.run([*self.enter(host), *line.split()], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{host}: {line}: exit {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout


@pytest.fixture
def kept_lab(namespaces) -> Iterator[Callable[[], KeptLab]]:
    """``kept_lab()`` starts one and waits until it can be played in; killed at the end if it still runs."""

    @contextmanager
    def start() -> Iterator[KeptLab]:
        # A group of its own: a test's signal must not reach pytest, nor the terminal's Ctrl-C the lab.
        mark = f"EIP_SPEAKER_LAB_OF_TEST={uuid.uuid4()}"
        with subprocess.Popen(
            ["/usr/bin/env", mark, *LAB, "--keep"], stdout=subprocess.PIPE, text=True, process_group=0
        ) as process:
            try:
                yield KeptLab(process, _story(process), mark)
            finally:
                process.send_signal(signal.SIGTERM)

    def _story(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                return "".join(lines)
        raise AssertionError(f"the lab ended with exit code {process.wait()}:\n{''.join(lines)}")

    with ExitStack() as stack:
        yield lambda: stack.enter_context(start())


@pytest.fixture
def lab_command(namespaces) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``lab_command("--json")`` runs ``speaker lab --json`` to its end."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | environment
        return subprocess.run([*LAB, *arguments], capture_output=True, text=True, check=False, timeout=120, env=env)

    return run
