"""The log: one line for each event, as JSON for machines or text for people, always on stderr; stdout is the command's.

A thread writes the lines. The reader of our stderr may stall (a full pipe, a journal that waits for its disk), and a
hello that waited for it would cost this node its EIPs.

Unexpected errors are logged once with their traceback, counted, and a problem until their task works again.
"""

import asyncio
import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any

import structlog
from prometheus_client import Counter
from structlog.typing import EventDict

from speaker.settings import LogFormat, LogLevel
from speaker.system.garbage import end_if_exhausted
from speaker.system.streams import wants_colour
from speaker.system.supervise import BUGS, described, single
from speaker.system.waiting import Timer
from speaker.telemetry.lines import Bound, Gather, Line, Transition, in_lines

MAX_WAITING = 100_000
"""Lines; those that come while so many wait are counted, not kept."""
LOOK_SECONDS = 1.0
"""How often the writer looks whether lines that were left out are to be logged, while there are any."""
LEFT_OUT = "lines left out"
UNREAD = "nobody read them in time"
_LAST_WORDS = 1.0
"""Seconds that the end of the process waits for a reader."""


def configure(format: LogFormat, level: LogLevel = "info") -> None:  # noqa: A002 -- the flag's own name
    """Set up structlog for the process. ``event`` is a fixed word; everything that varies is a field."""
    rendered: tuple[structlog.typing.Processor, ...] = (
        (structlog.processors.JSONRenderer(default=str),)
        if format == "json"
        else (in_words, structlog.dev.ConsoleRenderer(colors=wants_colour(sys.stderr)))
    )
    bounded = Bounded()
    writer = Writer(_to_stderr, now_and_then=bounded.tell)
    bounded.stir = writer.stir

    def finish() -> None:
        bounded.tell()
        writer.finish()

    atexit.register(finish)
    structlog.configure(
        processors=[
            bounded,
            structlog.processors.add_log_level,
            _stamp,
            structlog.processors.format_exc_info,
            *rendered,
        ],
        wrapper_class=unfailing(structlog.make_filtering_bound_logger(level), writer),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=True,
    )


def unfailing(kind: Any, writer: "Writer") -> Any:
    """Like ``kind``, but an error in a line never reaches the caller."""

    class Unfailing(kind):  # type: ignore[misc]
        def _proxy_to_logger(self, name: str, event: str | None = None, **fields: Any) -> Any:
            try:
                return super()._proxy_to_logger(name, event, **fields)
            except BUGS as error:
                failed = {"event": "internal error", "task": "log", "line": str(event), "error": repr(error)}
                try:
                    writer.msg(json.dumps({**failed, "level": "error"}))
                except BUGS as another:
                    writer.lost, writer.why = writer.lost + 1, repr(another)

    return Unfailing


def in_words(_: object, __: str, fields: EventDict) -> EventDict:
    """For people: what is not there is ``none``, lists have no brackets, nothing shows that it is Python's."""
    return {name: _said(value) for name, value in fields.items()}


def _said(value: object) -> object:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case Enum():
            return _said(value.value)
        case Mapping():
            return ", ".join(f"{key}: {_said(each)}" for key, each in value.items()) or "none"
        case list() | tuple() | set() | frozenset():
            return ", ".join(str(_said(each)) for each in value) or "none"
        case str() | int() | float():
            return value
        case _:
            return str(value)


_now = structlog.processors.TimeStamper(fmt="iso", utc=True)


def _stamp(logger: object, name: str, fields: EventDict) -> EventDict:
    """Now; unless the line waited for others, and says when it happened."""
    return fields if "timestamp" in fields else _now(logger, name, fields)


def _to_stderr(text: str) -> None:
    """Writes all of it: in containers (PYTHONUNBUFFERED) ``sys.stderr`` drops what a pipe does not take at once."""
    rest = memoryview(text.encode(errors="backslashreplace"))
    while rest:
        rest = rest[os.write(sys.stderr.fileno(), rest) :]


class Bounded:
    """A structlog processor: drops lines where there are too many, from any thread, and tells how many those were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._bound, self._clock, self._turn = Bound(), clock, threading.Lock()
        self._owes = False
        """Lines were left out, and their number is not logged yet."""
        self.stir: Callable[[], None] = lambda: None
        """Called when that begins."""

    def __call__(self, _: object, __: str, fields: EventDict) -> EventDict:
        if fields["event"] == LEFT_OUT:
            return fields
        part = fields.get("edge") or fields.get("task")
        source = str(fields["event"]) + (f" ({part})" if part else "")
        with self._turn:
            admitted = self._bound.admits(self._clock(), source)
            first = not admitted and not self._owes
            self._owes = self._owes or first
        if first:
            self.stir()
        if not admitted:
            raise structlog.DropEvent
        return fields

    def tell(self) -> bool:
        """Whether there will be more to tell, with no further line."""
        with self._turn:
            found = self._bound.left_out(self._clock())
            owes = self._owes = self._bound.owes
        for source, lines, seconds in found:
            structlog.get_logger().warning(LEFT_OUT, source=source, lines=lines, seconds=seconds)
        return owes


class Writer:
    """A structlog logger: takes lines from any thread without ever waiting, and has ``out`` write them in order.
    ``now_and_then`` is called from its thread after whatever it writes, and every second or so as long as it returns
    True."""

    def __init__(
        self,
        out: Callable[[str], object],
        most: int = MAX_WAITING,
        now_and_then: Callable[[], bool] = lambda: False,
    ) -> None:
        self._out, self._most, self._now_and_then = out, most, now_and_then
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self.lost, self.why = 0, UNREAD
        """Lines that were not written, and why."""
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def msg(self, line: str) -> None:
        if self._lines.qsize() < self._most:
            self._lines.put(line)
        else:
            self.lost += 1

    def stir(self) -> None:
        """Have ``now_and_then`` called."""
        self._lines.put("")

    debug = info = warning = error = critical = msg

    def finish(self, seconds: float = _LAST_WORDS) -> None:
        """Write what waits, for at most so long."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _write(self) -> None:
        while (line := self._next()) is not None:
            lines = [each for each in (line, *self._more()) if each]
            lost, self.lost = self.lost, 0
            words = [f"{lost} lines were lost: {self.why}"] if lost else []
            self.why = UNREAD
            if not (lines or words):
                continue
            try:
                self._out("\n".join([*lines, *words]) + "\n")
            except Exception:  # a disk that is full, a reader that is gone, no memory: there may be some later
                self.lost += lost + len(lines)

    def _next(self) -> str | None:
        while True:
            try:
                again = self._now_and_then()
            except Exception:  # of all that might tell of it, this thread is the last
                again = True
            with suppress(Empty):
                return self._lines.get(timeout=LOOK_SECONDS if again else None)

    def _more(self) -> list[str]:
        """What else waits by now: one write for all of it."""
        lines: list[str] = []
        while len(lines) < 1000:
            try:
                line = self._lines.get_nowait()
            except Empty:
                break
            if line is None:
                self._lines.put(None)
                break
            lines.append(line)
        return lines


