"""No bug of ours ends more than the work it is in."""

import asyncio

import pytest

from speaker.errors import EdgeError
from speaker.system.supervise import FIRST_WAIT, LONGEST_WAIT, Ended, contained, described, supervised, wait


class Heard:
    def __init__(self):
        self.errors = []

    def internal_error(self, task, error):
        self.errors.append((task, error))


async def nap(_):
    await asyncio.sleep(0)


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


def test_a_cancelled_task_is_no_error():
    with pytest.raises(asyncio.CancelledError), contained("work", Heard()):
        raise asyncio.CancelledError


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
