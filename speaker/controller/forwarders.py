"""Whether all agents forward, by what their session Leases say. Pure.

An agent without a forwarder needs kube-proxy's rules, and one with a forwarder works beside them. So kube-proxy is told
to leave the EIPs alone once no agent is left that does not forward, and to carry them again as soon as one is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

DEAD = 60.0
"""Seconds after which a Lease that nobody renewed says nothing any more: it is good for 40 and renewed every 15."""


@dataclass(frozen=True, slots=True)
class _Seen:
    version: str
    since: float
    alive: bool
    """It was renewed, or made, while we looked. What was there at first may be of an agent long gone."""


class Forwarders:
    """``now`` is seconds of one clock that never goes back: what the Leases' own say of time is another clock's."""

    def __init__(self) -> None:
        self._seen: Mapping[str, _Seen] | None = None
        self.all_forward: bool | None = None
        """None: not known yet."""

    def heard(self, without: Mapping[str, str], now: float) -> None:
        """``without``: the version of each Lease whose agent says that it does not forward."""
        seen = {name: self._look(name, version, now) for name, version in without.items()}
        self._seen = seen
        recent = [each for each in seen.values() if now < each.since + DEAD]
        if any(each.alive for each in recent):
            self.all_forward = False
        elif not recent:
            self.all_forward = True

    def _look(self, name: str, version: str, now: float) -> _Seen:
        if self._seen is None:
            return _Seen(version, now, alive=False)
        before = self._seen.get(name)
        if before is None or before.version != version:
            return _Seen(version, now, alive=True)
        return before
