"""Whether this node passes packets on at all. An edge: reads the calling thread's network namespace in /proc/sys."""

from collections.abc import Collection
from pathlib import Path

from speaker.errors import EdgeError
from speaker.model import Family

_FORWARDING = {Family.IPV4: "net.ipv4.ip_forward", Family.IPV6: "net.ipv6.conf.all.forwarding"}


def forwarding_off(families: Collection[Family]) -> tuple[str, ...]:
    """A sentence with the remedy for each of ``families`` that the kernel does not forward. Raises EdgeError."""
    return tuple(
        f"{name} is 0, so nothing addressed to an {family} EIP is passed on: set it to 1"
        for family, name in _FORWARDING.items()
        if family in families and _read(name) == "0"
    )


def _read(name: str) -> str:
    path = Path("/proc/sys", *name.split("."))
    try:
        return path.read_text().strip()
    except FileNotFoundError:  # a kernel without IPv6
        return ""
    except OSError as error:
        raise EdgeError(f"{path}: {error.strerror}") from error
