"""A machine that we share now and then lets nothing of ours run for a moment, whatever its priority: another has its
processor. Speakers freeze then, as they promise, and a test about something else finds an alert that is true."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from speaker.system.priority import take_priority

BEAT = 0.01
LONG = 0.2
"""Seconds, both. No speaker freezes before that."""


def longest(ended: Callable[[float], bool], clock: Callable[[], float] = time.monotonic) -> float:
    """Seconds for which this thread did not run when it was its turn. ``ended`` waits so long for the end, and says
    whether it came."""
    found, before = 0.0, clock()
    while not ended(BEAT):
        now = clock()
        found, before = max(found, now - before - BEAT), now
    return found


@contextmanager
def unless_the_machine_stands_still(most: float = LONG) -> Iterator[None]:
    """What fails while it does is skipped."""
    with ExitStack() as stack:
        watches = [
            stack.enter_context(
                subprocess.Popen(
                    ["taskset", "--cpu-list", str(cpu), sys.executable, __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for cpu in os.sched_getaffinity(0)
        ]
        for watch in watches:
            assert watch.stdout is not None
            watch.stdout.readline()
        try:
            yield
        except AssertionError as error:
            if (stood := _told(watches)) < most:
                raise
            pytest.skip(f"the machine stood still for {stood:.2f} s meanwhile: {error}")
        _told(watches)


def _told(watches: list[subprocess.Popen[str]]) -> float:
    return max(float(watch.communicate()[0]) for watch in watches)


def main() -> None:
    """As urgent as a wire process; tells its longest when standard input ends."""
    take_priority()
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    sys.stdout.write(f"{longest(lambda seconds: bool(select.select([sys.stdin], [], [], seconds)[0]))}\n")


if __name__ == "__main__":
    main()
