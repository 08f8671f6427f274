"""Trying again: how whatever meets an edge gets over its failures."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from speaker.errors import EdgeError
from speaker.garbage import let_go

Tell = Callable[[EdgeError], None]
Sleep = Callable[[float], Awaitable[None]]


def retrying(tell: Tell, *, multiplier: float = 0.1, limit: float = 30.0, sleep: Sleep = asyncio.sleep) -> "Tries":
    """Tries until no EdgeError comes; ``tell`` hears of each.

    The wait between two tries is random: at first less than ``multiplier`` seconds, then less than twice as many each
    time, never more than ``limit``. Each ``async for`` begins anew.
    """
    return Tries(tell, multiplier, limit, sleep)


class Tries:
    """``async for attempt in tries: with attempt: …``. Not tenacity's, which keeps every error, a cancellation as well,
    in a cycle with all that the try held: a link that flaps is one try after the other."""

    def __init__(self, tell: Tell, multiplier: float, limit: float, sleep: Sleep) -> None:
        self._tell, self._multiplier, self._limit, self._sleep = tell, multiplier, limit, sleep
        self._failures = 0
        self._attempt: Attempt | None = None

    def __aiter__(self) -> Self:
        self._failures, self._attempt = 0, None
        return self

    async def __anext__(self) -> "Attempt":
        if self._attempt is not None:
            if not self._attempt.failed:
                raise StopAsyncIteration
            most = min(self._limit, self._multiplier * 2.0 ** min(self._failures, 50))
            self._failures += 1
            await self._sleep(random.uniform(0, most))  # noqa: S311 (spreads load, guards nothing)
        self._attempt = Attempt(self._tell)
        return self._attempt


class Attempt:
    """One try: a block that an EdgeError ends and does not leave."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.failed = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if error is not None:
            let_go(error)
        if not isinstance(error, EdgeError):
            return False
        self.failed = True
        self._tell(error)
        return True
