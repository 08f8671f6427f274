"""EIPs in the order of ``Span``: what lies in one is found without a look at the others. Pure."""

from bisect import bisect_left, bisect_right, insort

from speaker.model import IPAddress, rank
from speaker.ownership.hello import Span


def _rank(entry: tuple[tuple[int, int], IPAddress]) -> tuple[int, int]:
    return entry[0]


class Ordered:
    """A set of EIPs. Whoever adds one knows that it is not there, whoever removes one that it is."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[int, int], IPAddress]] = []

    def add(self, eip: IPAddress) -> None:
        insort(self._entries, (rank(eip), eip))

    def remove(self, eip: IPAddress) -> None:
        del self._entries[bisect_left(self._entries, rank(eip), key=_rank)]

    def has(self, version: int) -> bool:
        """Whether there is one of that IP version. IPv4 sorts first."""
        return bool(self._entries) and self._entries[0 if version == 4 else -1][1].version == version

    def within(self, span: Span) -> list[IPAddress]:
        first = bisect_left(self._entries, rank(span.first), key=_rank)
        end = bisect_right(self._entries, rank(span.last), key=_rank)
        return [eip for _, eip in self._entries[first:end]]

    def since(self, first: IPAddress, count: int) -> tuple[list[IPAddress], bool]:
        """The next ``count`` from ``first`` on, and whether there are more behind them."""
        start = bisect_left(self._entries, rank(first), key=_rank)
        return [eip for _, eip in self._entries[start : start + count]], start + count < len(self._entries)
