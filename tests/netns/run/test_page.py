"""``speaker run --page`` on a host with something wrong: whoever looks at the page reads what the doctor finds."""

import json
import subprocess
import sys
import urllib.request

import pytest
from site_yaml import POOL, endpoint, service

pytestmark = pytest.mark.netns

PAGE = "127.0.0.1:9901"


def shown(node):
    """What the page says, by its events, until the doctor has looked."""
    with node.entered(), urllib.request.urlopen(f"http://{PAGE}/events", timeout=180) as events:
        known = {}
        for line in events:
            name, _, data = line.decode().rstrip().partition(": ")
            if name == "data":
                known |= json.loads(data)
                if known["doctor"] is not None:
                    return known["doctor"]["findings"]
    raise AssertionError(f"the page ended: {known}")


def test_the_page_says_what_the_command_does_and_nobody_is_asked_before_one_looks(
    new_namespace, wire, sh, write, start
):
    node, other = new_namespace("node"), new_namespace("other")
    wire(node, "eth0", other, "eth0")
    sh(node, "ip addr add 198.51.100.1/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 0)
    write("site.yaml", POOL + service("web", eip="198.51.100.10") + endpoint("web", "addresses: [198.51.100.1]"))
    speaker = start(node, "--forwarder", "none", "--page", PAGE)
    speaker.until("ready")
    with node.entered(), urllib.request.urlopen(f"http://{PAGE}/status.json", timeout=5) as answer:
        assert json.load(answer)["doctor"] is None
    found = shown(node)
    with node.entered(), urllib.request.urlopen(f"http://{PAGE}/status.json", timeout=5) as answer:
        told = json.load(answer)
    assert told["eips"]["198.51.100.10"].items() >= {"link": "eth0", "ready_endpoints": 1}.items()
    assert ["used", 1] in told["pools"][0]["maps"]["198.51.100.0"], told["pools"]
    assert "forwarding_off" in {each["kind"] for each in found}
    command = [sys.executable, "-m", "speaker", "doctor", "--json", "--runtime-dir", str(speaker.directory / "run")]
    with node.entered():
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    told = json.loads(done.stdout)["findings"]
    assert [(each["kind"], each["what"], each["mend"]) for each in found] == [
        (each["kind"], each["what"], each["mend"]) for each in told
    ]
