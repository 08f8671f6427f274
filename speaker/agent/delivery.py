"""What a mirror has heard, handed on: what meets a bug of ours is handed on again, and keeps nothing else."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from speaker.api.objects import Key
from speaker.cluster.mirror.store import Change
from speaker.system.supervise import Supervisor, contained

AGAIN_SECONDS = 2.0
"""After which what could not be handed on is tried again: a mirror hears of each change once."""

_T = TypeVar("_T", bound=Any)


class Delivery(Generic[_T]):
    """A ``Reflector``'s ``deliver``; ``later(seconds, what)`` calls ``what`` then."""

    def __init__(
        self,
        deliver: Callable[[tuple[Change[_T], ...]], None],
        supervisor: Supervisor,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._deliver, self._supervisor, self._later = deliver, supervisor, later
        self._undone: dict[Key, Change[_T]] = {}
        """The last change of each object that could not be handed on."""

    def __call__(self, changes: tuple[Change[_T], ...]) -> None:
        """Those first that wait; of an object that changed again, what it is now."""
        newer = {change.key for change in changes}
        whole = (*(change for key, change in self._undone.items() if key not in newer), *changes)
        waited, self._undone = bool(self._undone), {}
        if self._handed_on(whole):
            return
        for change in whole:
            if not self._handed_on((change,)):
                self._undone[change.key] = change
        if self._undone and not waited:
            self._later(AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        if self._undone:
            waiting, self._undone = tuple(self._undone.values()), {}
            self(waiting)

    def _handed_on(self, changes: tuple[Change[_T], ...]) -> bool:
        with contained("mirror", self._supervisor):
            self._deliver(changes)
            return True
        return False
