"""Classic BPF programs that keep unrelated traffic from waking the speaker. Pure.

They drop what is not about our EIPs. The rest passes, to be answered, or ignored for a named reason. Neighbour messages
whose hop limit is not 255 are dropped as well (docs/decisions/0005-bpf-filter.md).

"Our EIPs" are blocks of 32 addresses, each with a bit for every address that is ours, so that requests for the others
wake nobody. If there are more than ``RUNS`` blocks, the closest are merged: addresses between them pass, and count as
``not_ours``. IPv6 addresses are compared by their last 32 bits, which lets a few more pass.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from speaker.packets import bpf, ndp

RUNS = 64
"""A search tree over 64 is 7 comparisons deep, and keeps every jump within BPF's 255 instructions."""
_ALL = 2**32 - 1
_FIRST = attrgetter("first")


class Run(NamedTuple):
    """Numbers from ``first`` to ``last``: of one block those in ``bits``, of several blocks all."""

    first: int
    last: int
    bits: int = _ALL


Runs: TypeAlias = tuple[Run, ...]
"""In order and disjoint."""

NOTHING: bpf.Program = (bpf.REJECT,)


def arp_program(ours: Runs) -> bpf.Program:
    """Ethernet/IPv4 ARP requests and replies whose target or sender is in ``ours``, at most ``RUNS``."""
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


def ndp_program(ours: Runs) -> bpf.Program:
    """Solicitations and advertisements from this link whose target or source may be in ``ours``. A frame too short for
    its target is rejected by the kernel's bounds check."""
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


def around(addresses: Iterable[bytes]) -> Runs:
    """Runs that cover ``addresses``, at most ``RUNS``."""
    return runs(map(number, addresses), RUNS)


def runs(numbers: Iterable[int], most: int) -> Runs:
    """A block for each that contains any of ``numbers``; at most ``most``, by closing the smallest gaps."""
    blocks: dict[int, int] = {}
    for each in numbers:
        blocks[each >> 5] = blocks.get(each >> 5, 0) | 1 << (each & 31)
    return _with_gaps_closed([_of_block(*block) for block in sorted(blocks.items())], most)


def _of_block(block: int, bits: int) -> Run:
    return Run(block << 5 | (bits & -bits).bit_length() - 1, block << 5 | bits.bit_length() - 1, bits)


def widened(ours: Runs, others: Runs, most: int) -> Runs:
    """Runs that cover both, as ``runs`` does; the work does not grow with the number of addresses."""
    found: list[Run] = []
    for run in sorted((*ours, *others)):
        if found and run.first >> 5 <= found[-1].last >> 5:
            run = _together(found.pop(), run)
        found.append(run)
    return _with_gaps_closed(found, most)


def _together(one: Run, other: Run) -> Run:
    last = max(one.last, other.last)
    return Run(one.first, last, one.bits | other.bits if one.first >> 5 == last >> 5 else _ALL)


def _with_gaps_closed(ours: Sequence[Run], most: int) -> Runs:
    """The smallest gaps closed until ``most`` are left."""
    gaps = ((after.first - before.last, at) for at, (before, after) in enumerate(pairwise(ours), 1))
    cuts = sorted(at for _, at in heapq.nlargest(most - 1, gaps))
    parts = [ours[begin:end] for begin, end in pairwise((0, *cuts, len(ours))) if begin < end]
    return tuple(part[0] if len(part) == 1 else Run(part[0].first, part[-1].last) for part in parts)


def _accept_within(load: bpf.Instruction, ours: Runs) -> bpf.Program:
    """Accepts if the loaded number is in ``ours``, otherwise continues after this part. While it searches for the
    number's block, the index register has the number's bit."""
    bit = load, bpf.keep_bits(31), bpf.TO_INDEX, bpf.set_to(1), bpf.SHIFT_LEFT_BY_INDEX, bpf.TO_INDEX
    return (*bit, load, bpf.shift_right(5), *_search(load, ours, 0))


def _search(load: bpf.Instruction, ours: Sequence[Run], behind: int) -> bpf.Program:
    """A binary search; ``behind`` is how many instructions of the whole tree follow this part of it."""
    if len(ours) == 1:
        first, last, bits = ours[0]
        if first >> 5 == last >> 5:
            found = bpf.if_equal(first >> 5, 0, 2), bpf.FROM_INDEX, bpf.if_any_of(bits, 1, 0)
        else:
            found = load, bpf.if_from(first, 0, 1), bpf.if_above(last, 0, 1)
        return (*found, bpf.jump(behind + 1), bpf.ACCEPT)
    middle = len(ours) // 2
    right = _search(load, ours[middle:], behind)
    left = _search(load, ours[:middle], behind + len(right))
    return (bpf.if_from(ours[middle].first >> 5, len(left), 0), *left, *right)


LATER = 1.0
"""Seconds from a change until the filter is narrowed again, and so between two such times."""


class FilterTracker:
    """The filter of one family on one link; ``program`` writes it."""

    def __init__(self, program: Callable[[Runs], bpf.Program]) -> None:
        self._program = program
        self._ours: Runs = ()
        self._due: float | None = None

    def widen(self, addresses: Iterable[bytes], now: float) -> bpf.Program | None:
        """Lets these through as well; None if the filter already does."""
        self.loosen(now)
        return self._turn_to(widened(self._ours, around(addresses), RUNS))

    def loosen(self, now: float) -> None:
        """Some EIPs went or came."""
        if self._due is None:
            self._due = now + LATER

    def tighten(self, addresses: Iterable[bytes]) -> bpf.Program | None:
        """Lets only these through; None if the filter already does."""
        self._due = None
        return self._turn_to(around(addresses))

    def lets_through(self, address: bytes) -> bool:
        """Whether requests for it pass the current filter."""
        asked = number(address)
        at = bisect_right(self._ours, asked, key=_FIRST) - 1
        return at >= 0 and asked <= self._ours[at].last and bool(self._ours[at].bits >> (asked & 31) & 1)

    def wake(self) -> float | None:
        """When to ``tighten``; None as long as nothing changed."""
        return self._due

    def _turn_to(self, ours: Runs) -> bpf.Program | None:
        if ours == self._ours:
            return None
        self._ours = ours
        return self._program(ours)
