"""What only a kernel with IPVS can show: a node that forwards with it is well, and what is in its way is named."""

import json
import socket
import subprocess
import sys
from contextlib import suppress

import pytest
from site_yaml import endpoint, pool, service

pytestmark = pytest.mark.ipvs

EIP = "192.0.2.200"
SITE = pool(EIP) + service("web") + endpoint("web", "addresses: [10.0.1.2]")


@pytest.fixture
def place(new_namespace, wire, sh, write, start):
    """(node, client, speaker): the node forwards with IPVS to a backend that listens."""
    node, client, backend = map(new_namespace, ("node", "client", "backend"))
    wire(node, "eth0", client, "eth0")
    wire(node, "b1", backend, "eth0")
    sh(node, "ip addr add 192.0.2.1/24 dev eth0")
    sh(node, "ip addr add 10.0.1.1/24 dev b1")
    sh(client, "ip addr add 192.0.2.10/24 dev eth0")
    sh(backend, "ip addr add 10.0.1.2/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    with backend.entered():
        listener = subprocess.Popen([sys.executable, "-m", "http.server", "8080"], stderr=subprocess.DEVNULL)
    write("site.yaml", SITE)
    speaker = start(node, "--forwarder", "ipvs")
    speaker.until("ready")
    yield node, client, speaker
    listener.kill()
    listener.wait()


def first(speaker, *command):
    """What it names first, and in which words; '' for nothing."""
    with speaker.node.entered():
        done = subprocess.run(
            [sys.executable, "-m", "speaker", *command, "--json", "--runtime-dir", str(speaker.directory / "run")],
            capture_output=True,
            text=True,
            check=False,
        )
    told = json.loads(done.stdout)
    found = told.get("findings", [told.get("verdict")])
    return (found[0]["kind"], found[0]["what"]) if found and found[0] else ("", "")


def until(speaker, kind, *command):
    with speaker.patience():
        while (found := first(speaker, *command))[0] != kind:
            assert speaker.process.poll() is None, found


def test_a_node_that_forwards_with_ipvs_is_well(place):
    *_, speaker = place
    until(speaker, "", "doctor")
    assert first(speaker, "explain", EIP) == ("", "")


def test_who_sends_from_a_bound_eip_is_named(place, sh):
    _, client, speaker = place
    sh(client, f"ip addr add {EIP}/32 dev lo")
    client.sysctl("net.ipv4.conf.all.arp_ignore", 1)
    client.sysctl("net.ipv4.conf.all.arp_announce", 2)
    with client.entered():
        sending = subprocess.Popen(["ping", "-i", "0.2", "-I", EIP, "192.0.2.1"], stdout=subprocess.DEVNULL)
    try:
        until(speaker, "martian_source", "explain", EIP)
    finally:
        sending.kill()
        sending.wait()


def test_an_eip_that_is_bound_as_a_secondary_address_is_named(place, sh):
    node, _, speaker = place
    sh(node, f"ip addr add {EIP}/24 dev eth0")
    until(speaker, "bound_secondary", "explain", EIP)


def test_a_table_of_connections_that_is_full_is_named(place, sh):
    node, client, speaker = place
    before = sh(node, "sysctl -n net.netfilter.nf_conntrack_max").strip()
    subprocess.run(["sysctl", "-qw", "net.netfilter.nf_conntrack_max=20"], check=True)
    try:
        with client.entered():
            sockets = [socket.socket() for _ in range(30)]
        for each in sockets:
            each.settimeout(0.3)
            with suppress(OSError):  # those that find no room
                each.connect((EIP, 80))
        until(speaker, "conntrack_full", "doctor")
    finally:
        for each in sockets:
            each.close()
        subprocess.run(["sysctl", "-qw", f"net.netfilter.nf_conntrack_max={before}"], check=True)
