"""How late an event loop is: what else it does was at least as late."""

import asyncio
from collections.abc import Callable

LOOK_SECONDS = 0.02
"""How often it is measured."""


async def watch_loop(tell: Callable[[float], None]) -> None:
    """Endless; ``tell`` hears the seconds of each look."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LOOK_SECONDS
        await asyncio.sleep(LOOK_SECONDS)
        tell(max(0.0, loop.time() - due))
