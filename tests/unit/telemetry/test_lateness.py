"""How late a loop is told to be, and how much of that to be its own work."""

import asyncio
import time
from collections.abc import Callable

import pytest

from speaker.telemetry.lateness import LOOK_SECONDS, watch_loop

KEPT = 0.05
"""Seconds that the loop does not run."""


def work() -> None:
    end = time.thread_time() + KEPT
    while time.thread_time() < end:
        pass


def wait() -> None:
    time.sleep(KEPT)


async def looked_at_while(keep: Callable[[], None]) -> tuple[float, float]:
    looks: asyncio.Queue[tuple[float, float]] = asyncio.Queue()
    watching = asyncio.create_task(watch_loop(lambda late, busy: looks.put_nowait((late, busy))))
    await asyncio.sleep(0)
    keep()
    found = await looks.get()
    watching.cancel()
    return found


@pytest.mark.parametrize("keep", [work, wait])
async def test_a_loop_is_late_by_what_kept_it(keep):
    late, busy = await looked_at_while(keep)
    assert late >= KEPT - LOOK_SECONDS
    assert busy <= late


async def test_its_own_work_is_told_apart_from_waiting():
    _, working = await looked_at_while(work)
    _, waiting = await looked_at_while(wait)
    assert working >= KEPT - LOOK_SECONDS
    assert waiting < working
