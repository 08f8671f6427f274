"""What others do to this host is told while nothing of ours changes, and taken back when it is over."""

import pytest
from site_yaml import POOL, endpoint, service

pytestmark = pytest.mark.netns

SITE = POOL + service("web") + endpoint("web", "addresses: [198.51.100.2]")
TROUBLES = {
    "nothing is forwarded": (
        "sysctl -qw net.ipv4.ip_forward=0",
        "sysctl -qw net.ipv4.ip_forward=1",
        "net.ipv4.ip_forward is 0",
    ),
    "nothing is forwarded from our link": (
        "sysctl -qw net.ipv4.conf.eth0.forwarding=0",
        "sysctl -qw net.ipv4.conf.eth0.forwarding=1",
        "net.ipv4.conf.eth0.forwarding is 0",
    ),
    "a firewall": (
        "nft add table ip fw ; add chain ip fw every { type filter hook forward priority 0 ; policy drop ; }",
        "nft delete table ip fw",
        "chain ip fw every drops forwarded traffic",
    ),
}


@pytest.fixture
def speaker(new_namespace, wire, sh, write, start):
    node, client = new_namespace("node"), new_namespace("client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 198.51.100.1/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    write("site.yaml", SITE)
    running = start(node, "--forwarder", "nftables")
    running.until("ready")
    return running


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_stops_traffic_is_told_and_taken_back_though_nothing_of_ours_changes(speaker, sh, trouble):
    begin, end, words = TROUBLES[trouble]
    assert speaker.status()["problems"] == []
    sh(speaker.node, begin)
    told = speaker.until("problem")
    assert words in told["message"]
    while speaker.status()["problems"] != [told["message"]]:
        assert speaker.process.poll() is None
    sh(speaker.node, end)
    assert speaker.until("problem over")["message"] == told["message"]
    while speaker.status()["problems"]:
        assert speaker.process.poll() is None
    passes = [
        entry for entry in speaker.log if entry["event"] in ("manifests read", "forwarding", "assigned", "claimed")
    ]
    assert len(passes) <= 4, "nothing was asked of it meanwhile"
