"""No bug of ours ends more than the work it is in."""

import asyncio
from functools import partial

import pytest

from speaker.errors import EdgeError
from speaker.system.supervise import (
    FIRST_WAIT,
    LONGEST_WAIT,
    Ended,
    Failures,
    contained,
    described,
    heed_callbacks,
    lasting,
    never_failing,
    passing,
    supervised,
    unfailing,
    wait,
)
from speaker.system.threads import in_thread


class Heard:
    def __init__(self):
        self.errors = []

    def internal_error(self, task, error):
        self.errors.append((task, error))


async def nap(_):
    await asyncio.sleep(0)


@pytest.mark.parametrize("bug", [ZeroDivisionError(), asyncio.CancelledError()], ids=repr)
def test_of_many_things_the_one_that_fails_is_set_aside_by_name(bug):
    done, failures = [], Failures()
    for number in range(3):
        with contained(number, failures):
            if number == 1:
                raise bug
            done.append(number)
    assert done == [0, 2]
    assert list(failures) == [1]
    assert isinstance(failures[1], ZeroDivisionError | Ended)


async def test_what_ends_is_told_and_started_again():
    heard, lives, third = Heard(), [], asyncio.Event()

    async def work():
        lives.append(len(lives))
        match len(lives):
            case 1:
                raise KeyError("first")
            case 2:
                return
            case _:
                third.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(supervised("work", work, heard, nap))
    await third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(name, type(error)) for name, error in heard.errors] == [("work", KeyError), ("work", Ended)]
    assert lives == [0, 1, 2]


async def test_only_what_is_to_end_it_ends_it():
    heard = Heard()
    failures = iter([ValueError("ours"), EdgeError("the link is gone")])

    async def work():
        raise next(failures)

    with pytest.raises(EdgeError, match="the link is gone"):
        await supervised("work", work, heard, nap, ends=(EdgeError,))
    assert [type(error) for _, error in heard.errors] == [ValueError]


async def test_one_that_is_cancelled_ends_also_where_that_comes_with_an_error():
    heard, begun = Heard(), asyncio.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise KeyError("at the same time") from None

    task = asyncio.create_task(supervised("work", work, heard, nap))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_waits_grow_and_end():
    assert all(0 <= wait(1) <= 2 * FIRST_WAIT for _ in range(100))
    assert all(0 <= wait(failures) <= LONGEST_WAIT for failures in range(1, 5000, 7))


def test_a_block_ends_with_its_error_and_what_follows_goes_on():
    heard, done = Heard(), []
    for number in (1, 0, 2):
        with contained("division", heard):
            done.append(1 / number)
    assert done == [1.0, 0.5]
    assert [(task, type(error)) for task, error in heard.errors] == [("division", ZeroDivisionError)]


async def test_a_cancelled_task_is_no_error():
    heard, begun = Heard(), asyncio.Event()

    async def work():
        with contained("work", heard):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard.errors == []


def test_a_cancel_that_nobody_asked_for_is_a_bug_like_any_other():
    heard = Heard()
    with contained("work", heard):
        raise asyncio.CancelledError("out of the blue")
    assert [(task, type(error)) for task, error in heard.errors] == [("work", asyncio.CancelledError)]


async def test_so_it_is_in_a_task_and_in_a_callback():
    heard = Heard()

    def work():
        with contained("work", heard):
            raise asyncio.CancelledError("out of the blue")

    asyncio.get_running_loop().call_soon(work)
    work()
    await asyncio.sleep(0)
    assert [type(error) for _, error in heard.errors] == [asyncio.CancelledError] * 2


async def test_nobody_cancels_a_plain_function_even_where_its_task_is_being_cancelled():
    heard, begun = Heard(), asyncio.Event()

    def close():
        with contained("closing", heard):
            raise asyncio.CancelledError("out of the blue")

    async def work():
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            close()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(task, type(error)) for task, error in heard.errors] == [("closing", asyncio.CancelledError)]


class Deaf:
    """Whoever reports to it fails."""

    def __init__(self):
        self.tried = []

    def internal_error(self, task, error):
        self.tried.append(task)
        raise KeyError("it cannot be counted")


async def test_a_report_that_fails_fails_nothing():
    deaf, lives, third = Deaf(), [], asyncio.Event()

    async def work():
        lives.append(len(lives))
        if len(lives) < 3:
            raise ZeroDivisionError
        third.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(supervised("work", work, deaf, nap))
    await third.wait()
    task.cancel()
    with contained("work", deaf):
        raise ZeroDivisionError
    assert deaf.tried == ["work", "report"] * 3


async def test_what_lasts_and_returns_or_is_cancelled_from_within_has_ended():
    async def returns():
        """At once."""

    async def cancelled():
        raise asyncio.CancelledError("out of the blue")

    for work in (returns, cancelled):
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(lasting("work", work))
        assert [type(error) for error in caught.value.exceptions] == [Ended]


