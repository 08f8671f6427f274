"""Checks whether this node forwards packets. An edge: reads the calling thread's network namespace in /proc/sys."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from speaker.checks import Finding
from speaker.errors import EdgeError
from speaker.model import Family

_FORWARDING = {Family.IPV4: "net.ipv4.ip_forward", Family.IPV6: "net.ipv6.conf.all.forwarding"}


def read(name: str, *more: str) -> str:
    """The value of a setting; '' if it does not exist. ``more``: parts of its name that may contain dots. Raises
    EdgeError."""
    path = Path("/proc/sys", *name.split("."), *more)
    try:
        return path.read_text().strip()
    except FileNotFoundError:  # a kernel without IPv6, a link that is gone
        return ""
    except OSError as error:
        raise EdgeError(f"{path}: {error.strerror}") from error


def forwarding_off(families: Collection[Family]) -> tuple[Finding, ...]:
    """A finding for each of ``families`` that the kernel does not forward. Raises like ``read``."""
    return tuple(
        Finding(
            "forwarding_off",
            f"{name} is 0, so packets to {family} EIPs are not forwarded: set it to 1",
            f"sysctl -w {name}=1",
        )
        for family, name in _FORWARDING.items()
        if family in families and read(name) == "0"
    )


def links_not_forwarding(links: Collection[str]) -> tuple[Finding, ...]:
    """A finding for each of ``links`` from which the kernel forwards no IPv4, if only the link's setting is at fault;
    IPv6 has no such setting."""
    if read(_FORWARDING[Family.IPV4]) == "0":
        return ()  # which is reported as such
    return tuple(
        Finding(
            "forwarding_off",
            f"net.ipv4.conf.{name}.forwarding is 0, so packets that arrive on {name} are not forwarded: set it to 1",
            f"sysctl -w net.ipv4.conf.{name}.forwarding=1",
        )
        for name in sorted(links)
        if read("net.ipv4.conf", name, "forwarding") == "0"
    )


def reverse_path(
    links: Collection[str], everywhere: str, dropped: int = 0, read: Callable[..., str] = read
) -> Iterator[Finding]:
    """A finding for each of ``links`` with a strict filter, if the way back to everywhere leads through another link
    (``everywhere``, '' for none), or packets were ``dropped`` during the check."""
    for link in sorted(links):
        value = max(read("net.ipv4.conf", name, "rp_filter") for name in ("all", link))
        if value == "1" and (dropped or everywhere not in ("", link)):
            why = f"{dropped} packets have been dropped" if dropped else f"the way back leads through {everywhere}"
            what = f"rp_filter is strict for {link}, and {why}: clients beyond its subnet get no answer"
            mend = (
                f"sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{link}.rp_filter=2"
                "   # only if routers pass answers from the other link: docs/forwarding.md#several-links"
            )
            yield Finding("reverse_path", what, mend)
