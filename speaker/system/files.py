"""Files that other programs read, or that we read after a crash: written whole or not at all."""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from speaker.errors import EdgeError


def shown(path: Path) -> str:
    """A name as text that can be printed and sent: what is not UTF-8, or not printable, is escaped."""
    text = os.fsencode(path).decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def absolute(path: Path) -> Path:
    """The same file, wherever this process goes. Raises EdgeError if the current directory was removed."""
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise EdgeError(f"{shown(path)}: the current directory was removed: give an absolute path") from error


def is_there(path: Path) -> bool:
    """Whether ``path`` leads to anything. Raises EdgeError if that cannot be seen, usually for lack of a right:
    ``Path.exists`` then raises or says no, depending on the error and on the release of Python."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise EdgeError(f"cannot look at {shown(path)}: {error.strerror}") from error
    return True


def read_regular(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """The content of the regular file that ``path`` leads to, cut off after ``most + 1`` bytes, and its status.

    Never waits, as it would for the writer of a FIFO. Raises OSError, whose ``strerror`` says what else is there, and
    FileNotFoundError if nothing is, not even a link.
    """
    try:
        _insist_on_regular(path.stat().st_mode)  # before it is opened: to open a device may set it to work
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError as error:
        if path.is_symlink():
            words = f"Is a link to {shown(path.readlink())}, which does not exist"
            raise OSError(errno.EINVAL, words, str(path)) from error
        raise
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        _insist_on_regular(found.st_mode)  # of what was opened, whatever the name means by now
        return file.read(most + 1), found


_KINDS = {stat.S_IFIFO: "Is a FIFO", stat.S_IFSOCK: "Is a socket", stat.S_IFCHR: "Is a device"}
_KINDS[stat.S_IFBLK] = _KINDS[stat.S_IFCHR]


def _insist_on_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, _KINDS.get(stat.S_IFMT(mode), "Is not a regular file"))


def write_atomically(
    path: Path, content: bytes, *, mode: int = 0o644, new: bool = False, owner: os.stat_result | None = None
) -> None:
    """Replaces ``path`` by ``content``: after a crash at any moment it is the old file or the new one.

    ``new``: there must be no such file yet, even if somebody else is about to make it. ``owner``: who is to own it
    instead of us, if we may decide that. Raises EdgeError, which names the path.
    """
    import tempfile  # a megabyte with what it brings, which the wire process does without

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, mode)
                if owner is not None:
                    with contextlib.suppress(PermissionError):
                        os.fchown(fd, owner.st_uid, owner.st_gid)
                file.write(content)
                file.flush()
                os.fsync(fd)
            if new:
                _name_it(temporary, path)
            else:
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
        raise EdgeError(f"cannot write {shown(path)}: {error.strerror}") from error


def _name_it(temporary: str, path: Path) -> None:
    """Raises FileExistsError, where ``replace`` would not."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        Path(temporary).replace(path)  # a file system without hard links
    else:
        Path(temporary).unlink()


def locked(path: Path) -> int:
    """A file descriptor that holds the lock of ``path``; the kernel releases it with the process, however that ends.

    Only its owner may open the file: whoever can read it can lock it (flock(2)), and keep every speaker from starting.
    Raises EdgeError if somebody else holds the lock.
    """
    fd = -1
    try:
        with contextlib.suppress(FileExistsError):  # it is no directory: to open a file in it says so
            path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        with contextlib.suppress(PermissionError):  # one of an earlier release; or somebody else's, who sees to it
            os.fchmod(fd, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        if isinstance(error, BlockingIOError):
            raise EdgeError(f"another speaker is already running here: it holds {path}") from error
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


class Lock:
    """A lock that this process holds for as long as it lives; ``fd`` is what ``locked`` returned for ``path``."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd

    def hold(self) -> None:
        """If somebody has removed the file, perhaps with its directory, it is created and locked again.

        Raises as ``locked`` does.
        """
        if not is_file(self._path, os.fstat(self._fd)):
            fresh = locked(self._path)
            os.close(self._fd)
            self._fd = fresh


def is_file(path: Path, known: os.stat_result) -> bool:
    """Whether the file at ``path`` is the one that ``known`` describes."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (known.st_dev, known.st_ino)
