"""Who answers on a link: what could not be asked for is not said to be silent."""

import asyncio
from ipaddress import ip_address

import pytest

from speaker.diagnosis import gather
from speaker.diagnosis.asking import Wanted, ask_links
from speaker.interfaces.addresses import own_addresses
from speaker.interfaces.watcher import look
from speaker.node.control import read_answer
from speaker.node.known.knowledge import Knowledge

pytestmark = pytest.mark.netns

EIP, EIP6 = "192.0.2.10", "2001:db8::10"


@pytest.fixture
def node(new_namespace, wire, sh):
    """Without an IPv6 address on its link."""
    node, other = new_namespace("node"), new_namespace("other")
    wire(node, "eth0", other, "eth0")
    sh(node, "ip addr add 192.0.2.1/24 dev eth0")
    node.sysctl("net.ipv6.conf.eth0.disable_ipv6", 1)
    return node


async def asked():
    snapshot = await look(None)
    links = {link.name: link for link in snapshot.links.values()}
    wanted = [Wanted(ip_address(each), "eip") for each in (EIP, EIP6)]
    return await ask_links(links, own_addresses(snapshot, links.values()), {"eth0": wanted})


def test_what_no_question_left_for_is_left_out(node):
    with node.entered():
        assert [(each.address, each.macs) for each in asyncio.run(asked())] == [(EIP, ())]


def test_eips_that_could_not_be_asked_for_are_not_seen(node):
    eips = [
        {"address": each, "services": [], "pool": "lan", "mine": False, "holder": "n2", "term": 1, "since": None,
         "history": "", "chosen": "", "link": "eth0"}
        for each in (EIP, EIP6)
    ]  # fmt: skip
    known = read_answer(
        {"node": "n1", "forwarder": "none", "eips": {"first": eips, "more": 0}, "links": ["eth0"]}, Knowledge
    )
    with node.entered():
        snapshot = asyncio.run(look(None))
        facts = gather._with_links(gather.Facts(known=known), snapshot)
        looks = gather._Looks()
        facts = asyncio.run(gather._look_around(facts, snapshot, looks, gather.NO_GROUP))
    assert [each.address for each in facts.asked] == [EIP]
    assert [each.why for each in looks.unseen if each.what == "who answers"] == [
        "1 not asked for: the link is down, or this node has no IPv6 address there to ask from"
    ]
