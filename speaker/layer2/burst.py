"""When to announce which EIP: at once, then the repeats of its pool's ``Gratuitous``, then its refresh. Pure.

A heap of instants; what was withdrawn or restarted stays in it as a husk until its turn or the next sweep. Times are
seconds of whatever clock the caller reads. Addresses are the bytes that stand in packets: an ``ipaddress`` object takes
ten times as long to look up, and there may be thousands of them.
"""

import heapq
from dataclasses import dataclass

from speaker.model import Gratuitous

# 2**64 divided by the golden ratio: multiples of it spread neighbouring numbers evenly (Knuth, TAOCP 3, §6.4).
_GOLDEN = 0x9E3779B97F4A7C15
_HUSKS_KEPT = 64


@dataclass(slots=True)
class _Course:
    """One EIP's announcements from now on. ``serial`` marks its live entry in the heap."""

    gratuitous: Gratuitous
    repeats_left: int
    serial: int = 0


class Burst:
    """The announcements to come of every EIP on a link."""

    def __init__(self) -> None:
        self._courses: dict[bytes, _Course] = {}
        self._heap: list[tuple[float, int, bytes]] = []
        self._serial = 0

    def announce(self, address: bytes, gratuitous: Gratuitous, now: float) -> None:
        """Due at ``now``, then its repeats, then its refreshes; whatever it was in the middle of starts over."""
        self._courses[address] = course = _Course(gratuitous, gratuitous.burst - 1)
        self._push(address, course, now)
        self._sweep()

    def withdraw(self, address: bytes) -> None:
        """It is not announced again; unknown ones are passed over."""
        self._courses.pop(address, None)
        self._sweep()

    def due(self, now: float, most: int) -> list[bytes]:
        """At most ``most`` EIPs to announce, longest overdue first; each one's next turn is counted from ``now``,
        so that a clock that jumped ahead (a frozen process) brings one announcement, not all it missed."""
        found: list[bytes] = []
        while len(found) < most and (when := self.wake()) is not None and when <= now:
            _, _, address = heapq.heappop(self._heap)
            found.append(address)
            self._plan_next(address, self._courses[address], now)
        return found

    def wake(self) -> float | None:
        """The instant of the next announcement; None without any."""
        heap, courses = self._heap, self._courses
        while heap:
            when, serial, address = heap[0]
            course = courses.get(address)
            if course is not None and course.serial == serial:
                return when
            heapq.heappop(heap)
        return None

    def _plan_next(self, address: bytes, course: _Course, now: float) -> None:
        gratuitous = course.gratuitous
        if course.repeats_left > 0:
            course.repeats_left -= 1
            self._push(address, course, now + gratuitous.interval)
        elif gratuitous.refresh > 0:
            # The first refresh comes early by the EIP's own share of the period, the later ones keep that distance.
            early = _share(address) if course.repeats_left == 0 else 0.0
            course.repeats_left = -1
            self._push(address, course, now + gratuitous.refresh * (1 - early))

    def _push(self, address: bytes, course: _Course, when: float) -> None:
        self._serial += 1
        course.serial = self._serial
        heapq.heappush(self._heap, (when, self._serial, address))

    def _sweep(self) -> None:
        """EIPs that flap must not fill the heap with husks that wait for a refresh an hour away."""
        if len(self._heap) > 2 * len(self._courses) + _HUSKS_KEPT:
            live = {course.serial for course in self._courses.values()}
            self._heap = [entry for entry in self._heap if entry[1] in live]
            heapq.heapify(self._heap)


def _share(address: bytes) -> float:
    """In [0, 1): where in a period this EIP's refresh falls; the same in every process."""
    return (int.from_bytes(address, "big") * _GOLDEN % 2**64) / 2**64
