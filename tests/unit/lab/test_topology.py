"""The drawing of the lab's LAN hangs together."""

from ipaddress import ip_address

import pytest

from speaker.lab.topology import MAX_NODES, lab_topology, switch_port
from speaker.model import format_mac


@pytest.mark.parametrize("nodes", [1, 2, MAX_NODES])
def test_no_two_links_share_an_address_or_a_mac(nodes):
    topology = lab_topology(nodes)
    ports = [port for host in topology.hosts for port in host.ports]
    addresses = [address.ip for port in ports for address in port.addresses]
    addresses += [address.ip for segment in topology.segments for address in segment.addresses]
    assert len(set(addresses)) == len(addresses)
    assert len({port.mac for port in ports}) == len(ports)


@pytest.mark.parametrize("nodes", [1, MAX_NODES])
def test_every_name_a_bridge_port_gets_fits_the_kernels_fifteen_characters(nodes):
    for host in lab_topology(nodes).hosts:
        for port in host.ports:
            assert len(switch_port(host.name, port.link)) <= 15


def test_every_gateway_is_a_neighbour_of_who_uses_it():
    for host in lab_topology(3).hosts:
        for route in host.routes:
            port = next(port for port in host.ports if port.link == route.link)
            assert route.via is None or any(route.via in address.network for address in port.addresses)


def test_each_node_brings_two_pods_and_the_lan_has_one_backend_more():
    assert lab_topology(2).backends == ("pod1", "pod2", "pod3", "pod4", "host1")
    assert lab_topology(2).backend_at(ip_address("10.244.2.12")) == "pod4"
    assert lab_topology(2).backend_at(ip_address("192.0.2.100")) is None


def test_a_mac_reads_like_its_address():
    assert format_mac(lab_topology().host("node1").mac("eth0")) == "02:00:00:01:00:11"


@pytest.mark.parametrize("nodes", [0, -1, MAX_NODES + 1])
def test_a_lab_without_nodes_or_with_too_many_is_refused(nodes):
    with pytest.raises(ValueError, match="1 to 30 nodes"):
        lab_topology(nodes)
