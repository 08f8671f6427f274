"""What a node remembers only to be able to say it: how it came by each EIP, and hellos that it could not read. Pure."""

from collections.abc import Callable, Collection, Mapping
from enum import Enum

from speaker.model import IPAddress
from speaker.node.decide import MayHold, MayNotHold

MOST = 100_000
"""EIPs that are remembered; of more, those of which anything happened last."""


class Noted:
    """``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.decided: Mapping[IPAddress, MayHold | MayNotHold] = {}
        """What was decided last."""
        self._histories: dict[IPAddress, tuple[str, str]] = {}
        """The last change in words, and the reason why the EIP was let go."""
        self._failovers: dict[IPAddress, tuple[str, float]] = {}
        self._rejected: dict[tuple[str, str], float] = {}
        """Link and reason → when the last was heard."""

    def claimed(self, address: IPAddress, before: str | None, unanswered: float | None = None) -> None:
        self._failovers.pop(address, None)
        if unanswered is not None:
            self._failovers[address] = before or "", unanswered
        self._note(address, f"claimed; {before} had it before" if before else "claimed; nobody had it before")

    def yielded(self, address: IPAddress, reason: str, holder: str | None) -> None:
        self._failovers.pop(address, None)
        self._note(address, f"let go ({reason}){f', to {holder}' if holder else ''}", reason)

    def _note(self, address: IPAddress, words: str, reason: str = "") -> None:
        self._histories.pop(address, None)
        self._histories[address] = words, reason
        if len(self._histories) > MOST:
            oldest = next(iter(self._histories))
            del self._histories[oldest]
            self._failovers.pop(oldest, None)

    def history(self, address: IPAddress) -> str:
        """Of the last change; '' where there was none since the start."""
        return self._histories.get(address, ("", ""))[0]

    def why_not(self, address: IPAddress) -> str:
        """The reason why this node does not hold it; '' where nothing is known of it."""
        decided = self.decided.get(address)
        if isinstance(decided, MayNotHold):
            return decided.reason
        return self._histories.get(address, ("", ""))[1]  # what it has just let go may be yet to be heard

    def failover(self, address: IPAddress) -> tuple[str, float] | None:
        """Which node fell silent, '' where that is not known, and the seconds from its last sign to the claim of this
        node; None: it did not come by the EIP that way, or has let it go since."""
        return self._failovers.get(address)

    def hello(self, link: str, rejected: Enum | None) -> None:
        if rejected is not None:
            self._rejected[link, rejected.value] = self._clock()

    def rejected(self) -> Collection[tuple[str, str, float]]:
        """Link, reason, and seconds since the last one."""
        now = self._clock()
        return [(link, reason, now - at) for (link, reason), at in self._rejected.items()]
