"""Who reaches an EIP, from where, with nftables."""

from pathlib import Path

import pytest
from local_clients import *  # noqa: F403 - the tests, which are the same for every forwarder
from reach import nftables_nodes

pytestmark = pytest.mark.netns


@pytest.fixture
def kind():
    return "nftables"


@pytest.fixture(scope="module")
def nodes():
    with nftables_nodes() as nodes:
        yield nodes


@pytest.fixture
def bridged_nodes():
    if not Path("/proc/sys/net/bridge").exists():
        pytest.skip("needs br_netfilter: `modprobe br_netfilter`")
    with nftables_nodes(bridged=True) as nodes:
        yield nodes
