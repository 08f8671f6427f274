"""``speaker explain`` beside a running speaker: a new connection is tried as a client's, and what drops it is named."""

import json
import socket
import subprocess
import sys

import pytest
from site_yaml import POOL, endpoint, service

pytestmark = pytest.mark.netns

EIP = "198.51.100.10"
FIREWALL = """
table inet ufw {
  chain user { tcp dport 8080 counter reject
  }
  chain forward { type filter hook forward priority 0; ct state established accept; jump user
  }
}
"""


@pytest.fixture
def explained(lan, new_namespace, wire, sh, write, start):
    node, _ = lan
    pod = new_namespace("pod")
    wire(node, "cni0", pod, "eth0")
    sh(node, "ip addr add 10.244.1.1/24 dev cni0")
    sh(pod, "ip addr add 10.244.1.11/24 dev eth0")
    sh(pod, "ip route add default via 10.244.1.1")
    write("site.yaml", POOL + service("web", eip=EIP) + endpoint("web", "addresses: [10.244.1.11]"))
    with pod.entered(), socket.create_server(("", 8080)):
        speaker = start(node, "--forwarder", "nftables")
        speaker.until("claimed")
        speaker.until("ready")

        def explain(*prefix: str):
            command = [sys.executable, "-m", "speaker", "explain", EIP, "--json"]
            with node.entered():
                done = subprocess.run(
                    [*prefix, *command, "--runtime-dir", str(speaker.directory / "run")],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=180,
                )
            return json.loads(done.stdout)

        yield explain


def way_in(told):
    (step,) = [each for each in told["steps"] if each["name"].startswith("way in")]
    return step


def test_a_healthy_way_in_is_proven_and_a_jump_that_rejects_is_named(explained, lan, sh):
    node, _ = lan
    well = explained()
    assert well["verdict"] is None, well
    assert way_in(well)["state"] == "well"
    assert "every rule lets it and its answer pass" in way_in(well)["lines"][-1]
    with node.entered():
        subprocess.run(["nft", "-f", "-"], input=FIREWALL, text=True, check=True)
    found = explained()
    assert found["verdict"]["kind"] == "firewall_drops"
    assert "chain inet ufw user, by tcp dport 8080" in found["verdict"]["what"]
    assert "tried from 198.51.100.2" in found["verdict"]["what"]
    sh(node, "nft delete table inet ufw")
    assert explained()["verdict"] is None
    assert sh(node, "ip -o link show type tun") == ""
    assert "try" not in sh(node, "nft list tables")


def test_with_net_raw_alone_it_says_what_was_not_seen_and_what_a_connection_came_to(explained):
    told = explained("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin")
    step = way_in(told)
    assert step["state"] == "unknown"
    assert "chains of other programs were not read" in step["lines"][0]
    assert any(line.startswith("connected from this node itself: TCP port 80: ") for line in step["lines"])
    assert {"firewalls (nftables)", "a new connection, as a client begins it"} <= {
        each["what"] for each in told["unseen"]
    }
    assert told["code"] == 2
