"""A node between a LAN and a pod that listens."""

import socket

import pytest
from trials import DNAT, POD, POD6, rules


@pytest.fixture
def node(new_namespace, wire, sh):
    node, lan, pod = (new_namespace(name) for name in ("node", "lan", "pod"))
    wire(node, "eth0", lan, "port0")
    wire(node, "cni0", pod, "eth0")
    for line in (
        "ip addr add 192.0.2.11/24 dev eth0",
        "ip addr add 2001:db8::11/64 dev eth0 nodad",
        "ip addr add 10.244.1.1/24 dev cni0",
        "ip addr add fd00:10::1/64 dev cni0 nodad",
    ):
        sh(node, line)
    for line in (
        f"ip addr add {POD}/24 dev eth0",
        f"ip addr add {POD6}/64 dev eth0 nodad",
        "ip route add default via 10.244.1.1",
        "ip -6 route add default via fd00:10::1",
    ):
        sh(pod, line)
    for name in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
        node.sysctl(name, 1)
    rules(node, DNAT)
    listening = []
    with pod.entered():
        for family in (socket.AF_INET, socket.AF_INET6):
            opened = socket.socket(family)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.bind(("::" if family == socket.AF_INET6 else "", 8080))
            opened.listen()
            listening.append(opened)
    yield node
    for opened in listening:
        opened.close()
