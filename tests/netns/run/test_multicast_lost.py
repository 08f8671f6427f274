"""A switch that does not forward a multicast group to the node that holds an IPv6 EIP, as MLD snooping does without a
querier: clients' questions for the EIP are lost, while everything else arrives."""

import json
import subprocess
import sys

import pytest
from alert_lan import eventually, key, nft, switched
from fault_plan import Switches
from site_yaml import service

pytestmark = pytest.mark.netns

EIP, GROUP = "2001:db8:0:1::10", "33:33:ff:00:00:10"
OFTEN = {"speaker.ownership.witness:PERIOD": 1.0, "speaker.ownership.witness:IN_DOUBT": 0.3}
POOL = f"""apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: lan}}
spec: {{addresses: ["{EIP}"], interface: eth0}}
---
"""
ENDPOINT = """---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{port: 8080}]
endpoints: [{addresses: ["2001:db8:0:1::3"]}]
"""


def ask(speaker, *command):
    argv = [sys.executable, "-m", "speaker", *command, "--runtime-dir", str(speaker.directory / "run")]
    with speaker.node.entered():
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=180).stdout


def status(speaker):
    return json.loads(ask(speaker, "status", "--json"))


def test_a_holder_that_gets_no_multicast_is_named_with_that_cause_until_it_does(
    new_namespace, wire, sh, start, write, tmp_path, monkeypatch
):
    for name, value in Switches(tmp_path / "planted", (), OFTEN).environment.items():
        monkeypatch.setenv(name, value)
    switch, nodes = switched(new_namespace, wire, sh, "n1", "n2")
    for number, node in enumerate(nodes, 1):
        sh(node, f"ip addr add 2001:db8:0:1::{number}/64 dev eth0 nodad")
        node.sysctl("net.ipv6.conf.all.forwarding", 1)
    write("site.yaml", POOL + service("web", "ipFamilies: [IPv6]", EIP) + ENDPOINT)
    shared = key(tmp_path)
    speakers = {
        name: start(node, "--with-peers", "--key", shared, name=name)
        for name, node in zip(("n1", "n2"), nodes, strict=True)
    }
    for each in speakers.values():
        each.until("ready")

    def holder():
        return status(speakers["n1"])["eips"][0]["holder"]

    eventually(lambda: holder() in speakers, holder)
    there = holder()
    asker = speakers["n2" if there == "n1" else "n1"]
    port = f"p{there[1]}"
    nft(
        switch,
        f"table bridge snoops {{ chain f {{ type filter hook forward priority 0; oifname {port} "
        f"ether daddr {GROUP} drop; }}; }}",
    )
    sentence = f"multicast is not forwarded to {there} (MLD snooping)"

    def said():
        return [each["name"] for each in status(asker)["findings"]]

    eventually(lambda: said() == ["multicast_lost"], said)
    assert sentence in " ".join(status(asker)["problems"])
    assert sentence in " ".join(ask(asker, "explain", EIP).split())
    assert holder() == there

    nft(switch, "delete table bridge snoops")
    eventually(lambda: said() == [], said)
