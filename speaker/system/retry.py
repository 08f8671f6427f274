"""Trying again after failures of an edge."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias, TypeVar

from tenacity import AsyncRetrying, AttemptManager, RetryCallState
from tenacity.wait import wait_base

from speaker.errors import EdgeError
from speaker.system.garbage import let_go
from speaker.system.supervise import wait
from speaker.system.waiting import get_on

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
E = TypeVar("E", bound=Exception)


async def retrying(
    tell: Callable[[E], None],
    *,
    on: type[E] = EdgeError,  # type: ignore[assignment]  # what most callers want
    multiplier: float = 0.1,
    limit: float = 30.0,
    steady: float = math.inf,
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[AttemptManager]:
    """``async for attempt in retrying(tell): with attempt: …`` tries until no ``on`` comes; ``tell`` hears of each.

    The wait between two tries is random: at first less than ``multiplier`` seconds, then less than twice as many each
    time, never more than ``limit``. The waits begin again after a try that lasted for ``steady`` seconds.
    """

    def again(state: RetryCallState) -> bool:
        """The error keeps nothing alive that the try held."""
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None:
            let_go(error)
        if not isinstance(error, on):
            return False
        tell(error)
        return True

    waits = _Waits(multiplier, limit, steady)
    tries = AsyncRetrying(sleep=sleep, before=waits.begin, retry=again, wait=waits, reraise=True)
    state: RetryCallState | None = None
    try:
        async for attempt in tries:
            state = attempt.retry_state
            yield attempt
            del attempt
    finally:  # or these keep each other, and all that the last try went through
        tries.iter_state.reset()
        if state is not None:
            state.outcome = None
            del state.retry_object


class _Waits(wait_base):
    """``supervise.wait``, from the first try on or from the last one that lasted for ``steady`` seconds."""

    def __init__(self, multiplier: float, limit: float, steady: float) -> None:
        self._multiplier, self._limit, self._steady = multiplier, limit, steady
        self._first, self._begun = 1, 0.0

    def begin(self, _: RetryCallState) -> None:
        """A try does."""
        get_on()
        self._begun = asyncio.get_running_loop().time()

    def __call__(self, retry_state: RetryCallState) -> float:
        if asyncio.get_running_loop().time() - self._begun >= self._steady:
            self._first = retry_state.attempt_number
        return wait(retry_state.attempt_number - self._first, self._multiplier, self._limit)
