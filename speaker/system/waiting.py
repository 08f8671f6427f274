"""To wait for an event, and not for ever; and whether a loop gets on, which is at rest only where it waits here."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar


class Progress:
    """Of one loop: for how long it has been at the same step. It is told of the time that passes, and of none in which
    this process stood still."""

    def __init__(self) -> None:
        self.stood = 0.0
        """Seconds at one step; 0 at rest."""
        self.task: asyncio.Task[object] | None = None
        """That it runs in; None between two of them."""
        self._resting = False

    def pass_by(self, seconds: float) -> None:
        if self.task is not None and not self._resting:
            self.stood += seconds

    def get_on(self) -> None:
        self.stood = 0.0

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        self._resting, self.stood = True, 0.0
        try:
            yield
        finally:
            self._resting = False

    async def of(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs ``work``, whose progress this is from now on."""
        before = _progress.set(self)
        self.stood, self.task = 0.0, asyncio.current_task()
        try:
            await work()
        finally:
            self.task = None
            _progress.reset(before)


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


def _ours() -> Progress | None:
    """None in a task that another loop started for something besides."""
    progress = _progress.get()
    return progress if progress is not None and progress.task is asyncio.current_task() else None


def get_on() -> None:
    """The loop that calls it is at another step."""
    if (progress := _ours()) is not None:
        progress.get_on()


@contextmanager
def at_rest() -> Iterator[None]:
    """The loop has nothing to do while the block lasts."""
    if (progress := _ours()) is None:
        yield
    else:
        with progress.at_rest():
            yield


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Returns when ``event`` is set, or after ``seconds`` (None: not before).

    Not ``wait_for``: that of Python 3.11 forgets that its task is being cancelled where that comes together with the
    event (python/cpython#86296), and whoever loops around it never ends.
    """
    with at_rest(), suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def tick(seconds: float) -> None:
    """Sleeps until the loop's clock shows the next multiple of ``seconds``: what is done every so often is done
    together, and the processor sleeps in between."""
    loop = asyncio.get_running_loop()
    with at_rest():
        await asyncio.sleep(seconds - loop.time() % seconds)


@asynccontextmanager
async def sparing(least: float, most: float = float("inf")) -> AsyncGenerator[None, None]:
    """Leaves three quarters of the time for what matters more, however long the body takes: behind it comes a pause
    three times as long, of ``least`` to ``most`` seconds. None where the body raises."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    yield
    with at_rest():
        await asyncio.sleep(min(max(least, 3 * (loop.time() - begun)), most))
