"""A machine that we share now and then lets nothing of ours run for a moment, whatever its priority: another has its
processor. Speakers freeze then, as they promise, and a test of alerts finds one that is true."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playing import Fires, Phase, firing

from speaker.system.priority import take_priority

BEAT = 0.01
LONG = 0.2
"""Seconds, both. No speaker freezes before that."""
OF_A_FREEZE = "SpeakerFrozen", "SpeakerLost"
"""Who is frozen falls silent to the others."""


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


def fires(
    phases: list[Phase],
    steps: Mapping[str, int],
    wanted: Mapping[str, Fires],
    home: Path,
    stood: Callable[[], float],
    most: float = LONG,
) -> None:
    """As ``firing``; skipped where all is right but for what frozen speakers lead to, and the machine stood still."""
    said = firing(phases, steps, wanted, home)
    if said and not firing(phases, steps, wanted, home, but_for=OF_A_FREEZE) and (seconds := stood()) >= most:
        pytest.skip(f"speakers froze, as the machine stood still for {seconds:.2f} s")
    assert not said, said


def main(cpu: str) -> None:
    """As urgent as a wire process; tells its longest when standard input ends."""
    os.sched_setaffinity(0, {int(cpu)})
    take_priority()
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    sys.stdout.write(f"{longest(lambda seconds: bool(select.select([sys.stdin], [], [], seconds)[0]))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
