"""What is to be done: orders, EIPs to look at, and when to look again. Pure."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from speaker.model import IPAddress
from speaker.ownership.events import InternalError, Order
from speaker.ownership.machine.claims import Eip
from speaker.ownership.parameters import FOREVER, Parameters

_T = TypeVar("_T")


class Agenda:
    """The agenda of one machine; its other parts write to it."""

    def __init__(self, now: float, times: Parameters) -> None:
        self._times = times
        self.orders: list[Order] = []
        self.now = self.calm_at = now
        """The time of this step, and when the next tick may be due."""
        self.beat_at = now
        self.watch_at = now
        """No peer can become suspect or dead before this time."""
        self.hurried = False
        self.urgent: OrderedDict[IPAddress, None] = OrderedDict()
        self.pending: OrderedDict[IPAddress, None] = OrderedDict()
        self._alarms: list[tuple[float, int, Eip]] = []
        self._alarm_order = count()

    def hurry(self) -> None:
        """Rule 2: send a hello at once, not at the next beat."""
        self.hurried = True

    def look_at(self, addresses: Iterable[IPAddress]) -> None:
        self.urgent.update(dict.fromkeys(addresses))

    def look_later(self, addresses: Iterable[IPAddress]) -> None:
        """To be looked at once nothing else is to be done."""
        self.pending.update(dict.fromkeys(addresses))

    def wake_at(self, x: Eip, when: float) -> None:
        """To be looked at then, unless an event comes first."""
        if when < FOREVER and when != x.wake:
            heapq.heappush(self._alarms, (when, next(self._alarm_order), x))
        x.wake = when

    def next_alarm(self) -> float:
        while self._alarms and self._alarms[0][2].wake != self._alarms[0][0]:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else FOREVER

    def due(self, now: float) -> Eip | None:
        while self._alarms and self._alarms[0][0] <= now:
            when, _, x = heapq.heappop(self._alarms)
            if x.wake == when:
                x.wake = FOREVER
                return x
        return None

    def attempt(self, doing: str, what: object, work: Callable[[], _T], otherwise: _T) -> _T:
        """Returns ``otherwise`` if a bug of ours keeps ``work`` from being done."""
        try:
            return work()
        except Exception as error:
            self.contain(doing, what, error)
            return otherwise

    def contain(self, doing: str, what: object, error: Exception) -> None:
        """Work that is due and fails every time must not be tried without a pause."""
        self.orders.append(InternalError(doing, str(what), error))
        self.calm_at = self.now + self._times.slot


def pop(addresses: OrderedDict[IPAddress, None]) -> IPAddress:
    """The one that has waited longest."""
    return addresses.popitem(last=False)[0]
