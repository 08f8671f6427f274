"""A stranger says that an EIP we hold is his: told once, defended once in ten seconds, never surrendered."""

from ipaddress import IPv4Address, IPv6Address

import pytest
import replies
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from speaker.layer2.answer import Ignored
from speaker.layer2.holdings import DEFEND_INTERVAL
from speaker.model import Family, Mac, format_mac
from speaker.packets import arp

pytestmark = pytest.mark.netns

EIP4, EIP6 = "192.0.2.10", "2001:db8::10"
STRANGER = Mac(bytes.fromhex("02000000bb02"))


def claims_by_arp(operation, target):
    return bytes(
        Ether(src=format_mac(STRANGER), dst="ff:ff:ff:ff:ff:ff")
        / ARP(op=operation, hwsrc=format_mac(STRANGER), psrc=EIP4, pdst=target)
    )


def claims_by_ndp():
    option = ICMPv6NDOptDstLLAddr(lladdr=format_mac(STRANGER))
    return bytes(
        Ether(src=format_mac(STRANGER), dst="33:33:00:00:00:01")
        / IPv6(src=EIP6, dst="ff02::1", hlim=255)
        / ICMPv6ND_NA(tgt=EIP6, R=0, S=0, O=1)
        / option
    )


FORMS = [
    (EIP4, claims_by_arp(1, EIP4)),
    (EIP4, claims_by_arp(2, EIP4)),
    (EIP4, claims_by_arp(1, "192.0.2.99")),
    (EIP6, claims_by_ndp()),
]


@pytest.mark.parametrize(("address", "claim"), FORMS, ids=["announcement", "reply", "request", "advertisement"])
def test_it_is_told_with_the_mac_and_the_eip_is_announced_again(lan, speaking, ear, address, claim):
    client = ear(lan.client, 0x86DD if address == EIP6 else 0x0806)
    station = speaking(EIP4, EIP6)
    station.counts.wait_for(lambda counts: counts.announcements == {Family.IPV4: 2, Family.IPV6: 1})
    while not client.never(lambda _: True, 0.05):
        pass
    client.send(claim)
    defence = client.until(lambda frame: frame[6:12] == station.link.mac)
    mac = station.link.mac
    if address == EIP6:
        assert defence == replies.unsolicited(mac, IPv6Address(EIP6)).pack()
    else:
        assert defence == arp.announce_by_request(mac, IPv4Address(EIP4).packed)
    assert [(str(eip), mac, held) for eip, mac, held in station.counts.conflicts] == [(address, STRANGER, True)]


def test_a_flood_is_counted_whole_but_told_and_answered_once(lan, speaking, ear):
    client, station = ear(lan.client, 0x0806), speaking(EIP4, "192.0.2.11")
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 4)
    for _ in range(200):
        client.send(claims_by_arp(1, EIP4))
    station.counts.wait_for(lambda counts: counts.reasons[Ignored.CONFLICT] == 200)
    client.send(arp.announce_by_reply(STRANGER, IPv4Address("192.0.2.11").packed))
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 6)
    assert [str(eip) for eip, _, _ in station.counts.conflicts] == [EIP4, "192.0.2.11"]


def test_the_next_conflict_is_told_and_answered_ten_seconds_later(lan, speaking, ear):
    """The clock is moved on, not waited for."""
    client, station = ear(lan.client, 0x0806), speaking(EIP4)
    client.send(claims_by_arp(1, EIP4))
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 3)
    station.later(DEFEND_INTERVAL)
    client.send(claims_by_arp(1, EIP4))
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 4)
    assert len(station.counts.conflicts) == 2


def test_a_strangers_claim_does_not_silence_us(lan, speaking, ear, sh):
    client, station = ear(lan.client, 0x0806), speaking(EIP4)
    for _ in range(20):
        client.send(claims_by_arp(2, EIP4))
    station.counts.wait_for(lambda counts: counts.conflicts)
    found = sh(lan.client, f"timeout 60 arping -r -C 1 -c 30 -i eth0 {EIP4}")
    assert found.split() == [format_mac(station.link.mac)]


def test_a_peers_claim_is_counted_and_neither_told_nor_answered(lan, speaking, ear):
    client, station = ear(lan.client, 0x0806), speaking(EIP4)
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)
    station.do(station.speaker.peers, frozenset({STRANGER}))
    client.send(claims_by_arp(1, EIP4))
    station.counts.wait_for(lambda counts: counts.reasons == {Ignored.PEER: 1})
    station.do(station.speaker.peers, frozenset())
    client.send(claims_by_arp(1, EIP4))
    station.counts.wait_for(lambda counts: counts.reasons[Ignored.CONFLICT] == 1)
    assert len(station.counts.conflicts) == 1


@pytest.mark.parametrize(("address", "claim"), FORMS[1:], ids=["reply", "request", "advertisement"])
def test_a_peer_that_speaks_for_an_eip_and_does_not_claim_it_is_told_of_and_answered(
    lan, speaking, ear, address, claim
):
    asked = []

    def excuses(link, eip, mac):
        asked.append((eip, mac))
        return False

    client = ear(lan.client, 0x86DD if address == EIP6 else 0x0806)
    station = speaking(EIP4, EIP6, excuses=excuses)
    station.do(station.speaker.peers, frozenset({STRANGER}))
    station.counts.wait_for(lambda counts: counts.announcements == {Family.IPV4: 2, Family.IPV6: 1})
    client.send(claim)
    station.counts.wait_for(lambda counts: counts.conflicts)
    family = Family.IPV6 if address == EIP6 else Family.IPV4
    station.counts.wait_for(lambda counts: counts.announcements[family] > (1 if address == EIP6 else 2))
    assert [(str(eip), mac, held) for eip, mac, held in station.counts.conflicts] == [(address, STRANGER, True)]
    assert set(asked) == {(IPv6Address(EIP6).packed if address == EIP6 else IPv4Address(EIP4).packed, STRANGER)}


def test_a_peer_whose_claim_is_heard_a_moment_later_is_no_conflict(lan, speaking, ear):
    """As where the first hello of a new holder was lost, and its gratuitous ARP was not."""
    asked = []

    def excuses(link, eip, mac):
        asked.append(eip)
        return len(asked) > 1

    client, station = ear(lan.client, 0x0806), speaking(EIP4, excuses=excuses)
    station.do(station.speaker.peers, frozenset({STRANGER}))
    client.send(claims_by_arp(1, EIP4))
    station.counts.wait_for(lambda counts: len(asked) == 2)
    assert station.counts.reasons == {Ignored.PEER: 1}
    assert not station.counts.conflicts


def test_an_eip_in_use_elsewhere_is_answered_ten_seconds_after_its_user_left(lan, speaking, ear, sh):
    """The clock is moved on, not waited for."""
    sh(lan.client, f"ip addr add {EIP4}/24 dev eth0")
    client, station = ear(lan.client, 0x0806), speaking()
    station.claim(EIP4)
    station.counts.wait_for(lambda counts: counts.conflicts)
    station.later(DEFEND_INTERVAL)
    station.counts.wait_for(lambda counts: len(counts.conflicts) == 2)
    sh(lan.client, f"ip addr del {EIP4}/24 dev eth0")
    station.later(DEFEND_INTERVAL)
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)
    assert {held for _, _, held in station.counts.conflicts} == {False}
    client.send(arp.request(client.mac, IPv4Address(0), IPv4Address(EIP4)).pack())
    client.until(client.to_us)
