"""When to read the manifests again.

inotify says when to look; a look decides whether there is a change. A look is also taken every ``LOOK_SECONDS``,
because inotify watches an inode, not a name: it does not notice a replaced directory, a link that now leads elsewhere,
or changes on a network file system, and a busy host may have no watch left.
"""

import asyncio
import errno
import stat
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from os import stat_result
from pathlib import Path

import structlog
from watchfiles import watch

from speaker.standalone.manifests import manifest_files
from speaker.system.threads import can_start, in_thread

LOOK_SECONDS = 1.0
SETTLE_MS = 50
"""Events closer together than this are one change: editors and ``cp`` write in several steps."""
UNSETTLED_MS = 500
"""A directory that never settles is looked at this often all the same."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Look:
    """What a change changes."""

    directory: tuple[int, ...]
    files: frozenset[tuple[str, tuple[int, ...]]]


async def changes(directory: Path, due: Callable[[], bool] = lambda: False) -> AsyncGenerator[None, None]:
    """Yields at once, and from then on after every change: what changes while the caller reads is not lost. Where
    nothing changes, it yields when ``due`` says so, which is asked at every look.

    A change is a manifest made, written, renamed or removed (also one that is a link), or the directory gone, back
    or replaced by another. Never ends.
    """
    seen: _Look | None = None
    while True:
        watched = await in_thread(_look, directory)
        async with aclosing(_wakes(directory)) as wakes:
            async for _ in wakes:
                found = await in_thread(_look, directory)
                if found != seen or due():
                    seen = found
                    yield
                if found.directory != watched.directory:
                    break


async def _wakes(directory: Path) -> AsyncGenerator[None, None]:
    """Reasons to look: as soon as it is watched, after events, and every LOOK_SECONDS. Ends where inotify fails."""
    stop = threading.Event()
    try:
        if not can_start():  # it would abort this process
            raise OSError(errno.EAGAIN, "no thread can be started")
        # In threads of ours: `awatch` takes anyio's.
        events = watch(
            directory,
            watch_filter=None,
            debounce=UNSETTLED_MS,
            step=SETTLE_MS,
            stop_event=stop,
            rust_timeout=SETTLE_MS,
            yield_on_timeout=True,
            force_polling=False,
            recursive=False,
        )
        seconds = 0.0  # at first only until it watches: what happens behind the first look is not to be missed
        while True:
            await in_thread(_happened, events, seconds)
            yield
            seconds = LOOK_SECONDS
    except (OSError, RuntimeError) as error:  # of the latter kind is whatever else goes wrong in its backend
        log.debug("no inotify, polling every second instead", directory=str(directory), error=str(error))
    finally:
        stop.set()  # ends the thread of a wait that was cancelled
    yield
    await asyncio.sleep(LOOK_SECONDS)


def _happened(events: Iterator[object], seconds: float) -> None:
    """Returns when something did, or after so many seconds. In a thread."""
    until = time.monotonic() + seconds
    for found in events:
        if found or time.monotonic() >= until:
            return


def _look(directory: Path) -> _Look:
    try:
        files = frozenset((file.name, _stamp_of_file(file)) for file in manifest_files(directory))
        return _Look(_stamp(directory.stat())[:2], files)
    except OSError:  # gone, or going while we look: the next look settles it
        return _Look((), frozenset())


def _stamp_of_file(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError as error:  # a link to nothing, or gone since it was listed
        return (error.errno or 0,)
    # Of what cannot be read it does not matter when it was written to.
    return _stamp(found) if stat.S_ISREG(found.st_mode) else (found.st_dev, found.st_ino, found.st_mode)


def _stamp(found: stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
