"""What a container may do, as the kernel sees it."""

import pytest

NET_RAW = 1 << 13  # include/uapi/linux/capability.h
NET_ADMIN = 1 << 12
BPF = 1 << 39
FILTERED = "2"  # SECCOMP_MODE_FILTER


def status(said):
    return dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)


def agents_have(cluster, rights):
    """These capabilities and no others; what an agent is besides is the same for all."""
    for node in cluster.nodes:
        told = status(cluster.in_agent(node, "cat", "/proc/1/status"))
        assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == int(told["CapBnd"], 16) == rights
        assert told["NoNewPrivs"] == "1"
        assert told["Seccomp"] == FILTERED
        with pytest.raises(RuntimeError, match="Read-only file system"):
            cluster.in_agent(node, "touch", "/opt/speaker/new")
