"""Files that other programs read, or that we read after a crash: whole or not at all."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from speaker.errors import EdgeError


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace ``path`` by ``content``: after a crash at any moment it is the old file or the new one.

    Raises EdgeError naming the path.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, mode)
                file.write(content)
                file.flush()
                os.fsync(fd)
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
            raise
        # The rename itself lives in the directory: without this a power cut may bring the old name back.
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise EdgeError(f"cannot write {path}: {error.strerror}") from error


def locked(path: Path) -> int:
    """A file descriptor that holds the lock of ``path``; the kernel lets go of it with the process, however it ends.

    Raises EdgeError when somebody else holds it.
    """
    fd = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        if isinstance(error, BlockingIOError):
            raise EdgeError(f"another speaker runs here already: it holds {path}") from error
        raise EdgeError(f"cannot lock {path}: {error.strerror}") from error
    return fd


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Holds the lock of ``path`` for the length of the block. Raises as ``locked`` does."""
    fd = locked(path)
    try:
        yield
    finally:
        os.close(fd)
