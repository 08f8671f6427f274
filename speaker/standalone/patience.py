"""Whether a directory that suddenly asks for nothing, or for much less, is to be believed. Pure.

A volume that is not mounted, or a directory that is being filled again, looks like one that somebody has emptied.
Acting on it would withdraw everything at once, and forget the Services. So such a reading takes effect only when it has
stayed the same for a while (``removals.py`` says how much is much), and an empty mount point never does.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from speaker.model import ServiceKey, World
from speaker.removals import is_much

_NAMED = 3
"""Services named in a sentence."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a reading is not in force, and when to read again (in seconds; ``inf``: at the next change)."""

    sentence: str
    until: float = inf


class Patience:
    """What was last in force, and since when that is doubted. A ``place`` is known by its number: see
    ``manifests.mount``."""

    def __init__(self, directory: str, seconds: float, remembered: bool) -> None:
        """``remembered``: Services are, from an earlier run."""
        self._directory, self._seconds = directory, seconds
        self._asked = remembered
        self._place: int | None = None
        """Where what asked for something was read; None: it was an earlier run that read it."""
        self._services: Collection[ServiceKey] = ()
        self._since: float | None = None

    def forget(self) -> None:
        """What is there now could not be read: whatever it is, it does not stand."""
        self._since = None

    def doubt(self, world: World, place: int, now: float) -> Doubt | None:
        """None: from now on it is in force."""
        wanted = self._until_when(world, place, now)
        if wanted is None:
            self._since = None
            self._asked, self._place, self._services = _asks(world), place, world.services.keys()
        return wanted

    def _until_when(self, world: World, place: int, now: float) -> Doubt | None:
        elsewhere = place != self._place
        if not self._asked:
            return None
        if _asks(world):
            gone = sorted(self._services - world.services.keys())
            if gone and elsewhere and self._place is not None:
                lacks = f"is on another mount than before, and lacks {_names(gone)}"
            elif is_much(len(gone), len(self._services), said=1):
                lacks = f"lacks {len(gone)} of {len(self._services)} Services: {_names(gone)}"
            else:
                return None
            return self._settling(f"{self._directory}: {lacks}", now)
        if elsewhere:
            return Doubt(
                f"{self._directory}: has no manifests, {self._before()}: perhaps a volume is not mounted, so nothing "
                "changes. To serve nothing, put the manifest of a Namespace there"
            )
        return self._settling(f"{self._directory}: has no manifests now: was it emptied, or is it lost?", now)

    def _before(self) -> str:
        if self._place is None:
            return "while the state file remembers Services"
        return "and is on another mount than before"

    def _settling(self, what: str, now: float) -> Doubt | None:
        self._since = now if self._since is None else self._since
        until = self._since + self._seconds
        if now >= until:
            return None
        return Doubt(f"{what} It takes effect if it stays so for {self._seconds:g} s (--settle)", until)


def _asks(world: World) -> bool:
    """An object of any kind says that somebody wrote what is there."""
    return any((world.pools, world.services, world.endpoints, world.namespaces))


def _names(keys: list[ServiceKey]) -> str:
    more = f" and {len(keys) - _NAMED} more Services." if len(keys) > _NAMED else "."
    return ", ".join(map(str, keys[:_NAMED])) + more
