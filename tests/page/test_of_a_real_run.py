"""The page of a host on a LAN of three, in a browser on that host, while another of them dies.

``RECORD=1`` keeps the pictures for docs/page.md; ``-s`` prints after how long the failover was on the page.
"""

import os
import signal
from datetime import datetime
from pathlib import Path

import pytest
from test_in_a_browser import LIVE, LOOKS

from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
NODES = ("node-a", "node-b", "node-c")
EIPS = 40
POOLS = """\
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [198.51.100.128/26], interface: eth0}
---
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: dmz}
spec: {addresses: [198.51.100.200-198.51.100.201], interface: eth0}
"""
SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {space}, annotations: {{eip-speaker.io/addresses: {eip}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
"""
ENDPOINT = """\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-{0}-4, namespace: shop, labels: {{kubernetes.io/service-name: web-{0}}}}}
addressType: IPv4
ports: [{{port: 80}}]
endpoints: [{{addresses: [198.51.100.{1}]}}]
"""
SITE = (
    POOLS
    + "".join(SERVICE.format(name=f"web-{n}", space="shop", eip=f"198.51.100.{129 + n}") for n in range(EIPS - 2))
    + "".join(ENDPOINT.format(n, 1 + n % 3) for n in range(EIPS - 2))
    + "".join(SERVICE.format(name=f"mail-{n}", space="office", eip=f"198.51.100.{200 + n}") for n in range(3))
)
"""The last of them asks for what no pool has."""


@pytest.fixture
def hosts(new_namespace, wire, sh):
    switch = new_namespace("switch")
    sh(switch, "ip link add br0 type bridge")
    sh(switch, "ip link set br0 up")
    found = [new_namespace(name) for name in NODES]
    for number, node in enumerate(found, 1):
        wire(node, "eth0", switch, f"port{number}")
        sh(switch, f"ip link set port{number} master br0")
        sh(node, f"ip addr add 198.51.100.{number}/24 dev eth0")
        sh(node, "ip link set lo up")
        node.sysctl("net.ipv4.ip_forward", 1)
    return found


def kept(browser, look):
    browser.look(**LOOKS[look])
    if os.environ.get("RECORD"):
        (PICTURES / f"page-{look}.png").write_bytes(browser.picture())


def test_a_node_that_dies_is_seen_to_with_what_it_held_and_how_long_that_was_silent(
    hosts, write, start, tmp_path, browser_in
):
    key = tmp_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    write("site.yaml", SITE)
    flags = ("--with-peers", "--key", str(key), "--forwarder", "none", "--page", "127.0.0.1:9901")
    speakers = [start(node, *flags, name=name) for node, name in zip(hosts, NODES, strict=True)]
    for speaker in speakers:
        speaker.until("ready")
    browser = browser_in(hosts[0])
    browser.look(**LOOKS["light"])
    browser.open("http://127.0.0.1:9901/")
    browser.until(LIVE + " && document.querySelectorAll('#nodes li').length >= 3")
    browser.until(f"document.getElementById('eips').ariaRowCount === '{EIPS + 1}'")
    browser.run(
        "new MutationObserver(() => { window.seen ??= Date.now(); })"
        ".observe(document.getElementById('news'), { childList: true, characterData: true, subtree: true })"
    )
    for process in (speakers[2].process.pid, *speakers[2].children()):
        os.kill(process, signal.SIGKILL)
    claimed = speakers[0].until("claimed", why="silent")
    browser.until("document.querySelector('#nodes .silent')")
    assert browser.text("#nodes .silent") == "node-c\nnot heard"
    assert "node-a in place of node-c" in browser.text("#failovers")
    assert browser.run("return document.querySelectorAll('#axis i').length") == 1
    assert browser.accessibility() == []
    if os.environ.get("RECORD"):  # the doctor looked while the node died, and looks again in a minute
        browser.until("!document.getElementById('problems').textContent.includes('which node-c holds')")
    for look in ("light", "dark", "phone"):
        kept(browser, look)
    at = datetime.fromisoformat(claimed["timestamp"]).timestamp() * 1000
    print(f"on the page {browser.run('return window.seen') - at:.0f} ms after it was claimed")  # noqa: T201
