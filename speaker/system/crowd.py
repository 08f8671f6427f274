"""Decides which connection is closed when there are too many; a new one is always let in. Pure."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class _Guest:
    source: str
    busy: bool = False
    """It has asked something, and is being answered."""


class Crowd(Generic[T]):
    """Connections, of which there may be ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._guests: dict[T, _Guest] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, guest: T, source: str = "") -> T | None:
        """Who has to go for it, if anybody: of the source that has the most, one that has asked nothing yet before one
        that is being answered, and of these the oldest."""
        leaves = self._one_too_many() if len(self._guests) >= self._most else None
        if leaves is not None:
            del self._guests[leaves]
        self._guests[guest] = _Guest(source)
        return leaves

    def occupy(self, guest: T) -> None:
        if guest in self._guests:
            self._guests[guest].busy = True

    def leave(self, guest: T) -> None:
        self._guests.pop(guest, None)

    def _one_too_many(self) -> T:
        guests, sources = self._guests, Counter(guest.source for guest in self._guests.values())
        return max(guests, key=lambda one: (sources[guests[one].source], not guests[one].busy))
