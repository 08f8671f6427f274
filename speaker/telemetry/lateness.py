"""How late an event loop is: what else it does was at least as late."""

import asyncio
import time
from collections.abc import Callable

LOOK_SECONDS = 0.02
"""How often it is measured."""


async def watch_loop(tell: Callable[[float, float], None]) -> None:
    """Endless; ``tell`` hears of each look how many seconds late it was, and how many of these its own thread had the
    processor: the others went to other threads and other programs."""
    loop = asyncio.get_running_loop()
    while True:
        due, used = loop.time() + LOOK_SECONDS, time.thread_time()
        await asyncio.sleep(LOOK_SECONDS)
        late = max(0.0, loop.time() - due)
        tell(late, min(late, time.thread_time() - used))
