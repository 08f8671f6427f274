"""Who answers on a link: what could not be asked for is not said to be silent."""

import asyncio
from ipaddress import ip_address

import pytest
from alert_lan import nft

from speaker.diagnosis import gather
from speaker.diagnosis.asking import Wanted, ask_links
from speaker.interfaces.addresses import own_addresses
from speaker.interfaces.watcher import look
from speaker.model import Mac
from speaker.node.control import read_answer
from speaker.node.known.knowledge import Knowledge
from speaker.packets.asker import Askers

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


@pytest.fixture
def two(new_namespace, wire, sh):
    """The second has both EIPs."""
    node, other = new_namespace("node"), new_namespace("other")
    wire(node, "eth0", other, "eth0")
    sh(node, "ip addr add 192.0.2.1/24 dev eth0")
    for address in (f"{EIP}/24", f"{EIP6}/64 nodad"):
        sh(other, f"ip addr add {address} dev eth0")
    return node, other


async def asked_while_the_speaker_asks_alone():
    """Whom its own process asks by unicast all the time (rule 37)."""
    snapshot = await look(None)
    links = {link.name: link for link in snapshot.links.values()}
    own, link = own_addresses(snapshot, links.values()), links["eth0"]
    while len(own[link.index]) < 2:  # until the link-local address is no longer tentative
        snapshot = await look(None)
        own = own_addresses(snapshot, links.values())
    eips = [ip_address(EIP), ip_address(EIP6)]
    mac = Mac(bytes.fromhex(OTHER.replace(":", "")))
    with Askers() as speaker:
        speaker.use([link], own)

        async def asks():
            while True:
                for eip in eips:
                    assert speaker.ask(eip, link.index, mac)
                await asyncio.sleep(0.05)

        asking = asyncio.create_task(asks())
        try:
            return await ask_links(links, own, {"eth0": [Wanted(eip, "eip", mac) for eip in eips]})
        finally:
            asking.cancel()


OTHER = "02:00:00:00:00:77"
TO_MANY = "ether daddr & 01:00:00:00:00:00 != 0"
LOST = f"table netdev snoops {{ chain f {{ type filter hook ingress device eth0 priority 0; {TO_MANY} drop; }}; }}"


@pytest.mark.parametrize(
    ("rules", "answers"),
    [("", [(EIP, (OTHER,), False), (EIP6, (OTHER,), False)]), (LOST, [(EIP, (), True), (EIP6, (), True)])],
    ids=["questions to everybody arrive", "they are lost"],
)
def test_an_answer_to_another_program_of_this_node_is_none_to_ours(two, sh, rules, answers):
    node, other = two
    sh(other, f"ip link set eth0 address {OTHER}")
    nft(other, rules)
    with node.entered():
        found = asyncio.run(asked_while_the_speaker_asks_alone())
    assert [(each.address, each.macs, each.unicast) for each in found] == answers
