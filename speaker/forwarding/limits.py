"""The kernel's connection tables: how full they are, and what to report if they are too full.

``Watch`` decides. The rest is the edge: files of /proc, in the network namespace of the calling thread.
"""

from pathlib import Path
from typing import NamedTuple

from speaker.checks import Finding
from speaker.errors import EdgeError
from speaker.forwarding.ipvs.counters import buckets, listed

FULL, FULL_NO_MORE = 0.9, 0.8
"""Shares of nf_conntrack_max. Two limits, so that the report does not flap between them."""
CROWDED, CROWDED_NO_MORE = 8, 4
"""Connections per bucket: every packet walks through half of them, while the kernel's help for IP_VS_TAB_BITS
recommends about one."""

PROC = Path("/proc")


class Use(NamedTuple):
    """A table's connections and its size: for conntrack the maximum, for IPVS the hash buckets."""

    connections: int
    size: int

    def over(self, factor: float) -> bool:
        return self.connections > self.size * factor


class Tables(NamedTuple):
    """None: this kernel has no such table, or nobody asked."""

    conntrack: Use | None = None
    ipvs: Use | None = None


class Watch:
    """Describes what is too full; the words stay the same as long as it is."""

    def __init__(self) -> None:
        self._full = self._crowded = False

    def problems(self, tables: Tables) -> tuple[Finding, ...]:
        conntrack, ipvs = tables.conntrack, tables.ipvs
        self._full = conntrack is not None and conntrack.over(FULL_NO_MORE if self._full else FULL)
        self._crowded = ipvs is not None and ipvs.over(CROWDED_NO_MORE if self._crowded else CROWDED)
        told = []
        if conntrack is not None and self._full:
            what = (
                f"the kernel's table of connections is nearly full (net.netfilter.nf_conntrack_max={conntrack.size}): "
                "once it is full, all new connections are dropped. --conntrack-max raises the limit"
            )
            mend = f"sysctl -w net.netfilter.nf_conntrack_max={2 * conntrack.size}"
            told.append(Finding("conntrack_full", what, mend))
        if ipvs is not None and self._crowded:
            what = (
                f"IPVS has many connections for each of the {ipvs.size} buckets of its table, so every packet takes "
                f"longer: `options ip_vs conn_tab_bits={min(ipvs.size.bit_length() + 3, 20)}` in /etc/modprobe.d, and "
                "reload ip_vs"
            )
            told.append(Finding("table_crowded", what, "modinfo ip_vs"))
        return tuple(told)


# ── The edge ──────────────────────────────────────────────────────────────────────────────────────────────────


def look(*, ipvs: bool, proc: Path = PROC) -> Tables:
    """How full they are; IPVS's only if asked for. Raises EdgeError if the kernel's answer makes no sense."""
    try:
        used = _number(_conntrack(proc, "count"))
        most = _number(_conntrack(proc, "max"))
        conntrack = None if used is None or most is None else Use(used, most)
        return Tables(conntrack, _ipvs(proc) if ipvs else None)
    except (OSError, ValueError) as error:
        raise EdgeError(f"cannot see how full the kernel's connection tables are: {error}") from error


def _ipvs(proc: Path) -> Use | None:
    try:
        with (proc / "thread-self/net/ip_vs").open() as lines:
            size = buckets(lines)
            return Use(sum(real.active + real.inactive for _, real in listed(lines)), size)
    except FileNotFoundError:
        return None


def raise_conntrack_max(least: int, proc: Path = PROC) -> tuple[Finding, ...]:
    """Makes the kernel track at least so many connections. Returns a finding if that cannot be done from here.

    Never lowers it: kube-proxy sets it as well, and the larger value is right for both.
    """
    file = _conntrack(proc, "max")
    try:
        now = _number(file)
        if now is not None and now < least:
            file.write_text(str(least))
            now = _number(file)
    except (OSError, ValueError) as error:  # a container's /proc/sys is read-only
        return (_too_low(least, f" ({error})"),)
    return (_too_low(least),) if now is not None and now < least else ()


def _too_low(least: int, why: str = "") -> Finding:
    command = f"sysctl -w net.netfilter.nf_conntrack_max={least}"
    return Finding(
        "conntrack_max",
        f"net.netfilter.nf_conntrack_max is below --conntrack-max {least} and cannot be set from here: "
        f"`{command}` on the host{why}",
        command,
    )


def _conntrack(proc: Path, name: str) -> Path:
    return proc / f"sys/net/netfilter/nf_conntrack_{name}"


def _number(file: Path) -> int | None:
    """None if conntrack is not loaded yet."""
    try:
        return int(file.read_text())
    except FileNotFoundError:
        return None
