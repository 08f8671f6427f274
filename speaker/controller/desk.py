"""Writes what is wanted, many objects at a time: one that fails waits its turn again and holds up no other."""

import asyncio
import random
from collections.abc import Callable, Iterable

from speaker.cluster.client import REQUEST, Client
from speaker.controller.wanted import Event, Write
from speaker.errors import ApiRefused, EdgeError

WORKERS = 16
"""Requests at a time."""
BACKOFF, BACKOFF_LIMIT = 0.2, 30.0
"""Seconds, doubled with every failure in a row of one object."""
LAZY = 1.0
"""Seconds that a write waits which nobody waits for: counts that change with every Service are written together."""

_STALE = (404, 409)
"""The object is not what the write was decided from. Trying again is of no use, and what it is now will be heard."""


class Desk:
    """``fence`` says how many seconds a write may take, and raises where it may not begin; ``told`` hears of failures.

    A write is done once. The same one is not sent again while it is wanted, even if the mirror still shows the object
    as it was before.
    """

    def __init__(self, client: Client, fence: Callable[[], float], told: Callable[[str, EdgeError], None]) -> None:
        self._client, self._fence, self._told = client, fence, told
        self._wanted: dict[str, Write] = {}
        self._done: dict[str, Write] = {}
        self._failures: dict[str, int] = {}
        self._busy: set[str] = set()
        """Paths that are queued, being written, or waiting for another try: each is in one place."""
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def want(self, writes: Iterable[Write]) -> None:
        """Everything that is wanted now; what was wanted before and is not listed again is forgotten."""
        self._wanted = {write.path: write for write in writes}
        for path in self._done.keys() - self._wanted.keys():
            del self._done[path]
        for path in self._failures.keys() - self._wanted.keys():
            del self._failures[path]
        for path in self._wanted:
            self._take_up(path)

    async def run(self) -> None:
        """Endless."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._work(), name=f"writer {number}")

    def _take_up(self, path: str) -> None:
        write = self._wanted.get(path)
        if write is None or path in self._busy or self._done.get(path) == write:
            return
        self._busy.add(path)
        self._queue_after(path, LAZY if write.lazy else 0.0)

    def _queue_after(self, path: str, seconds: float) -> None:
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._queue.put_nowait, path)
        else:
            self._queue.put_nowait(path)

    async def _work(self) -> None:
        while True:
            path = await self._queue.get()
            if (write := self._wanted.get(path)) is None:
                self._busy.discard(path)
                continue
            try:
                await self._write(write)
            except EdgeError as error:
                self._told(path, error)
                self._queue_after(path, self._backoff(path, error))
            else:
                self._failures.pop(path, None)
                self._done[path] = write
                self._busy.discard(path)
                self._take_up(path)  # something else may be wanted by now

    async def _write(self, write: Write) -> None:
        try:
            await self._client.patch(write.path, write.body(), within=min(REQUEST, self._fence()))
        except ApiRefused as error:
            if error.code not in _STALE:
                raise
            return
        if write.event is not None:
            await self._tell(write.event)

    async def _tell(self, event: Event) -> None:
        """Once: the condition says the same, and stays."""
        try:
            await self._client.create(event.path, event.body, within=min(REQUEST, self._fence()))
        except EdgeError as error:
            if not (isinstance(error, ApiRefused) and error.code in _STALE):
                self._told(event.path, error)

    def _backoff(self, path: str, error: EdgeError) -> float:
        failures = self._failures[path] = self._failures.get(path, 0) + 1
        limit = min(BACKOFF_LIMIT, BACKOFF * 2.0 ** min(failures - 1, 16))
        seconds = limit * random.uniform(0.5, 1)  # noqa: S311 (spreads load, guards nothing)
        return max(seconds, error.retry_after) if isinstance(error, ApiRefused) else seconds
