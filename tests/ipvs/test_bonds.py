"""A bond, which only the guest's kernel has, loses the link that is active: clients find the EIP where it is now."""

import re

import pytest
from real_api import until

pytestmark = pytest.mark.ipvs

SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.200], interface: bond0}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-4, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [192.0.2.10]}]
"""


@pytest.fixture
def lan(new_namespace, wire, sh):
    """(node, switch, client): the node is plugged in twice."""
    node, switch, client = map(new_namespace, ("node", "switch", "client"))
    sh(switch, "ip link add br0 type bridge")
    for host, link, port in ((node, "eth0", "port0"), (node, "eth1", "port1"), (client, "eth0", "port2")):
        wire(host, link, switch, port)
        sh(switch, f"ip link set {port} master br0")
    sh(switch, "ip link set br0 up")
    sh(client, "ip addr add 192.0.2.10/24 dev eth0")
    return node, switch, client


def mac(sh, node, link) -> str:
    return sh(node, f"ip -br link show {link}").split()[2]


def active_link(sh, node) -> str:
    return sh(node, "grep Currently /proc/net/bonding/bond0").split()[-1]


def answering(sh, client) -> set[str]:
    """The MACs that answer for the EIP."""
    said = sh(client, "arping -c 1 -w 1 -i eth0 192.0.2.200", check=False)
    return {word for line in said.splitlines() if " from " in line for word in line.split() if word.count(":") == 5}


@pytest.mark.parametrize("responder", ["socket", "auto"])
@pytest.mark.parametrize("its_mac", ["none", "active"])
def test_when_a_bond_changes_its_link_the_client_is_told_and_answered_there(lan, write, start, sh, its_mac, responder):
    """``fail_over_mac``: ``none`` keeps the bond's MAC, with ``active`` it is that of the active link."""
    node, switch, client = lan
    sh(node, f"ip link add bond0 type bond mode active-backup miimon 50 fail_over_mac {its_mac}")
    for link in ("eth0", "eth1"):
        sh(node, f"ip link set {link} down")
        sh(node, f"ip link set {link} master bond0")
    sh(node, "ip link set bond0 up")
    sh(node, "ip addr add 192.0.2.5/24 dev bond0")
    write("site.yaml", SITE)
    speaker = start(node, "--forwarder", "none", "--responder", responder)
    speaker.until("ready")
    before = mac(sh, node, "bond0")
    until(lambda: answering(sh, client) == {before})
    sh(client, f"ip neigh replace 192.0.2.200 lladdr {before} dev eth0 nud reachable")

    active = active_link(sh, node)
    sh(switch, f"ip link set port{active[-1]} down")
    until(lambda: active_link(sh, node) not in ("None", active))
    after = mac(sh, node, "bond0")
    assert (after == before) is (its_mac == "none")
    until(lambda: after in sh(client, "ip neigh show 192.0.2.200"))
    until(lambda: answering(sh, client) == {after})
    assert [eip["claimed"] for eip in speaker.status()["eips"]] == [True]
    counted = re.compile(r'^eip_speaker_kernel_answers_total{.*"arp"} [1-9]', re.MULTILINE)
    if responder == "auto":
        until(lambda: counted.search(speaker.get("/metrics")))
