"""Which holders are gone, by what was seen of their session Leases. Pure.

A record names its holder until another takes the EIP. Where nobody may, it names a dead one for ever.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from speaker.controller.forwarders import DEAD

STALE = 40.0
"""Seconds after which a look says nothing any more. After such a gap all is counted anew: where the API did not answer
us it may not have let agents renew either."""


class _Seen(NamedTuple):
    version: str | None
    """Of the Lease; '': it is there no more, None: it was never there, and that says nothing."""
    since: float


class Lives:
    """``now`` is seconds of one clock that never goes back: what the Leases' own say of time is another clock's."""

    def __init__(self) -> None:
        self._seen: Mapping[str, _Seen] = {}
        self._heard_at = float("-inf")

    def heard(self, versions: Mapping[str, str], holders: Collection[str], now: float) -> None:
        """``versions``: of all Leases, by node, as asked for at ``now``; ``holders``: the nodes that records name."""
        before = self._seen if now - self._heard_at <= STALE else {}
        self._seen = {node: _look(before.get(node), versions.get(node), now) for node in holders}
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


def _look(before: _Seen | None, version: str | None, now: float) -> _Seen:
    if before is not None and before.version is not None:
        version = version or ""
        return before if before.version == version else _Seen(version, now)
    return _Seen(version, now)
