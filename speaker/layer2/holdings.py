"""What a link holds, and the progress of the work on it: thousands of EIPs are processed a slice at a time. Pure.

Taking one EIP costs some microseconds (its replies, its announcements), so 10,000 at once would delay every answer and
every hello. Giving one up takes effect at once; only the cleaning up is done later.

Times are seconds of the caller's clock. Addresses are the bytes of packets: looking up an ``ipaddress`` object takes
ten times as long, and there may be thousands of them.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from speaker.layer2.answer import Claims
from speaker.model import Gratuitous
from speaker.system.supervise import Failures, contained

_HUSKS_KEPT = 64


class Timers:
    """At most one alarm per address, in a heap of instants. An entry that was cancelled or replaced stays in the heap
    as a husk, until its turn or the next sweep."""

    def __init__(self) -> None:
        self._live: dict[bytes, int] = {}
        """The serial number of each address's valid entry in the heap."""
        self._heap: list[tuple[float, int, bytes]] = []
        self._serial = 0

    def set(self, address: bytes, when: float) -> None:
        """Replaces the alarm that it may have had."""
        self._serial += 1
        self._live[address] = self._serial
        heapq.heappush(self._heap, (when, self._serial, address))
        self._sweep()

    def cancel(self, address: bytes) -> None:
        """Unknown ones are ignored."""
        if self._live.pop(address, None) is not None:
            self._sweep()

    def due(self, now: float, most: int) -> list[bytes]:
        """At most ``most`` addresses whose alarm has gone off, longest overdue first. They have no alarm after that."""
        found: list[bytes] = []
        while len(found) < most and (when := self.wake()) is not None and when <= now:
            address = heapq.heappop(self._heap)[2]
            del self._live[address]
            found.append(address)
        return found

    def wake(self) -> float | None:
        """When the next alarm goes off; None if there is none."""
        heap, live = self._heap, self._live
        while heap:
            when, serial, address = heap[0]
            if live.get(address) == serial:
                return when
            heapq.heappop(heap)
        return None

    def _sweep(self) -> None:
        """An alarm that is set over and over must not fill the heap with husks that wait for an instant an hour
        away."""
        if len(self._heap) > 2 * len(self._live) + _HUSKS_KEPT:
            self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)


# 2**64 divided by the golden ratio: multiples of it spread neighbouring numbers evenly (Knuth, TAOCP 3, §6.4).
_GOLDEN = 0x9E3779B97F4A7C15


class Burst:
    """The announcements still to be made, of every EIP on a link."""

    def __init__(self) -> None:
        self._series: dict[bytes, tuple[Gratuitous, int]] = {}
        """And how many repeats are left; below 0 once it was refreshed."""
        self._timers = Timers()

    def announce(self, address: bytes, gratuitous: Gratuitous, now: float) -> None:
        """Announces it at ``now``, then repeats and refreshes; whatever it was in the middle of starts over."""
        self._series[address] = gratuitous, gratuitous.burst - 1
        self._timers.set(address, now)

    def withdraw(self, address: bytes) -> None:
        """Do not announce it again; unknown addresses are ignored."""
        self._series.pop(address, None)
        self._timers.cancel(address)

    def due(self, now: float, most: int) -> list[bytes]:
        """At most ``most`` EIPs to announce, longest overdue first. Each one's next turn is counted from ``now``, so if
        the clock jumped ahead (a frozen process), it is announced once, and not as often as it missed."""
        found = self._timers.due(now, most)
        for address in found:
            self._plan_next(address, *self._series[address], now)
        return found

    def wake(self) -> float | None:
        """The instant of the next announcement; None without any."""
        return self._timers.wake()

    def _plan_next(self, address: bytes, gratuitous: Gratuitous, repeats_left: int, now: float) -> None:
        if repeats_left > 0:
            delay = gratuitous.interval
        else:  # the first refresh comes early by the EIP's own share of the period, the later ones keep that distance
            delay = gratuitous.refresh * (1 - (_share(address) if repeats_left == 0 else 0.0))
        if repeats_left > 0 or gratuitous.refresh > 0:
            self._series[address] = gratuitous, repeats_left - 1
            self._timers.set(address, now + delay)


