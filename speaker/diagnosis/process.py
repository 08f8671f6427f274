"""Edge: the speaker's main process as /proc shows it. It is the process that listens on the control socket."""

import socket
import struct
from pathlib import Path

from speaker.diagnosis.facts import Process
from speaker.node.control import NAME

PROC = Path("/proc")
_UCRED = struct.Struct("=iII")
_WORST = "TtDZX"
"""States in which a process does nothing, as in proc(5), behind which all others come."""


def listener(runtime_dir: Path, words: str = "") -> Process:
    """``words``: why it did not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(0.5)
            asking.connect(str(runtime_dir / NAME))
            pid, _, _ = _UCRED.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    except PermissionError:
        return Process(words, hidden=True)
    except BlockingIOError:  # somebody listens, and has no time for those who wait already
        return Process(words, state="R", busy=True)
    except OSError:
        return Process(words)
    return read(pid, words)


def read(pid: int, words: str = "", proc: Path = PROC) -> Process:
    """As far as /proc may be read."""
    told = _status(proc, pid)
    if not told:
        return Process(words, pid)
    parent = _status(proc, int(told.get("PPid", "0")))
    states = [each.get("State", "?")[:1] for each in (told, parent) if each]
    capabilities = told.get("CapEff")
    return Process(
        words,
        pid,
        min(states, key=lambda state: _WORST.find(state) % 99),
        int(capabilities, 16) if capabilities is not None else None,
        int(told.get("Seccomp", "0")),
    )


def spent(pid: int, proc: Path = PROC) -> int:
    """Clock ticks of CPU that it has had, as in proc(5); 0 where that cannot be read."""
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return 0


def _status(proc: Path, pid: int) -> dict[str, str]:
    try:
        lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
