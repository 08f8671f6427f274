"""What a search met, shared by all the processes that it forks. One of them works at a time, so nothing is locked."""

import json
import mmap
import tempfile
from dataclasses import dataclass

_STATES, _MET, _DEPTH, _LEFT, _BROKEN, _STOPPED, _FAILED = range(7)
_MOST_BROKEN = 50
"""Promises, after which a search ends: one machine that is wrong breaks them by the thousand."""


@dataclass(frozen=True, slots=True)
class Found:
    """``trail``: the choices that led there."""

    promise: str
    story: str
    trail: tuple[str, ...]


class Memo:
    """A set of 64-bit keys with room for ``most`` and as many again, counts, and what was found broken."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 1 << (2 * most).bit_length()
        self._slots = memoryview(mmap.mmap(-1, 8 * self._size)).cast("Q")
        self._counts = memoryview(mmap.mmap(-1, 8 * 8)).cast("Q")
        self._found = tempfile.TemporaryFile("ab+")  # noqa: SIM115 -- as long as this lives

    def _slot(self, key: int) -> int:
        """Where it is, or would be."""
        at = key % self._size
        while self._slots[at] not in (0, key):
            at = (at + 1) % self._size
        return at

    def __contains__(self, key: int) -> bool:
        return self._slots[self._slot(key)] == key

    def add(self, key: int, depth: int) -> None:
        self._slots[self._slot(key)] = key
        self._counts[_STATES] += 1
        self._counts[_DEPTH] = max(self._counts[_DEPTH], depth)

    def meet(self) -> None:
        """One more state, known or not."""
        self._counts[_MET] += 1

    def leave(self) -> None:
        """One more choice that is not followed, as the search is over."""
        self._counts[_LEFT] += 1

    def stop(self) -> None:
        self._counts[_STOPPED] = 1

    def fail(self) -> None:
        """The search itself met an error."""
        self._counts[_FAILED] += 1
        self.stop()

    def note(self, found: Found) -> None:
        self._found.write(json.dumps([found.promise, found.story, found.trail]).encode() + b"\n")
        self._found.flush()
        self._counts[_BROKEN] += 1

    @property
    def over(self) -> bool:
        counts = self._counts
        return counts[_STATES] >= self._most or counts[_BROKEN] >= _MOST_BROKEN or bool(counts[_STOPPED])

    @property
    def states(self) -> int:
        return self._counts[_STATES]

    @property
    def met(self) -> int:
        return self._counts[_MET]

    @property
    def depth(self) -> int:
        """Hello intervals from the beginning to the state furthest from it."""
        return self._counts[_DEPTH]

    @property
    def left(self) -> int:
        return self._counts[_LEFT]

    @property
    def failed(self) -> bool:
        return bool(self._counts[_FAILED])

    @property
    def broken(self) -> list[Found]:
        self._found.seek(0)
        lines = map(json.loads, self._found.read().splitlines())
        return [Found(promise, story, tuple(trail)) for promise, story, trail in lines]
