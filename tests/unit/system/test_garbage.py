"""What the garbage collector is kept from, and that what is garbage does not stay for ever because of that."""

import asyncio
import gc
import resource
import traceback
import weakref
from contextlib import suppress
from pathlib import Path

import pytest

from speaker.errors import EdgeError
from speaker.system.garbage import WORTH, freeze_new, give_back, let_go, letting_go, start_over, uncollected


class Knot:
    """Garbage that refers to itself, once nobody holds it."""

    def __init__(self):
        self.itself = self


def knot():
    return weakref.ref(Knot())


@pytest.fixture(autouse=True)
def nothing_frozen():
    """The collector looks when it is called, and everywhere."""
    gc.unfreeze()
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def test_what_is_new_is_frozen_and_garbage_among_it_is_not():
    gone, lasting = knot(), [[] for _ in range(2 * WORTH)]
    freeze_new()
    assert gone() is None
    assert gc.get_freeze_count() > len(lasting)


def test_a_little_is_not_worth_to_be_frozen():
    before = gc.get_freeze_count()
    gone = knot()
    freeze_new()
    assert gc.get_freeze_count() == before
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_what_was_frozen_and_is_garbage_since_goes_when_all_starts_over():
    held = Knot()
    gone = weakref.ref(held)
    gc.freeze()
    del held
    gc.collect()
    assert gone() is not None
    start_over()
    assert gone() is None
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_built_uncollected_is_frozen_only_where_it_is_lasting(lasting):
    gc.enable()
    with uncollected(lambda: lasting):
        assert not gc.isenabled()
        gone = knot()
    assert gc.isenabled()
    gc.collect()
    assert (gone() is None) is not lasting


def test_nothing_is_frozen_where_the_block_fails():
    def build():
        with uncollected(lambda: True):
            seen.append(knot())
            raise EdgeError("no")

    seen = []
    with pytest.raises(EdgeError):
        build()
    gc.collect()
    assert seen[0]() is None


def held_by_an_error():
    """An error that a function raised which holds a thing and the error; and a reference to the thing."""
    held, kept = Knot(), []
    held.itself = None
    reference = weakref.ref(held)

    def fail(held):
        error = EdgeError("no")
        kept.append(error)
        raise error

    try:
        try:
            fail(held)
        except EdgeError as first:
            raise ExceptionGroup("both", [first, ValueError()]) from first
    except ExceptionGroup as error:
        return error, reference


def test_an_error_that_has_let_go_holds_nothing_and_still_tells_where_it_was():
    error, reference = held_by_an_error()
    assert reference() is not None
    let_go(error)
    assert reference() is None
    assert "in fail" in "".join(traceback.format_exception(error))


def test_a_task_group_that_fails_leaves_nothing_behind():
    seen = []

    async def fail():
        raise EdgeError("no")

    async def serve():
        held = Knot()
        held.itself = None
        seen.append(weakref.ref(held))
        with letting_go():
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())

    async def play():
        with suppress(ExceptionGroup):
            await serve()
        return seen[0]()

    assert asyncio.run(play()) is None


def test_what_was_freed_in_the_middle_of_the_heap_is_given_back_to_the_kernel():
    many = [bytes(2000) for _ in range(20_000)]
    del many[:-1]
    before = resident()
    give_back()
    assert resident() < before - 20 * 2**20


def resident():
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
