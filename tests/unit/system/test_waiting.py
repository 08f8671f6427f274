"""Waiting for an event under a time."""

import asyncio

import pytest

from speaker.system.waiting import set_within, sparing, tick


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
