"""A change that takes much away at once has to be confirmed. Pure.

A list from the API, or a directory of manifests, can be well formed and wrong: another cluster answers at the server's
address, a backup is half restored, a volume is not mounted. Acting on that at once would take EIPs off the air. So
missing objects stay until a second list, some time later, lacks them too. Single deletions are not lists: they count at
once.
"""

from collections.abc import Collection, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

FEW = 3
"""If fewer objects are gone while others are there, that counts at once: somebody deleted them while nobody watched."""
SHARE = 0.25
"""The share of known objects above which a loss is large."""

_K = TypeVar("_K", bound=Hashable)


def is_much(gone: int, known: int, said: int) -> bool:
    """Whether the loss of ``gone`` of ``known`` has to be confirmed. ``said``: how many objects there are now, of any
    kind. If there are none, any loss is much, and so is the loss of all of several."""
    if not said or gone == known:
        return gone > (1 if said else 0)
    return gone >= FEW and gone > known * SHARE


class Waiting(NamedTuple):
    """A list lacked ``gone`` of ``known``. ``until``: when another list decides, in the caller's seconds."""

    gone: int
    known: int
    until: float


class Doubt(NamedTuple):
    """``what`` the list was of; ``until``: the time of day."""

    what: str
    waiting: Waiting
    until: str

    def __str__(self) -> str:
        gone, known, _ = self.waiting
        return (
            f"{self.what}: {gone} of {known} are missing from a list: they stay until {self.until}, and are removed if "
            "another list, over a new connection, lacks them too (--settle)"
        )


class Removals(Generic[_K]):
    """What is missing from lists of one kind, and since when. ``seconds``: how long it must be missing; 0: it goes at
    once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[_K, float] = {}
        self._last: Waiting | None = None

    @property
    def waiting(self) -> Waiting | None:
        """The last list, while anything that it lacked is still waiting."""
        return self._last if self._since else None

    def __iter__(self) -> Iterator[_K]:
        return iter(self._since)

    def __len__(self) -> int:
        """How many are waiting."""
        return len(self._since)

    def kept(self, gone: Collection[_K], known: int, said: int, now: float) -> Collection[_K]:
        """What is missing from a list but stays for now. ``known`` and ``said`` as in ``is_much``."""
        much = is_much(len(gone), known, said)
        since = {key: self._since.get(key, now) for key in gone} if much else {}
        self._since = {key: at for key, at in since.items() if now < at + self._seconds}
        if self._since:
            self._last = Waiting(len(gone), known, min(self._since.values()) + self._seconds)
        return self._since.keys()

    def heard(self, key: _K) -> None:
        """The object was changed or deleted on its own: nothing has to be confirmed about it."""
        self._since.pop(key, None)
