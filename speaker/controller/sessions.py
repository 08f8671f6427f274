"""What agents' session Leases tell a leader, by which version of each was seen when. Pure.

``now`` is seconds of one clock that never goes back: what the Leases themselves say of time is another clock's.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

DEAD = 60.0
"""Seconds after which a Lease that nobody renewed says nothing any more: it is good for 40 and renewed every 15."""
STALE = 40.0
"""Seconds after which a look says nothing any more. After such a gap all is counted anew: where the API did not answer
us it may not have let agents renew either."""


@dataclass(frozen=True, slots=True)
class _Seen:
    version: str
    since: float
    alive: bool
    """It was renewed, or made, while we looked. What was there at first may be of an agent long gone."""


class Forwarders:
    """Whether all agents forward. One without a forwarder needs kube-proxy's rules, and one with a forwarder works
    beside them. So kube-proxy is told to leave the EIPs alone once no agent is left that does not forward, and to carry
    them again as soon as one is."""

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


class _Life(NamedTuple):
    version: str | None
    """Of the Lease; '': it is there no more, None: it was never there, and that says nothing."""
    since: float


class Lives:
    """Which holders are gone: a record names its holder until another takes the EIP, and where nobody may, for ever."""

    def __init__(self) -> None:
        self._seen: Mapping[str, _Life] = {}
        self._heard_at = float("-inf")

    def heard(self, versions: Mapping[str, str], holders: Collection[str], now: float) -> None:
        """``versions``: of all Leases, by node, as asked for at ``now``; ``holders``: the nodes that records name."""
        before = self._seen if now - self._heard_at <= STALE else {}
        self._seen = {node: _looked(before.get(node), versions.get(node), now) for node in holders}
        self._heard_at = now

    def gone(self, now: float) -> dict[str, str] | None:
        """The last version of the Lease of each that has not renewed it for long; None: that is not known."""
        if now - self._heard_at > STALE:
            return None
        return {
            node: version
            for node, (version, since) in self._seen.items()
            if version is not None and self._heard_at - since >= DEAD
        }


def _looked(before: _Life | None, version: str | None, now: float) -> _Life:
    if before is not None and before.version is not None:
        version = version or ""
        return before if before.version == version else _Life(version, now)
    return _Life(version, now)
