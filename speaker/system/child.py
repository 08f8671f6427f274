"""Child processes that end with their parent, whatever ends it."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2)
_libc = ctypes.CDLL(None)


def end_with(parent: int) -> None:
    """To be called in the child between fork and exec: has the kernel kill it when ``parent``, its process id, ends.

    Only system calls, so that locks of other threads of the parent do not matter.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before prctl took effect
        os._exit(1)
