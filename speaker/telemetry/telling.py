"""Edge: transitions on their way to the log, where they wait a moment for others of the same cause (lines.py)."""

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime

import structlog

from speaker.telemetry.lines import Gather, Line, Transition, in_lines

log = structlog.get_logger()


class Telling:
    """``tell`` in the loop's thread gathers; elsewhere what is told is written at once."""

    def __init__(self) -> None:
        self._gather = Gather()
        self._alarm: asyncio.TimerHandle | None = None

    def say(self, told: Iterable[Transition | Line | None]) -> None:
        """Written at once, in any thread."""
        said = [*told]
        write(in_lines(one for one in said if isinstance(one, Transition)))
        write(one for one in said if isinstance(one, Line))

    def tell(self, told: Transition | Line | None) -> None:
        """A transition waits for others."""
        if not isinstance(told, Transition):
            self.say([told])
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            write(in_lines([told]))
            return
        self._gather.add(loop.time(), told)
        if self._alarm is None or self._alarm.when() > (self._gather.wake() or 0.0):
            self._set_alarm(loop)

    def finish(self) -> None:
        """Write what waits: before a line that has to come after it, and at the end."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        write(self._gather.rest())

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        when = self._gather.wake()
        self._alarm = None if when is None else loop.call_at(when, self._write, loop)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        write(self._gather.due(loop.time()))
        self._set_alarm(loop)


def write(lines: Iterable[Line]) -> None:
    """``at`` is of the running loop's clock."""
    for level, event, fields, at in lines:
        if at is not None:
            when = datetime.fromtimestamp(time.time() - (asyncio.get_running_loop().time() - at), UTC)
            fields = {**fields, "timestamp": f"{when:%Y-%m-%dT%H:%M:%S.%f}Z"}
        getattr(log, level)(event, **fields)
