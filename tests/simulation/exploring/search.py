"""The search: a process for every way that is tried, one of which works at a time."""

import os
import sys
import time
import traceback
from collections.abc import Sequence

from simulation.exploring.canonical import EPOCH
from simulation.exploring.memo import Explored, Found, Memo
from simulation.exploring.world import Small, SmallWorld
from simulation.host import Make
from speaker.ownership.machine.machine import Ownership


class _Search:
    def __init__(self, small: Small, make: Make, memo: Memo, until: float) -> None:
        self._memo, self._until = memo, until
        self._trail: list[str] = []
        self._world = SmallWorld(small, self._decide, make)

    def run(self) -> None:
        """Until this way leads to what was met before."""
        world, memo = self._world, self._memo
        while world.go_on():
            if world.since > world.small.begins:
                memo.note_met()
                if self._met_before():
                    return
                if memo.over or time.monotonic() > self._until:
                    memo.stop()
                    memo.leave()
                    return
            world.choose()
        assert world.promises.broken is not None
        broken = world.promises.broken
        memo.note(Found(broken.promise.value, broken.story, tuple(self._trail)))

    def _met_before(self) -> bool:
        """With as much left to go wrong, or more. Otherwise it is met now."""
        world, key, small = self._world, self._world.key(), self._world.small
        for faults in range(world.faults_left, small.faults + 1):
            for frames in range(world.frames_left, small.frames + 1):
                if _mixed(key, faults, frames) in self._memo:
                    return True
        if not self._memo.over:
            self._memo.add(_mixed(key, world.faults_left, world.frames_left), world.depth)
        return False

    def _decide(self, what: str) -> bool:
        """In the child it happens. In the parent it did not, once the child is done with all that follows."""
        if self._memo.over:
            self._memo.leave()
            return False
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            self._trail.append(f"{self._world.since:.4f} {what}")
            return True
        os.waitpid(child, 0)
        return False


def _mixed(key: int, faults: int, frames: int) -> int:
    return (key + (faults * 8 + frames) * 0x9E3779B97F4A7C15) % (1 << 64) or 1


def explore(small: Small, states: int, seconds: float = 1e9, make: Make = Ownership) -> Explored:
    """Every way there is from the start of ``small`` on, until so many states were met or the time is over."""
    memo = Memo(states)
    if (child := os.fork()) == 0:
        try:
            _Search(small, make, memo, time.monotonic() + seconds).run()
        except BaseException:
            traceback.print_exc()
            memo.fail()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return memo.result()


def replay(small: Small, trail: Sequence[str], make: Make = Ownership, seconds: float = 4.0) -> SmallWorld:
    """One way again, and on for a while behind its last choice."""
    left = list(trail)

    def decide(what: str) -> bool:
        if not left or left[0] != f"{world.since:.4f} {what}":
            return False
        del left[0]
        return True

    world = SmallWorld(small, decide, make, trace=True)
    end = (float(trail[-1].split()[0]) if trail else small.begins) + seconds
    while world.since < end and world.go_on():
        world.choose()
    assert not left, f"{left[0]} could not happen"
    return world


def story(small: Small, found: Found, make: Make = Ownership) -> str:
    """What happened, line by line, in seconds since the start."""
    world = replay(small, found.trail, make)
    lines = [line.strip().partition(" ") for line in world.trace.lines or ()]
    return "\n".join([f"{small}: {found.promise}", *(f"{float(at) - EPOCH:9.4f} {what}" for at, _, what in lines)])
