"""Against a test that hangs."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gives_up(seconds: float) -> Iterator[None]:
    """For a fixture: after so many seconds all tasks of the running loop are cancelled, the test's among them. A
    fixture's ``asyncio.timeout`` would only cancel the fixture's own task, which is over by then."""
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel(f"it hangs for {seconds} s")

    timer = loop.call_later(seconds, cancel)
    try:
        yield
    finally:
        timer.cancel()
