"""After how many seconds of silence IPVS forgets a connection (``ipvsadm --set``): set, kept so, and put back.

``adjusted`` is the decision, ``IpvsTimeouts`` the edge. There are three in a network namespace, and whoever sets one
replaces it for all, so what was there before is written down first.
"""

from collections.abc import Mapping
from typing import NamedTuple

from speaker.forwarding.ipvs.remembered import Remembered
from speaker.forwarding.ipvs.tables import IpvsTables
from speaker.settings import AS_THEY_ARE, Timeouts


class Adjusted(NamedTuple):
    """What the kernel is to have, and what is to be remembered, by name of the timeout: the value that was there
    before (``tcp``) and the one that we set instead (``tcp set``)."""

    timeouts: Timeouts
    remembered: Mapping[str, int]


def adjusted(have: Timeouts, want: Timeouts, remembered: Mapping[str, int]) -> Adjusted:
    """``want`` where it is not 0; elsewhere what was there before us, and what somebody set after us stays."""
    values: dict[str, int] = {}
    kept: dict[str, int] = {}
    for name, now in have._asdict().items():
        ours = remembered.get(f"{name} set")
        before = remembered.get(name, now) if now == ours else now
        values[name] = getattr(want, name) or before
        if values[name] != before:
            kept |= {name: before, f"{name} set": values[name]}
    return Adjusted(Timeouts(**values), kept)


class IpvsTimeouts:
    """Of the calling thread's network namespace."""

    def __init__(self, want: Timeouts, remembered: Remembered) -> None:
        self._want, self._remembered = want, remembered

    def adjust(self) -> None:
        """Set those wanted and put back those no longer wanted. Raises EdgeError."""
        self._bring_to(self._want)

    def restore(self) -> tuple[str, ...]:
        """Put back what was there before; what was put back. Raises EdgeError."""
        return self._bring_to(AS_THEY_ARE)

    def _bring_to(self, want: Timeouts) -> tuple[str, ...]:
        remembered = self._remembered.read()
        if not (any(want) or remembered):
            return ()
        with IpvsTables() as tables:
            have = tables.timeouts()
            goal = adjusted(have, want, remembered)
            if goal.remembered:
                self._remembered.add(goal.remembered, keep=())
            if goal.timeouts != have:
                tables.set_timeouts(goal.timeouts)
        if not goal.remembered:
            self._remembered.forget()
        return tuple(
            f"IPVS timeout {name}={before}"
            for name, before in have._asdict().items()
            if getattr(goal.timeouts, name) != before
        )
