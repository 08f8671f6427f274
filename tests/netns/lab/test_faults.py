"""Each fault does to the LAN what its name says, and goes away again."""

import pytest

from speaker.lab.switch import cut, heal, mend, plug, pull, split

pytestmark = pytest.mark.netns


@pytest.fixture
def reaches(sh):
    """``reaches(lan, "client", "192.0.2.11")``: whether a ping is answered, whatever was found out before."""

    def ask(lan, host, address):
        sh(lan.namespace(host), "ip neigh flush all")
        return "1 received" in sh(lan.namespace(host), f"ping -c 1 -W 2 {address}", check=False)

    return ask


def test_a_cut_cable_carries_nothing_and_keeps_its_carrier(lan, sh, reaches):
    two = lan(2)
    cut(two, "node1")
    assert not reaches(two, "client", "192.0.2.11")
    assert not reaches(two, "node1", "192.0.2.100")
    assert not reaches(two, "node1", "192.0.2.1")
    assert "lladdr" not in sh(two.namespace("node1"), "ip neigh show dev eth0"), "nor does the switch itself answer"
    assert reaches(two, "client", "192.0.2.12")
    assert reaches(two, "admin", "198.51.100.11"), "the other link"
    assert "LOWER_UP" in sh(two.namespace("node1"), "ip link show eth0")
    mend(two, "node1")
    assert reaches(two, "client", "192.0.2.11")
    assert reaches(two, "client", "2001:db8:0:1::11")


def test_a_pulled_cable_takes_the_carrier_along(lan, sh, reaches):
    two = lan(2)
    pull(two, "node1")
    assert "NO-CARRIER" in sh(two.namespace("node1"), "ip link show eth0")
    assert not reaches(two, "client", "192.0.2.11")
    assert reaches(two, "client", "192.0.2.12")
    plug(two, "node1")
    assert "LOWER_UP" in sh(two.namespace("node1"), "ip link show eth0")
    assert reaches(two, "client", "192.0.2.11")


def test_a_split_switch_is_two_lans_until_it_is_healed(lan, sh, reaches):
    three = lan(3)
    split(three, [["client", "node1"], ["gateway", "node2"], ["node3"]])
    assert reaches(three, "client", "192.0.2.11")
    assert reaches(three, "client", "192.0.2.50"), "in no group: with the first"
    assert reaches(three, "gateway", "192.0.2.12")
    assert not reaches(three, "client", "192.0.2.12")
    assert not reaches(three, "node3", "192.0.2.12")
    assert "LOWER_UP" in sh(three.namespace("node3"), "ip link show eth0")
    heal(three)
    for address in ("192.0.2.12", "192.0.2.13", "192.0.2.1"):
        assert reaches(three, "client", address)
    split(three, [["client", "node3"], ["gateway", "node1", "node2"]])
    assert reaches(three, "client", "192.0.2.13")
    assert not reaches(three, "client", "192.0.2.11")
