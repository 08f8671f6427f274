"""Waiting for an event under a time."""

import asyncio

import pytest

from speaker.system.waiting import (
    LONGEST,
    Limits,
    Progress,
    Timer,
    at_rest,
    limited_as_a_whole,
    set_within,
    sparing,
    tick,
)


@pytest.mark.parametrize("turns", range(5))
async def test_a_loop_that_is_cancelled_about_when_the_event_is_set_ends(turns: int) -> None:
    event = asyncio.Event()

    async def loop() -> None:
        while True:
            await set_within(event, 60.0)
            event.clear()

    looping = asyncio.create_task(loop())
    await turn(3)
    event.set()
    await turn(turns)
    looping.cancel()
    await turn(5)
    assert looping.cancelled()


async def turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seconds", [0.0, 60.0, None])
async def test_an_event_that_is_set_is_not_waited_for(seconds: float | None) -> None:
    event = asyncio.Event()
    event.set()
    await set_within(event, seconds)


async def test_one_that_never_is_set_is_waited_for_no_longer_than_said() -> None:
    event = asyncio.Event()
    await set_within(event, 0.0)
    assert not event.is_set()


def test_what_is_done_every_so_often_is_done_together(in_virtual_time):
    async def done_at(begins: float) -> float:
        await asyncio.sleep(begins)
        await tick(5.0)
        return asyncio.get_running_loop().time()

    async def story() -> list[float]:
        return await asyncio.gather(*map(done_at, (0.1, 4.9, 5.1)))

    assert in_virtual_time(story()) == pytest.approx([5.0, 5.0, 10.0])


@pytest.mark.parametrize(
    ("took", "pause"),
    [(0.0, 0.2), (0.05, 0.2), (1.0, 3.0), (100.0, 60.0)],
    ids=["nothing", "little", "long", "very long"],
)
def test_what_takes_long_is_followed_by_a_pause_three_times_as_long_within_bounds(in_virtual_time, took, pause):
    async def story() -> float:
        async with sparing(0.2, 60.0):
            await asyncio.sleep(took)
        return asyncio.get_running_loop().time()

    assert in_virtual_time(story()) == pytest.approx(took + pause)


def test_what_fails_is_not_waited_behind(in_virtual_time):
    async def story() -> float:
        with pytest.raises(ValueError, match="body"):
            async with sparing(0.2):
                raise ValueError("body")
        return asyncio.get_running_loop().time()

    assert in_virtual_time(story()) == 0


# ── how long work may take ──

LEAST = 60.0


@pytest.mark.parametrize(
    ("took", "limit"),
    [
        ([], 60.0),
        ([2.0, 29.0], 60.0),
        ([60.0], 120.0),
        ([60.0, 120.0, 240.0], 480.0),
        ([60.0, 100.0], 200.0),
        ([250.0], 500.0),
        ([400.0], LONGEST),
        ([5000.0], LONGEST),
        ([400.0, 2.0], 400.0),
        ([400.0, 2.0, 2.0, 2.0, 2.0], 60.0),
    ],
    ids=str,
)
def test_what_took_long_gets_twice_as_long_the_next_time_and_less_each_time_that_it_does_not(took, limit):
    limits = Limits()
    for seconds in took:
        limits.learn("settle", seconds, LEAST)
    assert limits.of("settle", LEAST) == limit
    assert limits.of("decide", LEAST) == LEAST, "nothing else does"


def test_what_somebody_else_limits_as_a_whole_has_no_limit_in_its_parts():
    limits = Limits()
    with limited_as_a_whole():
        assert limits.of("settle", LEAST) == float("inf")
    assert limits.of("settle", LEAST) == LEAST


def test_a_rest_within_a_rest_ends_with_the_outer_one():
    progress = Progress()
    progress.task = object()
    with progress.at_rest():
        with progress.at_rest():
            pass
        progress.pass_by(7.0)
        assert progress.stood == 0.0
    progress.pass_by(7.0)
    assert progress.stood == 7.0


def test_outside_of_a_loop_that_is_measured_rest_is_nothing():
    with at_rest():
        pass


def test_a_timer_that_is_set_again_and_again_rings_once_after_the_last_time(in_virtual_time):
    async def story():
        loop, rang = asyncio.get_running_loop(), []
        timer = Timer(lambda: rang.append(loop.time()))
        for _ in range(100):
            timer.set(5.0)
            await asyncio.sleep(1.0)
        await asyncio.sleep(60.0)
        timer.set(5.0)
        timer.cancel()
        await asyncio.sleep(60.0)
        return rang

    assert in_virtual_time(story()) == [104.0]
