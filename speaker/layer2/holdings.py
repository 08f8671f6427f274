"""What a link holds, and how far it has come with that: thousands of EIPs are worked off a slice at a time. Pure.

Taking one costs some microseconds (its replies, its announcements), and 10,000 at once would keep every answer and
every hello waiting. Letting go may not wait: it takes effect in the call, and only the tidying is left for later.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from speaker.layer2.burst import Burst
from speaker.layer2.claims import Claims
from speaker.layer2.probe import AS_USUAL, Pace, Probes
from speaker.model import Gratuitous
from speaker.system.supervise import Failures, contained

DEFEND_INTERVAL = 10.0
"""Seconds (RFC 5227 §1.1)."""


@dataclass(slots=True)
class Wanted:
    """What the owner has a link hold, whether or not its sockets are open."""

    eips: dict[bytes, Gratuitous] = field(default_factory=dict)
    unproven: set[bytes] = field(default_factory=set)
    """Those that are not answered until a probe has found nobody else."""

    def take(self, eips: Mapping[bytes, Gratuitous], probe: Collection[bytes]) -> None:
        """Of those in ``probe`` only such are unproven that were not held."""
        self.unproven.update(address for address in probe if address in eips and address not in self.eips)
        self.eips.update(eips)

    def drop(self, addresses: Iterable[bytes]) -> None:
        for address in addresses:
            self.eips.pop(address, None)
            self.unproven.discard(address)


class Progress(NamedTuple):
    """What one slice brought: ``came`` are to be heard of from now on, ``gone`` no longer."""

    came: list[bytes]
    gone: list[bytes]
    failed: Mapping[bytes, BaseException] = {}
    """What nobody foresaw: each keeps one address from being worked off."""


class Disputes:
    """When each EIP's conflict was last acted upon: how often it is reported and fought.

    RFC 5227 §2.4 (c): whoever must keep an address announces it again when another claims it, at most once in
    ``DEFEND_INTERVAL``, and never gives it up. It is not reported more often than that, either.
    """

    def __init__(self) -> None:
        self._acted: dict[bytes, float] = {}

    def act(self, address: bytes, now: float) -> bool:
        """Whether to tell of, and defend against, a rival for ``address`` heard at ``now``."""
        last = self._acted.get(address)
        if last is not None and now < last + DEFEND_INTERVAL:
            return False
        self._acted[address] = now
        return True

    def forget(self, address: bytes) -> None:
        """It is not ours any more; unknown ones are passed over."""
        self._acted.pop(address, None)


class Holdings:
    """Keeps ``claims``, ``burst``, ``probes`` and ``disputes`` in step with what is ``wanted``.

    Addresses are the bytes that stand in packets; ``now`` is of the clock that the deadline is measured by.
    """

    def __init__(self, claims: Claims, pace: Pace = AS_USUAL) -> None:
        self.claims, self.wanted, self._pace = claims, Wanted(), pace
        self.burst, self.probes, self.disputes = Burst(), Probes(pace), Disputes()
        self._to_do: dict[bytes, None] = {}  # in the order in which they came

    def start_over(self) -> None:
        """The link's sockets were closed: nothing is answered until it is worked off again, and what was not proven
        still is not."""
        self.claims.clear()
        self.burst, self.probes, self.disputes = Burst(), Probes(self._pace), Disputes()
        self._to_do = dict.fromkeys(self.wanted.eips)

    def take(self, eips: Mapping[bytes, Gratuitous], probe: Collection[bytes]) -> None:
        """``work_off`` makes them answered and announced; those in ``probe`` that were not held, only once they are
        ``proven``."""
        self.wanted.take(eips, probe)
        self._to_do.update(dict.fromkeys(eips))

    def drop(self, addresses: Iterable[bytes]) -> None:
        """None of these is answered, announced or probed for any more; unknown ones are passed over."""
        gone = [address for address in addresses if address in self.wanted.eips]
        for address in gone:
            self.claims.discard(address)
            self._to_do[address] = None
            if address in self.wanted.unproven:
                self.probes.end(address)
        self.wanted.drop(gone)

    def announce(self, addresses: Iterable[bytes]) -> None:
        """``work_off`` has these announced anew, burst and all; those not answered are passed over."""
        answered = self.claims.answered
        self._to_do.update((address, None) for address in addresses if answered(address))

    def work_off(self, now: float, most: int) -> Progress:
        """Works off at most ``most`` of what was taken, dropped and announced, in that order."""
        came: list[bytes] = []
        gone: list[bytes] = []
        failed: Failures[bytes] = Failures()
        for address in list(islice(self._to_do, most)):
            del self._to_do[address]
            gratuitous = self.wanted.eips.get(address)
            (gone if gratuitous is None else came).append(address)
            with contained(address, failed):
                self._work_off(address, gratuitous, now)
        return Progress(came, gone, failed)

    def again(self, addresses: Iterable[bytes]) -> None:
        """What was to follow from their being worked off did not."""
        self._to_do.update(dict.fromkeys(addresses))

    def _work_off(self, address: bytes, gratuitous: Gratuitous | None, now: float) -> None:
        if gratuitous is None:
            self.burst.withdraw(address)
            self.disputes.forget(address)
            return
        if address in self.wanted.unproven:
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
        """Probes found nobody else using these: they are answered and announced."""
        for address in addresses:
            if address in self.wanted.unproven:
                self.wanted.unproven.discard(address)
                self.claims.add(address)
                self.burst.announce(address, self.wanted.eips[address], now)
