"""Neighbour messages ⇄ values, held to scapy."""

import pytest
import replies
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import Ether
from scapy.utils6 import in6_getnsma, in6_getnsmac

from speaker.errors import MalformedPacket
from speaker.model import Mac, format_mac
from speaker.packets import ndp

macs = st.binary(min_size=6, max_size=6).map(Mac)
addresses = st.ip_addresses(v=6)
targets = addresses.filter(lambda address: not address.is_multicast)
unicasts = targets.filter(lambda address: not address.is_unspecified)
solicitations = st.builds(ndp.NeighborSolicitation, macs, macs, unicasts, addresses, targets, st.none() | macs)
advertisements = st.builds(
    ndp.NeighborAdvertisement,
    *(macs, macs, addresses, addresses, targets, st.booleans(), st.booleans(), st.booleans(), st.none() | macs),
).filter(lambda message: not (message.solicited and message.destination.is_multicast))
messages = solicitations | advertisements


def by_scapy(message: ndp.NeighborMessage, hop_limit: int = 255) -> bytes:
    ethernet = Ether(dst=format_mac(message.destination_mac), src=format_mac(message.source_mac), type=0x86DD)
    ipv6 = IPv6(src=str(message.source), dst=str(message.destination), hlim=hop_limit)
    if isinstance(message, ndp.NeighborSolicitation):
        packet = ethernet / ipv6 / ICMPv6ND_NS(tgt=str(message.target))
        if message.source_link_layer:
            packet /= ICMPv6NDOptSrcLLAddr(lladdr=format_mac(message.source_link_layer))
    else:
        packet = (
            ethernet
            / ipv6
            / ICMPv6ND_NA(tgt=str(message.target), R=message.router, S=message.solicited, O=message.override)
        )
        if message.target_link_layer:
            packet /= ICMPv6NDOptDstLLAddr(lladdr=format_mac(message.target_link_layer))
    return bytes(packet)


def refilled(frame: bytes, at: int, new: bytes) -> bytes:
    """``frame`` with ``new`` at ``at`` and the right checksum again."""
    changed = bytearray(frame[:at] + new + frame[at + len(new) :])
    changed[56:58] = b"\x00\x00"
    covered = bytes(changed[22:54]) + (len(changed) - 54).to_bytes(4, "big") + b"\x00\x00\x00\x3a" + bytes(changed[54:])
    changed[56:58] = (-int.from_bytes(covered, "big") % 0xFFFF).to_bytes(2, "big")
    return bytes(changed)


@given(messages)
def test_every_message_is_byte_identical_to_scapys(message):
    assert message.pack() == by_scapy(message)


@given(messages, st.binary(max_size=30))
def test_what_was_packed_is_parsed_back_with_or_without_padding(message, padding):
    assert ndp.parse(message.pack() + padding) == message


@given(st.binary(max_size=120))
def test_no_bytes_make_the_parser_raise_anything_but_malformed(frame):
    with pytest.raises(MalformedPacket):  # random bytes with a right checksum do not happen
        ndp.parse(frame)


@given(messages, st.integers(54, 85), st.binary(min_size=1, max_size=20))
def test_a_tampered_message_with_a_right_checksum_parses_or_is_malformed(message, at, new):
    whole = message.pack()
    frame = refilled(whole, at, new[: max(0, len(whole) - at)])
    try:
        ndp.parse(frame)
    except MalformedPacket as error:
        assert "checksum" not in str(error)  # noqa: PT017 - either outcome is right, a wrong sum would hide both


@given(messages, st.integers(22, 85), st.integers(1, 255))
def test_one_changed_byte_breaks_the_checksum(message, at, change):
    frame = bytearray(message.pack())
    at = min(at, len(frame) - 1)
    frame[at] ^= change
    with pytest.raises(MalformedPacket):
        ndp.parse(bytes(frame))


@given(messages, st.integers(0, 254))
def test_a_message_that_passed_a_router_is_malformed(message, hop_limit):
    with pytest.raises(MalformedPacket, match="hop limit"):
        ndp.parse(by_scapy(message, hop_limit))


@given(macs, addresses, unicasts)
def test_a_solicitation_asks_the_solicited_node_group(mac, source, target):
    message = ndp.solicitation(mac, source, target)
    group = in6_getnsma(target.packed)
    assert message.destination.packed == group == ndp.solicited_node(target.packed)
    assert format_mac(message.destination_mac) == in6_getnsmac(group)
    assert message.source_link_layer == (None if source.is_unspecified else mac)
    assert message.pack() == by_scapy(message)


