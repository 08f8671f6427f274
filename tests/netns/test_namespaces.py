"""Namespaces without names are real, separate, and gone when closed."""

import pytest

pytestmark = pytest.mark.netns


def test_two_namespaces_joined_by_a_wire_reach_each_other(new_namespace, wire, sh):
    a, b = new_namespace("a"), new_namespace("b")
    wire(a, "eth0", b, "eth0")
    sh(a, "ip addr add 192.0.2.1/24 dev eth0")
    sh(b, "ip addr add 192.0.2.2/24 dev eth0")
    assert "1 received" in sh(a, "ping -c 1 -W 30 192.0.2.2")


def test_a_sysctl_set_inside_stays_inside(new_namespace, sh):
    a, b = new_namespace("a"), new_namespace("b")
    a.sysctl("net.ipv4.ip_forward", 1)
    assert sh(a, "cat /proc/sys/net/ipv4/ip_forward").strip() == "1"
    assert sh(b, "cat /proc/sys/net/ipv4/ip_forward").strip() == "0"
