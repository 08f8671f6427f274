"""How long a silence must last before it means anything, after silences that meant nothing. Pure.

A silence that ends without a lost hello was no death: the LAN delivered late, or the sender stood still. Failing over
each time costs clients more than the silences do. So whoever lived through one waits a quarter longer than it lasted,
and comes back to the usual time within minutes.
"""

from math import log2

from speaker.ownership.hello import Hello
from speaker.ownership.parameters import Parameters

HALF_LIFE = 60.0
"""Seconds in which the patience that a silence taught falls to half."""
MARGIN = 1.25
"""Times the longest silence lately survived: the next one is of the same kind, and not of the same length."""
NEVER = float("-inf")
LONGEST = 6.0
"""Seconds: a LAN that delivers later than that serves no client."""


class Fading:
    """The longest of some silences, less and less of it as time goes by."""

    __slots__ = ("_at", "_gap")

    def __init__(self) -> None:
        self._gap, self._at = 0.0, 0.0

    def survived(self, gap: float, now: float) -> None:
        """A silence of ``gap`` seconds that ends now, and meant nothing."""
        if gap <= LONGEST and gap > self._left(now):
            self._gap, self._at = gap, now

    def lasts(self, now: float) -> float:
        """Seconds that the next one may last; 0 where nothing was learnt."""
        return MARGIN * self._left(now)

    def over_at(self, least: float) -> float:
        """From when on it lasts no longer than ``least`` seconds."""
        return self._at + HALF_LIFE * log2(MARGIN * self._gap / least) if self._gap else NEVER

    def _left(self, now: float) -> float:
        return self._gap * 0.5 ** ((now - self._at) / HALF_LIFE) if self._gap else 0.0


class Patience:
    """With the silences of one peer. Times are seconds of the caller's clock."""

    __slots__ = ("_clock", "_sequence", "late", "over_at", "quiet")

    def __init__(self) -> None:
        self.quiet, self.late = Fading(), Fading()
        """Of all silences that meant nothing; and of those alone in which the LAN was late."""
        self.over_at = NEVER
        """From when on a silence may last no longer than anywhere else, as on most LANs it never may."""
        self._clock, self._sequence = 0, 0
        """Of the hello heard last."""

    def hear(self, hello: Hello, gap: float, now: float, times: Parameters, slower: float) -> None:
        """``hello`` ends a silence of ``gap`` seconds. It meant nothing if none of its sender's hellos was lost: all
        came late, or the sender stood still for no longer than it takes to fail over twice. ``slower``: its hello
        interval, divided by ours."""
        slept, step = (hello.clock - self._clock) / 1000, hello.sequence - self._sequence
        self._clock, self._sequence = hello.clock, hello.sequence
        suspect = times.suspect * slower
        if gap <= suspect:
            return
        if 0 < slept <= suspect:
            self.late.survived(gap, now)
            self.quiet.survived(gap, now)
        elif step <= hello.links and gap <= 2 * times.dead * slower:
            self.quiet.survived(gap, now)
        self.over_at = self.quiet.over_at(times.dead)

    def lasts(self, now: float) -> float:
        """Seconds that a silence may last; 0 where nothing was learnt."""
        return self.quiet.lasts(now)
