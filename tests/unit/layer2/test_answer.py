"""What is answered, and why the rest is not."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
import replies
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import MalformedPacket
from speaker.layer2.answer import Claims, Ignored, Rival, answer_arp, answer_ndp, arp_rival, in_time, ndp_rival
from speaker.model import Mac
from speaker.packets import (
    BROADCAST,
    PACKET_BROADCAST,
    PACKET_HOST,
    PACKET_MULTICAST,
    PACKET_OTHERHOST,
    PACKET_OUTGOING,
    UNKNOWN,
    arp,
    ndp,
)

NOW = 50.0  # the fixture's deadline is 100
NOBODY4, NOBODY6 = IPv4Address(0), IPv6Address(0)


@pytest.fixture
def ask4(lan):
    return arp.ArpPacket(BROADCAST, lan.stranger, 1, lan.stranger, lan.asker4, UNKNOWN, lan.eip4)


@pytest.fixture
def ask6(lan):
    return ndp.solicitation(lan.stranger, lan.asker6, lan.eip6)


# ── ARP ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("story", "changes", "pkttype"),
    [
        ("a broadcast request", {}, PACKET_BROADCAST),
        ("a probe from 0.0.0.0 (RFC 5227)", {"sender_ip": NOBODY4}, PACKET_BROADCAST),
        ("a unicast refresh", {"destination": Mac(bytes.fromhex("02000000aa01"))}, PACKET_HOST),
        ("a request with leftovers in the target MAC", {"target_mac": Mac(b"\x5a" * 6)}, PACKET_BROADCAST),
    ],
)
def test_requests_are_answered(claims, lan, ask4, story, changes, pkttype):
    request = replace(ask4, **changes)
    reply = answer_arp(request.pack(), pkttype, claims, NOW)
    assert reply == replies.reply(request, lan.mac).pack()


def test_a_request_padded_to_the_ethernet_minimum_gets_the_same_answer(claims, ask4):
    frame = ask4.pack()
    assert answer_arp(frame.ljust(60, b"\x00"), PACKET_BROADCAST, claims, NOW) == answer_arp(frame, 1, claims, NOW)


@pytest.mark.parametrize(
    ("reason", "changes", "pkttype"),
    [
        (Ignored.OTHER_HOST, {}, PACKET_OTHERHOST),
        (Ignored.OUTGOING, {}, PACKET_OUTGOING),
        (Ignored.NOT_OURS, {"target_ip": IPv4Address("192.0.2.99")}, PACKET_BROADCAST),
        (Ignored.NOT_A_REQUEST, {"operation": 2}, PACKET_HOST),
        (Ignored.NOT_A_REQUEST, {"operation": 3}, PACKET_BROADCAST),
        (Ignored.FROM_US, {"sender_mac": Mac(bytes.fromhex("02000000aa01"))}, PACKET_BROADCAST),
        (Ignored.BAD_SENDER, {"sender_mac": BROADCAST}, PACKET_BROADCAST),
        (Ignored.BAD_SENDER, {"sender_mac": UNKNOWN}, PACKET_BROADCAST),
        (Ignored.BAD_SENDER, {"sender_mac": Mac(bytes.fromhex("01005e000001"))}, PACKET_BROADCAST),
        (Ignored.CONFLICT, {"sender_ip": IPv4Address("192.0.2.10")}, PACKET_BROADCAST),
        (Ignored.CONFLICT, {"sender_ip": IPv4Address("192.0.2.11")}, PACKET_BROADCAST),
        (
            Ignored.CONFLICT,
            {"sender_ip": IPv4Address("192.0.2.10"), "target_ip": IPv4Address("192.0.2.99"), "operation": 2},
            PACKET_HOST,
        ),
    ],
)
def test_arp_is_ignored_for_a_reason(claims, ask4, reason, changes, pkttype):
    assert answer_arp(replace(ask4, **changes).pack(), pkttype, claims, NOW) is reason


def test_our_own_announcement_coming_back_is_no_conflict(claims, lan):
    for frame in (arp.announce_by_request(lan.mac, lan.eip4.packed), arp.announce_by_reply(lan.mac, lan.eip4.packed)):
        assert answer_arp(frame, PACKET_BROADCAST, claims, NOW) is Ignored.FROM_US
    for frame in (
        arp.announce_by_request(lan.stranger, lan.eip4.packed),
        arp.announce_by_reply(lan.stranger, lan.eip4.packed),
    ):
        assert answer_arp(frame, PACKET_BROADCAST, claims, NOW) is Ignored.CONFLICT


@pytest.mark.parametrize("length", [0, 13, 14, 41])
def test_truncated_arp_is_malformed(claims, ask4, length):
    assert answer_arp(ask4.pack()[:length], PACKET_BROADCAST, claims, NOW) is Ignored.MALFORMED


# ── the deadline ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_is_answered_until_its_deadline_and_again_when_that_moves(claims, ask4, ask6):
    for answer, frame in ((answer_arp, ask4.pack()), (answer_ndp, ask6.pack())):
        claims.deadline = 100.0
        assert isinstance(answer(frame, PACKET_BROADCAST, claims, 99.999), bytes)
        assert answer(frame, PACKET_BROADCAST, claims, 100.0) is Ignored.CLAIM_EXPIRED
        claims.deadline = 200.0
        assert isinstance(answer(frame, PACKET_BROADCAST, claims, 100.0), bytes)


def test_nothing_is_answered_before_the_owner_sets_a_deadline(lan, ask4):
    claims = Claims(lan.mac)
    claims.add(lan.eip4.packed)
    assert answer_arp(ask4.pack(), PACKET_BROADCAST, claims, 0.0) is Ignored.CLAIM_EXPIRED


def test_after_the_deadline_another_holder_is_no_conflict(claims, lan):
    news = arp.announce_by_request(lan.stranger, lan.eip4.packed)
    assert answer_arp(news, PACKET_BROADCAST, claims, 100.0) is Ignored.CLAIM_EXPIRED
    assert answer_ndp(replies.unsolicited(lan.stranger, lan.eip6).pack(), 2, claims, 100.0) is Ignored.CLAIM_EXPIRED


def test_who_uses_an_eip_that_is_probed_for_is_heard_of_past_the_deadline_too(claims, lan):
    for address in (lan.eip4, lan.eip6):
        claims.discard(address.packed)
        claims.watch(address.packed)
    news = arp.announce_by_request(lan.stranger, lan.eip4.packed)
    assert answer_arp(news, PACKET_BROADCAST, claims, 100.0) is Ignored.CONFLICT
    assert answer_ndp(replies.unsolicited(lan.stranger, lan.eip6).pack(), 2, claims, 100.0) is Ignored.CONFLICT


def test_a_withdrawn_eip_is_not_ours_and_the_others_still_are(claims, lan, ask4, ask6):
    claims.discard(lan.eip4.packed)
    claims.discard(lan.eip6.packed)
    claims.discard(lan.foreign6.packed)
    assert len(claims) == 2
    assert answer_arp(ask4.pack(), PACKET_BROADCAST, claims, NOW) is Ignored.NOT_OURS
    assert answer_ndp(ask6.pack(), PACKET_MULTICAST, claims, NOW) is Ignored.NOT_OURS
    assert isinstance(answer_arp(replace(ask4, target_ip=lan.other4).pack(), 1, claims, NOW), bytes)


# ── NDP ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_solicitations_are_answered(claims, lan, ask6):
    without_option = replace(ask6, destination_mac=lan.mac, destination=lan.eip6, source_link_layer=None)
    another_mac = replace(ask6, source_link_layer=Mac(bytes.fromhex("02000000cc03")))
    duplicate_detection = ndp.solicitation(lan.stranger, NOBODY6, lan.eip6)
    for story, request, pkttype in (
        ("a multicast solicitation", ask6, PACKET_MULTICAST),
        ("a unicast one without a source link-layer option", without_option, PACKET_HOST),
        ("one whose option names another MAC than the frame", another_mac, PACKET_MULTICAST),
        ("duplicate address detection", duplicate_detection, PACKET_MULTICAST),
    ):
        assert answer_ndp(request.pack(), pkttype, claims, NOW) == replies.advertisement(request, lan.mac).pack(), story
    to_all = ndp.parse(replies.advertisement(duplicate_detection, lan.mac).pack())
    assert (str(to_all.destination), to_all.solicited, to_all.override) == ("ff02::1", False, True)


def test_unknown_options_and_padding_change_nothing(claims, lan, ask6):
    frame = ask6.pack()
    assert answer_ndp(frame + b"\x00" * 9, PACKET_MULTICAST, claims, NOW) == replies.advertisement(ask6, lan.mac).pack()


@pytest.mark.parametrize(
    ("reason", "changes", "pkttype"),
    [
        (Ignored.OTHER_HOST, {}, PACKET_OTHERHOST),
        (Ignored.OUTGOING, {}, PACKET_OUTGOING),
        (Ignored.NOT_OURS, {"target": IPv6Address("2001:db8::99")}, PACKET_MULTICAST),
        (Ignored.FROM_US, {"source_link_layer": Mac(bytes.fromhex("02000000aa01"))}, PACKET_MULTICAST),
        (Ignored.BAD_SENDER, {"source_link_layer": Mac(bytes.fromhex("333300000001"))}, PACKET_MULTICAST),
        (Ignored.BAD_SENDER, {"source": IPv6Address("ff02::1")}, PACKET_MULTICAST),
        (Ignored.CONFLICT, {"source": IPv6Address("2001:db8::11")}, PACKET_MULTICAST),
        (
            Ignored.CONFLICT,
            {"source": IPv6Address("2001:db8::11"), "target": IPv6Address("2001:db8::99")},
            PACKET_MULTICAST,
        ),
        (Ignored.MALFORMED, {"source": NOBODY6}, PACKET_MULTICAST),
    ],
)
def test_solicitations_are_ignored_for_a_reason(claims, ask6, reason, changes, pkttype):
    assert answer_ndp(replace(ask6, **changes).pack(), pkttype, claims, NOW) is reason


def test_a_strangers_advertisement_of_our_eip_is_a_conflict_and_our_own_is_not(claims, lan, ask6):
    from_link_local = replace(replies.unsolicited(lan.stranger, lan.eip6), source=IPv6Address("fe80::1"))
    frames = (replies.unsolicited(lan.stranger, lan.eip6), replies.advertisement(ask6, lan.stranger), from_link_local)
    assert [answer_ndp(one.pack(), 2, claims, NOW) for one in frames] == [Ignored.CONFLICT] * 3
    assert answer_ndp(replies.unsolicited(lan.mac, lan.eip6).pack(), 2, claims, NOW) is Ignored.FROM_US
    assert answer_ndp(replies.unsolicited(lan.stranger, lan.foreign6).pack(), 2, claims, NOW) is Ignored.NOT_OURS


def test_a_wrong_hop_limit_and_a_wrong_checksum_have_their_own_names(claims, ask6):
    frame = ask6.pack()
    assert answer_ndp(frame[:21] + b"\xfe" + frame[22:], PACKET_MULTICAST, claims, NOW) is Ignored.HOP_LIMIT
    assert answer_ndp(frame[:85] + b"\xfe", PACKET_MULTICAST, claims, NOW) is Ignored.CHECKSUM


@pytest.mark.parametrize("length", [0, 13, 14, 54, 77, 85])
def test_truncated_ndp_is_malformed(claims, ask6, length):
    assert answer_ndp(ask6.pack()[:length], PACKET_MULTICAST, claims, NOW) is Ignored.MALFORMED


# ── rivals, peers, and EIPs that are only watched ────────────────────────────────────────────────────────────


def test_a_rival_is_named_by_the_eip_he_claims_and_his_mac(claims, lan, ask4, ask6):
    for frame in (
        arp.announce_by_request(lan.stranger, lan.eip4.packed),
        arp.announce_by_reply(lan.stranger, lan.eip4.packed),
        replace(ask4, sender_ip=lan.eip4, target_ip=lan.other4).pack(),
    ):
        assert arp_rival(frame, claims) == Rival(lan.eip4.packed, lan.stranger)
    claim = replies.unsolicited(lan.stranger, lan.eip6)
    for message in (
        claim,
        replace(claim, target_link_layer=None),
        replace(claim, source=IPv6Address("fe80::1")),
        replies.advertisement(ask6, lan.stranger),
        replace(ask6, source=lan.eip6, target=lan.other6),
    ):
        assert ndp_rival(message.pack(), claims) == Rival(lan.eip6.packed, lan.stranger)


def test_what_a_peer_says_of_our_eips_is_no_conflict_and_what_it_asks_is_answered(claims, lan, ask4, ask6):
    claims.peers = frozenset({lan.stranger})
    assert answer_arp(arp.announce_by_request(lan.stranger, lan.eip4.packed), 1, claims, NOW) is Ignored.PEER
    assert answer_ndp(replies.unsolicited(lan.stranger, lan.eip6).pack(), 2, claims, NOW) is Ignored.PEER
    assert isinstance(answer_arp(ask4.pack(), 1, claims, NOW), bytes)
    assert isinstance(answer_ndp(ask6.pack(), 2, claims, NOW), bytes)


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (Ignored.NOT_OURS, {}),
        (Ignored.CONFLICT, {"sender_ip": NOBODY4}),
        (Ignored.CONFLICT, {"operation": 2, "sender_ip": IPv4Address("192.0.2.10"), "target_ip": NOBODY4}),
        (Ignored.CONFLICT, {"sender_ip": IPv4Address("192.0.2.10"), "target_ip": IPv4Address("192.0.2.11")}),
        (Ignored.FROM_US, {"sender_mac": Mac(bytes.fromhex("02000000aa01")), "sender_ip": NOBODY4}),
        (Ignored.NOT_OURS, {"operation": 2, "sender_ip": NOBODY4}),
    ],
)
def test_a_watched_eip_is_not_answered_but_who_uses_or_probes_for_it_is_a_rival(claims, lan, ask4, reason, changes):
    claims.watch(lan.eip4.packed)
    frame = replace(ask4, **changes).pack()
    assert answer_arp(frame, PACKET_BROADCAST, claims, NOW) is reason
    if reason is Ignored.CONFLICT:
        asks = changes == {"sender_ip": NOBODY4}
        assert arp_rival(frame, claims) == Rival(lan.eip4.packed, lan.stranger, asks)
        claims.peers = frozenset({lan.stranger})
        assert answer_arp(frame, PACKET_BROADCAST, claims, NOW) is Ignored.PEER


def test_a_watched_ipv6_eip_is_not_answered_but_who_uses_or_probes_for_it_is_a_rival(claims, lan, ask6):
    claims.watch(lan.eip6.packed)
    rivals = (
        replies.unsolicited(lan.stranger, lan.eip6),
        ndp.solicitation(lan.stranger, NOBODY6, lan.eip6),
        replace(ask6, source=lan.eip6, target=lan.other6),
    )
    for message in rivals:
        assert answer_ndp(message.pack(), PACKET_MULTICAST, claims, NOW) is Ignored.CONFLICT
        asks = message.source == NOBODY6
        assert ndp_rival(message.pack(), claims) == Rival(lan.eip6.packed, lan.stranger, asks)
    assert answer_ndp(ask6.pack(), PACKET_MULTICAST, claims, NOW) is Ignored.NOT_OURS
    ours = ndp.solicitation(lan.mac, NOBODY6, lan.eip6)
    assert answer_ndp(ours.pack(), PACKET_MULTICAST, claims, NOW) is Ignored.FROM_US
    claims.peers = frozenset({lan.stranger})
    assert {answer_ndp(message.pack(), PACKET_MULTICAST, claims, NOW) for message in rivals} == {Ignored.PEER}


# ── age ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("age", "outcome", "left"),
    [
        (0.0, b"reply", b"reply"),
        (0.05, b"reply", b"reply"),
        (0.0501, b"reply", Ignored.TOO_OLD),
        (5.0, b"reply", Ignored.TOO_OLD),
        (5.0, Ignored.CONFLICT, Ignored.CONFLICT),
        (5.0, Ignored.CLAIM_EXPIRED, Ignored.CLAIM_EXPIRED),
    ],
)
def test_requests_that_waited_too_long_are_not_answered(age, outcome, left):
    assert in_time([outcome], [age], 0.05) == [left]


@given(st.lists(st.tuples(st.sampled_from([b"one", b"two", *Ignored]), st.floats(0, 10))), st.floats(0, 10))
def test_age_takes_replies_away_and_nothing_else(batch, oldest):
    left = in_time([outcome for outcome, _ in batch], [age for _, age in batch], oldest)
    for (outcome, age), after in zip(batch, left, strict=True):
        assert after is (Ignored.TOO_OLD if isinstance(outcome, bytes) and age > oldest else outcome)


# ── any bytes at all ──────────────────────────────────────────────────────────────────────────────────────────

OURS = Claims(Mac(bytes.fromhex("02000000aa01")))
OURS.add(IPv4Address("192.0.2.10").packed)
OURS.add(IPv6Address("2001:db8::10").packed)
OURS.watch(IPv4Address("192.0.2.11").packed)
OURS.watch(IPv6Address("2001:db8::11").packed)
OURS.deadline = 100.0
macs = st.sampled_from([OURS.mac, BROADCAST, UNKNOWN, Mac(b"\x02\x00\x00\x00\xbb\x02")]) | st.binary(
    min_size=6, max_size=6
).map(Mac)
fours = st.sampled_from([IPv4Address("192.0.2.10"), IPv4Address("192.0.2.11"), NOBODY4]) | st.ip_addresses(v=4)
sixes = st.sampled_from([*map(IPv6Address, ("2001:db8::10", "2001:db8::11", "ff02::1")), NOBODY6]) | st.ip_addresses(
    v=6
)
arps = st.builds(arp.ArpPacket, macs, macs, st.integers(0, 3), macs, fours, macs, fours).map(lambda p: p.pack())
asks = st.builds(ndp.NeighborSolicitation, macs, macs, sixes, sixes, sixes, st.none() | macs)
tells = st.builds(ndp.NeighborAdvertisement, macs, macs, sixes, sixes, sixes, *[st.booleans()] * 3, st.none() | macs)
frames = st.binary(max_size=120) | arps | (asks | tells).map(lambda p: p.pack())


@st.composite
def damaged(draw, whole=frames):
    frame = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        if frame:
            frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))] if draw(st.booleans()) else frame)


@given(damaged(), st.integers(0, 7), st.floats(allow_nan=False))
def test_no_bytes_make_an_answer_raise(frame, pkttype, now):
    for answer, rival, ours in ((answer_arp, arp_rival, OURS.arp), (answer_ndp, ndp_rival, OURS.ndp)):
        outcome = answer(frame, pkttype, OURS, now)
        assert isinstance(outcome, bytes | Ignored)
        if outcome is Ignored.CONFLICT:
            assert rival(frame, OURS).address in ours
            assert rival(frame, OURS).mac != OURS.mac


@given(damaged())
def test_the_fast_arp_answer_says_what_the_parser_says(frame):
    outcome = answer_arp(frame, PACKET_HOST, OURS, NOW)
    try:
        packet = arp.parse(frame)
    except MalformedPacket:
        assert outcome is Ignored.MALFORMED
    else:
        assert outcome is not Ignored.MALFORMED
        if isinstance(outcome, bytes):
            assert outcome == replies.reply(packet, OURS.mac).pack()
            assert packet.operation == 1


@given(damaged())
def test_the_fast_ndp_answer_says_what_the_parser_says(frame):
    outcome = answer_ndp(frame, PACKET_HOST, OURS, NOW)
    try:
        packet = ndp.parse(frame)
    except MalformedPacket:
        assert isinstance(outcome, Ignored)
    else:
        assert outcome not in (Ignored.MALFORMED, Ignored.CHECKSUM, Ignored.HOP_LIMIT)
        if isinstance(outcome, bytes):
            assert isinstance(packet, ndp.NeighborSolicitation)
            assert outcome == replies.advertisement(packet, OURS.mac).pack()