async def test_what_may_return_may_not_be_cancelled_from_within():
    async def cancelled():
        raise asyncio.CancelledError("out of the blue")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(passing("work", partial(asyncio.sleep, 0)))
    with pytest.raises(Ended, match="work was cancelled from within"):
        await passing("work", cancelled)


async def test_what_lasts_ends_by_its_own_error_or_where_it_is_to_end():
    async def fails():
        raise EdgeError("down")

    with pytest.raises(EdgeError, match="down"):
        await lasting("work", fails)
    task = asyncio.create_task(lasting("work", asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_error_of_a_cancel_from_within_is_told_with_its_place():
    heard, done = Heard(), asyncio.Event()

    async def work():
        if heard.errors:
            done.set()
            await asyncio.Event().wait()
        raise asyncio.CancelledError("out of the blue")

    task = asyncio.create_task(supervised("work", work, heard, nap))
    await done.wait()
    task.cancel()
    assert "out of the blue" in described(heard.errors[0][1])[2]


class Counts:
    def __init__(self):
        self.counted = 0

    def count(self, number):
        self.counted += 1 // number

    def cancel(self):
        raise asyncio.CancelledError("out of the blue")


def test_counting_fails_nobody_and_counts_where_it_can():
    heard, counts = Heard(), Counts()
    unfailed = unfailing(counts, heard)
    for number in (0, 1, 0):
        assert unfailed.count(number) is None
    unfailed.cancel()
    unfailed.no_such_thing()
    unfailing(counts, Deaf()).count(0)
    assert counts.counted == 1
    kinds = [ZeroDivisionError, ZeroDivisionError, asyncio.CancelledError, AttributeError]
    assert [(task, type(error)) for task, error in heard.errors] == [("count", kind) for kind in kinds]


async def test_what_a_callback_raises_is_told_and_logged_by_nobody_else(caplog):
    heard, loop = Heard(), asyncio.get_running_loop()
    heed_callbacks(heard)

    def fail(error):
        raise error

    for error in (KeyError("a bug"), asyncio.CancelledError("out of the blue")):
        loop.call_soon(fail, error)
    loop.call_exception_handler({"message": "something was left behind"})
    await asyncio.sleep(0)
    assert [(task, type(error)) for task, error in heard.errors] == [
        ("callback", Ended),
        ("callback", KeyError),
        ("callback", asyncio.CancelledError),
    ]
    assert caplog.records == []
    loop.call_exception_handler({"message": "no room", "exception": OSError(24, "too many open files")})
    assert len(heard.errors) == 3
    assert len(caplog.records) == 1


def test_the_same_line_is_the_same_place_whatever_it_says():
    def raised(word):
        try:
            raise ValueError(word)
        except ValueError as error:
            return described(ExceptionGroup("tasks", [error]))

    (words, place, trace), (other, same, _) = raised("a"), raised("b")
    assert (words, other) == ("ValueError: a", "ValueError: b")
    assert place == same
    assert "raise ValueError(word)" in trace


class Base:
    def counted(self, number: int) -> None:
        self.seen.append(1 // number)


@never_failing
class Telling(Base):
    """What tells people; each method as one of them is."""

    def __init__(self):
        self.seen, self.errors = [], []

    def internal_error(self, task, error):
        self.errors.append((task, type(error)))

    def told(self) -> None:
        self.counted(0)
        self.seen.append("what comes behind it")

    def cancel(self) -> None:
        raise asyncio.CancelledError

    def problems(self) -> list[str]:
        raise KeyError("whoever asks hears of it")

    async def publish(self) -> None:
        raise KeyError("and whoever waits")


async def test_nothing_that_only_tells_fails_whoever_has_it_told():
    telling = Telling()
    telling.told()
    telling.counted(number=0)
    telling.cancel()
    assert telling.errors == [("report", ZeroDivisionError)] * 2 + [("report", asyncio.CancelledError)]
    assert telling.seen == ["what comes behind it"]
    with pytest.raises(KeyError):
        telling.problems()
    with pytest.raises(KeyError):
        await telling.publish()


async def test_in_a_thread_it_does_and_that_comes_back_to_who_waits():
    telling = Telling()
    with pytest.raises(ZeroDivisionError):
        await in_thread(telling.counted, 0)
    assert telling.errors == []


@pytest.mark.parametrize(("error", "told"), [(KeyError("a bug"), 1), (EdgeError("the link is gone"), 0)])
async def test_what_is_raised_while_it_is_cancelled_is_told_as_well(error, told):
    heard, begun = Heard(), asyncio.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise error

    task = asyncio.create_task(supervised("work", work, heard, nap, ends=(EdgeError,)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [name for name, _ in heard.errors] == ["work"] * told
