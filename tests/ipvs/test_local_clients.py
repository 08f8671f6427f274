"""Who reaches an EIP, from where, with IPVS."""

import subprocess
from ipaddress import ip_address

import pytest
from local_clients import *  # noqa: F403 - the tests, which are the same for every forwarder
from reach import ip, ipvs_nodes

from speaker.forwarding.ipvs.dummy import DummyLink

pytestmark = pytest.mark.ipvs


@pytest.fixture
def kind():
    return "IPVS"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with ipvs_nodes(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.fixture
def bridged_nodes(tmp_path):
    subprocess.run(["/run/modprobe", "br_netfilter"], check=True)
    with ipvs_nodes(tmp_path, bridged=True) as nodes:
        yield nodes


def test_a_bound_eip_is_never_a_nodes_own_address_where_a_link_has_none(new_namespace, sh):
    """Not even if its link is older than all others, and the EIP is the address most like the destination."""
    node = new_namespace("node")
    with node.entered():
        DummyLink().bind([ip_address("10.9.0.200"), ip_address("fd09::200")])
    ip(
        node,
        "link add eth0 type veth peer name eth0-far; link set eth0 up; link set eth0-far up",
        "addr add 192.0.2.1/24 dev eth0; addr add 2001:db8:1::1/64 dev eth0 nodad",
        "link add pod type veth peer name pod-far; link set pod up; link set pod-far up",
        "route add 10.9.0.5 dev pod; route add fd09::5 dev pod",
    )
    assert " src 192.0.2.1 " in sh(node, "ip route get 10.9.0.5")
    assert " src 2001:db8:1::1 " in sh(node, "ip route get fd09::5")
    assert " src 10.9.0.200 " in sh(node, "ip route get 10.9.0.200")
    assert " src fd09::200 " in sh(node, "ip route get fd09::200")
