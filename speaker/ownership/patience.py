"""How long a silence must last before it means anything, after silences that meant nothing. Pure.

A silence that ends without a lost hello was no death: the LAN delivered late, or the sender stood still. Failing over
each time costs clients more than the silences do. So whoever lived through one waits a quarter longer than it lasted,
and comes back to the usual time within minutes.
"""

HALF_LIFE = 60.0
"""Seconds in which the patience that a silence taught falls to half."""
MARGIN = 1.25
"""Times the longest silence lately survived: the next one is of the same kind, and not of the same length."""
LONGEST = 6.0
"""Seconds: a LAN that delivers later than that serves no client."""


class Patience:
    """What the silences of late teach. Times are seconds of the caller's clock."""

    __slots__ = ("_at", "_gap")

    def __init__(self) -> None:
        self._gap, self._at = 0.0, 0.0

    def survived(self, gap: float, now: float) -> None:
        """A silence of ``gap`` seconds that ends now, and meant nothing."""
        if gap <= LONGEST and gap > self._left(now):
            self._gap, self._at = gap, now

    def lasts(self, now: float) -> float:
        """Seconds that a silence may last; below 0.01 it is none."""
        return MARGIN * self._left(now)

    def _left(self, now: float) -> float:
        return self._gap * 0.5 ** ((now - self._at) / HALF_LIFE) if self._gap else 0.0
