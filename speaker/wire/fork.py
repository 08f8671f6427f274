"""Edge: the first process of a node becomes two. It stays as the wire process (``parent.py``), and a copy of it
continues as the main process.

What both need is imported and made once, and its memory is shared. Only the first main process is a copy. Later ones
run the same command again and inherit their end of the socket pair: a copy of a process with threads, sockets and
claims would have to get rid of all that.
"""

import ctypes
import faulthandler
import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import speaker

# Needed by both processes, though not by this file: imported only once.
import speaker.interfaces.rtnetlink
import speaker.ownership.hellos.frames
import speaker.system.retry
import speaker.telemetry.lateness
import speaker.wire.messages
import speaker.wire.progress
from speaker.errors import as_edge_error
from speaker.system.files import Lock, absolute, locked
from speaker.system.programs import end_with

VARIABLE, STACKS = "EIP_SPEAKER_WIRE", "EIP_SPEAKER_STACKS"
"""Environment variables of a main process that is not a copy: the file descriptors of its end, and of a file for the
stacks of its threads."""
SHOW_STACKS = signal.SIGUSR2
_M_ARENA_MAX = -8  # <malloc.h>


class Copy:
    """A copy of this process, used like ``subprocess.Popen`` for a program. One task waits for it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, 0
        self._ended = False

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        self._wait(0)
        return self.returncode

    def _wait(self, how: int) -> int | None:
        if not self._ended:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self._ended, self.returncode = True, os.waitstatus_to_exitcode(status)
        return self.returncode if self._ended else None

    def send_signal(self, number: int) -> None:
        if not self._ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def inherited() -> socket.socket | None:
    """The end of a main process that is not a copy; None in the first process, which should ``divide``."""
    number, stacks = os.environ.pop(VARIABLE, None), os.environ.pop(STACKS, None)
    if stacks is not None:
        _show_stacks_in(int(stacks))
    return None if number is None else socket.socket(fileno=int(number))


class First(NamedTuple):
    """The main process that is a copy, our end of the connection to it, the file for its stacks, and the lock of the
    runtime directory, which this process keeps for life."""

    process: Copy
    end: socket.socket
    stacks: int
    lock: Lock


def divide(runtime_dir: Path) -> socket.socket | First:
    """Returns twice: in the main process with its end, and in the first process, which should ``become`` the wire
    process.

    Raises EdgeError if another speaker has the runtime directory, or the kernel makes no copy.
    """
    _settle()
    path, wire = absolute(runtime_dir / "lock"), os.getpid()
    lock, stacks = locked(path), os.memfd_create("stacks")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    gc.freeze()  # the collector writes to what it looks at, which is then no longer shared
    with as_edge_error("cannot start the main process"):
        copy = os.fork()
    if copy:
        theirs.close()
        return First(Copy(copy), ours, stacks, Lock(path, lock))
    ours.close()
    os.close(lock)
    obey_only(wire)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # and is not closed: it may be 0 already
    _show_stacks_in(stacks)
    return theirs


def obey_only(parent: int) -> None:
    """Called in the main process. Only system calls, so that it may be called between fork and exec."""
    # A service manager or a terminal signals every process: this one stops when its parent says so, or ends with it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


def _settle() -> None:
    """From now on modules come from where this program was imported from, here and in what this process starts: never
    from the current directory. Threads share one arena of glibc's malloc, as otherwise the others could not use what
    one of them freed."""
    home = str(Path(speaker.__file__).parents[1])
    if not sys.flags.safe_path:
        sys.path[0] = home
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([home, *filter(None, [os.environ.get("PYTHONPATH")])]))
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # musl has only one arena
        mallopt(_M_ARENA_MAX, int(os.environ["MALLOC_ARENA_MAX"]))


def _show_stacks_in(file: int) -> None:
    """A handler in C does it, whoever holds the interpreter's lock."""
    faulthandler.enable(file)
    faulthandler.register(SHOW_STACKS, file)