def _share(address: bytes) -> float:
    """In [0, 1): at which part of a period this EIP's refresh comes; the same in every process."""
    return (int.from_bytes(address, "big") * _GOLDEN % 2**64) / 2**64


PROBES = 3
SPACING = 0.02
"""Seconds between two probes, and from the last one to the verdict."""
AGAIN = 1.0
"""Seconds until an EIP that somebody else uses is probed again: it may be another speaker, which may leave."""
ASKED_A_SECOND = 2000
"""The most EIPs used by somebody else that are asked for in a second; if there are more, each is asked for less often.
A LAN can stand so many broadcasts."""


class Pace(NamedTuple):
    """Seconds between two probes, and until an EIP that somebody else uses is probed again."""

    spacing: float = SPACING
    again: float = AGAIN


AS_USUAL = Pace()
TAKE_OVER = Pace(0.1, 0.1)
"""For when another load balancer is about to stop: EIPs are taken within a failover, but not because it was
late once."""


class Step(NamedTuple):
    """What is due: ``ask`` should be probed for now; ``free`` belong to nobody else."""

    ask: list[bytes]
    free: list[bytes]


class Probes:
    """The EIPs on a link that are not yet known to be free."""

    def __init__(self, pace: Pace = AS_USUAL) -> None:
        self._pace = pace
        self._sent: dict[bytes, int] = {}
        """Probes sent in each EIP's present round; 0 if it waits for a round to begin."""
        self._timers = Timers()

    def begin(self, address: bytes, now: float) -> None:
        """A round begins at ``now``; one that is under way starts over."""
        self._sent[address] = 0
        self._timers.set(address, now)

    def end(self, address: bytes) -> None:
        """Stop probing for it; unknown addresses are ignored."""
        self._sent.pop(address, None)
        self._timers.cancel(address)

    def taken(self, address: bytes, now: float) -> None:
        """Somebody else uses it: this round has failed, and the next begins after a while."""
        if self._sent.get(address):
            self._sent[address] = 0
            self._timers.set(address, now + max(self._pace.again, len(self._sent) / ASKED_A_SECOND))

    def interrupt(self, now: float) -> None:
        """Answers may have been missed: every round under way starts over."""
        for address in [address for address, sent in self._sent.items() if sent]:
            self.begin(address, now)

    def due(self, now: float, most: int) -> Step:
        """For at most ``most`` EIPs. Each step is counted from the one before, so a late caller does not listen for a
        shorter time."""
        step = Step([], [])
        for address in self._timers.due(now, most):
            if self._sent[address] == PROBES:
                del self._sent[address]
                step.free.append(address)
            else:
                self._sent[address] += 1
                self._timers.set(address, now + self._pace.spacing)
                step.ask.append(address)
        return step

    def wake(self) -> float | None:
        """When something is due; None if never."""
        return self._timers.wake()

    def __contains__(self, address: bytes) -> bool:
        return address in self._sent


DEFEND_INTERVAL = 10.0
"""Seconds (RFC 5227 §1.1)."""


class Disputes:
    """When each EIP's conflict was last acted upon: limits how often it is reported and fought.

    RFC 5227 §2.4 (c): a host that must keep an address announces it again when another claims it, at most once in
    ``DEFEND_INTERVAL``, and never gives it up. It is not reported more often than that either.
    """

    def __init__(self) -> None:
        self._acted: dict[bytes, float] = {}

    def act(self, address: bytes, now: float) -> bool:
        """Whether to report, and defend against, a rival for ``address`` heard at ``now``."""
        last = self._acted.get(address)
        if last is not None and now < last + DEFEND_INTERVAL:
            return False
        self._acted[address] = now
        return True

    def forget(self, address: bytes) -> None:
        """It is no longer ours; unknown ones are ignored."""
        self._acted.pop(address, None)


