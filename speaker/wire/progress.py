"""Whether a main process makes progress: one that is alive may still be stuck.

::

    main process: a Progress of each loop ── every TELL_SECONDS ──► wire process: MainProgress.stuck ── replaces it

The first half is the main process's, the second the wire process's. Neither looks at a clock: each counts its own
turns, so that a machine, or a process, that stood still has missed nothing.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from speaker.system.supervise import Supervisor, contained
from speaker.system.threads import hanging
from speaker.system.waiting import Progress, tick

TELL_SECONDS = 5.0
"""Time between two reports of the main process."""
LIMIT = 90.0
"""Seconds at one step after which a main process is replaced. Work in a thread, and a program, has its own limit and
counts as rest: only what nothing else ends comes this far."""
LONGEST = 1440.0
"""The longest limit, to which it doubles with each main process in a row that made no progress: a slow one gets
longer."""
WHERE_SECONDS = 10.0
"""Seconds at one step after which the report says where."""
MOST_FRAMES = 30


class Loops:
    """The loops of the main process, by name."""

    def __init__(self) -> None:
        self._loops: dict[str, Progress] = {}

    def measured(self, name: str, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """``work``, with its progress reported. It rests only in what ``system/waiting.py`` provides for that."""
        progress = self._loops.setdefault(name, Progress())
        return partial(progress.of, work)

    async def run(self, tell: Callable[[Mapping[str, float], str], Awaitable[None]], supervisor: Supervisor) -> None:
        """Endless. ``tell`` hears seconds by name, and where the longest-standing loops are."""
        while True:
            await tick(TELL_SECONDS)
            with contained("progress", supervisor):
                await tell(*self._now())

    def _now(self) -> tuple[dict[str, float], str]:
        for progress in self._loops.values():
            progress.pass_by(TELL_SECONDS)
        standing = {name: each for name, each in self._loops.items() if each.stood}
        seconds = {name: each.stood for name, each in standing.items()}
        threads = {f"thread of {name}": since for name, since in hanging(time.monotonic()).items()}
        late = {name: each.task for name, each in standing.items() if each.stood >= WHERE_SECONDS}
        return seconds | threads, "\n".join(where(name, task.get_coro()) for name, task in late.items() if task)


def where(loop: str, at: Any) -> str:
    """What it waits for, the innermost last: a waiting task is on no thread's stack. ``at``: its coroutine."""
    lines = [f"Loop {loop}:"]
    while at is not None and len(lines) < MOST_FRAMES:
        frame, inner = _frame(at)
        if frame is not None:
            lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_qualname}')
        at = inner
    return "\n".join(lines)


def _frame(at: Any) -> tuple[Any, Any]:
    for frame, inner in (("cr_frame", "cr_await"), ("ag_frame", "ag_await"), ("gi_frame", "gi_yieldfrom")):
        if hasattr(at, frame):
            return getattr(at, frame), getattr(at, inner)
    return None, None


class MainProgress:
    """The reported progress of one main process. ``limit``: seconds. Pure."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit, self._quiet = limit, 0.0
        self._loops: Mapping[str, float] = {}
        self.where = ""

    def heard(self, loops: Mapping[str, float], where: str) -> None:
        self._quiet, self._loops, self.where = 0.0, loops, where

    def pass_by(self, seconds: float) -> None:
        """This process has run for so many seconds."""
        self._quiet += seconds

    @property
    def stuck(self) -> str | None:
        """Why it should be replaced; None: it makes progress."""
        if self._quiet >= self._limit:
            return f"nothing was heard of it for {self._quiet:.0f} s"
        late = {name: stood for name, stood in self._loops.items() if stood >= self._limit}
        return ", ".join(f"{name} for {stood:.0f} s" for name, stood in sorted(late.items())) or None


class Patience:
    """The limit of the current main process, at first ``least``. Pure."""

    def __init__(self, least: float = LIMIT) -> None:
        self.seconds = self._least = least

    def ended(self, *, stuck: bool, worked: bool) -> None:
        """``worked``: it got as far as offering everything that may be held. A failure on the way there proves nothing
        about how long that takes."""
        if stuck:
            self.seconds = min(2 * self.seconds, LONGEST)
        elif worked:
            self.seconds = self._least
