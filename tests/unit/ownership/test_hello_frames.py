"""Hellos in bytes: what was said is what is read, in frames that fit, and nothing else gets in."""

import hmac
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speaker.model import Mac
from speaker.ownership import frames
from speaker.ownership.frames import Rejected, decode, split
from speaker.ownership.hello import EVERYTHING, MAX_AGE, Digest, Heard, Hello, Incarnation, Span, rank
from speaker.ownership.keys import Key, Keys

MAC = Mac(b"\x02\x00\x00\x00\x00\x01")
OLD, NEW = Key(bytes(range(32))), Key(bytes(range(100, 140)))
KEYS = Keys(OLD)

eips = st.ip_addresses() | st.sampled_from([ip_address(a) for a in ("0.0.0.0", "255.255.255.255", "::", "::1")])
few = st.dictionaries(eips, st.integers(0, 2**32 - 1), max_size=60)
runs = st.builds(lambda first, count: {first + i: i for i in range(count)}, st.just(IPv6Address(5)), st.integers(0, 99))
terms = few | runs | st.builds(dict.__or__, few, runs)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60) | st.sampled_from(["n1", "n" * 253])
incarnations = st.integers(0, 2**63 - 1).map(Incarnation)
spans = st.tuples(eips, eips).map(lambda ends: Span(*sorted(ends, key=rank))) | st.just(EVERYTHING) | st.none()
hellos = st.builds(
    Hello,
    node=names,
    incarnation=incarnations,
    sequence=st.integers(0, 2**64 - 1),
    clock=st.integers(0, 2**64 - 1),
    digest=st.builds(Digest, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)),
    draining=st.booleans(),
    claims=terms,
    covers=spans,
    intents=terms,
    yielded=terms,
    heard=st.dictionaries(
        names,
        st.builds(Heard, incarnations, st.integers(0, MAX_AGE), st.integers(0, 2**32 - 1)),
        max_size=30,
    ),
    probes=st.frozensets(names, max_size=5),
    wants=st.frozensets(names, max_size=5),
    link=st.integers(0, 2**32 - 1),
)
mtus = st.integers(frames.MIN_MTU, 9000) | st.sampled_from([600, 1280, 1500, 9000])


def many(count, first="10.0.0.0"):
    return {ip_address(first) + i: 1 for i in range(count)}


def hello(**fields):
    return Hello(**{"node": "n1", "incarnation": Incarnation(1), "sequence": 1, "clock": 1} | fields)


def encode(*args, **options):
    return list(frames.encode(*args, **options))


def resigned(frame, key=OLD):
    """``frame`` with its length and tag put right: what a peer with the key and other ideas would send."""
    body = frame[6:20] + (len(frame) - 14).to_bytes(2, "big") + frame[22:-16]
    return frame[:6] + body + hmac.digest(key.secret, body, "sha256")[:16]


# ── What was said is what is read ─────────────────────────────────────────────────────────────────────────────


@given(hellos, mtus)
def test_every_part_is_read_back_as_it_was_and_fits_the_mtu(said, mtu):
    parts = list(split(said, mtu))
    sent = encode(said, KEYS, MAC, mtu)
    assert [decode(frame, KEYS) for frame in sent] == parts
    assert all(60 <= len(frame) <= 14 + mtu for frame in sent)
    assert [part.part for part in parts] == list(range(len(parts)))


@given(hellos, mtus)
def test_the_parts_together_say_what_the_whole_said(said, mtu):
    parts = list(split(said, mtu))
    for field in ("claims", "intents", "yielded", "heard"):
        together = {key: value for part in parts for key, value in getattr(part, field).items()}
        assert together == getattr(said, field)
        assert sum(len(getattr(part, field)) for part in parts) == len(together)
    assert frozenset().union(*(part.probes for part in parts)) == said.probes
    assert frozenset().union(*(part.wants for part in parts)) == said.wants
    emptied = {"claims": {}, "intents": {}, "yielded": {}, "heard": {}, "probes": frozenset(), "wants": frozenset()}
    assert {repr(replace(part, part=0, covers=None, **emptied)) for part in parts} == {
        repr(replace(said, covers=None, **emptied))
    }


def after(address):
    return IPv6Address(0) if address == IPv4Address(2**32 - 1) else address + 1


@given(hellos, mtus)
def test_no_part_lets_an_eip_seem_unclaimed_and_their_spans_join_to_the_whole_one(said, mtu):
    parts = [part for part in split(said, mtu) if part.covers is not None]
    assert all({a for a in said.claims if a in part.covers} <= set(part.claims) for part in parts)
    spans = [part.covers for part in parts]
    assert bool(spans) == (said.covers is not None)
    if spans:
        assert Span(spans[0].first, spans[-1].last) == said.covers
        assert all(left.last in left and after(left.last) == right.first for left, right in pairwise(spans))


