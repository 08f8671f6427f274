"""ARP bytes ⇄ values, held to scapy."""

from ipaddress import IPv4Address

import pytest
import replies
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import ARP, Ether

from speaker.errors import MalformedPacket
from speaker.model import Mac, format_mac
from speaker.packets import BROADCAST, UNKNOWN, arp

macs = st.binary(min_size=6, max_size=6).map(Mac)
addresses = st.ip_addresses(v=4)
packets = st.builds(arp.ArpPacket, macs, macs, st.integers(0, 0xFFFF), macs, addresses, macs, addresses)


def by_scapy(packet: arp.ArpPacket) -> bytes:
    return bytes(
        Ether(dst=format_mac(packet.destination), src=format_mac(packet.source), type=0x0806)
        / ARP(
            op=packet.operation,
            hwsrc=format_mac(packet.sender_mac),
            psrc=str(packet.sender_ip),
            hwdst=format_mac(packet.target_mac),
            pdst=str(packet.target_ip),
        )
    )


@given(packets)
def test_every_packet_is_byte_identical_to_scapys(packet):
    assert packet.pack() == by_scapy(packet)


@given(packets, st.binary(max_size=30))
def test_what_was_packed_is_parsed_back_with_or_without_padding(packet, padding):
    assert arp.parse(packet.pack() + padding) == packet


@given(st.binary(max_size=80) | packets.map(arp.ArpPacket.pack).flatmap(lambda frame: st.just(frame[:-1])))
def test_no_bytes_make_the_parser_raise_anything_but_malformed(frame):
    try:
        parsed = arp.parse(frame)
    except MalformedPacket:
        return
    assert frame.startswith(parsed.pack())


@given(st.binary(min_size=42, max_size=42), st.integers(12, 19))
def test_another_hardware_protocol_or_length_is_malformed(frame, at):
    fixed = frame[:12] + arp.FIXED + frame[20:]
    spoilt = fixed[:at] + bytes((fixed[at] ^ 1,)) + fixed[at + 1 :]
    arp.parse(fixed)
    with pytest.raises(MalformedPacket):
        arp.parse(spoilt)


@given(packets, macs)
def test_a_reply_swaps_sender_and_target(request_, mac):
    reply = replies.reply(request_, mac)
    assert (reply.destination, reply.source, reply.operation) == (request_.sender_mac, mac, 2)
    assert (reply.sender_mac, reply.sender_ip) == (mac, request_.target_ip)
    assert (reply.target_mac, reply.target_ip) == (request_.sender_mac, request_.sender_ip)
    assert reply.pack() == by_scapy(reply)


@given(macs, addresses)
def test_announcements_are_the_two_kinds_that_linux_heeds_at_once(mac, address):
    request, reply = replies.gratuitous_request(mac, address), replies.gratuitous_reply(mac, address)
    assert (request.destination, request.operation, request.target_mac) == (BROADCAST, 1, UNKNOWN)
    assert (reply.destination, reply.operation, reply.target_mac) == (BROADCAST, 2, mac)
    for packet in (request, reply):
        assert packet.sender_mac == packet.source == mac
        assert packet.sender_ip == packet.target_ip == address
        assert packet.pack() == by_scapy(packet)
    assert (arp.announce_by_request(mac, address.packed), arp.announce_by_reply(mac, address.packed)) == (
        request.pack(),
        reply.pack(),
    )


@given(macs, addresses)
def test_a_probe_names_no_sender(mac, address):
    probe = arp.request(mac, IPv4Address(0), address)
    assert probe.sender_ip == IPv4Address("0.0.0.0")
    assert (probe.target_ip, probe.operation, probe.destination) == (address, 1, BROADCAST)
    assert probe.pack() == by_scapy(probe)
