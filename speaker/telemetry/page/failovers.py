"""The last failovers, those of many EIPs for one cause as one. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from speaker.telemetry.mqtt.states import rfc3339

MOST = 50
"""That are remembered."""
NAMED = 10
"""EIPs of each."""
TOGETHER = 2.0
"""Seconds in which what goes from one node to one other does so for one cause."""


@dataclass(slots=True)
class _Failover:
    at: float
    before: str
    node: str
    eips: list[str] = field(default_factory=list)
    count: int = 0
    least: float = float("inf")
    most: float = 0.0


class Failovers:
    def __init__(self) -> None:
        self._last: deque[_Failover] = deque(maxlen=MOST)
        """The newest first."""

    def add(self, at: float, eip: str, before: str, node: str, unanswered: float) -> None:
        """``node`` answers in place of ``before``, ``unanswered`` seconds after the last sign of that one. ``at``:
        seconds since 1970."""
        found = self._of_one_cause(at, before, node)
        if found is None:
            found = _Failover(at, before, node)
            self._last.appendleft(found)
        found.count += 1
        found.least, found.most = min(found.least, unanswered), max(found.most, unanswered)
        if len(found.eips) < NAMED:
            found.eips.append(eip)

    def _of_one_cause(self, at: float, before: str, node: str) -> _Failover | None:
        same = (one for one in self._last if (one.before, one.node) == (before, node))
        found = next(same, None)
        return found if found is not None and abs(at - found.at) <= TOGETHER else None

    def told(self) -> list[dict[str, Any]]:
        """The newest first."""
        return [
            {
                "at": rfc3339(one.at),
                "from": one.before,
                "to": one.node,
                "eips": [*one.eips],
                "count": one.count,
                "unanswered": [one.least, one.most],
            }
            for one in [*self._last]
        ]
