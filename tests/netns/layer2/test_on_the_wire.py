"""What leaves and enters the link, frame by frame, with a real kernel's filter and packet types in between."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
import replies

from speaker.errors import EdgeError
from speaker.layer2.answer import Ignored
from speaker.model import Family, Gratuitous
from speaker.packets import BROADCAST, UNKNOWN, arp, ndp

pytestmark = pytest.mark.netns

EIP4, EIP6 = "192.0.2.10", "2001:db8::10"
ARP, IPV6 = 0x0806, 0x86DD


def ask4(mac, address=EIP4):
    return arp.ArpPacket(BROADCAST, mac, 1, mac, IPv4Address("192.0.2.2"), UNKNOWN, IPv4Address(address))


def ask6(mac, address=EIP6):
    return ndp.solicitation(mac, IPv6Address("2001:db8::2"), IPv6Address(address))


def tells_of(address):
    """Whether an ARP packet has ``address`` as its sender."""
    return lambda frame: arp.parse(frame).sender_ip == IPv4Address(address)


def advertises(frame):
    return frame[20] == 58 and frame[54] == ndp.ADVERTISEMENT


def test_a_padded_request_is_answered(lan, speaking, ear):
    station, client = speaking(EIP4), ear(lan.client, ARP)
    station.counts.wait_for(lambda counts: counts.announcements[Family.IPV4] == 2)
    client.send(ask4(client.mac).pack().ljust(60, b"\x00"))
    reply = client.until(lambda frame: frame[:6] == client.mac)
    assert reply == replies.reply(ask4(client.mac), station.link.mac).pack()


def test_a_unicast_solicitation_without_a_source_option_is_answered(lan, speaking, ear):
    station, client = speaking(EIP6), ear(lan.client, IPV6)
    bare = replace(
        ask6(client.mac), destination_mac=station.link.mac, destination=IPv6Address(EIP6), source_link_layer=None
    )
    client.send(bare.pack())
    reply = client.until(lambda frame: advertises(frame) and frame[:6] == client.mac)
    assert reply == replies.advertisement(bare, station.link.mac).pack()


@pytest.mark.parametrize(
    ("ethertype", "ask", "family"), [(ARP, ask4, Family.IPV4), (IPV6, ask6, Family.IPV6)], ids=["arp", "ndp"]
)
def test_a_frame_of_a_foreign_vlan_is_ignored_although_it_looks_untagged(lan, speaking, ear, ethertype, ask, family):
    station, client = speaking(EIP4, EIP6), ear(lan.client, ethertype)
    frame = ask(client.mac).pack()
    client.send(frame[:12] + b"\x81\x00\x00\x0a" + frame[12:])
    station.counts.wait_for(lambda counts: counts.reasons[Ignored.OTHER_HOST] == 1)
    assert not station.counts.answers
    client.send(frame)
    station.counts.wait_for(lambda counts: counts.answers[family] == 1)


def test_past_the_deadline_there_is_silence_and_an_extension_ends_it(lan, speaking, ear):
    station, client = speaking(EIP4, EIP6), ear(lan.client, ARP)
    other = ear(lan.client, IPV6)
    station.extend(-0.001)
    client.send(ask4(client.mac).pack())
    other.send(ask6(client.mac).pack())
    station.counts.wait_for(lambda counts: counts.reasons[Ignored.CLAIM_EXPIRED] == 2)
    assert not station.counts.answers
    station.extend(3600)
    client.send(ask4(client.mac).pack())
    other.send(ask6(client.mac).pack())
    station.counts.wait_for(lambda counts: counts.answers == {Family.IPV4: 1, Family.IPV6: 1})


def test_nothing_is_announced_past_the_deadline_and_what_was_due_follows_the_extension(lan, speaking):
    station = speaking()
    station.extend(-0.001)
    station.hold(EIP4, EIP6)
    station.hold(EIP4, EIP6, "192.0.2.11")
    assert not station.counts.announcements
    station.extend(3600)
    station.counts.wait_for(lambda counts: counts.announcements == {Family.IPV4: 4, Family.IPV6: 1})


def test_foreign_chatter_and_routed_solicitations_never_get_past_the_kernel(lan, speaking, ear):
    station = speaking(EIP4, EIP6)
    arps, ndps = ear(lan.client, ARP), ear(lan.client, IPV6)
    arps.send(ask4(arps.mac, "192.0.2.99").pack())
    ndps.send(ask6(ndps.mac, "2001:db8::99").pack())
    routed = ask6(ndps.mac).pack()
    ndps.send(routed[:21] + b"\x40" + routed[22:])
    arps.send(ask4(arps.mac).pack())
    ndps.send(ask6(ndps.mac).pack())
    station.counts.wait_for(lambda counts: counts.answers == {Family.IPV4: 1, Family.IPV6: 1})
    assert not station.counts.reasons


def test_eips_in_more_blocks_than_the_filter_has_runs_are_all_answered(lan, speaking, ear):
    station = speaking(*(f"10.0.{third}.{fourth}" for third in range(100) for fourth in (7, 9)))
    client = ear(lan.client, ARP)
    for address in ("10.0.0.7", "10.0.42.9", "10.0.99.9"):
        client.send(ask4(client.mac, address).pack())
        client.until(lambda frame, address=address: frame[:6] == client.mac and tells_of(address)(frame))
    for address in ("10.0.0.6", "10.0.99.10", "9.255.255.255"):
        client.send(ask4(client.mac, address).pack())
    client.send(ask4(client.mac, "10.0.50.7").pack())
    station.counts.wait_for(lambda counts: counts.answers[Family.IPV4] == 4)
    assert not station.counts.reasons


def test_a_strangers_announcement_of_our_eip_is_a_conflict(lan, speaking, ear):
    station = speaking(EIP4, EIP6)
    arps, ndps = ear(lan.client, ARP), ear(lan.client, IPV6)
    for frame in (
        arp.announce_by_request(arps.mac, IPv4Address(EIP4).packed),
        arp.announce_by_reply(arps.mac, IPv4Address(EIP4).packed),
    ):
        arps.send(frame)
    ndps.send(replies.unsolicited(ndps.mac, IPv6Address(EIP6)).pack())
    station.counts.wait_for(lambda counts: counts.reasons == {Ignored.CONFLICT: 3})


def test_an_announcement_is_a_request_and_a_reply_and_an_advertisement_repeated(lan, speaking, ear):
    arps, ndps = ear(lan.client, ARP), ear(lan.client, IPV6)
    station = speaking(EIP4, EIP6, gratuitous=Gratuitous(burst=2, interval=0.05))
    mac = station.link.mac
    by_request = arp.announce_by_request(mac, IPv4Address(EIP4).packed)
    by_reply = arp.announce_by_reply(mac, IPv4Address(EIP4).packed)
    assert [arps.until(tells_of(EIP4)) for _ in range(4)] == [by_request, by_reply] * 2
    news = replies.unsolicited(mac, IPv6Address(EIP6)).pack()
    assert [ndps.until(advertises) for _ in range(2)] == [news] * 2
    station.announce(EIP4, "192.0.2.99")
    assert arps.until(tells_of(EIP4)) == by_request


def test_a_withdrawn_eip_is_silent_while_the_others_answer(lan, speaking, ear):
    station, client = speaking(EIP4, "192.0.2.11"), ear(lan.client, ARP)
    station.hold("192.0.2.11")
    client.send(ask4(client.mac).pack())
    client.send(ask4(client.mac, "192.0.2.11").pack())
    client.until(lambda frame: frame[:6] == client.mac and tells_of("192.0.2.11")(frame))
    station.counts.wait_for(lambda counts: counts.answers)
    assert station.counts.answers == {Family.IPV4: 1}


def test_chatter_about_an_eip_that_went_is_dropped_by_the_kernel_again_before_long(lan, speaking, ear, eventually):
    station, client = speaking(EIP4, "192.0.2.12", "192.0.2.14"), ear(lan.client, ARP)

    def dropped(address):
        before = station.counts.reasons[Ignored.NOT_OURS]
        client.send(ask4(client.mac, address).pack())
        client.send(ask4(client.mac, "192.0.2.12").pack())
        client.until(client.to_us)
        station.do(lambda: None)  # its turn is over: everything was counted
        return station.counts.reasons[Ignored.NOT_OURS] == before

    station.hold("192.0.2.12", "192.0.2.14")
    eventually(lambda: dropped(EIP4))
    station.hold("192.0.2.12")
    eventually(lambda: dropped("192.0.2.14"))


@pytest.mark.parametrize("end", ["ip link set eth0 down", "ip link delete eth0"])
def test_a_link_that_goes_away_ends_the_speaker_with_an_edge_error(lan, speaking, sh, end):
    station = speaking(EIP4, EIP6)
    sh(lan.node, end)
    assert isinstance(station.failure(), EdgeError)


def test_a_link_that_is_not_there_is_an_edge_error(lan, sh, speaking):
    sh(lan.node, "ip link set eth0 down")
    station = speaking()
    assert "down" in str(station.failure())
