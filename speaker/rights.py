"""What this process may do."""

from pathlib import Path

_CAP_NET_ADMIN = 12  # include/uapi/linux/capability.h


def may_administer_network() -> bool:
    """Whether it has CAP_NET_ADMIN: without, the kernel shows neither its nftables nor its IPVS."""
    status = Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return bool(effective >> _CAP_NET_ADMIN & 1)
