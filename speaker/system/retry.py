"""Trying again: how whatever meets an edge gets over its failures."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from tenacity import AsyncRetrying, RetryCallState
from tenacity.wait import wait_base

from speaker.errors import EdgeError
from speaker.system.garbage import let_go
from speaker.system.waiting import get_on

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
E = TypeVar("E", bound=Exception)


def retrying(
    tell: Callable[[E], None],
    *,
    on: type[E] = EdgeError,  # type: ignore[assignment]  # what most callers want
    multiplier: float = 0.1,
    limit: float = 30.0,
    steady: float = math.inf,
    sleep: Sleep = asyncio.sleep,
) -> AsyncRetrying:
    """Tries until no ``on`` comes; ``tell`` hears of each.

    The wait between two tries is random: at first less than ``multiplier`` seconds, then less than twice as many each
    time, never more than ``limit``. Each ``async for`` begins anew, and so do the waits behind a try that lasted for
    ``steady`` seconds.
    """

    def again(state: RetryCallState) -> bool:
        """Nothing that the try held is kept by its error."""
        error = _error(state)
        if error is not None:
            let_go(error)
        if not isinstance(error, on):
            return False
        tell(error)
        return True

    waits = _Waits(multiplier, limit, steady)
    return AsyncRetrying(sleep=sleep, before=waits.begin, retry=again, wait=waits, reraise=True)


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


class _Waits(wait_base):
    """Random below a bound that doubles, from the first try or from the last one that lasted for ``steady`` seconds."""

    def __init__(self, multiplier: float, limit: float, steady: float) -> None:
        self._multiplier, self._limit, self._steady = multiplier, limit, steady
        self._first, self._begun = 1, 0.0

    def begin(self, state: RetryCallState) -> None:
        """A try does."""
        get_on()
        self._begun = asyncio.get_running_loop().time()
        if state.attempt_number == 1:
            self._first = 1

    def __call__(self, retry_state: RetryCallState) -> float:
        if asyncio.get_running_loop().time() - self._begun >= self._steady:
            self._first = retry_state.attempt_number
        failures = min(retry_state.attempt_number - self._first, 60)
        return random.uniform(0, min(self._limit, self._multiplier * 2.0**failures))  # noqa: S311
