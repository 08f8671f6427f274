"""When to announce which EIP: at once, then the repeats of its pool's ``Gratuitous``, then its refresh. Pure.

Times are seconds of whatever clock the caller reads, addresses the bytes that stand in packets.
"""

from dataclasses import dataclass

from speaker.layer2.timers import Timers
from speaker.model import Gratuitous

# 2**64 divided by the golden ratio: multiples of it spread neighbouring numbers evenly (Knuth, TAOCP 3, §6.4).
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(slots=True)
class _Series:
    """One EIP's announcements from now on."""

    gratuitous: Gratuitous
    repeats_left: int


class Burst:
    """The announcements to come of every EIP on a link."""

    def __init__(self) -> None:
        self._series: dict[bytes, _Series] = {}
        self._timers = Timers()

    def announce(self, address: bytes, gratuitous: Gratuitous, now: float) -> None:
        """Due at ``now``, then its repeats, then its refreshes; whatever it was in the middle of starts over."""
        self._series[address] = _Series(gratuitous, gratuitous.burst - 1)
        self._timers.set(address, now)

    def withdraw(self, address: bytes) -> None:
        """It is not announced again; unknown ones are passed over."""
        self._series.pop(address, None)
        self._timers.cancel(address)

    def due(self, now: float, most: int) -> list[bytes]:
        """At most ``most`` EIPs to announce, longest overdue first; each one's next turn is counted from ``now``,
        so that a clock that jumped ahead (a frozen process) brings one announcement, not all it missed."""
        found = self._timers.due(now, most)
        for address in found:
            self._plan_next(address, self._series[address], now)
        return found

    def wake(self) -> float | None:
        """The instant of the next announcement; None without any."""
        return self._timers.wake()

    def _plan_next(self, address: bytes, series: _Series, now: float) -> None:
        gratuitous = series.gratuitous
        if series.repeats_left > 0:
            series.repeats_left -= 1
            self._timers.set(address, now + gratuitous.interval)
        elif gratuitous.refresh > 0:
            # The first refresh comes early by the EIP's own share of the period, the later ones keep that distance.
            early = _share(address) if series.repeats_left == 0 else 0.0
            series.repeats_left = -1
            self._timers.set(address, now + gratuitous.refresh * (1 - early))


def _share(address: bytes) -> float:
    """In [0, 1): where in a period this EIP's refresh falls; the same in every process."""
    return (int.from_bytes(address, "big") * _GOLDEN % 2**64) / 2**64
