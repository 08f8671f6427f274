"""Memory that comes back by itself: errors that keep nothing alive, and what the garbage collector need not look at.

The collector stops everything while it walks over all that it knows: 30 ms for 10,000 EIPs in the wire process, 0.1 s
for as many Services. Hence what lives long is frozen (``gc.freeze``), where it looks no more. But what is frozen and
becomes a cycle that nobody holds stays for ever. So there are to be no such cycles, and little is frozen unseen.
"""

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WORTH = 5_000
"""Objects: less than so many new ones are not worth being frozen, as to walk over them takes a millisecond or two."""


def freeze_new() -> None:
    """To be called now and then while much is built that lives long: what was made since the last time is collected,
    where there is enough of it, and what is left is frozen."""
    young, older, _ = gc.get_count()
    if young >= WORTH or older:
        gc.collect()
        gc.freeze()


def start_over() -> None:
    """What was frozen belongs to a time that is over: it is collected, and what else there is is frozen."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@contextmanager
def uncollected(lasting: Callable[[], bool]) -> Iterator[None]:
    """The collector stays away while the block builds what lives long. What it built is frozen unseen where it is
    ``lasting``: that must not come again and again."""
    gc.disable()
    try:
        yield
        if lasting():
            gc.freeze()
    finally:
        gc.enable()


def let_go(error: BaseException) -> None:
    """Whatever the functions that ``error`` came through held: its traceback does, as long as it is kept itself, and
    where one of them held the error they would keep each other for ever. Its lines can be printed as before."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]


@contextmanager
def letting_go() -> Iterator[None]:
    """``let_go`` of what the block raises. For a TaskGroup above all, which until Python 3.13 refers to itself by every
    error that it raises (python/cpython#125789)."""
    try:
        yield
    except BaseException as error:
        let_go(error)
        raise
