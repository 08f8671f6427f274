"""Carrier loss of VLANs, which only the guest's kernel has."""

import asyncio
import socket

import pytest

from speaker.interfaces.carrier import watch_carrier

pytestmark = pytest.mark.ipvs

GUARD = 30.0
"""Seconds after which what was never told fails the test."""


@pytest.mark.parametrize(
    "binding",
    [
        "loose_binding off",  # the kernel takes the VLAN's carrier away, half a second later
        "loose_binding on",  # or never
    ],
)
def test_a_vlan_loses_its_carrier_with_its_parent(new_namespace, wire, sh, binding):
    node, lan = new_namespace("node"), new_namespace("lan")
    wire(node, "eth0", lan, "port0")
    sh(node, f"ip link add link eth0 name eth0.7 type vlan id 7 {binding}")
    sh(node, "ip link set eth0.7 up")

    async def story() -> None:
        vlan = socket.if_nametoindex("eth0.7")
        told: asyncio.Queue[bool] = asyncio.Queue()
        watch = asyncio.ensure_future(
            watch_carrier(lambda: (vlan,), lambda _, up: told.put_nowait(up), asyncio.Event())
        )
        async with asyncio.timeout(GUARD):
            while not await told.get():  # the kernel brings it up in its own time
                pass
            sh(lan, "ip link set port0 down")
            assert await told.get() is False
            sh(lan, "ip link set port0 up")
            while not await told.get():
                pass
        watch.cancel()

    with node.entered():
        asyncio.run(story())
