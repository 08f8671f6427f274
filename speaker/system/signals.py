"""How a command stops: SIGTERM from a service manager, SIGINT from a terminal."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stoppable(hand_over: Callable[[], Awaitable[None]] | None = None) -> Iterator[Callable[[], None]]:
    """Gives a function whose first call ends the block quietly, once ``hand_over`` is done where there is one, and
    whose second call ends it at once: leaving every ``with`` inside it is the shutdown."""
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

    try:
        yield stop
    except asyncio.CancelledError:
        if not asked.is_set():
            raise
        task.uncancel()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM or SIGINT ends the block quietly."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    with stoppable() as stop:
        for number in numbers:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
