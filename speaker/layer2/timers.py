"""An alarm for each of many addresses, each at its own instant. Pure.

A heap of instants; what was cancelled or set anew stays in it as a husk until its turn or the next sweep. Times are
seconds of whatever clock the caller reads. Addresses are the bytes that stand in packets: an ``ipaddress`` object takes
ten times as long to look up, and there may be thousands of them.
"""

import heapq

_HUSKS_KEPT = 64


class Timers:
    """At most one alarm an address."""

    def __init__(self) -> None:
        self._live: dict[bytes, int] = {}
        """The serial number of each address's entry in the heap that counts."""
        self._heap: list[tuple[float, int, bytes]] = []
        self._serial = 0

    def set(self, address: bytes, when: float) -> None:
        """Instead of the one it may have had."""
        self._serial += 1
        self._live[address] = self._serial
        heapq.heappush(self._heap, (when, self._serial, address))
        self._sweep()

    def cancel(self, address: bytes) -> None:
        """Unknown ones are passed over."""
        if self._live.pop(address, None) is not None:
            self._sweep()

    def due(self, now: float, most: int) -> list[bytes]:
        """At most ``most`` addresses whose alarm has gone off, longest overdue first; they have none any more."""
        found: list[bytes] = []
        while len(found) < most and (when := self.wake()) is not None and when <= now:
            address = heapq.heappop(self._heap)[2]
            del self._live[address]
            found.append(address)
        return found

    def wake(self) -> float | None:
        """The instant of the next alarm; None without any."""
        heap, live = self._heap, self._live
        while heap:
            when, serial, address = heap[0]
            if live.get(address) == serial:
                return when
            heapq.heappop(heap)
        return None

    def _sweep(self) -> None:
        """What is set over and over must not fill the heap with husks that wait for an instant an hour away."""
        if len(self._heap) > 2 * len(self._live) + _HUSKS_KEPT:
            self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