def test_a_checksum_that_comes_out_as_zero_is_sent_as_zero(lan):
    at_zero = replies.unsolicited(lan.mac, type(lan.eip6)("2001:db8::")).pack()
    checksum = int.from_bytes(at_zero[56:58], "big")
    # The address counts twice, as source and as target; half of the rest brings the sum to 0xFFFF.
    address = lan.eip6 - int(lan.eip6) % 2**16 + (checksum // 2 if checksum % 2 == 0 else (checksum + 0xFFFF) // 2)
    message = replies.unsolicited(lan.mac, address)
    assert message.pack()[56:58] == b"\x00\x00"
    assert message.pack() == by_scapy(message)
    assert ndp.parse(message.pack()) == message


@given(solicitations, macs)
def test_an_answer_goes_to_the_asker_solicited_and_overriding(asked, mac):
    message = replies.advertisement(asked, mac)
    assert (message.router, message.solicited, message.override) == (False, True, True)
    assert message.destination_mac == (asked.source_link_layer or asked.source_mac)
    assert (message.source, message.destination, message.target) == (asked.target, asked.source, asked.target)
    fast = ndp.solicited_advertisement(
        ndp.advertisement_part(mac, asked.target.packed), message.destination_mac, asked.source.packed
    )
    assert message.pack() == by_scapy(message) == fast


@given(macs, unicasts)
def test_an_unsolicited_one_goes_to_all_nodes_and_overrides(mac, address):
    message = replies.unsolicited(mac, address)
    assert (message.router, message.solicited, message.override) == (False, False, True)
    assert str(message.destination) == "ff02::1"
    assert format_mac(message.destination_mac) == "33:33:00:00:00:01"
    fast = ndp.unsolicited_advertisement(ndp.advertisement_part(mac, address.packed))
    assert message.pack() == by_scapy(message) == fast
    assert replies.advertisement(ndp.solicitation(mac, type(address)(0), address), mac) == message


@pytest.mark.parametrize(
    ("what", "at", "new"),
    [
        ("an option of length 0", 78, b"\x01\x00"),
        ("an option that runs past the end", 78, b"\x01\x02"),
        ("an unknown option of length 0", 78, b"\xfd\x00"),
        ("a multicast target", 62, b"\xff"),
        ("a code", 55, b"\x01"),
        ("an echo request's type", 54, b"\x80"),
    ],
)
def test_malformed_solicitations(lan, what, at, new):
    frame = refilled(ndp.solicitation(lan.stranger, lan.asker6, lan.eip6).pack(), at, new)
    with pytest.raises(MalformedPacket):
        ndp.parse(frame)


def test_a_link_layer_option_of_another_length_is_malformed(lan):
    frame = ndp.solicitation(lan.stranger, lan.asker6, lan.eip6).pack()
    longer = refilled(refilled(frame + bytes(8), 18, (40).to_bytes(2, "big")), 78, b"\x01\x02")
    with pytest.raises(MalformedPacket, match="14 bytes"):
        ndp.parse(longer)


def test_a_dad_solicitation_that_names_a_mac_or_asks_another_group_is_malformed(lan):
    nobody = type(lan.eip6)(0)
    probe = ndp.solicitation(lan.stranger, nobody, lan.eip6)
    assert ndp.parse(probe.pack()) == probe
    named = ndp.NeighborSolicitation(
        probe.destination_mac, probe.source_mac, nobody, probe.destination, lan.eip6, lan.stranger
    )
    direct = ndp.NeighborSolicitation(lan.mac, probe.source_mac, nobody, lan.eip6, lan.eip6)
    for wrong in (named, direct):
        with pytest.raises(MalformedPacket, match="from ::"):
            ndp.parse(wrong.pack())


def test_a_multicast_advertisement_cannot_be_solicited(lan):
    honest = replies.unsolicited(lan.stranger, lan.eip6).pack()
    assert isinstance(ndp.parse(honest), ndp.NeighborAdvertisement)
    with pytest.raises(MalformedPacket, match="says it was solicited"):
        ndp.parse(refilled(honest, 58, b"\x60"))
