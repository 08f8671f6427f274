"""The end of a main process, as the wire process sees it: whoever answers for EIPs waits for nothing."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import threading

import pytest

from speaker.errors import EdgeError
from speaker.wire.parent import Main


class Lingering(subprocess.Popen[bytes]):
    """The kernel clears it away once the loop has found the time to ask for that."""

    loop: asyncio.AbstractEventLoop

    def wait(self, timeout: float | None = None) -> int:
        cleared = threading.Event()
        self.loop.call_soon_threadsafe(cleared.set)
        return super().wait(timeout) if cleared.wait(60) else 99


async def test_a_process_that_takes_long_to_be_cleared_away_keeps_nothing_else_waiting() -> None:
    ours, theirs = socket.socketpair()
    process = Lingering([sys.executable, "-c", "raise SystemExit(3)"])
    process.loop = asyncio.get_running_loop()
    with ours, theirs:
        assert await Main(process, ours).ended() == "exit code 3"


def leaving() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])


async def test_without_a_descriptor_to_be_told_by_its_end_is_noticed_all_the_same() -> None:
    ours, theirs = socket.socketpair()
    process = leaving()
    with ours, theirs:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        ending = asyncio.ensure_future(Main(process, ours).ended())
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            await asyncio.sleep(0)  # it asks for one
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await ending == "exit code 3"


class Refused(subprocess.Popen[bytes]):
    """No thread is left that could wait for it."""

    def wait(self, timeout: float | None = None) -> int:
        raise EdgeError("no thread is available")


async def test_without_a_thread_that_waits_for_it_its_end_is_noticed_all_the_same() -> None:
    ours, theirs = socket.socketpair()
    process = Refused([sys.executable, "-c", "raise SystemExit(3)"])
    with ours, theirs:
        assert await Main(process, ours).ended() == "exit code 3"


def test_one_that_was_started_too_late_is_ended_and_keeps_no_descriptor():
    ours, theirs = socket.socketpair()
    with theirs:
        stacks = os.memfd_create("stacks")
        main = Main(subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]), ours, stacks)
        main.discard()
        assert main.process.returncode == -9
        assert theirs.recv(1) == b"", "our end is closed"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(stacks)
