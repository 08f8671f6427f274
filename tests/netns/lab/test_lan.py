"""The lab's LAN connects who should meet and separates who should not."""

import pytest

pytestmark = pytest.mark.netns


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("client", "192.0.2.11"),
        ("client", "2001:db8:0:1::11"),
        ("client", "192.0.2.50"),
        ("client", "2001:db8:0:1::50"),
        ("admin", "198.51.100.11"),
        ("node1", "10.244.1.12"),
        ("node1", "fd00:10:244:1::11"),
        ("node1", "192.0.2.1"),
    ],
)
def test_neighbours_reach_each_other(lan, sh, host, address):
    assert "1 received" in sh(lan(1).namespace(host), f"ping -c 1 -W 30 {address}")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("client", "10.244.1.11"),
        ("client", "fd00:10:244:1::11"),
        ("client", "198.51.100.11"),
        ("admin", "192.0.2.11"),
        ("host1", "10.244.1.11"),
    ],
)
def test_pods_and_the_management_network_are_out_of_the_clients_reach(lan, sh, host, address):
    assert "1 received" not in sh(lan(1).namespace(host), f"ping -c 1 -W 1 {address}", check=False)


def test_nodes_reach_each_others_pods(lan, sh):
    two = lan(2)
    assert "1 received" in sh(two.namespace("node1"), "ping -c 1 -W 30 10.244.2.12")
    assert "1 received" in sh(two.namespace("node2"), "ping -c 1 -W 30 fd00:10:244:1::11")


def test_building_a_lan_changes_nothing_where_it_is_built_from(new_namespace, lan, sh):
    here = new_namespace("here")
    before = sh(here, "ip -details addr") + sh(here, "sysctl -a --pattern net.ipv[46]")
    with here.entered():
        lan(1)
    assert sh(here, "ip -details addr") + sh(here, "sysctl -a --pattern net.ipv[46]") == before


def test_a_foreign_address_is_looked_for_on_the_wire(lan, sh):
    client = lan(1).namespace("client")
    assert "dev eth0 src 192.0.2.100" in sh(client, "ip route get 203.0.113.1")
    assert "via" not in sh(client, "ip route get 203.0.113.1")
