"""Edge: memory: how much of it a process may take, what the garbage collector need not look at, and errors that keep
nothing alive.

The collector stops everything while it walks over all objects that it tracks: 30 ms for 10,000 EIPs in the wire
process, 0.1 s for as many Services. So long-lived objects are frozen (``gc.freeze``), and the collector no longer looks
at them. But a frozen cycle that nobody refers to stays forever, so there must be no such cycles, and only few objects
are frozen that were not looked at.
"""

import asyncio
import gc
import json
import os
import resource
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WORTH = 5_000
"""New objects: fewer are not worth freezing, because walking over them takes only a millisecond or two."""


USUAL = 700, 10, 10
"""Python's own thresholds; ``__main__.py`` imports with others."""


def freeze_imported() -> None:
    """Nobody looks at what was imported any more, and from now on the collector goes its usual pace."""
    gc.freeze()
    gc.set_threshold(*USUAL)


def freeze_new() -> None:
    """Call it now and then while much is built that lives long: what was made since the last call is collected, if it
    is enough, and what is left is frozen."""
    young, older, _ = gc.get_count()
    if young >= WORTH or older:
        gc.collect()
        gc.freeze()


def start_over() -> None:
    """Collects what was frozen and is no longer needed, then freezes everything that is left."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Returns to the kernel what the C library keeps of freed memory: 4 MB after the first pass over 1,000 Services,
    and more when as many go. Takes milliseconds, and does nothing in a C library without ``malloc_trim``."""
    import ctypes

    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def uncollected(lasting: Callable[[], bool]) -> Iterator[None]:
    """The collector does not run while the block builds what lives long. If that is ``lasting``, it is frozen unseen,
    which must not happen again and again."""
    gc.disable()
    try:
        yield
        if lasting():
            gc.freeze()
    finally:
        gc.enable()


def let_go(error: BaseException) -> None:
    """Releases what the functions that ``error`` came through held. Its traceback keeps that alive as long as the error
    is, and if one of them held the error, both would stay forever. The traceback can be printed as before."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]


@contextmanager
def letting_go() -> Iterator[None]:
    """``let_go`` of what the block raises. Above all for a TaskGroup, which until Python 3.13 refers to itself through
    every error that it raises (python/cpython#125789)."""
    try:
        yield
    except BaseException as error:
        let_go(error)
        raise


# ── How much there may be ─────────────────────────────────────────────────────────────────────────────────────

CGROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self")
WITHOUT_LIMIT = 512 * 2**20
"""Bytes that count as the limit where there is none: that of the manifests."""
MAIN, OBJECTS = 0.8, 0.5
"""Of the limit: what the process that reads may take, so that those beside it live on when it takes too much; and in it
what is mirrored of the API, with what is made of that."""
BESIDE = 64 * 2**20
"""Bytes that are left to the wire process in any case; with 10,000 EIPs it takes as many."""
LEAST = 16 * 2**20
"""Bytes that it may take besides what it has at its start, whatever the limit is: with less it would never begin."""
NEAR = 0.9
"""Of what may be taken: an allocation that fails there was not too large, it was one too many."""
LOOK_SECONDS, LOOK_FAR = 1.0, 10.0
"""Between two looks at how much it takes; and where that is less than half of what it may."""
SOONER = 200
"""Added to ``oom_score_adj``, in thousandths of the limit: of a pod's processes the wire process dies last."""
OUT_OF_MEMORY = 12
"""The exit code of who took too much; as ENOMEM."""


def memory_limit(cgroups: Path = CGROUPS, own: Path = OWN / "cgroup") -> int | None:
    """Bytes, the least of this process's cgroup and those around it (cgroups(7), of both versions); None: no limit."""
    try:
        entries = [entry for line in own.read_text().splitlines() if len(entry := line.split(":", 2)) == 3]
    except OSError:
        return None
    files = {"": (cgroups, "memory.max"), "memory": (cgroups / "memory", "memory.limit_in_bytes")}
    places = [(files[kind], path) for _, kinds, path in entries for kind in files.keys() & kinds.split(",")]
    limits = [_limit(file) for (root, name), path in places for file in _up(root, path, name)]
    return min((limit for limit in limits if limit is not None), default=None)


def _up(root: Path, path: str, name: str) -> Iterator[Path]:
    """In a container the path may be the host's: then the root is its own."""
    place = root / path.lstrip("/")
    for each in (place, *place.parents):
        if each.is_relative_to(root):
            yield each / name


def _limit(file: Path) -> int | None:
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):  # "max"
        return None
    return limit if limit < 2**60 else None  # version 1 has no word for "none"


def room_for_objects() -> int:
    """Bytes."""
    return int(OBJECTS * (memory_limit() or WITHOUT_LIMIT))


_may_take: list[int] = []
"""Bytes, as ``VmData`` counts them."""


def bound_memory(limit: int | None) -> None:
    """From now on this process gets a MemoryError, before the kernel kills something in its cgroup. Call it once all
    threads are started: their stacks count, and are hardly used."""
    with suppress(OSError):
        adjust = OWN / "oom_score_adj"
        adjust.write_text(str(min(1000, int(adjust.read_text()) + SOONER)))
    if limit is None:
        return
    sizes = _sizes()
    most = max(int(min(MAIN * limit, limit - BESIDE)), sizes["RssAnon"] + LEAST) + sizes["VmData"] - sizes["RssAnon"]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        _may_take[:] = [most]


def _sizes() -> dict[str, int]:
    lines = (line.split() for line in (OWN / "status").read_text().splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines}


def end_if_exhausted(error: BaseException) -> None:
    """Ends a process that can get no more memory and would continue only in part. Another one takes its place."""
    if isinstance(error, MemoryError):
        _end_if_near()


async def end_in_time() -> None:
    """Endless. Libraries in C take what they asked for for granted: better not to come so far."""
    while True:
        near = _end_if_near() > 0.5
        await asyncio.sleep(LOOK_SECONDS if near else LOOK_FAR)


def _end_if_near() -> float:
    """The share of its limit that this process uses."""
    if not _may_take:
        return 0.0
    taken = _sizes()["VmData"] / _may_take[0]
    if taken >= NEAR:
        line = {"event": "out of memory", "level": "error", "error": f"the limit is {_may_take[0]} bytes"}
        with suppress(OSError):
            os.write(2, json.dumps(line).encode() + b"\n")
        os._exit(OUT_OF_MEMORY)
    return taken
