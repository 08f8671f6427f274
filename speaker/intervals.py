"""Runs of whole numbers, each with a first and a last one inclusive: mostly addresses. Pure.

The cost of nothing here grows with how many numbers a run contains.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """What they cover, in order and disjoint; neighbours become one. Empty ones (first behind last) vanish."""
    found: list[Interval] = []
    for first, last in sorted(interval for interval in intervals if interval[0] <= interval[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def subtracted(intervals: Iterable[Interval], holes: Sequence[Interval]) -> list[Interval]:
    """``intervals`` without ``holes``; both in order and disjoint, and so is the result."""
    left: list[Interval] = []
    hole = 0
    for first, last in intervals:
        while hole < len(holes) and holes[hole][1] < first:
            hole += 1
        start, ahead = first, hole
        while ahead < len(holes) and holes[ahead][0] <= last:
            if start < holes[ahead][0]:
                left.append((start, holes[ahead][0] - 1))
            start = holes[ahead][1] + 1
            ahead += 1
        if start <= last:
            left.append((start, last))
    return left
