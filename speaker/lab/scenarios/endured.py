"""What a scenario with sick links saw, what is promised of it, and whether that was kept (pure)."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from speaker.lab.breaking.sickness import Course
from speaker.lab.scenarios.sick_links import ClaimCount, Line, Suffered, ledger
from speaker.model import IPAddress

FEW = 3
"""EIPs that a problem names."""
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Endured:
    """A scenario's result."""

    scenario: str
    hello_ms: int
    suffered: Suffered
    lines: tuple[Line, ...]

    @property
    def course(self) -> Course:
        return self.suffered.course

    @property
    def problems(self) -> tuple[str, ...]:
        """What was promised and not kept, in sentences."""
        return (*_broken(self), *_restless(self.suffered))

    @property
    def ok(self) -> bool:
        return bool(self.lines) and not self.problems

    def eips(self, *, sick: bool) -> Sequence[Line]:
        """Those, for each client, whose holder could not serve it all the time, or those whose holder could."""
        return [line for line in self.lines if line.sick is sick]

    @property
    def left(self) -> frozenset[IPAddress]:
        """The EIPs that left a healthy node."""
        return frozenset(line.address for line in self.lines if line.left)

    def moved(self, *, sick: bool) -> Sequence[Line]:
        return [line for line in self.eips(sick=sick) if line.moves > line.settled]

    @property
    def settled(self) -> frozenset[IPAddress]:
        return frozenset(line.address for line in self.lines if line.settled)

    @property
    def twice_ms(self) -> float:
        return max(line.twice_ms for line in self.lines)

    @property
    def twice_owed_ms(self) -> float:
        """The most that ``twice_ms`` may be: a hello interval, a minute where all times count together, and more where
        nodes cannot hear of each other sooner."""
        promise = self.course.promise
        return (
            self.hello_ms * (math.ceil(self.suffered.seconds / MINUTE) if promise.in_sum else 1) + promise.twice * 1000
        )

    @property
    def worst(self) -> Line:
        """The EIP that was unanswered for most of what it may be."""
        return max(self.lines, key=lambda line: line.dark_ms / line.owed_ms)

    @property
    def unanswered_ms(self) -> float:
        return max(line.silence.ms for line in self.lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "scenario": self.scenario,
            "nodes": len(self.suffered.nodes),
            "hello_ms": self.hello_ms,
            "left_a_healthy_node": len(self.left),
            "moved_of_healthy": len(self.moved(sick=False)),
            "healthy": len(self.eips(sick=False)),
            "moved_of_sick": len(self.moved(sick=True)),
            "sick": len(self.eips(sick=True)),
            "settled_at_heals": len(self.settled),
            "answered_twice_ms": round(self.twice_ms, 1),
            "unanswered_ms": round(self.unanswered_ms, 1),
            "dark_ms": round(self.worst.dark_ms, 1),
            "promised_ms": round(self.worst.owed_ms, 1),
            "claims_meanwhile": _as_json(self.suffered.meanwhile),
            "claims_afterwards": _as_json(self.suffered.afterwards),
            "eips": [line.as_json() for line in self.lines],
            "problems": list(self.problems),
        }


def _as_json(claims: ClaimCount) -> dict[str, float]:
    return {"number": claims.number, "seconds": round(claims.seconds, 1), "a_minute": round(claims.a_minute, 1)}


def judge(scenario: str, hello_ms: int, suffered: Suffered) -> Endured:
    """Hold what was seen against the promise."""
    within = hello_ms / 1000 + suffered.course.promise.apart
    return Endured(scenario, hello_ms, suffered, tuple(ledger(suffered, within)))


def _broken(found: Endured) -> Iterator[str]:
    lines, promise = found.lines, found.course.promise
    so_long = "in sum for" if promise.in_sum else "for"
    if unasked := [line for line in lines if not line.silence.sent]:
        yield f"nobody asked for {_which(unasked)}"
    if promise.still and (left := [line for line in lines if line.left]):
        yield f"left a healthy node: {_which(left)}"
    if doubled := [line for line in lines if line.twice_ms > found.twice_owed_ms]:
        longest = max(line.twice_ms for line in doubled)
        promised = f"promised were at most {found.twice_owed_ms:.0f}"
        yield f"answered by two nodes {so_long} up to {longest:.0f} ms, {promised}: {_which(doubled)}"
    for owed in sorted({line.owed_ms for line in lines}):
        if silent := [line for line in lines if line.owed_ms == owed and line.dark_ms > owed]:
            longest = max(line.dark_ms for line in silent)
            promised = f"promised were at most {owed:.0f}"
            yield f"answered by nobody {so_long} up to {longest:.0f} ms, {promised}: {_which(silent)}"


def _which(lines: Iterable[Line]) -> str:
    found: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        found[line.client].append(str(line.address))
    return "; ".join(f"{_list(eips)} as {client} saw it" for client, eips in found.items())


def _list(eips: Sequence[str]) -> str:
    return ", ".join(eips) if len(eips) <= FEW else f"{', '.join(eips[:FEW])} and {len(eips) - FEW} more"


def _restless(suffered: Suffered) -> Iterator[str]:
    course = suffered.course
    if course.claims is not None and suffered.afterwards.number > course.claims.most:
        yield f"EIPs claimed after the second flap: {suffered.afterwards}, promised were at most {course.claims.most}"
