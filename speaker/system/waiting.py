"""To wait for an event, and not for ever."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Returns when ``event`` is set, or after ``seconds`` (None: not before).

    Not ``wait_for``: that of Python 3.11 forgets that its task is being cancelled where that comes together with the
    event (python/cpython#86296), and whoever loops around it never ends.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def tick(seconds: float) -> None:
    """Sleeps until the loop's clock shows the next multiple of ``seconds``: what is done every so often is done
    together, and the processor sleeps in between."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(seconds - loop.time() % seconds)


@asynccontextmanager
async def sparing(least: float, most: float = float("inf")) -> AsyncGenerator[None, None]:
    """Leaves three quarters of the time for what matters more, however long the body takes: behind it comes a pause
    three times as long, of ``least`` to ``most`` seconds. None where the body raises."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    yield
    await asyncio.sleep(min(max(least, 3 * (loop.time() - begun)), most))