# ── From what happens to lines ────────────────────────────────────────────────────────────────────────────────


log = structlog.get_logger()


class Telling:
    """Logs what happens. In the loop's thread a transition waits for others of the same cause (``lines.py``)."""

    def __init__(self) -> None:
        self._gather, self._alarm = Gather(), Timer(self._write)

    def say(self, said: Iterable[Transition | Line | None]) -> None:
        """Written at once, in any thread."""
        found = [*said]
        write(in_lines(one for one in found if isinstance(one, Transition)))
        write(one for one in found if isinstance(one, Line))

    def tell(self, one: Transition | Line | None) -> None:
        """A transition waits for others; in another thread it is written at once."""
        loop = asyncio._get_running_loop()
        if loop is None or not isinstance(one, Transition):
            self.say([one])
        else:
            self._gather.add(loop.time(), one)
            self._set_alarm()

    def finish(self) -> None:
        """Write what waits: before a line that has to come after it, and at the end."""
        self._alarm.cancel()
        write(self._gather.rest())

    def _set_alarm(self) -> None:
        if (when := self._gather.wake()) is not None:
            self._alarm.set_at(when)

    def _write(self) -> None:
        write(self._gather.due(asyncio.get_running_loop().time()))
        self._set_alarm()


def write(lines: Iterable[Line]) -> None:
    """``at`` is of the running loop's clock."""
    for level, event, fields, at in lines:
        if at is not None:
            when = datetime.fromtimestamp(time.time() - (asyncio.get_running_loop().time() - at), UTC)
            fields = {**fields, "timestamp": f"{when:%Y-%m-%dT%H:%M:%S.%f}Z"}
        getattr(log, level)(event, **fields)


# ── Errors that nobody expected ───────────────────────────────────────────────────────────────────────────────


LASTING = {"main process": 600.0}
"""Seconds for which an error in this task is shown: nobody sees it in the few that the next one takes to begin."""
QUIET_SECONDS = 15.0
"""Without another error, after which a task counts as well again: longer than any wait between two tries."""
MAX_KNOWN = 1000
"""Errors, by task, kind and line of code, that are logged in full; further ones are only counted."""


class InternalErrors:
    """A ``supervise.Supervisor``. ``counter`` has the label ``task``; ``changed`` is called when there is a new
    problem; ``clock`` gives seconds."""

    def __init__(
        self,
        counter: Counter,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count, self._changed, self._clock = counter, changed, clock
        self._known: set[tuple[str, str]] = set()
        self._ailing: dict[str, tuple[str, float]] = {}
        """Task → its last error in words, and when that was."""

    def internal_error(self, task: str, error: BaseException) -> None:
        for one in single(error):
            end_if_exhausted(one)
            self.told(task, *described(one))

    def told(self, task: str, words: str, place: str, trace: str) -> None:
        """Like ``internal_error``, for an error in another process. ``place`` says where it was raised."""
        self._count.labels(task).inc()
        if (task, place) not in self._known and len(self._known) < MAX_KNOWN:
            self._known.add((task, place))
            log.error("internal error", task=task, error=words, place=place, traceback=trace)
        self._ail(task, words)

    def again(self, task: str, count: int) -> None:
        """Counts more errors of a kind that another process has reported before."""
        self._count.labels(task).inc(count)
        words, _ = self._ailing.get(task, ("as the log says", 0.0))
        self._ail(task, words)

    def _ail(self, task: str, words: str) -> None:
        new = task not in self._ailing
        self._ailing[task] = words, self._clock()
        if new:
            self._changed()

    def problems(self) -> tuple[str, ...]:
        now = self._clock()
        over = [task for task, (_, at) in self._ailing.items() if now - at >= LASTING.get(task, QUIET_SECONDS)]
        for task in over:
            del self._ailing[task]
            log.info("internal error over", task=task)
        return tuple(
            f"internal error in {task}: {words}: it is set aside and tried again; the log has its traceback"
            for task, (words, _) in self._ailing.items()
        )
