"""How a command stops: SIGTERM from a service manager, SIGINT from a terminal."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals(hand_over: Callable[[], Awaitable[None]] | None = None) -> Iterator[None]:
    """The first SIGTERM or SIGINT ends the block quietly, once ``hand_over`` is done where there is one, the second one
    at once: leaving every ``with`` inside it is the shutdown."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    asked = asyncio.Event()
    leaving: list[asyncio.Task[None]] = []

    async def leave() -> None:
        try:
            if hand_over is not None:
                await hand_over()
        finally:
            task.cancel()

    def stop() -> None:
        if asked.is_set():
            task.cancel()
        else:
            asked.set()
            leaving.append(loop.create_task(leave(), name="hand over"))

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not asked.is_set():
            raise
        task.uncancel()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
