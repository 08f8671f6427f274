"""A LAN whose speakers are asked for their /metrics: what the tests that record alerts on it have in common."""

import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import pytest
from conftest import Running
from playing import Fires, Phase, firing
from standing_still import LONG

from speaker.lab.namespaces import Namespace
from speaker.ownership.hellos.keys import generate

GUARD = 180.0
"""Seconds; against a hang, not an expectation."""
POLL = 0.1
POOL = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: {name}}}
spec: {{addresses: [{addresses}], interface: {link}}}
---
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: default, annotations: {{eip-speaker.io/addresses: {eip}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]{more}}}
---
"""


def pool(addresses: str, name: str = "lan", link: str = "eth0") -> str:
    return POOL.format(name=name, addresses=addresses, link=link)


def service(number: int, more: str = "", net: str = "198.51.100") -> str:
    return SERVICE.format(number=number, eip=f"{net}.{number}", more=more)


def switched(
    new: Callable[[str], Namespace], wire: Callable[..., None], sh: Callable[..., str], *names: str
) -> tuple[Namespace, list[Namespace]]:
    """The switch, whose ports are p1 and so on, and hosts of these names on it: 198.51.100.1/24 and so on, on eth0."""
    switch = new("switch")
    sh(switch, "ip link add br0 type bridge")
    sh(switch, "ip link set br0 up")
    hosts = [new(name) for name in names]
    for number, host in enumerate(hosts, 1):
        wire(host, "eth0", switch, f"p{number}")
        sh(switch, f"ip link set p{number} master br0")
        sh(host, f"ip addr add 198.51.100.{number}/24 dev eth0")
        host.sysctl("net.ipv4.ip_forward", 1)
    return switch, hosts


def key(home: Path) -> str:
    """Another one each time."""
    file = home / f"key-{len(list(home.glob('key-*')))}"
    file.touch(mode=0o600)
    file.write_text(generate(os.urandom(32)))
    return str(file)


def nft(host: Namespace, ruleset: str) -> None:
    with host.entered():
        subprocess.run(["nft", "-f", "-"], input=ruleset, text=True, check=True)


def samples(text: str, name: str) -> list[float]:
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]


def eventually(holds: Callable[[], object], told: Callable[[], object]) -> None:
    """Until that is true; AssertionError with what is ``told`` when it does not come to be."""
    deadline = time.monotonic() + GUARD
    while not holds():
        assert time.monotonic() < deadline, told()
        time.sleep(POLL)


def until(speakers: Collection[Running], name: str, wanted: Callable[[Sequence[float]], object]) -> None:
    """Until the values of that sample, of all speakers together, are as ``wanted`` says."""

    def found() -> list[float]:
        return [value for speaker in speakers for value in samples(speaker.get("/metrics"), name)]

    eventually(lambda: wanted(found()), lambda: (name, found()))


OF_A_FREEZE = "SpeakerFrozen", "SpeakerLost"
"""Alerts: who is frozen falls silent to the others."""


def fires(
    phases: list[Phase], steps: Mapping[str, int], wanted: Mapping[str, Fires], home: Path, stood: Callable[[], float]
) -> None:
    """As ``firing``; skipped where all is right but for what frozen speakers lead to, and the machine ``stood`` still
    for so many seconds that they had to freeze."""
    said = firing(phases, steps, wanted, home)
    if said and not firing(phases, steps, wanted, home, but_for=OF_A_FREEZE) and (seconds := stood()) >= LONG:
        pytest.skip(f"speakers froze, as the machine stood still for {seconds:.2f} s")
    assert not said, said
