"""Three hosts forward for each other's endpoints, and one dies: the others know long before anybody tells them."""

import json
import os

import pytest
from site_yaml import POOL, service

from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

SITE = f"""{POOL}{service("web", eip="198.51.100.10")}---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-4, namespace: default, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints:
  - {{addresses: [10.0.0.1], nodeName: n1}}
  - {{addresses: [10.0.0.2], nodeName: n2}}
  - {{addresses: [10.0.0.3], nodeName: n3}}
"""
MAP = "nft --json --numeric list map inet eip-speaker tcp/198.51.100.10/80"
RULE = "nft --json --numeric list chain inet eip-speaker tcp/198.51.100.10/80"


@pytest.fixture
def lan(new_namespace, wire, sh):
    """A switch with a port p1, p2, p3 for each node."""
    switch = new_namespace("switch")
    sh(switch, "ip link add lan type bridge")
    sh(switch, "ip link set lan up")
    nodes = {}
    for number in (1, 2, 3):
        node = nodes[f"n{number}"] = new_namespace(f"n{number}")
        wire(node, "eth0", switch, f"p{number}")
        sh(switch, f"ip link set p{number} master lan")
        sh(node, f"ip addr add 198.51.100.{number}/24 dev eth0")
        node.sysctl("net.ipv4.ip_forward", 1)
    return switch, nodes


@pytest.fixture
def taking_new(sh):
    """The real servers that get new connections, by the kernel."""

    def found(node) -> set[str]:
        (rule,) = (item["rule"] for item in json.loads(sh(node, RULE))["nftables"] if "rule" in item)
        total = rule["expr"][1]["dnat"]["addr"]["map"]["key"]["numgen"]["mod"]
        (map_,) = (item["map"] for item in json.loads(sh(node, MAP))["nftables"] if "map" in item)
        return {target["concat"][0] for slot, target in map_["elem"] if slot < total}

    return found


@pytest.fixture
def speakers(lan, write, start, tmp_path):
    """One on each node, by its name; all are ready."""
    _, nodes = lan
    key = tmp_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    write("site.yaml", SITE)
    flags = ("--with-peers", "--key", str(key), "--forwarder", "nftables")
    speakers = {name: start(node, *flags, name=name) for name, node in nodes.items()}
    for speaker in speakers.values():
        speaker.until("ready")
    return speakers


def test_the_endpoints_of_a_node_that_is_cut_off_get_nothing_new_until_it_is_heard_again(lan, speakers, sh, taking_new):
    switch, nodes = lan
    everybody = {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert taking_new(nodes["n1"]) == everybody
    sh(switch, "ip link set p2 nomaster")  # the port is up, and leads nowhere
    speakers["n1"].until("nodes lost", nodes=["n2"])
    speakers["n1"].until("forwarding")
    assert taking_new(nodes["n1"]) == {"10.0.0.1", "10.0.0.3"}
    assert taking_new(nodes["n2"]) == everybody  # it hears nobody: it may be the one that is cut off
    sh(switch, "ip link set p2 master lan")
    speakers["n1"].until("nodes lost", nodes=[])
    speakers["n1"].until("forwarding")
    assert taking_new(nodes["n1"]) == everybody


def test_a_speaker_that_is_stopped_leaves_its_nodes_endpoints_as_they_are(lan, speakers, taking_new):
    _, nodes = lan
    speakers["n2"].stop()
    speakers["n1"].until("peer silent", peer="n2")
    assert taking_new(nodes["n1"]) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert not [line for line in speakers["n1"].log if line["event"] == "nodes lost"]
