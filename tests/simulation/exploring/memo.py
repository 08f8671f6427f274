"""What a search met, shared by all the processes that it forks. One of them works at a time, so nothing is locked."""

import json
import mmap
import tempfile
from collections import Counter
from dataclasses import dataclass

_STATES, _MET, _DEPTH, _LEFT, _BROKEN, _STOPPED, _FAILED = range(7)
_A_KIND, _KINDS = 3, 40
"""So many ways to break one promise by the same faults are kept. A search ends after so many kinds of ways."""


@dataclass(frozen=True, slots=True)
class Found:
    """``trail``: the choices that led there."""

    promise: str
    story: str
    trail: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, ...]:
        """The promise, and what began: whenever it did, and however long it lasted."""
        choices = (choice.split(" ", 1)[1] for choice in self.trail)
        return self.promise, *sorted(what for what in choices if not what.endswith(" ends"))


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search came to."""

    states: int
    """That differ."""
    met: int
    """However often."""
    depth: int
    """Hello intervals from the start to the state that was met latest."""
    left: int
    """Choices that were not followed, as the search had met enough. 0: every schedule was."""
    times_broken: int
    failed: bool
    """By an error of the search's own."""
    broken: tuple[Found, ...]
    """Some of each kind."""


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

    def note_met(self) -> None:
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
        kinds = Counter(each.kind for each in self._broken())
        self._counts[_BROKEN] += 1
        if kinds[found.kind] == _A_KIND:
            return
        if len(kinds) >= _KINDS:
            self.stop()
        self._found.write(json.dumps([found.promise, found.story, found.trail]).encode() + b"\n")
        self._found.flush()

    @property
    def over(self) -> bool:
        counts = self._counts
        return counts[_STATES] >= self._most or bool(counts[_STOPPED])

    def result(self) -> Explored:
        counts, broken = self._counts, tuple(self._broken())
        self._found.close()
        return Explored(
            states=counts[_STATES],
            met=counts[_MET],
            depth=counts[_DEPTH],
            left=counts[_LEFT],
            times_broken=counts[_BROKEN],
            failed=bool(counts[_FAILED]),
            broken=broken,
        )

    def _broken(self) -> list[Found]:
        self._found.seek(0)
        lines = map(json.loads, self._found.read().splitlines())
        return [Found(promise, story, tuple(trail)) for promise, story, trail in lines]
