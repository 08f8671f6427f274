"""What a node remembers only to be able to say it: how it came by each EIP, and hellos that it could not read. Pure."""

from collections.abc import Callable, Collection
from enum import Enum

from speaker.model import IPAddress

MOST = 100_000
"""EIPs that are remembered; of more, those of which anything happened last."""


class Noted:
    """``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._histories: dict[IPAddress, str] = {}
        self._rejected: dict[tuple[str, str], float] = {}
        """Link and reason → when the last was heard."""

    def claimed(self, address: IPAddress, before: str | None) -> None:
        self._note(address, f"claimed; {before} had it before" if before else "claimed; nobody had it before")

    def yielded(self, address: IPAddress, reason: str, holder: str | None) -> None:
        self._note(address, f"let go ({reason}){f', to {holder}' if holder else ''}")

    def _note(self, address: IPAddress, words: str) -> None:
        self._histories.pop(address, None)
        self._histories[address] = words
        if len(self._histories) > MOST:
            del self._histories[next(iter(self._histories))]

    def history(self, address: IPAddress) -> str:
        """Of the last change; '' where there was none since the start."""
        return self._histories.get(address, "")

    def hello(self, link: str, rejected: Enum | None) -> None:
        if rejected is not None:
            self._rejected[link, rejected.value] = self._clock()

    def rejected(self) -> Collection[tuple[str, str, float]]:
        """Link, reason, and seconds since the last one."""
        now = self._clock()
        return [(link, reason, now - at) for (link, reason), at in self._rejected.items()]
