"""Network namespaces without names: only a file descriptor keeps one alive.

Whatever ends the process that made it, the kernel removes the namespace and every link in it. A shell gets in through
``nsenter --net=/proc/PID/fd/FD`` (see ``Namespace.path``).
"""

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from speaker.errors import EdgeError

CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Namespace(AbstractContextManager["Namespace"]):
    """A new, empty network namespace; closing it (or the end of this process) removes it.

    ``label`` is for people: timelines and error messages. Raises OSError (EPERM) without CAP_SYS_ADMIN.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._fd = -1
        failure: list[BaseException] = []

        def make() -> None:  # a thread of its own: unshare() changes the calling thread for good
            try:
                _check(_libc.unshare(CLONE_NEWNET), "unshare(CLONE_NEWNET)")
                self._fd = _own_namespace()
            except OSError as error:
                failure.append(error)

        thread = threading.Thread(target=make, name=f"namespace {label}")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]

    def __repr__(self) -> str:
        return f"Namespace({self.label!r}, {self.path})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        return self._fd

    @property
    def path(self) -> str:
        """For other processes: ``nsenter --net=PATH``; valid while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is inside the namespace for the length of the block.

        Sockets made inside stay inside; so do processes started inside (fork copies the calling thread's
        namespace). Never await in the block: other tasks of the loop would run in the wrong namespace.
        """
        before = _own_namespace()
        try:
            self.join()
            try:
                yield
            finally:
                _check(_libc.setns(before, CLONE_NEWNET), "setns(back)")
        finally:
            os.close(before)

    def join(self) -> None:
        """The calling thread moves in for good: for a child between fork and exec."""
        _check(_libc.setns(self._fd, CLONE_NEWNET), f"setns({self.label})")

    def settle(self) -> None:
        """As ``join``, and /sys is of the namespace as well, where this process may mount it."""
        self.join()
        if not _libc.unshare(CLONE_NEWNS) and not _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
            _libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None)

    def sysctl(self, name: str, value: int | str) -> None:
        """Set ``net.*`` inside: /proc/sys/net shows the namespace of the thread that opens it."""
        with self.entered():
            Path("/proc/sys", *name.split(".")).write_text(str(value))


# ── The right to make them ──────────────────────────────────────────────────────────────────────────────────

CLONE_NEWUSER = 0x10000000

#: Settings that forbid user namespaces, the value that does, and one that does not: Debian's and Arch's patch, Ubuntu's
#: AppArmor (since 23.10), and the limit that every kernel has.
_FORBIDDING = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user.max_user_namespaces", "0", "10000"),
)


class NoNamespaces(EdgeError):
    """Raised when this machine lets us make no network namespace; the message names what to change."""


def leave_host_network() -> bool:
    """Move this process into an empty network namespace; returns True when that took a user namespace.

    As root the lab only leaves the host's network namespace. Without root it first becomes root of a user namespace of
    its own, as ``unshare -Urn`` would; that is all a LAN of namespaces with nftables in it needs (IPVS refuses there).

    Must be called from a process with a single thread (CLONE_NEWUSER refuses others), before any socket is made.
    Raises NoNamespaces.
    """
    if _unshare(CLONE_NEWNET) == 0:
        return False
    uid, gid = os.getuid(), os.getgid()
    error = _unshare(CLONE_NEWUSER | CLONE_NEWNET)
    if error:
        raise NoNamespaces(_explain(os.strerror(error)))
    try:
        _become_root(uid, gid)
    except OSError as refused:  # Ubuntu's AppArmor lets the call pass and refuses the rights that come with it
        raise NoNamespaces(_explain(str(refused))) from refused
    return True


def _unshare(flags: int) -> int:
    return 0 if _libc.unshare(flags) == 0 else ctypes.get_errno()


def _become_root(uid: int, gid: int) -> None:
    me = Path("/proc/self")
    (me / "setgroups").write_text("deny")  # user_namespaces(7): a gid map needs it, without privileges outside
    (me / "uid_map").write_text(f"0 {uid} 1")
    (me / "gid_map").write_text(f"0 {gid} 1")


def _explain(error: str) -> str:
    files = {name: Path("/proc/sys", *name.split(".")) for name, _, _ in _FORBIDDING}
    return explanation(error, {name: path.read_text().strip() for name, path in files.items() if path.exists()})


def explanation(error: str, found: Mapping[str, str]) -> str:
    """What to tell the user; ``found`` has the values of those sysctls of ``_FORBIDDING`` that this kernel knows."""
    remedies = [
        f"  sudo sysctl -w {name}={allowing}    (now {forbidding})"
        for name, forbidding, allowing in _FORBIDDING
        if found.get(name) == forbidding
    ]
    if not remedies:
        remedies = ["  (no sysctl forbids them; a container needs CAP_SYS_ADMIN or a seccomp profile with unshare)"]
    return "\n".join(
        [
            f"the lab needs network namespaces, and this machine refuses them: {error}",
            "Run it as root, or allow user namespaces:",
            *remedies,
        ]
    )