class Progress(NamedTuple):
    """The result of one slice: ``came`` must be listened for from now on, ``gone`` no longer."""

    came: list[bytes]
    gone: list[bytes]
    failed: Mapping[bytes, BaseException] = {}
    """Unexpected errors; each keeps only one address from being worked off."""


class Holdings:
    """Keeps ``claims``, ``burst``, ``probes`` and ``disputes`` in step with ``eips``: what the owner wants the link to
    hold, whether or not its sockets are open. ``now`` is of the clock that the deadline is measured by."""

    def __init__(self, claims: Claims, pace: Pace = AS_USUAL) -> None:
        self.claims, self._pace = claims, pace
        self.burst, self.probes, self.disputes = Burst(), Probes(pace), Disputes()
        self.eips: dict[bytes, Gratuitous] = {}
        self.unproven: set[bytes] = set()
        """EIPs that are not answered until a probe has found nobody else."""
        self._to_do: dict[bytes, None] = {}  # in the order in which they came

    def start_over(self) -> None:
        """The link's sockets were closed: nothing is answered until it is worked off again, and what was not proven
        still is not."""
        self.claims.clear()
        self.burst, self.probes, self.disputes = Burst(), Probes(self._pace), Disputes()
        self._to_do = dict.fromkeys(self.eips)

    def take(self, eips: Mapping[bytes, Gratuitous], probe: Collection[bytes]) -> None:
        """``work_off`` makes them answered and announced; those in ``probe`` that were not held, only once they are
        ``proven``."""
        self.unproven.update(address for address in probe if address in eips and address not in self.eips)
        self.eips.update(eips)
        self._to_do.update(dict.fromkeys(eips))

    def drop(self, addresses: Iterable[bytes]) -> None:
        """None of these is answered, announced or probed for any more; unknown ones are ignored."""
        for address in addresses:
            if address in self.eips:
                probed = address in self.unproven
                self.disown(address)
                self._to_do[address] = None
                if probed:
                    self.probes.end(address)

    def disown(self, address: bytes) -> None:
        """Like ``drop``, for an address for which that failed: nothing is cleaned up."""
        self.claims.discard(address)
        self.eips.pop(address, None)
        self.unproven.discard(address)

    def announce(self, addresses: Iterable[bytes]) -> None:
        """``work_off`` announces these again, burst and all; those not answered are ignored."""
        answered = self.claims.answered
        self._to_do.update((address, None) for address in addresses if answered(address))

    def work_off(self, now: float, most: int) -> Progress:
        """Works off at most ``most`` of what was taken, dropped and announced, in that order."""
        came: list[bytes] = []
        gone: list[bytes] = []
        failed: Failures[bytes] = Failures()
        for address in list(islice(self._to_do, most)):
            del self._to_do[address]
            gratuitous = self.eips.get(address)
            (gone if gratuitous is None else came).append(address)
            with contained(address, failed):
                self._work_off(address, gratuitous, now)
        return Progress(came, gone, failed)

    def again(self, addresses: Iterable[bytes]) -> None:
        """Works these off again, because a later step failed the first time."""
        self._to_do.update(dict.fromkeys(addresses))

    def _work_off(self, address: bytes, gratuitous: Gratuitous | None, now: float) -> None:
        if gratuitous is None:
            self.burst.withdraw(address)
            self.disputes.forget(address)
            return
        if address in self.unproven:
            self.claims.watch(address)
            self.probes.begin(address, now)
        else:
            if not self.claims.answered(address):
                self.claims.add(address)
            self.burst.announce(address, gratuitous, now)

    @property
    def unfinished(self) -> bool:
        """Whether ``work_off`` has more to do."""
        return bool(self._to_do)

    def proven(self, addresses: Iterable[bytes], now: float) -> None:
        """Probes found no other user of these: from now on they are answered and announced."""
        for address in addresses:
            if address in self.unproven:
                self.unproven.discard(address)
                self.claims.add(address)
                self.burst.announce(address, self.eips[address], now)