@given(hellos, mtus, st.randoms())
def test_equal_hellos_make_equal_bytes_whatever_the_order_they_were_built_in(said, mtu, random):
    def shuffled(mapping):
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    fields = ("claims", "intents", "yielded", "heard")
    twin = replace(said, **{field: shuffled(getattr(said, field)) for field in fields})
    assert encode(said, KEYS, MAC, mtu) == encode(twin, KEYS, MAC, mtu)


def test_names_travel_in_order():
    asked = [f"node-{i:03}" for i in range(200)]
    parts = list(split(hello(probes=frozenset(asked), wants=frozenset(asked)), 600))
    for field in ("probes", "wants"):
        assert [name for part in parts for name in sorted(getattr(part, field))] == asked
    together = b"".join(b"\x08" + name.encode() for name in asked)
    assert together in encode(hello(probes=frozenset(asked)), KEYS, MAC, 9000)[0]


def test_an_age_beyond_the_field_travels_as_the_longest():
    said = hello(heard={"n2": Heard(Incarnation(5), 10**9)})
    assert decode(encode(said, KEYS, MAC)[0], KEYS).heard == {"n2": Heard(Incarnation(5), MAX_AGE)}


# ── How many frames it takes ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mtu", [1280, 1500, 9000])
def test_a_beat_takes_one_frame_however_many_eips_are_held(mtu):
    peers = {f"worker-{i:02}": Heard(Incarnation(2**62 + i), 100, 3) for i in range(40)}
    beat = hello(digest=Digest(10_000, 2**64 - 1), heard=peers)
    assert len(encode(beat, KEYS, MAC, mtu)) == 1
    assert len(encode(replace(beat, digest=Digest()), KEYS, MAC, mtu)[0]) == len(encode(beat, KEYS, MAC, mtu)[0])


def test_a_beat_among_a_hundred_peers_takes_two():
    peers = {f"worker-{i:02}": Heard(Incarnation(2**62 + i), 100, 3) for i in range(99)}
    assert len(encode(hello(heard=peers), KEYS, MAC)) == 2


@pytest.mark.parametrize(
    ("first", "count", "mtu", "frames_needed"),
    [
        ("10.0.0.0", 100, 1500, 1),
        ("10.0.0.0", 150, 1280, 2),
        ("10.0.0.0", 170, 1500, 1),
        ("10.0.0.0", 10_000, 1500, 58),
        ("10.0.0.0", 10_000, 1280, 69),
        ("10.0.0.0", 10_000, 9000, 10),
        ("2001:db8::", 10_000, 1500, 145),
    ],
)
def test_all_claims_take_as_many_frames_as_they_need(first, count, mtu, frames_needed):
    claims = many(count, first)
    said = hello(claims=claims, covers=EVERYTHING, digest=Digest(count, 5))
    assert len(encode(said, KEYS, MAC, mtu)) == frames_needed


PEERS = {f"worker-{i:02}": Heard(Incarnation(1), 1) for i in range(30)}


@pytest.mark.parametrize(
    "said",
    [
        hello(heard=PEERS),
        hello(claims=many(90), covers=EVERYTHING),
        hello(claims=many(50, "2001:db8::"), covers=EVERYTHING),
        hello(claims=many(80), heard=PEERS, probes=frozenset(PEERS)),
        hello(heard=PEERS, intents=many(20), yielded=many(10), covers=EVERYTHING),
        hello(claims=many(90), heard=PEERS, covers=Span(IPv4Address("10.0.0.40"), IPv6Address(9))),
    ],
)
def test_a_frame_is_filled_to_the_last_byte_and_not_beyond(said):
    exact = len(encode(said, KEYS, MAC, 9000)[0]) - 14
    assert len(encode(said, KEYS, MAC, exact)) == 1
    for mtu in range(frames.MIN_MTU, exact):
        sent = encode(said, KEYS, MAC, mtu)
        assert len(sent) > 1
        assert max(map(len, sent)) <= 14 + mtu


def test_an_mtu_or_a_name_that_cannot_work_is_refused():
    with pytest.raises(ValueError, match="MTU of 599"):
        encode(hello(), KEYS, MAC, 599)
    for name in ("", "n" * 254, "ü" * 127):
        with pytest.raises(ValueError, match="1 to 253 bytes"):
            encode(hello(node=name), KEYS, MAC)


# ── What does not get in ──────────────────────────────────────────────────────────────────────────────────────


