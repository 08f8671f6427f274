"""A machine that we share now and then lets nothing of ours run for a moment, whatever its priority: another has its
processor. Speakers freeze then, as they promise, and a test of alerts finds one that is true."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from speaker.system.process import take_priority

BEAT = 0.01
LONG = 0.2
"""Seconds, both. No speaker freezes before that."""


def longest(ended: Callable[[float], bool], clock: Callable[[], float] = time.monotonic) -> float:
    """Seconds for which this thread did not run when it was its turn. ``ended`` waits so long for the end, and says
    whether it came."""
    found, before, over = 0.0, clock(), False
    while not over:
        over, now = ended(BEAT), clock()
        found, before = max(found, now - before - BEAT), now
    return found


@contextmanager
def watches() -> Iterator[list["subprocess.Popen[str]"]]:
    """One on each processor."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for cpu in os.sched_getaffinity(0)
        ]
        for watch in found:
            assert watch.stdout is not None
            watch.stdout.readline()
        try:
            yield found
        finally:
            for watch in found:
                watch.kill()


def told(found: list["subprocess.Popen[str]"]) -> float:
    """The longest that any of them did not run, in seconds; none runs afterwards."""
    return max(float(watch.communicate()[0] or 0.0) for watch in found)


def main(cpu: str) -> None:
    """As urgent as a wire process; tells its longest when standard input ends."""
    os.sched_setaffinity(0, {int(cpu)})
    take_priority()
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    sys.stdout.write(f"{longest(lambda seconds: bool(select.select([sys.stdin], [], [], seconds)[0]))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
