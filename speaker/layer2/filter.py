"""Classic BPF programs that keep foreign chatter from ever waking the speaker. Pure.

They drop what is not about our EIPs. The rest goes through, to be answered or ignored by name. Neighbour messages
whose hop limit is not 255 are dropped as well (docs/decisions/0005-bpf-filter.md).

"Our EIPs" are at most ``INTERVALS`` intervals, the smallest gaps closed: what is in a gap goes through and counts as
``not_ours``. IPv6 addresses are compared by their last 32 bits, which lets a few more through.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

from speaker.intervals import Interval, merged
from speaker.packets import bpf, ndp

INTERVALS = 64
"""A search tree over 64 is 7 comparisons deep, and keeps every jump within BPF's 255 instructions."""

NOTHING: bpf.Program = (bpf.REJECT,)


def arp_program(ours: tuple[Interval, ...]) -> bpf.Program:
    """Ethernet/IPv4 ARP requests and replies whose target or sender lies in one of ``ours``, at most ``INTERVALS``."""
    if not ours:
        return NOTHING
    return (
        *bpf.only_if(bpf.load_word(14), 0x00010800),
        *bpf.only_if(bpf.load_half(18), 0x0604),
        *bpf.only_if(bpf.load_half(20), 1, 2),
        *_accept_within(bpf.load_word(38), ours),
        *_accept_within(bpf.load_word(28), ours),
        bpf.REJECT,
    )


def ndp_program(ours: tuple[Interval, ...]) -> bpf.Program:
    """Solicitations and advertisements from this link whose target or source may lie in one of ``ours``; a frame too
    short for its target is rejected by the kernel's bounds check."""
    if not ours:
        return NOTHING
    return (
        *bpf.only_if(bpf.load_byte(20), 58),
        *bpf.only_if(bpf.load_byte(54), ndp.SOLICITATION, ndp.ADVERTISEMENT),
        *bpf.only_if(bpf.load_byte(21), ndp.HOP_LIMIT),
        *_accept_within(bpf.load_word(74), ours),
        *_accept_within(bpf.load_word(34), ours),
        bpf.REJECT,
    )


def number(address: bytes) -> int:
    """The last 32 bits, by which these programs compare."""
    return int.from_bytes(address[-4:], "big")


def around(addresses: Iterable[bytes]) -> tuple[Interval, ...]:
    """The fewest intervals that cover ``addresses``, at most ``INTERVALS``."""
    return intervals(map(number, addresses), INTERVALS)


def intervals(numbers: Iterable[int], most: int) -> tuple[Interval, ...]:
    """The fewest intervals that cover ``numbers``, in order; at most ``most``, by closing the smallest gaps."""
    ordered = sorted(set(numbers))
    return _with_gaps_closed(ordered, ordered, most)


def widened(ours: tuple[Interval, ...], others: tuple[Interval, ...], most: int) -> tuple[Interval, ...]:
    """The fewest intervals that cover both, as ``intervals`` does: its work does not grow with what they stand for."""
    runs = merged((*ours, *others))
    return _with_gaps_closed([first for first, _ in runs], [last for _, last in runs], most)


def _with_gaps_closed(firsts: Sequence[int], lasts: Sequence[int], most: int) -> tuple[Interval, ...]:
    """Of runs in order: neighbours joined, and the smallest gaps closed until ``most`` are left."""
    if not firsts:
        return ()
    gaps = ((first - last, at) for at, (last, first) in enumerate(zip(lasts, firsts[1:], strict=False)))
    widest = heapq.nlargest(most - 1, (gap for gap in gaps if gap[0] > 1))
    cuts = sorted(at for _, at in widest)
    return tuple(
        zip(
            (firsts[0], *(firsts[at + 1] for at in cuts)),
            (*(lasts[at] for at in cuts), lasts[-1]),
            strict=True,
        )
    )


def _accept_within(load: bpf.Instruction, ours: tuple[Interval, ...]) -> bpf.Program:
    """Accepts where the loaded number lies in one of ``ours``, else goes on behind."""
    return (load, *_search(ours, 0))


def _search(ours: tuple[Interval, ...], behind: int) -> bpf.Program:
    """A binary search; ``behind`` is how many instructions of the whole tree follow this part of it."""
    if len(ours) == 1:
        first, last = ours[0]
        return (bpf.if_from(first, 0, 1), bpf.if_above(last, 0, 1), bpf.jump(behind + 1), bpf.ACCEPT)
    middle = len(ours) // 2
    right = _search(ours[middle:], behind)
    left = _search(ours[:middle], behind + len(right))
    return (bpf.if_from(ours[middle][0], len(left), 0), *left, *right)


LATER = 1.0
"""Seconds from a change to the closer look, and so between two of them."""


class FilterTracker:
    """The filter of one family on one link; ``program`` writes it."""

    def __init__(self, program: Callable[[tuple[Interval, ...]], bpf.Program]) -> None:
        self._program = program
        self._ours: tuple[Interval, ...] = ()
        self._due: float | None = None

    def widen(self, addresses: Iterable[bytes], now: float) -> bpf.Program | None:
        """Lets these through as well; None where the filter does already."""
        self.loosen(now)
        return self._turn_to(widened(self._ours, around(addresses), INTERVALS))

    def loosen(self, now: float) -> None:
        """Some EIPs went, or came."""
        if self._due is None:
            self._due = now + LATER

    def tighten(self, addresses: Iterable[bytes]) -> bpf.Program | None:
        """Lets only these through; None where the filter does already."""
        self._due = None
        return self._turn_to(around(addresses))

    def lets_through(self, address: bytes) -> bool:
        """Requests for it, by the filter as it stands."""
        asked = number(address)
        return any(first <= asked <= last for first, last in self._ours)

    def wake(self) -> float | None:
        """When to ``tighten``; None as long as nothing changed."""
        return self._due

    def _turn_to(self, ours: tuple[Interval, ...]) -> bpf.Program | None:
        if ours == self._ours:
            return None
        self._ours = ours
        return self._program(ours)
