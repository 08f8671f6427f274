"""Whether this node passes packets on at all. An edge: reads the calling thread's network namespace in /proc/sys."""

from collections.abc import Callable, Collection
from pathlib import Path

from speaker.errors import EdgeError
from speaker.model import Family

_FORWARDING = {Family.IPV4: "net.ipv4.ip_forward", Family.IPV6: "net.ipv6.conf.all.forwarding"}


def read(name: str, *more: str) -> str:
    """Of a setting; '' where there is no such. ``more``: parts of its name that may have dots. Raises EdgeError."""
    path = Path("/proc/sys", *name.split("."), *more)
    try:
        return path.read_text().strip()
    except FileNotFoundError:  # a kernel without IPv6, a link that is gone
        return ""
    except OSError as error:
        raise EdgeError(f"{path}: {error.strerror}") from error


def forwarding_off(families: Collection[Family], read: Callable[..., str] = read) -> tuple[str, ...]:
    """A sentence with the remedy for each of ``families`` that the kernel does not forward. Raises as ``read``."""
    return tuple(
        f"{name} is 0, so nothing addressed to an {family} EIP is passed on: set it to 1"
        for family, name in _FORWARDING.items()
        if family in families and read(name) == "0"
    )


def links_not_forwarding(links: Collection[str], read: Callable[..., str] = read) -> tuple[str, ...]:
    """A sentence for each of ``links`` from which alone the kernel passes no IPv4 on; IPv6 knows no such setting."""
    if read(_FORWARDING[Family.IPV4]) == "0":
        return ()  # which is told as such
    return tuple(
        f"net.ipv4.conf.{name}.forwarding is 0, so nothing that comes in on {name} is passed on: set it to 1"
        for name in sorted(links)
        if read("net.ipv4.conf", name, "forwarding") == "0"
    )
