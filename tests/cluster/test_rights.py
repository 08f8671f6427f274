"""What the containers may do, as the kernel sees it."""

import pytest
from cluster_rights import FILTERED, NET_RAW, agents_have, status

pytestmark = pytest.mark.cluster


def test_an_agent_has_net_raw_and_nothing_else_and_a_root_that_cannot_be_written(cluster):
    agents_have(cluster, NET_RAW)


def controllers(cluster):
    return [pod["metadata"]["name"] for pod in cluster.get("pods", "-n", "eip-speaker")["items"]]


def test_a_controller_is_nobody_without_any_right_and_its_root_cannot_be_written(cluster):
    for pod in controllers(cluster):
        told = status(cluster.kubectl("-n", "eip-speaker", "exec", pod, "--", "cat", "/proc/1/status"))
        assert told["Uid"].split() == ["65532"] * 4
        assert int(told["CapEff"], 16) == int(told["CapBnd"], 16) == 0
        assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", FILTERED)
        with pytest.raises(RuntimeError, match="Read-only file system"):
            cluster.kubectl("-n", "eip-speaker", "exec", pod, "--", "touch", "/opt/new")
