"""Unknown flows where there is no nftables: the kernel saves our rules as we write them, and gives them back."""

import asyncio
from ipaddress import ip_address

import pytest

from speaker.forwarding import iptables
from speaker.forwarding.unknown_flows.rules import NextHop
from speaker.forwarding.unknown_flows.table import IptablesUnknownFlows
from speaker.model import Mac

pytestmark = pytest.mark.ipvs

EIP, OTHER, EIP6 = map(ip_address, ("192.0.2.200", "192.0.2.201", "2001:db8::200"))
NEXT_HOPS = {
    EIP: NextHop("lo", ip_address("192.0.2.1")),
    OTHER: None,
    EIP6: NextHop("lo", ip_address("fe80::1")),
}
SPEAKERS = frozenset({Mac(bytes([2, 0, 0, 0, 0xAB, 1])), Mac(bytes([2, 0, 0, 0, 0xAB, 2]))})


async def opened():
    return IptablesUnknownFlows(await iptables.programs("mangle"))


def test_a_new_speaker_finds_what_the_last_one_made_and_cleanup_leaves_nothing(new_namespace, sh):
    node = new_namespace("node")

    async def work():
        first, second = await opened(), await opened()
        yield await first.bring_to(NEXT_HOPS, SPEAKERS)
        yield await second.bring_to(NEXT_HOPS, SPEAKERS)
        yield await second.bring_to({**NEXT_HOPS, OTHER: NEXT_HOPS[EIP]}, SPEAKERS)
        yield await second.bring_to({EIP: None}, frozenset())
        yield sh(node, "ip6tables-legacy-save")
        yield await second.cleanup()
        yield await first.cleanup()

    async def run():
        return [answer async for answer in work()]

    with node.entered():
        *changed, saved, removed, removed_again = asyncio.run(run())
    assert changed == [True, False, True, True]
    assert "EIP-SPEAKER" not in saved
    assert removed == ("iptables chains EIP-SPEAKER-STRAYS, EIP-SPEAKER-STRAY",)
    assert removed_again == ()
    assert "EIP-SPEAKER" not in sh(node, "iptables-legacy-save")
