"""What grows: samples of processes over time, and straight lines through them. Pure, but for reading /proc."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

PAGE = os.sysconf("SC_PAGE_SIZE")
BUCKET = 10.0
"""Seconds; of each, the least counts: what is only needed for a moment is no growth."""
GROWING = 20.0
"""Seconds of the life of a process in which it grows to its size."""
MEASURES = ("memory", "descriptors", "threads", "tasks", "log")
UNITS = {"memory": "KiB", "descriptors": "", "threads": "", "tasks": "", "log": "KiB"}
ALLOWED: Mapping[str, float] = {"memory": 8 * 1024, "descriptors": 4, "threads": 4, "tasks": 15}
"""Growth from the warm-up to the end of the run, however long that is: by so much what is flat may wander. On a busy
machine what waits for a link that flaps waits longer: tasks wandered by 11 there."""
CREEP: Mapping[str, float] = {"memory": 100}
"""Beside that, a minute: what an allocator loses. Of 0.7 MB a flap, which was a leak, it is a fraction."""
LOG_A_MINUTE = 200.0
"""KiB that a speaker may write in a minute of all this, on average; and it may not come to write more and more."""


class Line(NamedTuple):
    """By least squares; ``slope``: a minute."""

    slope: float
    mean: float


def line(points: Sequence[tuple[float, float]]) -> Line:
    """Through (seconds, value)."""
    if len(points) < 2:
        return Line(0.0, points[0][1] if points else 0.0)
    middle = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    return Line(60 * sum((at - middle) * (value - mean) for at, value in points) / spread, mean)


def least(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of each bucket."""
    found: dict[int, tuple[float, float]] = {}
    for at, value in points:
        bucket = int(at // BUCKET)
        if bucket not in found or value < found[bucket][1]:
            found[bucket] = at, value
    return list(found.values())


def rates(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """How much came in each bucket, a minute."""
    found: dict[int, tuple[float, float]] = {}
    for at, value in points:
        found.setdefault(int(at // BUCKET), (at, value))
    ends = list(found.values())
    return [(t1, 60 * (v1 - v0) / (t1 - t0)) for (t0, v0), (t1, v1) in pairwise(ends)]


@dataclass
class Series:
    """Of one process (or, for the log, of one speaker): samples by what is measured."""

    name: str
    samples: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, at: float, measured: Mapping[str, float]) -> None:
        for measure, value in measured.items():
            self.samples[measure].append((at, value))

    @property
    def seconds(self) -> float:
        times = [at for points in self.samples.values() for at, _ in points]
        return max(times) - min(times) if times else 0.0

    def lines(self) -> Mapping[str, Line]:
        return {
            measure: line(rates(points) if measure == "log" else least(self._grown(points)))
            for measure, points in self.samples.items()
        }

    @staticmethod
    def _grown(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Without what a process grows by that has just started."""
        return [(at, value) for at, value in points if at >= points[0][0] + GROWING]

    def steep(self) -> list[str]:
        """What is not flat, in sentences."""
        found = []
        for measure, (slope, mean) in self.lines().items():
            growth = slope * self.seconds / 60
            if measure == "log":
                if mean > LOG_A_MINUTE:
                    found.append(f"{self.name} writes {mean:.0f} KiB of log a minute: more than {LOG_A_MINUTE:.0f}")
                elif growth > max(mean, LOG_A_MINUTE / 2):
                    found.append(f"{self.name} writes more and more log: {slope:+.1f} KiB a minute each minute")
            elif growth > ALLOWED[measure] + CREEP.get(measure, 0.0) * self.seconds / 60:
                unit = f" {UNITS[measure]}" if UNITS[measure] else ""
                found.append(f"{self.name}: {measure} {slope:+.1f}{unit} a minute, from {mean:.0f} on average")
        return found

    def __str__(self) -> str:
        lines = self.lines()
        cells = [f"{lines[m].mean:9.0f} {lines[m].slope:+8.1f}/min" if m in lines else " " * 22 for m in MEASURES]
        return f"{self.name:16} {self.seconds:6.0f} s {' '.join(cells)}"


HEAD = f"{'process':16} {'seen':>8} " + " ".join(f"{f'{m} {UNITS[m]}'.strip():>21}" for m in MEASURES)


def measured(pid: int, tasks: Path) -> Mapping[str, float] | None:
    """None where it is gone."""
    try:
        process = Path(f"/proc/{pid}")
        found = {
            "memory": int((process / "statm").read_text().split()[1]) * PAGE / 1024,
            "descriptors": float(len(os.listdir(process / "fd"))),  # noqa: PTH208 -- only counted
            "threads": float(len(os.listdir(process / "task"))),  # noqa: PTH208
        }
    except OSError:
        return None
    with suppress(OSError, ValueError):
        found["tasks"] = float((tasks / str(pid)).read_text())
    return found
