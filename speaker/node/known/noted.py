"""What a node remembers only for its reports: how it came by each EIP, and hellos that it could not read. Pure."""

from collections.abc import Callable, Collection, Mapping

from speaker.model import IPAddress
from speaker.model.events import Counts, EipClaimed, EipYielded, HellosReceived
from speaker.node.decide import MayHold, MayNotHold

MOST = 100_000
"""EIPs that are remembered: those with the latest changes."""


class Noted:
    """``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.decided: Mapping[IPAddress, MayHold | MayNotHold] = {}
        """What was decided last."""
        self._last: dict[IPAddress, EipClaimed | EipYielded] = {}
        """The last change."""
        self._rejected: dict[tuple[str, str], float] = {}
        """Link and reason → when the last was heard."""

    def hear(self, event: object) -> None:
        """Notes the events that concern it."""
        match event:
            case EipClaimed(eip=eip) | EipYielded(eip=eip):
                self._last.pop(eip, None)
                self._last[eip] = event
                if len(self._last) > MOST:
                    del self._last[next(iter(self._last))]
            case Counts(counts=counts):
                for what in counts:
                    if isinstance(what, HellosReceived) and what.rejected is not None:
                        self._rejected[what.link, what.rejected.value] = self._clock()

    def history(self, address: IPAddress) -> str:
        """The last change in words; '' if there was none since the start."""
        match self._last.get(address):
            case EipClaimed(before=before):
                return f"claimed; {before or 'nobody'} had it before"
            case EipYielded(reason=reason, holder=holder):
                return f"let go ({reason}){f', to {holder}' if holder else ''}"
            case None:
                return ""

    def why_not(self, address: IPAddress) -> str:
        """The reason why this node does not hold it; '' if none is known."""
        decided, last = self.decided.get(address), self._last.get(address)
        if isinstance(decided, MayNotHold):
            return decided.reason
        return last.reason if isinstance(last, EipYielded) else ""  # its last event may not have been heard yet

    def failover(self, address: IPAddress) -> tuple[str, float] | None:
        """The node that fell silent ('' if unknown), and the seconds from its last sign to this node's claim. None:
        this node did not get the EIP that way, or has let it go since."""
        last = self._last.get(address)
        if not isinstance(last, EipClaimed) or last.unanswered is None:
            return None
        return last.before or "", last.unanswered

    def rejected(self) -> Collection[tuple[str, str, float]]:
        """Link, reason, and seconds since the last one."""
        now = self._clock()
        return [(link, reason, now - at) for (link, reason), at in self._rejected.items()]
