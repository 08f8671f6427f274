"""Where a speaker is tried: a node and somebody beside it."""

import pytest


@pytest.fixture
def lan(new_namespace, wire, sh):
    """(node, client): one segment, 198.51.100.0/24."""
    node, client = new_namespace("node"), new_namespace("client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 198.51.100.1/24 dev eth0")
    sh(client, "ip addr add 198.51.100.2/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    return node, client
