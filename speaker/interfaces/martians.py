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


def martian_sources(path: Path = RT_CACHE) -> int:
    """How many packets this kernel dropped for a source address of its own, or by a reverse path filter.

    Raises EdgeError where the kernel does not say.
    """
    return _read(path, count)


def reverse_path_drops(path: Path = NETSTAT) -> int:
    """How many of them by this network namespace's reverse path filter. Raises EdgeError as above."""
    return _read(path, count_reverse_path)


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
