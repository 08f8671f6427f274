"""What the containers may do, as the kernel sees it."""

import pytest

pytestmark = pytest.mark.cluster
NET_RAW = 1 << 13  # include/uapi/linux/capability.h
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


def test_an_agent_has_net_raw_and_nothing_else_and_a_root_that_cannot_be_written(cluster):
    agents_have(cluster, NET_RAW)


def controllers(cluster):
    return [pod["metadata"]["name"] for pod in cluster.get("pods", "-n", "eip-speaker")["items"]]


def test_a_controller_is_nobody_without_any_right(cluster):
    for pod in controllers(cluster):
        told = status(cluster.kubectl("-n", "eip-speaker", "exec", pod, "--", "cat", "/proc/1/status"))
        assert told["Uid"].split() == ["65532"] * 4
        assert int(told["CapEff"], 16) == int(told["CapBnd"], 16) == 0
        assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", FILTERED)
