"""Which packets the kernel lets through, as EIPs come and go. Pure.

What comes in is let through at once; that costs no more than the 64 intervals of a filter. What is let through in vain
(EIPs that went, gaps closed for want of intervals) is found by looking at all EIPs, which takes milliseconds for
10,000 of them: a moment later, for all that changed until then.
"""

from collections.abc import Callable, Iterable

from speaker.intervals import Interval
from speaker.layer2.sockets.filter import INTERVALS, around, number, widened
from speaker.packets.bpf import Program

LATER = 1.0
"""Seconds from a change to the closer look, and so between two of them."""


class FilterTracker:
    """The filter of one family on one link; ``program`` writes it."""

    def __init__(self, program: Callable[[tuple[Interval, ...]], Program]) -> None:
        self._program = program
        self._ours: tuple[Interval, ...] = ()
        self._due: float | None = None

    def widen(self, addresses: Iterable[bytes], now: float) -> Program | None:
        """Lets these through as well; None where the filter does already."""
        self.loosen(now)
        return self._turn_to(widened(self._ours, around(addresses), INTERVALS))

    def loosen(self, now: float) -> None:
        """Some EIPs went, or came."""
        if self._due is None:
            self._due = now + LATER

    def tighten(self, addresses: Iterable[bytes]) -> Program | None:
        """Lets only these through; None where the filter does already."""
        self._due = None
        return self._turn_to(around(addresses))

    def lets_through(self, address: bytes) -> bool:
        """Requests for it, by the filter as it stands."""
        asked = number(address)
        return any(first <= asked <= last for first, last in self._ours)

    def wake(self) -> float | None:
        """When to ``tighten``; None as long as nothing changed."""
        return self._due

    def _turn_to(self, ours: tuple[Interval, ...]) -> Program | None:
        if ours == self._ours:
            return None
        self._ours = ours
        return self._program(ours)
