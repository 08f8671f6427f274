"""Trying again: how whatever meets an edge gets over its failures."""

import asyncio
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from speaker.errors import EdgeError


def retrying(
    tell: Callable[[EdgeError], None],
    *,
    multiplier: float = 0.1,
    limit: float = 30.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncRetrying:
    """Tries until no EdgeError comes; ``tell`` hears of each.

    The wait between two tries is random: at first less than ``multiplier`` seconds, then less than twice as many each
    time, never more than ``limit``. Each ``async for`` begins anew.
    """

    def tell_of(state: RetryCallState) -> None:
        if state.outcome is not None and isinstance(error := state.outcome.exception(), EdgeError):
            tell(error)

    return AsyncRetrying(
        retry=retry_if_exception_type(EdgeError),
        wait=wait_random_exponential(multiplier=multiplier, max=limit),
        before_sleep=tell_of,
        sleep=sleep,
    )
