"""A main process that lives is not yet one that works: what each loop says of itself, and what is made of that."""

import asyncio

import pytest

from speaker.system.waiting import Progress, at_rest, get_on, set_within, tick
from speaker.wire.progress import LIMIT, LONGEST, TELL_SECONDS, WHERE_SECONDS, Loops, MainProgress, Patience


class Nobody:
    """A supervisor to whom nothing is told."""

    def internal_error(self, task, error):
        raise error


@pytest.fixture
def told(in_virtual_time):
    """``told(work, seconds)``: what is said of a loop after so long; where it stands comes behind."""

    def play(work, seconds):
        async def story():
            loops, heard = Loops(), []

            async def tell(seconds_by_name, where):
                heard.append((seconds_by_name.get("loop", 0.0), where))

            running = [
                asyncio.create_task(loops.measured("loop", work)()),
                asyncio.create_task(loops.run(tell, Nobody())),
            ]
            await asyncio.sleep(seconds)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            return heard

        return in_virtual_time(story())

    return play


async def resting():
    while True:
        await tick(300.0)


async def waiting():
    await set_within(asyncio.Event(), None)


async def idle():
    with at_rest():
        await asyncio.Event().wait()


async def step_by_step():
    while True:
        await asyncio.sleep(7.0)
        get_on()


async def lost():
    """Whoever was to answer never will."""
    await tick(1.0)
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("work", [resting, waiting, idle, step_by_step])
def test_a_loop_that_rests_or_gets_on_is_never_late(told, work):
    assert max(seconds for seconds, _ in told(work, 1000.0)) <= WHERE_SECONDS


def test_a_loop_that_waits_for_what_never_comes_is_later_each_time_and_says_where(told):
    seconds, where = told(lost, 60.0)[-1]
    assert 55.0 <= seconds <= 60.0
    assert "Loop loop:" in where
    assert "in lost" in where


def test_a_task_that_a_loop_started_does_not_speak_for_it(told):
    async def with_another():
        other = asyncio.create_task(resting())
        await asyncio.get_running_loop().create_future()
        await other

    assert told(with_another, 60.0)[-1][0] >= 55.0


def test_time_in_which_the_main_process_stood_still_is_not_counted():
    progress = Progress()
    progress.task = object()
    progress.pass_by(TELL_SECONDS)  # its loop turned once in an hour
    assert progress.stood == TELL_SECONDS


def test_a_main_process_of_which_nothing_is_heard_is_replaced_at_the_limit_and_not_before():
    progress = MainProgress()
    for _ in range(int(LIMIT) - 1):
        progress.pass_by(1.0)
    assert progress.stuck is None
    progress.pass_by(1.0)
    assert progress.stuck == "nothing was heard of it for 90 s"


def test_one_that_is_heard_gets_on_as_long_as_each_of_its_loops_does():
    progress = MainProgress()
    for _ in range(1000):
        progress.pass_by(1.0)
        progress.heard({"reconcile": LIMIT - 1, "publish": 3.0}, "")
        assert progress.stuck is None
    progress.heard({"reconcile": LIMIT, "thread of settle": LIMIT + 5, "publish": 3.0}, "")
    assert progress.stuck == "reconcile for 90 s, thread of settle for 95 s"


def test_each_that_was_stuck_gives_the_next_one_twice_as_long_and_one_that_was_not_ends_that():
    patience, limits = Patience(), []
    for stuck in [True] * 6 + [False]:
        limits.append(patience.seconds)
        patience.ended(stuck=stuck, worked=True)
    assert limits == [90.0, 180.0, 360.0, 720.0, LONGEST, LONGEST, LONGEST]
    assert patience.seconds == LIMIT


def test_one_that_failed_before_it_worked_teaches_no_haste():
    """A start that takes 100 s, and one in between that met an error after 50."""
    patience = Patience()
    patience.ended(stuck=True, worked=False)
    patience.ended(stuck=False, worked=False)
    assert patience.seconds == 2 * LIMIT


async def in_a_thread(seconds):
    """As work handed to one: it has a limit of its own."""
    with at_rest():
        await asyncio.sleep(seconds)


def test_a_loop_that_waits_for_work_with_a_limit_of_its_own_is_not_late(told):
    async def work():
        await in_a_thread(600.0)
        await asyncio.get_running_loop().create_future()

    assert max(seconds for seconds, _ in told(work, 590.0)) == 0.0
    assert 50.0 <= told(work, 660.0)[-1][0] <= 60.0
