"""Trying again: how often, how long between, and what a failed try leaves behind."""

import asyncio
import gc
import weakref

import pytest

from speaker.errors import EdgeError
from speaker.system.retry import retrying


class Tale:
    """What was told and waited, and a try that fails so often."""

    def __init__(self, failures):
        self.left, self.told, self.waits = failures, [], []

    async def sleep(self, seconds):
        self.waits.append(seconds)

    async def play(self, **how):
        async for attempt in retrying(lambda error: self.told.append(str(error)), sleep=self.sleep, **how):
            with attempt:
                if self.left:
                    self.left -= 1
                    raise EdgeError(f"{self.left} to go")


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_each_failure_is_told_and_the_first_success_ends_it(failures):
    tale = Tale(failures)
    asyncio.run(tale.play())
    assert tale.told == [f"{left} to go" for left in reversed(range(failures))]
    assert len(tale.waits) == failures


def test_the_waits_double_up_to_the_limit_and_each_is_random_below_that():
    tale = Tale(2000)
    asyncio.run(tale.play(multiplier=0.1, limit=2.0))
    most = [min(2.0, 0.1 * 2.0 ** min(number, 10)) for number in range(2000)]
    assert all(0 <= waited <= bound for waited, bound in zip(tale.waits, most, strict=True))
    assert max(tale.waits) > 1.9
    assert min(tale.waits[10:]) < 0.1


def test_the_waits_begin_anew_behind_a_try_that_lasted():
    tale = Tale(2000)
    asyncio.run(tale.play(multiplier=0.1, limit=2.0, steady=0.0))
    assert max(tale.waits) <= 0.1


def test_anything_but_an_edge_error_goes_through():
    async def fail():
        async for attempt in retrying(lambda error: None):
            with attempt:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())


class Held:
    """What a try holds, or who is told of its failure."""

    def hear(self, error):
        pass


@pytest.mark.parametrize("way", ["fails", "is cancelled"])
def test_a_try_leaves_nothing_behind_that_only_the_garbage_collector_would_find(way):
    seen, told = [], []

    async def once(begun):
        held = Held()
        seen.append(weakref.ref(held))
        failing = asyncio.get_running_loop().create_future()
        begun.set()
        if way == "fails" and len(seen) < 3:
            raise EdgeError("no")
        await failing

    async def serve(begun):
        listener = Held()
        told.append(weakref.ref(listener))
        async for attempt in retrying(listener.hear, multiplier=0.0):
            with attempt:
                await once(begun)

    async def play():
        begun = asyncio.Event()
        task = asyncio.create_task(serve(begun))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])

    gc.disable()
    try:
        asyncio.run(play())
        assert [one() for one in (*seen, *told)] == [None] * (len(seen) + 1)
    finally:
        gc.enable()
