"""How much memory the objects of all mirrors of a process may take together. Pure.

Who writes more than there is room for loses what it wrote last, and nobody else loses anything: of the namespace that
takes the most its newest objects are set aside. What belongs to no namespace no tenant writes: it is counted, and
stays.
"""

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Any, Protocol

from speaker.api.objects import Object

FREED = 0.05
"""Of the room, that is made at once: to look for what is newest takes a while."""
OVER = 0.1
"""Of the room, that may be taken besides while nothing can be set aside, as at the end of a list."""
AGAIN = 0.8
"""Of the room; where less is taken, what was set aside is listed again."""


class Mirrored(Protocol):
    """``Feed``, as far as it matters here."""

    def of(self, namespace: str) -> Iterable[Object]: ...
    def evict(self, found: Any) -> None: ...


class Room:
    """``most``: bytes."""

    def __init__(self, most: float = inf) -> None:
        self.most, self.taken = most, 0
        self.mirrored: list[Mirrored] = []
        self._by_namespace: Counter[str] = Counter()

    @property
    def again(self) -> bool:
        """There is room for what was set aside."""
        return self.taken < AGAIN * self.most

    def count(self, namespace: str, size: int) -> None:
        self.taken += size
        self._by_namespace[namespace] += size
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]

    def admits(self, namespace: str, more: int) -> bool:
        """Whether there is room for so much more of that namespace, once others that are greater have made it."""
        while namespace and more > 0 and self.taken + more > self.most:
            before, will_take = self.taken, self._by_namespace[namespace] + more
            greatest = max(self._by_namespace.keys() - {""}, key=self._by_namespace.__getitem__, default=namespace)
            if self._by_namespace[greatest] <= will_take:
                return False
            self._shrink(greatest, will_take, self.most * (1 - FREED) - more)
            if self.taken == before:
                return self.taken + more <= self.most * (1 + OVER)
        return True

    def _shrink(self, namespace: str, least: int, most: float) -> None:
        """Until no more than ``most`` is taken by all, or ``least`` is left of it."""
        found = [(_version(each), each, mirrored) for mirrored in self.mirrored for each in mirrored.of(namespace)]
        for _, each, mirrored in sorted(found, key=lambda entry: entry[0], reverse=True):
            if self.taken <= most or self._by_namespace[namespace] <= least:
                return
            mirrored.evict(each)


def _version(found: Object) -> int:
    """The higher, the later it was written."""
    version = found.metadata.resource_version
    return int(version) if version.isdecimal() else 0
