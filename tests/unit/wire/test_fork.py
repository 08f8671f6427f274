"""One process becomes two: what each of them has, and how the copy is waited for."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from speaker.wire.fork import Copy

DIVIDED = """
import json, os, signal, socket, sys
from pathlib import Path
from speaker.errors import EdgeError
from speaker.system.files import locked
from speaker.wire.fork import SHOW_STACKS, divide

def main(end):
    try:
        locked(Path("run/lock"))
    except EdgeError:
        taken = True
    held = any(os.path.realpath(each).endswith("run/lock") for each in Path("/proc/self/fd").iterdir())
    told = {"lock_taken": taken, "has_lock": held, "stdin": sys.stdin.read(), "parent": os.getppid()}
    told["ignores"] = all(signal.getsignal(each) is signal.SIG_IGN for each in (signal.SIGTERM, signal.SIGINT))
    end.sendall(json.dumps(told | {"here": os.getcwd() in sys.path}).encode())
    sys.exit(3)

part = divide(Path("run"))
if isinstance(part, socket.socket):
    main(part)
told = json.loads(part.end.recv(4096))
print(json.dumps(told | {"wire": os.getpid(), "code": part.process.wait(), "polled": part.process.poll()}))
"""


def test_the_main_process_begins_as_one_that_was_started_and_the_lock_stays_with_the_wire_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "divided.py").write_text(DIVIDED)
    command = [sys.executable, "-m", "divided"]
    done = subprocess.run(command, cwd=tmp_path, input="for nobody", capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told.pop("wire") == told.pop("parent")
    own = {"lock_taken": True, "has_lock": False, "stdin": "", "ignores": True, "here": False}
    assert told == {**own, "code": 3, "polled": 3}


@pytest.mark.parametrize(
    ("code", "found"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)]
)
def test_a_copy_that_ended_tells_how(code: str, found: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", code])
    copy = Copy(process.pid)
    assert copy.wait() == copy.poll() == copy.returncode == found
    copy.kill()  # nobody who has the number by now
    process.returncode = found


def test_a_copy_that_runs_can_be_asked_after_and_killed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wait = f"import socket; socket.socket(fileno={theirs.fileno()}).recv(1)"
        process = subprocess.Popen([sys.executable, "-c", wait], pass_fds=[theirs.fileno()])
        copy = Copy(process.pid)
        assert copy.poll() is None
        copy.kill()
        assert copy.wait() == -signal.SIGKILL
    process.returncode = copy.returncode
    assert not Path(f"/proc/{copy.pid}").exists()
