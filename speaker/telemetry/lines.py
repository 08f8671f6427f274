"""How much is logged: many changes with one cause are one line, and no source fills the log. Pure.

``Gather`` makes one line of many, so that 300 EIPs of a failed link are logged together. ``Bound`` comes after it:
lines that still come too often are counted, and the count is logged.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FEW = 5
"""As many get a line each, for one cause in one WINDOW."""
LONGEST = {"unanswered"}
"""Fields with seconds, of which one line for many has the most."""
SHOWN = 10
"""Names in one line; the count tells the rest."""
TURN = 0.02
"""Seconds that one waits for others like it: what one cause does to thousands takes no longer to be heard of."""
WINDOW = 1.0
"""Seconds after which a cause has a few lines of its own again."""

BURST = 30
"""Lines of one source at once."""
REFILL = 1.0
"""Seconds until it may have another."""
QUIET = 2.0
"""Seconds without a line too many, after which that is over and its count is logged."""
TELL = 10.0
"""How often the count is logged while it lasts."""
SOURCES = 1000
"""That are remembered; they are words of ours, so there are fewer."""

Fields = Mapping[str, Any]


class Line(NamedTuple):
    """``level``: a method of a structlog logger. ``at``: when it, or the first of many, happened; None: now."""

    level: str
    event: str
    fields: Fields
    at: float | None = None


class Transition(NamedTuple):
    """``event`` happened to ``name``, which is a ``kind`` ("eip"), and to others of the same ``cause``."""

    level: str
    event: str
    kind: str
    name: str
    cause: Hashable
    fields: Fields


def as_line(one: Transition | Line) -> Line:
    """As it is where nothing else has its cause."""
    return one if isinstance(one, Line) else Line(one.level, one.event, {one.kind: one.name, **one.fields})


def in_lines(found: Iterable[Transition], few: int = FEW) -> Iterator[Line]:
    """A line for each if a cause has at most ``few``, otherwise one line for all of them."""
    groups: dict[Hashable, list[Transition]] = {}
    for one in found:
        groups.setdefault((one.event, one.cause), []).append(one)
    for group in groups.values():
        if len(group) <= few:
            yield from map(as_line, group)
        else:
            yield _together(group)


def _together(group: list[Transition]) -> Line:
    """What all of them share; where their messages differ, the first as an example; of how long it took, the most."""
    first = group[0]
    shared = {
        name: value
        for name, value in first.fields.items()
        if name == "message" or all(other.fields.get(name) == value for other in group)
    }
    took = {
        name: max(found) for name in LONGEST if (found := [one.fields[name] for one in group if name in one.fields])
    }
    names = [one.name for one in group[:SHOWN]]
    return Line(first.level, first.event, {"count": len(group), f"{first.kind}s": names, **shared, **took})


@dataclass(slots=True)
class _Cause:
    opened: float
    """When its window began."""
    logged: int = 0
    """In that window."""
    waiting: list[tuple[float, Transition]] = field(default_factory=list)
    """Each with the time it came at."""
    due: float = 0.0


class Gather:
    """What happened lately, by cause. Times are seconds of a clock that only rises."""

    def __init__(self) -> None:
        self._causes: dict[Hashable, _Cause] = {}

    def add(self, now: float, one: Transition) -> None:
        key = one.event, one.cause
        if (cause := self._causes.get(key)) is None:
            cause = self._causes[key] = _Cause(now)
        if not cause.waiting:
            if now >= cause.opened + WINDOW:
                cause.opened, cause.logged = now, 0
            cause.due = now + TURN if cause.logged < FEW else max(now + TURN, cause.opened + WINDOW)
        cause.waiting.append((now, one))

    def wake(self) -> float | None:
        """When ``due`` has something; None: not before there is more."""
        return min((cause.due for cause in self._causes.values() if cause.waiting), default=None)

    def due(self, now: float) -> list[Line]:
        """What waited long enough, oldest first."""
        ready = [cause for cause in self._causes.values() if cause.waiting and cause.due <= now]
        lines: list[Line] = []
        for cause in sorted(ready, key=lambda cause: cause.due):
            ready_lines = in_lines((one for _, one in cause.waiting), max(1, FEW - cause.logged))
            lines += (line._replace(at=at) for line, (at, _) in zip(ready_lines, cause.waiting, strict=False))
            cause.logged += len(cause.waiting)
            cause.waiting = []
        self._causes = {k: c for k, c in self._causes.items() if c.waiting or now < c.opened + WINDOW}
        return lines

    def rest(self) -> list[Line]:
        """All that waits."""
        return self.due(float("inf"))


class LeftOut(NamedTuple):
    """So many ``lines`` of ``source`` were not written in so many ``seconds``."""

    source: str
    lines: int
    seconds: float


@dataclass(slots=True)
class _Source:
    lines: float
    """That it may have now."""
    at: float
    """When that was so."""
    left_out: int = 0
    since: float = 0.0
    """When the first of these came."""
    last: float = 0.0


class Bound:
    """A bucket of ``burst`` lines for each of so many ``sources``, and one more every ``refill`` seconds."""

    def __init__(self, burst: int = BURST, refill: float = REFILL, sources: int = SOURCES) -> None:
        self._burst, self._refill, self._most = float(burst), refill, sources
        self._sources: dict[str, _Source] = {}

    def admits(self, now: float, source: str) -> bool:
        """Whether there is room for another line of ``source``; if not, it is counted."""
        found = self._sources.get(source)
        if found is None:
            self._forget(now)
            found = self._sources[source] = _Source(self._burst, now)
        found.lines, found.at = min(self._burst, found.lines + max(0.0, now - found.at) / self._refill), now
        if found.lines >= 1:
            found.lines -= 1
            return True
        if not found.left_out:
            found.since = now
        found.left_out, found.last = found.left_out + 1, now
        return False

    def left_out(self, now: float) -> list[LeftOut]:
        """What is to be logged by now: where it is over, and where it lasts."""
        found = []
        for name, source in self._sources.items():
            if source.left_out and (now - source.last >= QUIET or now - source.since >= TELL):
                found.append(LeftOut(name, source.left_out, round(source.last - source.since, 1)))
                source.left_out = 0
        return found

    @property
    def owes(self) -> bool:
        """``left_out`` will have something, with no further line."""
        return any(source.left_out for source in self._sources.values())

    def _forget(self, now: float) -> None:
        """The oldest, where there are too many."""
        if len(self._sources) >= self._most:
            oldest = min(self._sources, key=lambda name: self._sources[name].at)
            del self._sources[oldest]


# ── Troubles that mostly pass by themselves ───────────────────────────────────────────────────────────────────
#
# A busy API server answers late now and then, and a watch breaks: nobody has to act on that. What lasts is logged.

LASTING = 10.0
"""Seconds for which the API may be away before the log says so. Metrics and status do at once."""


@dataclass(slots=True)
class Spell:
    """One trouble, ``since`` when; ``now`` is seconds of the same clock."""

    since: float
    said: str | None = None
    """What was logged of it last."""

    def tells(self, words: str, now: float, patience: float = 0.0) -> bool:
        """Whether ``words`` are to be logged now: it has lasted for ``patience``, and they are new."""
        if now - self.since < patience or words == self.said:
            return False
        self.said = words
        return True
