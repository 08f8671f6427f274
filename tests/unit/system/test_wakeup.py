"""A loop that has something to do and does nothing."""

import asyncio

from speaker.system.waiting import Wakeup


async def test_who_neither_waits_nor_does_anything_stands_still():
    wakeup = Wakeup(lambda: 0.0)
    assert [wakeup.stands_still(now, 0.1) for now in (0.0, 0.05, 0.1, 0.2)] == [False, False, True, True]
    wakeup.turn()
    assert [wakeup.stands_still(now, 0.1) for now in (0.25, 0.3, 0.36)] == [False, False, True]


async def test_one_look_after_a_long_pause_accuses_nobody():
    wakeup = Wakeup(lambda: 0.0)
    assert not wakeup.stands_still(0.0, 0.1)
    assert not wakeup.stands_still(60.0, 0.1)
    wakeup.turn()
    assert not wakeup.stands_still(60.1, 0.1)


async def test_who_waits_for_something_to_do_stands_not_still():
    wakeup = Wakeup(lambda: 0.0)
    waiting = asyncio.create_task(wakeup.until(None))
    await asyncio.sleep(0)
    assert [wakeup.stands_still(now, 0.1) for now in (0.0, 60.0)] == [False, False]
    wakeup.cut()
    await waiting
