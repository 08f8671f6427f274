"""The one trace of a martian source: a packet from outside whose source address is bound here, and so was dropped.

An EIP bound for forwarding makes the speaker's host drop what other holders of that address send, such as an upstream
balancer's health probes (facts.md, "What packets do").
"""

from pathlib import Path

from speaker.errors import EdgeError

RT_CACHE = Path("/proc/thread-self/net/stat/rt_cache")
"""Of the calling thread's network namespace; ``/proc/net`` is that of the process's first thread."""


def martian_sources(path: Path = RT_CACHE) -> int:
    """How many packets this network namespace dropped for a source address of its own, since it was made.

    Raises EdgeError where the kernel does not say.
    """
    try:
        return count(path.read_text())
    except (OSError, ValueError, IndexError) as error:
        raise EdgeError(f"{path}: {error}") from error


def count(text: str) -> int:
    """The sum of ``in_martian_src``: a header line, then a line of hexadecimal numbers for every CPU.

    Raises ValueError or IndexError when ``text`` is nothing of the kind.
    """
    header, *cpus = text.splitlines()
    column = header.split().index("in_martian_src")
    return sum(int(line.split()[column], 16) for line in cpus)
