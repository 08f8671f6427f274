"""The right to make network namespaces, and a namespace of our own before anything else happens.

As root the lab only leaves the host's network namespace. Without root it first becomes root of a user namespace of
its own, as ``unshare -Urn`` would; that is all a LAN of namespaces with nftables in it needs (IPVS refuses there).
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from speaker.errors import EdgeError

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

#: Settings that forbid user namespaces, the value that does, and one that does not: Debian's and Arch's patch, Ubuntu's
#: AppArmor (since 23.10), and the limit that every kernel has.
_FORBIDDING = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user.max_user_namespaces", "0", "10000"),
)

_libc = ctypes.CDLL(None, use_errno=True)


class NoNamespaces(EdgeError):
    """Raised when this machine lets us make no network namespace; the message names what to change."""


def leave_host_network() -> bool:
    """Move this process into an empty network namespace; returns True when that took a user namespace.

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
