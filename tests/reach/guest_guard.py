"""What guards EIPs in the guest of tests/ipvs: as ``open_ipvs`` chooses there, without the programs that it starts to
find out what the kernel has."""

import os
from collections.abc import Callable

from speaker.forwarding.iptables import IptablesGuard
from speaker.forwarding.ipvs.forwarder import Guard
from speaker.forwarding.nftables.forwarder import NftablesGuard

HAS_NFTABLES = os.environ.get("EIP_SPEAKER_GUEST") == "qemu"
"""User-Mode Linux has none."""


def iptables_guard() -> IptablesGuard:
    return IptablesGuard({4: "iptables-legacy", 6: "ip6tables-legacy"})


guest_guard: Callable[[], Guard] = NftablesGuard if HAS_NFTABLES else iptables_guard
