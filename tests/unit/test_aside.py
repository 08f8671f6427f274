"""A command of `make test` that leaves the processors to all others: `.ci/aside.py`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ASIDE = Path(__file__).parents[2] / ".ci" / "aside.py"
SAY = "import os; print(os.nice(0), os.getsid(0), os.getpid(), flush=True)"
WAIT = f"""
import os, time
from pathlib import Path
caught = lambda: int(Path(f"/proc/{{os.getppid()}}/status").read_text().split("SigCgt:")[1].split()[0], 16)
while not caught() >> {signal.SIGTERM - 1} & 1: pass
print("here", flush=True)
time.sleep(60)
"""
"""Until it is stopped, from when it is taken care of."""


def aside(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, ASIDE, sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_it_is_as_nice_as_can_be_in_a_session_of_its_own() -> None:
    with aside(SAY) as command:
        nice, session, process = map(int, command.communicate(timeout=60)[0].split())
    assert (nice, session) == (19, process)
    assert session != os.getsid(0)


@pytest.mark.parametrize(("program", "status"), [("pass", 0), ("raise SystemExit(3)", 3)])
def test_it_ends_as_the_command_does(program: str, status: int) -> None:
    with aside(program) as command:
        assert command.wait(timeout=60) == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_it_stops_the_command(number: signal.Signals) -> None:
    with aside(WAIT) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "here\n"
        command.send_signal(number)
        assert command.wait(timeout=60) in (1, 130, 128 + number)
