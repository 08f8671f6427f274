"""Packets from outside that the kernel dropped for their source address, which nothing but two counters tells.

A *martian source* is bound here: an EIP bound for forwarding makes the speaker's host drop what others send from that
address, such as an upstream balancer's health probes (docs/forwarding.md, "Who reaches an EIP, from where"). A
strict *reverse path filter* (``rp_filter=1``) drops what comes in on another link than the way back to its source leads
through.
"""

from collections.abc import Callable
from pathlib import Path

from speaker.errors import EdgeError

RT_CACHE = Path("/proc/thread-self/net/stat/rt_cache")
"""The same in every network namespace: the kernel counts for all of them together."""
NETSTAT = Path("/proc/thread-self/net/netstat")
"""Of the calling thread's network namespace; ``/proc/net`` is that of the process's first thread."""
TRIES = 10
"""To read both files with no packet between, each some 0.1 ms."""


def martian_sources(path: Path = RT_CACHE) -> int:
    """How many packets this kernel dropped for a source address of its own, or by a reverse path filter.

    Raises EdgeError where the kernel does not say.
    """
    return _read(path, count)


def reverse_path_drops(path: Path = NETSTAT) -> int:
    """How many of them by this network namespace's reverse path filter. Raises EdgeError as above."""
    return _read(path, count_reverse_path)


def dropped() -> tuple[int, int]:
    """What both say of one moment. Raises EdgeError as they do."""
    return of_one_moment(martian_sources, reverse_path_drops)


def of_one_moment(whole: Callable[[], int], part: Callable[[], int]) -> tuple[int, int]:
    """Of a count and one that is part of it: read again where the part grew meanwhile, as what is left of the whole
    would go back and forth. Where it grows all the time, the whole is a little behind."""
    now = part()
    for _ in range(TRIES):
        before, total, now = now, whole(), part()
        if before == now:
            break
    return total, now


def _read(path: Path, counted: Callable[[str], int]) -> int:
    try:
        return counted(path.read_text())
    except (OSError, ValueError, IndexError) as error:
        raise EdgeError(f"{path}: {error}") from error


def count(text: str) -> int:
    """The sum of ``in_martian_src``: a header line, then a line of hexadecimal numbers for every CPU.

    Raises ValueError or IndexError when ``text`` is nothing of the kind.
    """
    header, *cpus = text.splitlines()
    column = header.split().index("in_martian_src")
    return sum(int(line.split()[column], 16) for line in cpus)


def count_reverse_path(text: str) -> int:
    """``IPReversePathFilter`` of the first pair of lines, names and decimal numbers. Raises as ``count``."""
    names, numbers, *_ = text.splitlines()
    return int(numbers.split()[names.split().index("IPReversePathFilter")])
