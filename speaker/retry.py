"""Trying again: how whatever meets an edge gets over its failures."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from speaker.errors import EdgeError

E = TypeVar("E", bound=Exception)


def retrying(
    tell: Callable[[E], None],
    *,
    on: type[E] = EdgeError,  # type: ignore[assignment]  # what most callers want
    multiplier: float = 0.1,
    limit: float = 30.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncRetrying:
    """Tries until no ``on`` comes; ``tell`` hears of each.

    The wait between two tries is random: at first less than ``multiplier`` seconds, then less than twice as many each
    time, never more than ``limit``. Each ``async for`` begins anew.
    """

    def tell_of(state: RetryCallState) -> None:
        if state.outcome is not None and isinstance(error := state.outcome.exception(), on):
            tell(error)

    return AsyncRetrying(
        retry=retry_if_exception_type(on),
        wait=wait_random_exponential(multiplier=multiplier, max=limit),
        before_sleep=tell_of,
        sleep=sleep,
    )
