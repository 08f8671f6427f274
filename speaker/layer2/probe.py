"""Whether somebody else already uses an EIP that nobody was ever known to hold. Pure.

RFC 5227 §2.1.1 listens for up to seven seconds and RFC 4862 §5.1 for one before an address is used; every first claim
would take that long. So three probes go out 20 ms apart, and who has not answered 20 ms after the third (hosts on a LAN
take one or two) is taken not to be there. Who is slower is found later, as a conflict over an EIP that is held.

Times are seconds of whatever clock the caller reads, addresses the bytes that stand in packets.
"""

from typing import NamedTuple

from speaker.layer2.timers import Timers

PROBES = 3
SPACING = 0.02
"""Seconds between two probes, and from the last one to the verdict."""
AGAIN = 1.0
"""Seconds until an EIP that somebody else uses is probed again: it may be another speaker, which goes."""
ASKED_A_SECOND = 2000
"""EIPs that somebody else uses, at most: of more each is asked for less often. A LAN bears so many broadcasts."""


class Pace(NamedTuple):
    """Seconds between two probes, and until an EIP that somebody else uses is probed again."""

    spacing: float = SPACING
    again: float = AGAIN


AS_USUAL = Pace()
TAKE_OVER = Pace(0.1, 0.1)
"""Where another load balancer is about to stop: taken within a failover, and not because it was late once."""


class Step(NamedTuple):
    """What is due: ``ask`` are to be probed for now, ``free`` belong to nobody else."""

    ask: list[bytes]
    free: list[bytes]


class Probes:
    """Every EIP on a link that is not yet known to be free."""

    def __init__(self, pace: Pace = AS_USUAL) -> None:
        self._pace = pace
        self._sent: dict[bytes, int] = {}
        """Of each EIP's present round; 0 for one that waits for a round to begin."""
        self._timers = Timers()

    def begin(self, address: bytes, now: float) -> None:
        """A round begins at ``now``; one that is under way starts over."""
        self._sent[address] = 0
        self._timers.set(address, now)

    def end(self, address: bytes) -> None:
        """It is not probed for any more; unknown ones are passed over."""
        self._sent.pop(address, None)
        self._timers.cancel(address)

    def taken(self, address: bytes, now: float) -> None:
        """Somebody else uses it: its round is lost, and the next begins after a while."""
        if self._sent.get(address):
            self._sent[address] = 0
            self._timers.set(address, now + max(self._pace.again, len(self._sent) / ASKED_A_SECOND))

    def interrupt(self, now: float) -> None:
        """Answers may have been missed: every round under way starts over."""
        for address in [address for address, sent in self._sent.items() if sent]:
            self.begin(address, now)

    def due(self, now: float, most: int) -> Step:
        """For at most ``most`` EIPs. Each step is counted from the one before, so that a late caller listens no
        shorter."""
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
