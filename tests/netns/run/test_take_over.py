"""Real speakers take over from a stranger that answers ARP, and then falls silent."""

import asyncio
import os
import re
import time
from ipaddress import ip_address

import pytest
from alert_lan import eventually
from site_yaml import POOL, service

from speaker.lab.capture import relapses
from speaker.lab.outage import asking
from speaker.model import format_mac
from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

EIPS = ("198.51.100.10", "198.51.100.11")
SITE = POOL + "".join(service(f"s{number}", eip=eip) for number, eip in enumerate(EIPS))
ASK = 0.01
"""Seconds between two requests for an EIP."""


@pytest.fixture
def lan(new_namespace, wire, sh):
    """Two nodes, a client and a stranger at one switch."""
    switch = new_namespace("switch")
    sh(switch, "ip link add br0 type bridge forward_delay 0 stp_state 0")
    sh(switch, "ip link set br0 up")
    places = [new_namespace(name) for name in ("one", "two", "client", "stranger")]
    for number, place in enumerate(places, 1):
        wire(place, "eth0", switch, f"port{number}")
        sh(switch, f"ip link set port{number} master br0")
        sh(place, f"ip addr add 198.51.100.{number}/24 dev eth0")
        sh(place, "ip link set lo up")
        place.sysctl("net.ipv4.ip_forward", 1)
    return places


def waited_for(speaker, mac):
    """The EIPs of which its status says that ``mac`` answers for them."""
    try:
        status = speaker.status()
    except FileNotFoundError:  # it has only just begun
        return set()
    waits = {eip["address"] for eip in status["eips"] if f"waits until {mac} on eth0" in eip.get("message", "")}
    told = (problem for problem in status["problems"] if f"{mac} on eth0 uses it too" in problem)
    return waits | {eip for problem in told for eip in EIPS if re.search(rf"{re.escape(eip)}\b", problem)}


@pytest.mark.parametrize("flags", [("--take-over",), ()])
async def test_what_a_stranger_answers_for_is_waited_for_and_taken_when_it_falls_silent(
    lan, write, start, sh, tmp_path, flags, capsys
):
    *nodes, client, stranger = lan
    for eip in EIPS:
        sh(stranger, f"ip addr add {eip}/32 dev eth0")
    mac = sh(stranger, "ip -br link show eth0").split()[2]
    (key := tmp_path / "key").touch(mode=0o600)
    key.write_text(generate(os.urandom(32)))
    write("site.yaml", SITE)
    speakers = [
        start(node, "--with-peers", "--key", str(key), *flags, name=name)
        for node, name in zip(nodes, ("n1", "n2"), strict=True)
    ]
    found = lambda: set().union(*(waited_for(speaker, mac) for speaker in speakers))  # noqa: E731
    eventually(lambda: found() == {*EIPS}, lambda: [speaker.status() for speaker in speakers])
    async with asking(client, "eth0", map(ip_address, EIPS), ASK) as asks:
        await asyncio.sleep(1.0)  # nothing is to happen meanwhile
        at = time.monotonic()
        for eip in EIPS:
            sh(stranger, f"ip addr del {eip}/32 dev eth0")
        first = {}
        while len(first) < len(EIPS):
            replies = [reply for reply in asks.replies() if reply.at > at and format_mac(reply.mac) != mac]
            first = {reply.address: reply.at for reply in reversed(replies)}
            await asyncio.sleep(2 * ASK)
        before = [reply for reply in asks.replies() if reply.at < at]
        assert relapses(asks.replies(), 1.0) == ()
        assert {format_mac(reply.mac) for reply in before} == {mac}
    gap = max(first.values()) - at
    with capsys.disabled():
        print(f"\n{' '.join(flags) or 'without a flag'}: answered {gap:.2f} s after the stranger fell silent")  # noqa: T201
    problems = [problem for speaker in speakers for problem in speaker.status()["problems"] if "uses it too" in problem]
    assert bool(problems) is not bool(flags)
