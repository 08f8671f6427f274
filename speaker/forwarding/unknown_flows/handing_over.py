"""Where unknown flows go: which EIPs were taken from whom, and who of those still answers. Pure.

An unknown flow is a TCP connection that this node does not know (``rules.py``). Whoever held the EIP before does,
as long as its kernel lives, whatever has become of its speaker.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from speaker.forwarding.unknown_flows.rules import NextHop
from speaker.model import IPAddress


class Fate(Enum):
    """What becomes of the unknown flows of an EIP. The value is the metric label."""

    HANDED_OVER = "handed_over"
    RESET = "reset"
    """Held here, and nobody who could know them is known or answers."""
    DROPPED = "dropped"
    """Not held here: until it is, and it is known whom to ask, no connection must come to harm."""


class HandingOver:
    """From whom the EIPs that this node holds were taken."""

    def __init__(self) -> None:
        self._held: dict[IPAddress, NextHop | None] = {}
        """Who held it before, while it answers."""

    def claimed(self, eip: IPAddress, before: NextHop | None) -> None:
        """``before``: who held it; None where that is not known, or there is no way to it. Who fell silent and is
        named again may answer by now."""
        self._held[eip] = before

    def yielded(self, eip: IPAddress) -> None:
        self._held.pop(eip, None)

    def silent(self, hop: NextHop) -> int:
        """It does not answer: it holds no connection any more. How many EIPs that concerns."""
        gone = [eip for eip, before in self._held.items() if before == hop]
        self._held.update(dict.fromkeys(gone))
        return len(gone)

    def hops(self) -> set[NextHop]:
        """Those that have to answer."""
        return {hop for hop in self._held.values() if hop is not None}

    def next_hops(self, eips: Iterable[IPAddress]) -> dict[IPAddress, NextHop | None]:
        """For ``UnknownFlows.bring_to``: where those of ``eips``, all that this node may hold, go; None: nowhere. Those
        of an EIP that is left out are reset by the kernel, as ever."""
        held = self._held
        return {eip: held.get(eip) for eip in eips if held.get(eip) is not None or eip not in held}


def fates(eips: int, next_hops: Mapping[IPAddress, NextHop | None]) -> Counter[Fate]:
    """How many of so many EIPs meet which fate with these ``next_hops``."""
    found = Counter(Fate.DROPPED if hop is None else Fate.HANDED_OVER for hop in next_hops.values())
    return Counter({fate: found[fate] for fate in Fate} | {Fate.RESET: eips - len(next_hops)})
