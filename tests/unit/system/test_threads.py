"""Work handed to a thread: whatever ends it reaches who waits, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from speaker.errors import EdgeError, NotDone
from speaker.system.threads import Failed, Threads, hanging, in_thread, start_threads

SOON = 0.05


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What hangs in a thread until the test is over."""
    event = threading.Event()
    yield event
    event.set()


async def bounded(work):
    """No test waits for ever for what it shows to come."""
    async with asyncio.timeout(60):
        return await work


def raising(error):
    def work():
        raise error

    return work


async def test_what_work_returns_is_handed_back():
    assert await bounded(in_thread(divmod, 7, 2)) == (3, 1)


async def test_what_work_raises_is_raised_where_it_is_waited_for():
    with pytest.raises(EdgeError, match="refused"):
        await bounded(in_thread(raising(EdgeError("refused"))))


@pytest.mark.parametrize("error", [StopIteration("x"), asyncio.CancelledError("x"), SystemExit(3), KeyboardInterrupt()])
async def test_what_no_coroutine_can_be_handed_wakes_the_waiter_all_the_same(error):
    with pytest.raises(Failed, match=type(error).__name__) as caught:
        await bounded(in_thread(raising(error)))
    assert caught.value.__cause__ is error
    assert await bounded(in_thread(int, "7")) == 7, "the thread is still there"


async def test_work_that_hangs_is_given_up_by_name(released):
    with pytest.raises(EdgeError, match=r"Event\.wait did not finish within 0\.05 s"):
        await bounded(in_thread(released.wait, within=SOON))


async def test_what_hangs_is_not_begun_a_second_time_until_it_ends(released):
    with pytest.raises(EdgeError):
        await bounded(in_thread(released.wait, within=SOON))
    with pytest.raises(EdgeError, match=r"has hung in a thread for \d+ s"):
        await bounded(in_thread(released.wait))
    released.set()
    async with asyncio.timeout(60):
        while hanging(0.0):  # noqa: ASYNC110 -- a thread is to come to its end
            await asyncio.sleep(0)
    assert await bounded(in_thread(released.wait))


async def test_another_thread_takes_the_place_of_one_that_hangs(released):
    threads = Threads(1, "test", spare=1)
    with pytest.raises(EdgeError):
        await bounded(threads.run(released.wait, SOON))
    assert await bounded(threads.run(lambda: 7)) == 7


async def test_where_too_many_hang_all_work_is_refused_with_their_names(released):
    threads = Threads(1, "test", spare=0)
    with pytest.raises(EdgeError):
        await bounded(threads.run(released.wait, SOON))
    with pytest.raises(EdgeError, match=r"no thread is available for .*: 1 hang \(.*Event\.wait\)"):
        await bounded(threads.run(lambda: 7))


async def test_work_that_finds_no_thread_in_time_is_never_begun(released):
    threads, done = Threads(1, "test"), []
    hung = asyncio.ensure_future(threads.run(released.wait))
    await asyncio.sleep(0)
    with pytest.raises(EdgeError, match="no thread was free"):
        await bounded(threads.run(lambda: done.append(1), SOON))
    released.set()
    await bounded(hung)
    assert await bounded(threads.run(lambda: 7)) == 7
    assert not done


async def test_what_hangs_is_known_by_name_and_seconds(released):
    with pytest.raises(EdgeError):
        await bounded(in_thread(released.wait, within=SOON))
    (found,) = [name for name in hanging(float("inf")) if "Event.wait" in name]
    assert hanging(float("inf"))[found] == float("inf")


async def test_a_cancelled_waiter_leaves_what_was_not_begun_undone(released):
    threads, done = Threads(1, "test"), []
    busy = asyncio.ensure_future(threads.run(released.wait))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(threads.run(lambda: done.append(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    released.set()
    await bounded(busy)
    assert await bounded(threads.run(lambda: 7)) == 7
    assert not done


async def test_all_threads_of_a_loop_are_started_at_once_each_prepared():
    prepared = []
    start_threads(3, lambda: prepared.append(threading.get_ident()))
    together = threading.Barrier(3, timeout=10)
    await bounded(asyncio.gather(*(in_thread(lambda wait: wait(), together.wait) for _ in range(3))))
    assert len(set(prepared)) == 3


def test_a_loop_that_stood_still_gives_its_work_as_long_again(in_virtual_time):
    from speaker.system.threads import LATE, _done_within

    async def story():
        loop = asyncio.get_running_loop()
        waits = asyncio.create_task(_done_within(loop.create_future(), 10.0))
        await asyncio.sleep(9.0)
        loop._skipping.now += 600.0 + LATE
        await asyncio.sleep(9.0)
        assert not waits.done()
        await asyncio.sleep(2.0)
        assert waits.done()
        return not await waits

    assert in_virtual_time(story())


async def ended():
    """What was given up came to its end."""
    async with asyncio.timeout(60):
        while hanging(0.0):  # noqa: ASYNC110 -- a thread is to come to its end
            await asyncio.sleep(0)


async def test_work_that_is_only_slow_gets_longer_until_it_is_done():
    """A disk that takes three times as long as the limit."""
    pause, begun = threading.Event(), []

    def slow():
        begun.append(pause.wait(3 * SOON))
        return 7

    for _ in range(2):
        with pytest.raises(NotDone):
            await bounded(in_thread(slow, within=SOON))
        await ended()
        if len(begun) == 1:
            break
    assert await bounded(in_thread(slow, within=SOON)) == 7
    assert await bounded(in_thread(slow, within=SOON)) == 7, "and from then on"


async def test_who_else_does_the_same_has_learnt_of_it():
    """A decider that was made anew, as its work was given up."""

    class Decider:
        def decide(self):
            return threading.Event().wait(3 * SOON)

    with pytest.raises(NotDone):
        await bounded(in_thread(Decider().decide, within=SOON))
    await ended()
    assert await bounded(in_thread(Decider().decide, within=SOON)) is False


async def test_what_comes_too_late_is_handed_to_whoever_clears_it_away(released):
    threads, late = Threads(1, "test"), []
    cleared = threading.Event()

    def start():
        released.wait()
        return "a process"

    def clear(what):
        late.append(what)
        cleared.set()

    with pytest.raises(NotDone):
        await bounded(threads.run(start, SOON, too_late=clear))
    assert not late
    released.set()
    assert await bounded(in_thread(cleared.wait, 10.0))
    assert late == ["a process"]
    assert await bounded(threads.run(start, too_late=clear)) == "a process"
    assert late == ["a process"], "what is in time is whose it is"


async def test_so_is_what_comes_when_its_waiter_was_cancelled(released):
    threads, late = Threads(1, "test"), []
    cleared, begun = threading.Event(), threading.Event()

    def start():
        begun.set()
        released.wait()
        return "a process"

    def clear(what):
        late.append(what)
        cleared.set()

    waiting = asyncio.ensure_future(threads.run(start, too_late=clear))
    await bounded(in_thread(begun.wait, 10.0))
    waiting.cancel()
    await asyncio.wait((waiting,))
    released.set()
    assert await bounded(in_thread(cleared.wait, 10.0))
    assert late == ["a process"]
    assert await bounded(threads.run(lambda: 7)) == 7, "the thread is still there"
