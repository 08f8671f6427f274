"""The manifests that the speakers of a lab share."""

from ipaddress import ip_address

import pytest
import yaml

from speaker.lab.speakers import failover_manifests, lab_eips
from speaker.lab.topology import MAX_EIPS, lab_topology
from speaker.standalone.manifests import load


def test_a_quarter_of_the_eips_is_ipv6_and_none_is_anybody_elses():
    eips = lab_eips(8)
    assert [eip.version for eip in eips] == [4] * 6 + [6] * 2
    everybody = {address for host in lab_topology(30, clients=2).hosts for address in host.addresses}
    assert len(set(lab_eips(MAX_EIPS)) - everybody) == MAX_EIPS


@pytest.mark.parametrize("count", [0, MAX_EIPS + 1])
def test_no_eips_and_too_many_are_refused(count):
    with pytest.raises(ValueError, match="EIPs, not"):
        lab_eips(count)


def test_the_speaker_takes_them_with_peers_and_every_node_has_its_own_pods_behind_every_eip(tmp_path):
    topology = lab_topology(3)
    text = failover_manifests(topology, lab_eips(8))
    (tmp_path / "shared.yaml").write_text(text)
    world = load(tmp_path, named=True).world
    assert {address for service in world.services.values() for address in service.addresses} == set(lab_eips(8))
    slices = [thing for thing in yaml.safe_load_all(text) if thing["kind"] == "EndpointSlice"]
    assert len(slices) == 8
    for one in slices:
        nodes = [
            (endpoint["nodeName"], topology.backend_at(ip_address(endpoint["addresses"][0])))
            for endpoint in one["endpoints"]
        ]
        assert nodes == [(node, pod) for node in topology.nodes for pod in topology.pods_of(node)]