@given(hellos, st.data())
def test_no_flipped_bit_behind_the_destination_passes(said, data):
    frame = bytearray(encode(said, KEYS, MAC, 1280)[0])
    bit = data.draw(st.integers(6 * 8, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    assert isinstance(decode(bytes(frame), KEYS), Rejected)


@given(hellos, st.binary(min_size=1, max_size=20), st.data())
def test_nothing_can_be_cut_off_or_added(said, extra, data):
    frame = encode(said, KEYS, MAC, 1280)[0]
    assert decode(frame + extra, KEYS) is Rejected.OVERSIZED
    assert decode(frame[: data.draw(st.integers(0, len(frame) - 1))], KEYS) is Rejected.TRUNCATED


@given(hellos, st.binary(min_size=6, max_size=6).filter(lambda mac: mac != MAC))
def test_a_stranger_cannot_repeat_a_hello_under_its_own_mac(said, mac):
    frame = encode(said, KEYS, MAC)[0]
    assert decode(frame[:6] + mac + frame[12:], KEYS) is Rejected.FORGED


def test_an_access_point_may_make_a_unicast_of_it():
    frame = encode(hello(), KEYS, MAC)[0]
    assert decode(b"\x02\x00\x00\x00\x00\x09" + frame[6:], KEYS) == hello()


def test_keys_are_rotated_without_a_frame_lost():
    steps = [(Keys(OLD), Keys(OLD, NEW)), (Keys(OLD, NEW), Keys(NEW, OLD)), (Keys(NEW, OLD), Keys(NEW))]
    for before, after in steps:
        for sender, receiver in ((before, after), (after, before)):
            assert decode(encode(hello(), sender, MAC)[0], receiver) == hello()
    assert decode(encode(hello(), Keys(OLD), MAC)[0], Keys(NEW)) is Rejected.WRONG_KEY


def test_knowing_the_keys_id_is_not_knowing_the_key():
    frame = encode(hello(), Keys(NEW), MAC)[0]
    assert decode(frame[:22] + OLD.id + frame[26:], KEYS) is Rejected.FORGED


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", Rejected.TRUNCATED),
        (bytes(17), Rejected.TRUNCATED),
        (bytes(60), Rejected.FOREIGN),
        (b"\xff" * 14 + b"EIPx" + bytes(60), Rejected.FOREIGN),
        (b"\xff" * 14 + b"EIPh\x01\x00", Rejected.TRUNCATED),
        (b"\xff" * 14 + b"EIPh\x02\x00" + bytes(60), Rejected.VERSION),
        (b"\xff" * 14 + b"EIPh\x01\x00\x00\x0cnone", Rejected.WRONG_KEY),
        (b"\xff" * 14 + b"EIPh\x01\x00\x00\x0c" + OLD.id, Rejected.FORGED),
    ],
)
def test_every_refusal_has_its_reason(frame, reason):
    assert decode(frame, KEYS) is reason


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff" * 14 + b"EIPh\x01\x00\x00\x40" + OLD.id]))
def test_no_bytes_raise_anything(data, head):
    assert isinstance(decode(head + data, KEYS), Rejected)


@given(hellos, st.data())
def test_no_bytes_of_a_peer_with_the_key_raise_anything_and_what_is_read_can_be_said(said, data):
    frame = encode(said, KEYS, MAC, 1280)[0]
    start = data.draw(st.integers(26, len(frame) - 16))
    end = data.draw(st.integers(start, len(frame) - 16))
    spoilt = resigned(frame[:start] + data.draw(st.binary(max_size=40)) + frame[end:])
    found = decode(spoilt, KEYS)
    assert found is Rejected.MALFORMED or [decode(again, KEYS) for again in encode(found, KEYS, MAC)] == [*split(found)]


SECTIONS = encode(hello(), KEYS, MAC)[0][:-16]


@pytest.mark.parametrize(
    "section",
    [
        "02 0007 0a000001 000000",  # a claim cut off
        "02 0010 0a000001 00000001 0a000001 00000002",  # an EIP twice
        "02 0008 0a000001 00000001 02 0008 0a000002 00000001",  # claims twice
        "02 0009 0a000001 00000001",  # beyond the frame
        "02 00",
        "01 0000",
        "01 0022 04 0000000000000000000000000a000002 04 0000000000000000000000000a000001",  # ends before it begins
        "01 0022 04 0000000000000000000000010a000001 04 0000000000000000000000000a000002",
        "01 0022 05 0000000000000000000000000a000001 05 0000000000000000000000000a000002",
        "08 0011 02 6e32 0000000000000001 00000003 0064 00",
        "08 0010 02 6e32 0000000000000001 00000003 00",
        "08 0011 02 6e32 8000000000000000 00000003 0064",  # no int64
        "08 0022 02 6e32 0000000000000001 00000003 0064 02 6e32 0000000000000001 00000003 0064",
        "09 0001 00",  # a name of nothing
        "09 0003 03 6e32",
        "09 0002 01 ff",  # not UTF-8
    ],
)
def test_a_section_that_breaks_the_format_is_malformed(section):
    assert decode(resigned(SECTIONS + bytes.fromhex(section) + bytes(16)), KEYS) is Rejected.MALFORMED


