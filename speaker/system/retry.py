"""Trying again: how whatever meets an edge gets over its failures."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

from speaker.errors import EdgeError
from speaker.system.garbage import let_go
from speaker.system.supervise import wait
from speaker.system.waiting import get_on

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
E = TypeVar("E", bound=Exception)


class retrying(Generic[E]):  # noqa: N801 -- read as a verb
    """``async for attempt in retrying(tell): with attempt: …`` tries until no ``on`` comes; ``tell`` hears of each.

    The wait between two tries is random: at first less than ``multiplier`` seconds, then less than twice as many each
    time, never more than ``limit``. Each ``async for`` begins anew, and so do the waits behind a try that lasted for
    ``steady`` seconds. Nothing that a try held is kept, as a link that flaps is one try after the other.
    """

    def __init__(
        self,
        tell: Callable[[E], None],
        *,
        on: type[E] = EdgeError,  # type: ignore[assignment]  # what most callers want
        multiplier: float = 0.1,
        limit: float = 30.0,
        steady: float = math.inf,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._tell, self._on, self._sleep = tell, on, sleep
        self._multiplier, self._limit, self._steady = multiplier, limit, steady
        self._failures, self._begun = 0, 0.0
        self._attempt: Attempt[E] | None = None

    def __aiter__(self) -> Self:
        self._failures, self._attempt = 0, None
        return self

    async def __anext__(self) -> "Attempt[E]":
        loop = asyncio.get_running_loop()
        if self._attempt is not None:
            if not self._attempt.failed:
                raise StopAsyncIteration
            self._failures = 1 if loop.time() - self._begun >= self._steady else self._failures + 1
            await self._sleep(wait(self._failures - 1, self._multiplier, self._limit))
        get_on()
        self._attempt, self._begun = Attempt(self._tell, self._on), loop.time()
        return self._attempt


class Attempt(Generic[E]):
    """One try: a block that what is tried again ends and does not leave."""

    def __init__(self, tell: Callable[[E], None], on: type[E]) -> None:
        self._tell, self._on = tell, on
        self.failed = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if error is not None:
            let_go(error)
        if not isinstance(error, self._on):
            return False
        self.failed = True
        self._tell(error)
        return True
