"""Unexpected errors: each is logged once with its traceback, counted, and a problem until its task works again."""

import time
from collections.abc import Callable

import structlog
from prometheus_client import Counter

from speaker.system.garbage import end_if_exhausted
from speaker.system.supervise import described, single

log = structlog.get_logger()

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
