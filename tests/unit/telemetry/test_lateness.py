"""How late a loop is told to be, and how much of that to be its own work."""

import asyncio
import time
from collections.abc import Callable

import pytest

from speaker.telemetry.lateness import LEAST, MAX_LOOKS, _Selector, run, watch_loop

KEPT = 0.05
"""Seconds that the loop does not run."""


def work() -> None:
    end = time.thread_time() + KEPT
    while time.thread_time() < end:
        pass


def wait() -> None:
    time.sleep(KEPT)


def looked_at_while(keep: Callable[[], None]) -> list[tuple[float, float]]:
    """All looks; the machine may have kept the loop as well, at any time."""

    async def story() -> list[tuple[float, float]]:
        looks: list[tuple[float, float]] = []
        watching = asyncio.create_task(watch_loop(lambda late, busy: looks.append((late, busy))))
        await asyncio.sleep(0)
        keep()
        await asyncio.sleep(0.01)  # it is told when the loop wakes the next time
        watching.cancel()
        return looks

    return run(story())


@pytest.mark.parametrize("keep", [work, wait])
def test_a_loop_is_late_by_what_kept_it(keep):
    looks = looked_at_while(keep)
    assert max(late for late, _ in looks) >= KEPT
    assert all(busy <= late for late, busy in looks)


def test_its_own_work_is_told_apart_from_waiting():
    working, waiting = (max(busy for _, busy in looked_at_while(keep)) for keep in (work, wait))
    assert working >= KEPT - LEAST
    assert waiting < working


def test_a_loop_that_has_nothing_to_do_is_not_woken_to_be_measured():
    async def turns() -> int:
        loop, turns = asyncio.get_running_loop(), 0
        watching = asyncio.create_task(watch_loop(lambda late, busy: None))
        sleep = loop.sleeper.select

        def counted(timeout=None):
            nonlocal turns
            turns += timeout != 0
            return sleep(timeout)

        await asyncio.sleep(0)
        loop.sleeper.select = counted
        await asyncio.sleep(0.3)
        watching.cancel()
        return turns

    # One sleep; a second where the selector woke a moment too soon.
    assert run(turns()) <= 2


def test_looks_that_nobody_takes_are_bounded_and_the_longest_is_kept():
    async def story() -> list[tuple[float, float]]:
        sleeper, looks = asyncio.get_running_loop().sleeper, []
        for number in range(MAX_LOOKS + 10):
            sleeper._note((number, 0.0))
        watching = asyncio.create_task(watch_loop(lambda late, busy: looks.append((late, busy))))
        await asyncio.sleep(0.01)
        watching.cancel()
        return looks

    looks = run(story())
    assert len(looks) <= 20
    assert max(looks)[0] == MAX_LOOKS + 9


def test_a_look_that_meets_a_bug_ends_whoever_watches_and_no_loop():
    async def story():
        loop = asyncio.get_running_loop()
        loop.sleeper.__class__ = Stumbling
        watching = asyncio.create_task(watch_loop(lambda late, busy: None))
        await asyncio.sleep(0)
        work()
        await asyncio.sleep(0.01)
        loop.sleeper.__class__ = _Selector
        with pytest.raises(KeyError, match="a bug"):
            await watching
        return "it goes on"

    assert run(story()) == "it goes on"


class Stumbling(_Selector):
    def _note(self, look):
        raise KeyError("a bug")
