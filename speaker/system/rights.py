"""What this process may do."""

from pathlib import Path

_CAP_NET_ADMIN, _CAP_SYS_NICE = 12, 23  # include/uapi/linux/capability.h


def may_administer_network() -> bool:
    """Whether it has CAP_NET_ADMIN: without, the kernel shows neither its nftables nor its IPVS."""
    return _has(_CAP_NET_ADMIN)


def may_be_nice() -> bool:
    """Whether it has CAP_SYS_NICE, which real-time priority takes."""
    return _has(_CAP_SYS_NICE)


def _has(capability: int) -> bool:
    status = Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return bool(effective >> capability & 1)