@pytest.mark.parametrize("name", [b"", b"n" * 254, b"\xff"])
def test_a_node_without_a_proper_name_is_malformed(name):
    frame = SECTIONS[:69] + bytes((len(name),)) + name + bytes(16)
    assert SECTIONS[69:] == b"\x02n1"
    assert decode(resigned(frame), KEYS) is Rejected.MALFORMED


def test_an_incarnation_that_no_api_object_can_hold_is_malformed():
    frame = encode(hello(incarnation=Incarnation(2**63 - 1)), KEYS, MAC)[0]
    assert isinstance(decode(frame, KEYS), Hello)
    assert decode(resigned(frame[:26] + b"\x80" + frame[27:]), KEYS) is Rejected.MALFORMED


# ── Two releases side by side ─────────────────────────────────────────────────────────────────────────────────

GOLDEN = hello(
    node="node-a",
    incarnation=Incarnation(0x3000000012345678),
    sequence=0x0102030405,
    clock=86_400_000,
    digest=Digest(3, 0x1122334455667788),
    draining=True,
    claims={IPv4Address("192.0.2.1"): 7, IPv4Address("192.0.2.9"): 8, IPv6Address("2001:db8::1"): 9},
    covers=Span(IPv4Address("192.0.2.0"), IPv6Address("2001:db8::ff")),
    intents={IPv4Address("192.0.2.2"): 10},
    yielded={IPv6Address("2001:db8::2"): 11},
    heard={"node-b": Heard(Incarnation(0x3000000087654321), 40, 2), "node-c": Heard(Incarnation(1), MAX_AGE)},
    probes=frozenset({"node-c"}),
    wants=frozenset({"node-d", "node-b"}),
    link=3,
)
GOLDEN_FRAME = """
    ffffffffffff 020000000001 88b5
    45495068 01 00 0107 f4657642
    3000000012345678 0000000102030405 0000 00000003 0000000005265c00 01 00000003 1122334455667788 06 6e6f64652d61
    01 0022 04 000000000000000000000000c0000200 06 20010db80000000000000000000000ff
    02 0010 c0000201 00000007 c0000209 00000008
    03 0014 20010db8000000000000000000000001 00000009
    04 0008 c0000202 0000000a
    07 0014 20010db8000000000000000000000002 0000000b
    08 002a 06 6e6f64652d62 3000000087654321 00000002 0028 06 6e6f64652d63 0000000000000001 00000000 ffff
    09 0007 06 6e6f64652d63
    0a 000e 06 6e6f64652d62 06 6e6f64652d64
    f764bb85c1c5865766cc4e873977da8d
"""
"""The tag is what ``openssl dgst -sha256 -mac HMAC -macopt hexkey:0001..1f`` says of bytes 6 to 276, its first half."""


def test_version_1_is_these_bytes_forever():
    assert [frame.hex() for frame in encode(GOLDEN, KEYS, MAC)] == ["".join(GOLDEN_FRAME.split())]
    assert decode(bytes.fromhex(GOLDEN_FRAME), KEYS) == GOLDEN


def test_a_newer_minor_version_is_read_and_what_it_adds_is_passed_over():
    frame = encode(GOLDEN, KEYS, MAC)[0]
    newer = bytearray(frame[:-16] + b"\xc8\x00\x03new" + b"\xc8\x00\x00" + frame[-16:])
    newer[19] = 9  # minor version
    newer[56] |= 0x80  # a flag of its own
    assert decode(resigned(bytes(newer)), KEYS) == GOLDEN
    newer[56] = 0x80
    assert decode(resigned(bytes(newer)), KEYS) == replace(GOLDEN, draining=False)


def test_what_a_newer_release_adds_is_signed_like_the_rest():
    newer = bytearray(resigned(encode(GOLDEN, KEYS, MAC)[0][:-16] + b"\xc8\x00\x03new" + bytes(16)))
    assert decode(bytes(newer), KEYS) == GOLDEN
    newer[-17] ^= 1
    assert decode(bytes(newer), KEYS) is Rejected.FORGED


def test_another_major_version_is_named_whatever_follows():
    frame = bytearray(encode(GOLDEN, KEYS, MAC)[0])
    frame[18] = 2
    assert decode(bytes(frame), KEYS) is Rejected.VERSION


@settings(max_examples=10)
@given(st.integers(0, 0xFFFF))
def test_the_ethertype_is_the_edges_choice_and_signed(ethertype):
    frame = encode(hello(), KEYS, MAC, ethertype=ethertype)[0]
    assert frame[:14] == b"\xff" * 6 + MAC + ethertype.to_bytes(2, "big")
    assert decode(frame, KEYS) == hello()
