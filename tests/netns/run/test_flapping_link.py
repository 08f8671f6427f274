"""A link with 300 EIPs that goes down and up again and again: what that costs in memory and in lines of the log."""

import os
import signal
from pathlib import Path

import pytest

from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

EIPS = 300
FLAPS = 20
SETTLED = 8
"""Flaps after which buffers have the size that they need."""
SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [198.51.100.0/22], interface: eth0}
""" + "".join(
    f"""---
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: default, annotations: {{eip-speaker.io/addresses: {address}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
"""
    for number, address in enumerate(f"198.51.{101 + at // 200}.{1 + at % 200}" for at in range(EIPS))
)


@pytest.fixture
def node(new_namespace, wire, sh):
    node, switch = new_namespace("node"), new_namespace("switch")
    wire(node, "eth0", switch, "eth0")
    sh(node, "ip addr add 198.51.100.1/22 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    return node


def memory(pid):
    """Resident, KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def wire_process(speaker):
    """The first one."""
    return speaker.process.pid


def until_held(speaker, wanted):
    """By the status file: the log tells no more of it than it must."""
    while (held := sum(eip["claimed"] for eip in speaker.status()["eips"])) != wanted:
        assert speaker.process.poll() is None, held


@pytest.mark.parametrize("peers", [False, True], ids=["alone", "with peers"])
def test_a_link_that_flaps_costs_no_memory_and_a_few_lines(node, sh, start, write, tmp_path, peers):
    write("site.yaml", SITE)
    (key := tmp_path / "key").write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    speaker = start(node, *(("--with-peers", "--key", str(key)) if peers else ()))
    speaker.until("ready", eips=EIPS)
    before, at_first = len(speaker.log), 0
    for flap in range(FLAPS):
        sh(node, "ip link set eth0 down")
        until_held(speaker, 0)
        sh(node, "ip link set eth0 up")
        until_held(speaker, EIPS)
        if flap + 1 == SETTLED:
            at_first = memory(wire_process(speaker))
    grown = memory(wire_process(speaker)) - at_first
    speaker.stop(signal.SIGTERM)
    lines = speaker.log[before:]
    # With peers what the hellos say of an EIP's term is remembered, of 16,384 at most: 70 KiB a flap for the first 55.
    assert grown < 150 * (FLAPS - SETTLED), f"{grown} KiB in {FLAPS - SETTLED} flaps"
    assert len(lines) < 15 * FLAPS
    assert sum(len(str(line)) for line in lines) < 6000 * FLAPS
