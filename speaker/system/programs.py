"""Edge: programs that are run for their output, whose failures are all EdgeErrors; and child processes that end with
their parent, whatever ends that.
"""

import asyncio
import ctypes
import math
import os
import signal
from typing import NamedTuple

from speaker.errors import EdgeError, NotDone, Unsupported
from speaker.system.waiting import Limits, at_rest

_PR_SET_PDEATHSIG = 1  # prctl(2)
_libc = ctypes.CDLL(None)
SECONDS = 60.0
"""A program that takes longer hangs, unless it did so before: then it gets twice as long. Ten thousand virtual servers
take nft some seconds."""
_limits = Limits()


class Ended(NamedTuple):
    """``complaint``: what it wrote to stderr, on one line."""

    status: int
    output: bytes
    complaint: str


async def run(*command: str, text: str = "", seconds: float | None = None) -> Ended:
    """Runs ``command`` with ``text`` on its standard input until it ends, whatever its exit status.

    Raises Unsupported where there is no such program or it may not be executed, EdgeError where the host cannot run it
    now (no process, thread, descriptor or memory left), NotDone where it is not done within ``seconds``, else SECONDS
    or longer (``Limits``), or is killed, by a kernel without memory perhaps. Cancelled, it leaves nothing running: that
    could still commit after whatever comes next.
    """
    what, loop = command[:2], asyncio.get_running_loop()
    limit, begun = _limits.of(what, SECONDS) if seconds is None else seconds, loop.time()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},  # some read the complaint
        )
    except (FileNotFoundError, PermissionError) as error:
        raise Unsupported(f"the program {command[0]} is not installed, or not executable: {error.strerror}") from error
    except (OSError, RuntimeError) as error:  # before Python 3.12 asyncio waits for a child in a thread of its own
        raise EdgeError(f"cannot run {command[0]}: {error}") from error
    try:
        with at_rest():
            async with asyncio.timeout(None if math.isinf(limit) else limit):
                output, complaint = await process.communicate(text.encode())
    except TimeoutError as error:
        raise NotDone(f"{command[0]} did not finish within {limit:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if seconds is None:
            _limits.learn(what, loop.time() - begun, SECONDS)
    assert process.returncode is not None  # communicate() waited
    if process.returncode < 0:
        raise NotDone(f"{command[0]} was killed: {signal.strsignal(-process.returncode)}")
    return Ended(process.returncode, output, " ".join(complaint.decode(errors="replace").split()))


def end_with(parent: int) -> None:
    """To be called in the child between fork and exec: has the kernel kill it when ``parent``, its process id, ends.

    Only system calls, so that locks of other threads of the parent do not matter.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before prctl took effect
        os._exit(1)
