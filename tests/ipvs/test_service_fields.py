"""What fields of a Service and of its endpoints come to, with IPVS and real connections."""

import pytest
from reach import EIP, PROTOCOLS, SPREAD_BY_IPVS, ipvs_nodes, web
from service_fields import *  # noqa: F403 - the tests, which are the same for every forwarder

from speaker.model import Protocol

pytestmark = pytest.mark.ipvs


@pytest.fixture
def spreads():
    return SPREAD_BY_IPVS


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with ipvs_nodes(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.mark.skipif(Protocol.SCTP not in PROTOCOLS, reason="this kernel has no sockets for SCTP")
def test_sctp_associations_are_forwarded_to_pods_here_and_elsewhere(nodes):
    for pod, seen_as in (("p1", "client"), ("q", "holder")):
        nodes.serve(web(Protocol.SCTP), pod)
        for eip in EIP.values():
            assert nodes.estate.ask("client", eip, protocol=Protocol.SCTP) == f"{pod} {seen_as}"


def test_the_scheduler_ovf_refuses_more_connections_than_weights_allow(nodes):
    """Weights are 1: the page warns."""
    nodes.serve(web(scheduler="ovf"), "p1", "p2")
    for version, eip in EIP.items():
        with pytest.raises(OSError, match=r"refused|timed out"):
            nodes.estate.spread("client", eip, first_port=21_000 + 100 * version)
