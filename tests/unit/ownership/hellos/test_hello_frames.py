"""Hellos in bytes: what was said is what is read, in frames that fit, and nothing else gets in."""

import hmac
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from some_hellos import hellos, mtus, spans

from speaker.model import MAX_TERM, Mac, rank
from speaker.ownership.hello import EVERYTHING, MAX_AGE, Accused, Digest, Heard, Hello, Incarnation, Listed, Span
from speaker.ownership.hellos import frames, reading
from speaker.ownership.hellos.frames import Rejected, decode, peek
from speaker.ownership.hellos.keys import Key, Keys

MAC = Mac(b"\x02\x00\x00\x00\x00\x01")
OLD, NEW = Key(bytes(range(32))), Key(bytes(range(100, 140)))
KEYS = Keys(OLD)

MAPPINGS = ("claims", "intents", "yielded", "heard", "moves", "lost", "weights")
NAMES = ("probes", "wants")
SETS = (*NAMES, "own", "weak", "unanswered")


def many(count, first="10.0.0.0"):
    return {ip_address(first) + i: 1 for i in range(count)}


def hello(**fields):
    return Hello(**{"node": "n1", "incarnation": Incarnation(1), "sequence": 1, "clock": 1} | fields)


def encode(*args, **options):
    return list(frames.encode(*args, **options))


def parts(said, mtu=1500):
    return [decode(frame, KEYS) for frame in encode(said, KEYS, MAC, mtu)]


def resigned(frame, key=OLD):
    """``frame`` with its length and tag put right: what a peer with the key and other ideas would send."""
    body = frame[6:20] + (len(frame) - 14).to_bytes(2, "big") + frame[22:-16]
    return frame[:6] + body + hmac.digest(key.secret, body, "sha256")[:16]


# ── What was said is what is read ─────────────────────────────────────────────────────────────────────────────


@given(hellos, mtus)
def test_the_frames_together_say_what_the_hello_said_and_each_fits_the_mtu(said, mtu):
    assert all(60 <= len(frame) <= 14 + mtu for frame in encode(said, KEYS, MAC, mtu))
    heard = parts(said, mtu)
    for field in MAPPINGS:
        together = {key: value for part in heard for key, value in getattr(part, field).items()}
        assert together == getattr(said, field)
        assert sum(len(getattr(part, field)) for part in heard) == len(together)
    for field in SETS:
        assert frozenset().union(*(getattr(part, field) for part in heard)) == getattr(said, field)
    assert [part.addresses for part in heard if part.addresses] == [said.addresses] * bool(said.addresses)
    emptied = {field: {} for field in MAPPINGS} | dict.fromkeys(SETS, frozenset()) | {"covers": None, "addresses": ()}
    for number, part in enumerate(heard):
        assert part._replace(**emptied) == said._replace(part=number, **emptied)


@given(hellos, mtus)
def test_what_was_heard_can_be_said_again(said, mtu):
    for part in parts(said, mtu):
        assert parts(part, 9000) == [part._replace(part=0)]


@given(hellos, spans, mtus, mtus)
def test_what_is_listed_again_and_again_takes_the_same_bytes_as_if_it_were_not(said, covers, mtu, other_mtu):
    listed = said._replace(claims=Listed(said.claims))
    for room, span in ((mtu, said.covers), (mtu, said.covers), (other_mtu, said.covers), (mtu, covers)):
        now = listed._replace(covers=span)
        assert encode(now, KEYS, MAC, room) == encode(said._replace(covers=span), KEYS, MAC, room)


@given(hellos, mtus, mtus)
def test_a_routine_hello_says_again_what_it_said_with_other_ages_and_from_other_addresses(said, mtu, other_mtu):
    nothing = {"probes": frozenset(), "wants": frozenset(), "moves": {}, "intents": {}, "yielded": {}}
    first = said._replace(routine=True, claims=Listed(said.claims), weak=frozenset(), **nothing)
    older = {node: heard._replace(age=heard.age // 2) for node, heard in said.heard.items()}
    for again, room in ((first, mtu), (first._replace(heard=older), mtu), (first._replace(own=frozenset()), other_mtu)):
        assert all(part.routine for part in parts(again, room))
        for field in ("claims", "heard"):
            together = {key: value for part in parts(again, room) for key, value in getattr(part, field).items()}
            assert together == getattr(again, field)
        assert frozenset().union(*(part.own for part in parts(again, room))) == again.own
        assert max(map(len, encode(again, KEYS, MAC, room))) <= room + 14


@given(hellos, st.lists(st.integers(0, MAX_AGE), min_size=2, max_size=5), mtus)
def test_however_old_what_it_heard_was_last_time_a_routine_hello_takes_the_same_bytes(said, ages, mtu):
    said, claims = said._replace(routine=True), Listed(said.claims)
    for age in ages:
        now = said._replace(heard={node: heard._replace(age=age) for node, heard in said.heard.items()})
        assert encode(now._replace(claims=claims), KEYS, MAC, mtu) == encode(now, KEYS, MAC, mtu)


def after(address):
    return IPv6Address(0) if address == IPv4Address(2**32 - 1) else address + 1


AGES = st.dictionaries(st.sampled_from(["n2", "n3", "n4"]), st.integers(0, MAX_AGE))


@given(st.lists(st.tuples(hellos, AGES, AGES), max_size=4))
def test_what_a_node_said_before_changes_nothing_of_what_its_next_frame_means(some):
    for said, *heard in some:
        listed = said._replace(node="n1", routine=True, claims=Listed(said.claims))
        for number, ages in enumerate((*heard, *heard)):
            again = listed._replace(heard={node: Heard(Incarnation(1), age) for node, age in ages.items()})
            again = again._replace(sequence=said.sequence ^ number, clock=said.clock ^ number << 40)
            assert parts(again, 65535) == [again._replace(part=0)]


def test_what_only_looks_like_what_a_node_said_before_is_read():
    heard = {"n2": Heard(Incarnation(1), 5)}
    claims = many(40)
    said = hello(routine=True, claims=Listed(claims), heard=heard)
    last = max(claims)
    other = said._replace(claims=Listed({eip if eip != last else eip + 1: term for eip, term in claims.items()}))
    with_addresses = said._replace(routine=False, addresses=(IPv4Address("192.0.2.1"),))
    for again in (said, said, other, other, said, with_addresses, said._replace(heard={})):
        assert parts(again) == [again]


@given(hellos, mtus)
def test_no_part_lets_an_eip_seem_unclaimed_and_their_spans_join_to_the_whole_one(said, mtu):
    covering = [part for part in parts(said, mtu) if part.covers is not None]
    assert all({a for a in said.claims if a in part.covers} <= set(part.claims) for part in covering)
    spans = [part.covers for part in covering]
    assert bool(spans) == (said.covers is not None)
    if spans:
        assert Span(spans[0].first, spans[-1].last) == said.covers
        assert all(left.last in left and after(left.last) == right.first for left, right in pairwise(spans))


@given(hellos, mtus)
def test_a_weak_claim_is_never_in_a_frame_that_does_not_say_so(said, mtu):
    for part in parts(said, mtu):
        assert part.weak == said.weak & part.claims.keys()


@pytest.mark.parametrize("first", ["10.0.0.0", "2001:db8::"])
def test_that_all_claims_are_weak_costs_a_bit_for_each(first):
    strong = hello(claims=many(64, first), covers=EVERYTHING)
    weak = strong._replace(weak=frozenset(strong.claims))
    assert len(encode(weak, KEYS, MAC)[0]) - len(encode(strong, KEYS, MAC)[0]) == 3 + 64 // 8


@pytest.mark.parametrize("first", ["10.0.0.0", "2001:db8::"])
def test_ten_thousand_weak_claims_take_one_frame_more_or_two(first):
    strong = hello(claims=many(10_000, first), covers=EVERYTHING)
    weak = strong._replace(weak=frozenset(strong.claims))
    assert len(encode(weak, KEYS, MAC)) - len(encode(strong, KEYS, MAC)) in (1, 2)


@pytest.mark.parametrize("first", ["10.0.0.0", "255.255.255.0", "2001:db8::"])
def test_a_window_that_ends_at_its_last_claims_covers_them_where_it_lists_them(first):
    claims = many(256, first)
    window = Span(list(claims)[100], list(claims)[180])
    heard = {f"{i:02}-worker": Heard(Incarnation(i), 1) for i in range(25)}
    said = hello(claims=claims, covers=window, heard=heard)
    sent = parts(said, frames.MIN_MTU)
    assert len(sent) > 2
    for part in sent:
        assert part.covers is None or {eip for eip in claims if eip in part.covers} <= set(part.claims)
    assert [eip for part in sent if part.covers for eip in part.claims if eip in window] == list(claims)[100:181]


def test_a_frame_that_ends_between_the_families_covers_all_of_ipv4():
    said = hello(claims=many(190) | many(9, "::"), covers=EVERYTHING)
    ends = {part.covers.last for mtu in range(frames.MIN_MTU, 720) for part in parts(said, mtu)}
    assert IPv4Address("255.255.255.255") in ends


@given(hellos, mtus, st.randoms())
def test_equal_hellos_make_equal_bytes_whatever_the_order_they_were_built_in(said, mtu, random):
    def shuffled(mapping):
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    twin = said._replace(**{field: shuffled(getattr(said, field)) for field in MAPPINGS})
    assert encode(said, KEYS, MAC, mtu) == encode(twin, KEYS, MAC, mtu)


@pytest.mark.parametrize(
    ("asked", "section"),
    [
        (["n1"], "00 00 02 6e31"),
        (["n1", "n2"], "00 00 02 6e31  01 00 01 32"),
        (["n1", "n10", "n11"], "00 00 02 6e31  02 00 01 30  02 00 01 31"),
        (["a1.lan", "a2.lan", "b2.lan"], "00 00 06 61312e6c616e  01 04 01 32  00 05 01 62"),
        (["ab", "abab"], "00 00 02 6162  02 00 02 6162"),  # what is alike is not counted twice
        (["aa", "aaa"], "00 00 02 6161  02 00 01 61"),
        (["\u00e4", "\u00e5"], "00 00 02 c3a4  01 00 01 a5"),  # bytes, not letters
        (["ab.x", "b.x"], "00 00 04 61622e78  00 03 00"),
    ],
)
def test_a_name_is_written_as_what_tells_it_from_the_one_before(asked, section):
    frame = encode(hello(probes=frozenset(asked)), KEYS, MAC)[0]
    value = bytes.fromhex(section)
    assert frame[len(SECTIONS) : -16] == b"\x06" + len(value).to_bytes(2, "big") + value


def test_names_travel_in_order():
    asked = [f"node-{i:03}" for i in range(400)]
    heard = parts(hello(probes=frozenset(asked), wants=frozenset(asked)), frames.MIN_MTU)
    for field in NAMES:
        assert [name for part in heard for name in sorted(getattr(part, field))] == asked


def test_an_age_beyond_the_field_travels_as_the_longest():
    said = hello(heard={"n2": Heard(Incarnation(5), 10**9)})
    assert decode(encode(said, KEYS, MAC)[0], KEYS).heard == {"n2": Heard(Incarnation(5), MAX_AGE)}


# ── How many frames it takes ──────────────────────────────────────────────────────────────────────────────────


SHORT = [f"worker-{i:03}" for i in range(1, 101)]
BY_RACK = [f"worker-{i}.rack{i // 10}.example.internal" for i in range(1, 101)]
ACROSS = [f"worker-{i}.rack{i % 10}.example.internal" for i in range(1, 101)]
IPV4 = {IPv4Address(i * 0x9E3779B9 % 2**32): 256 + i for i in range(64)}
IPV6 = {ip_address("2001:db8::") + i * 0x9E3779B97F4A7C15 % 2**64: i for i in range(64)}
WIDE = {IPv6Address(i * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128): i for i in range(64)}


BOTH = IPv4Address("192.0.2.1"), IPv6Address("fe80::1")


def beat(nodes, claims, oldest=100):
    """What the first of ``nodes`` says in a quiet cluster that holds 10,000 EIPs: their peers, a window of claims."""
    heard = {
        name: Heard(Incarnation(2**62 + i * 0x9E3779B97F4A7C15 % 2**61), i * 37 % (oldest + 1), 2 + i)
        for i, name in enumerate(nodes[1:])
    }
    ends = sorted(claims, key=rank)
    return hello(
        node=nodes[0],
        digest=Digest(10_000, 2**64 - 1),
        heard=heard,
        claims=claims,
        covers=Span(ends[0], ends[-1]),
        addresses=BOTH,
        interval=100,
    )


@pytest.mark.parametrize("nodes", [SHORT[:30], BY_RACK[:30], ACROSS[:30]])
@pytest.mark.parametrize("claims", [IPV4, many(64), many(64, "2001:db8::")])
def test_a_beat_of_thirty_nodes_takes_one_frame(nodes, claims):
    assert len(encode(beat(nodes, claims), KEYS, MAC)) == 1


@pytest.mark.parametrize(
    ("nodes", "claims", "oldest"),
    [
        *((nodes, claims, 1000) for nodes in (SHORT, BY_RACK) for claims in (many(64), IPV4, IPV6)),
        *((ACROSS, claims, 1000) for claims in (many(64), IPV4, many(64, "2001:db8::"))),
        (ACROSS, IPV6, 255),
        (SHORT, WIDE, 1000),
        (BY_RACK, WIDE, 255),
    ],
)
def test_a_beat_of_a_hundred_nodes_takes_two(nodes, claims, oldest):
    assert len(encode(beat(nodes, claims, oldest), KEYS, MAC)) == 2


def test_a_beat_does_not_grow_with_the_eips_held():
    few, lots = beat(SHORT[:5], many(64)), beat(SHORT[:5], many(64))
    few = few._replace(digest=Digest(64, 1))
    assert len(encode(few, KEYS, MAC)[0]) == len(encode(lots, KEYS, MAC)[0])


@pytest.mark.parametrize(
    ("first", "count", "mtu", "frames_needed"),
    [
        ("10.0.0.0", 380, 1280, 1),
        ("10.0.0.0", 400, 1500, 1),
        ("10.0.0.0", 10_000, 1500, 22),
        ("10.0.0.0", 10_000, 1280, 26),
        ("10.0.0.0", 10_000, 9000, 4),
        ("2001:db8::", 10_000, 1500, 22),
    ],
)
def test_all_claims_take_as_many_frames_as_they_need(first, count, mtu, frames_needed):
    claims = many(count, first)
    said = hello(claims=claims, covers=EVERYTHING, digest=Digest(count, 5))
    assert len(encode(said, KEYS, MAC, mtu)) == frames_needed


PEERS = {f"worker-{i:02}": Heard(Incarnation(1), 1) for i in range(60)}


@pytest.mark.parametrize(
    "said",
    [
        hello(heard=PEERS),
        hello(claims=many(300), covers=EVERYTHING),
        hello(claims=many(300, "2001:db8::"), covers=EVERYTHING),
        hello(claims=many(80), heard=PEERS, probes=frozenset(PEERS)),
        hello(heard=PEERS, intents=many(20), yielded=many(10), covers=EVERYTHING),
        hello(claims=many(90), heard=PEERS, covers=Span(IPv4Address("10.0.0.40"), IPv6Address(9))),
        hello(moves={eip: f"n{int(eip) % 100}" for eip in many(99)}),
        hello(claims=IPV4 | IPV6, covers=EVERYTHING),
        hello(heard=PEERS, claims=many(9, "0.0.0.0"), covers=EVERYTHING),
        hello(heard=PEERS, addresses=BOTH),
        hello(heard=PEERS, claims=many(9), covers=EVERYTHING, addresses=BOTH),
        hello(heard=PEERS, claims=many(9), covers=Span(IPv4Address("10.0.0.0"), IPv4Address("10.0.0.8"))),
    ],
)
def test_a_frame_is_filled_to_the_last_byte_and_not_beyond(said):
    exact = len(encode(said, KEYS, MAC, 9000)[0]) - 14
    assert exact > frames.MIN_MTU
    assert len(encode(said, KEYS, MAC, exact)) == 1
    for mtu in range(frames.MIN_MTU, exact):
        sent = encode(said, KEYS, MAC, mtu)
        assert len(sent) > 1
        assert max(map(len, sent)) <= 14 + mtu
        assert Rejected.MALFORMED not in [decode(frame, KEYS) for frame in sent]


def test_the_longest_entry_fills_the_narrowest_mtu():
    said = hello(
        node="n" * 253, revision=1, interval=1, links=1, heard={"m" * 253: Heard(Incarnation(1), MAX_AGE, 2**32 - 1)}
    )
    assert [len(frame) for frame in encode(said, KEYS, MAC, frames.MIN_MTU)] == [14 + frames.MIN_MTU]


def test_an_mtu_or_a_name_that_cannot_work_is_refused():
    with pytest.raises(ValueError, match="MTU of 606"):
        encode(hello(), KEYS, MAC, 606)
    for name in ("", "n" * 254, "ü" * 127):
        with pytest.raises(ValueError, match="1 to 253 bytes"):
            encode(hello(node=name), KEYS, MAC)
        with pytest.raises(ValueError, match="1 to 253 bytes"):
            encode(hello(probes=frozenset({name})), KEYS, MAC)


def test_a_term_or_a_link_beyond_its_field_is_never_sent():
    with pytest.raises(ValueError, match="at most 4 bytes"):
        encode(hello(claims={IPv4Address(1): 2**32}), KEYS, MAC)
    with pytest.raises(ValueError, match="at most 4 bytes"):
        encode(hello(heard={"n2": Heard(Incarnation(1), 1, 2**32)}), KEYS, MAC)


@pytest.mark.parametrize("others", [1, 14])
def test_what_was_read_is_remembered_for_as_many_bytes_and_not_for_more(others):
    frame = encode(hello(claims=many(64)), KEYS, MAC)[0]
    first = decode(frame, KEYS)
    for number in range(others):
        long = encode(hello(claims=many(1800, f"10.{number}.8.0")), KEYS, MAC, 9000)[0]
        assert len(decode(long, KEYS).claims) == 1800
    assert (decode(frame, KEYS).claims is first.claims) is (others < reading.RUNS_REMEMBERED // 5400)


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
        (bytes(18), Rejected.FOREIGN),
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
    peek(head + data)


@given(st.binary(max_size=200))
def test_nothing_is_parsed_before_the_tag_is_right(body):
    head = encode(hello(), KEYS, MAC)[0][:26]
    length = (12 + len(body) + 16).to_bytes(2, "big")
    assert decode(head[:20] + length + head[22:] + body + bytes(16), KEYS) is Rejected.FORGED


@given(hellos, st.data())
def test_no_bytes_of_a_peer_with_the_key_raise_anything_and_what_is_read_can_be_said(said, data):
    frame = encode(said, KEYS, MAC, 1280)[0]
    start = data.draw(st.integers(26, len(frame) - 16))
    end = data.draw(st.integers(start, len(frame) - 16))
    spoilt = resigned(frame[:start] + data.draw(st.binary(max_size=40)) + frame[end:])
    found = decode(spoilt, KEYS)
    if found is not Rejected.MALFORMED:
        assert parts(found, 65535) == [found._replace(part=0)]


SECTIONS = encode(hello(), KEYS, MAC)[0][:-16]
ONE, TWO = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
N2 = {"n2": Heard(Incarnation(1), 100, 3)}
BOTH_FAMILIES = {ONE: 1, IPv6Address(1): 7}


def carried(*sections):
    """What is read of a signed hello with these sections, in hex and without their length where it is right."""
    values = [bytes.fromhex(section) for section in sections]
    made = [value[:1] + (len(value) - 1).to_bytes(2, "big") + value[1:] for value in values]
    return decode(resigned(SECTIONS + b"".join(made) + bytes(16)), KEYS)


LONG = "02 04 30 0a000001 01" + " 00 01 01" * 9
LONG_CLAIMS = {ONE + number: 1 for number in range(10)}
"""A hello of some length."""


@pytest.mark.parametrize(
    ("sections", "fields"),
    [
        (["02 04 30 0a000001 01"], {"claims": {ONE: 1}}),
        (["02 04 30 0a000001 01 00 01 02"], {"claims": {ONE: 1, TWO: 2}}),
        (["02 04 30 0a000001 01", "02 04 30 0a000002 02"], {"claims": {ONE: 1, TWO: 2}}),
        (["02 04 30 fffffffe 01 00 01 01"], {"claims": {IPv4Address(2**32 - 2): 1, IPv4Address(2**32 - 1): 1}}),
        (["02 04 00 00 01"], {"claims": {IPv4Address(0): 1}}),
        (["03 04 40 000a000001 01"], {"intents": {ONE: 1}}),
        (["04 06 03 01 80000000"], {"yielded": {IPv6Address(1): MAX_TERM}}),
        (["02 04"], {}),
        (["01 04 0000000000000000000000000a000001 04 0000000000000000000000000a000001"], {"covers": Span(ONE, ONE)}),
        (["05 0001 01 01 64 00 00 02 6e32 0000000000000001 03"], {"heard": N2}),
        (["05 0001 02 04 0064 00 00 02 6e32 0000000000000001 00000003"], {"heard": N2}),
        (["05 0000 01 01", "05 0001 01 01 64 00 00 02 6e32 0000000000000001 03"], {"heard": N2}),
        (
            [LONG, *(f"05 0001 01 01 64 00 00 02 6e3{n} 0000000000000001 03" for n in (2, 3))],
            {"claims": LONG_CLAIMS, "heard": N2 | {"n3": N2["n2"]}},
        ),
        (
            [LONG, "05 0001 01 01 64 00 00 02 6e32 0000000000000001 03", "09 0000002a"],
            {"claims": LONG_CLAIMS, "heard": N2, "revision": 42},
        ),
        (["06 00 00 02 6e32 01 00 01 33"], {"probes": frozenset({"n2", "n3"})}),
        (["07 00 00 02 6e32", "07 00 00 02 6e33"], {"wants": frozenset({"n2", "n3"})}),
        (["08 04 0a000001 00 00 02 6e32 04 0a000002 02 00 00"], {"moves": {ONE: "n2", TWO: "n2"}}),
        (["0a c0000201"], {"addresses": BOTH[:1]}),
        (["0a fe800000000000000000000000000001"], {"addresses": BOTH[1:]}),
        (["0a c0000201 fe800000000000000000000000000001"], {"addresses": BOTH}),
        (["02 04 30 0a000001 01 00 01 02", "0c 02"], {"claims": {ONE: 1, TWO: 2}, "weak": frozenset({TWO})}),
        (
            ["0c 03", "02 04 30 0a000001 01", "02 06 00 01 07"],
            {"claims": BOTH_FAMILIES, "weak": frozenset(BOTH_FAMILIES)},
        ),
        (["02 04 30 0a000001 01", "0c 00"], {"claims": {ONE: 1}}),
        (["0c"], {}),
        (["0d 0064"], {"interval": 100}),
        (["0d ffff"], {"interval": 65535}),
        (["0f 30 00 00 02 6e32", "0f 64 00 00 02 6e33"], {"lost": {"n2": 48, "n3": 100}}),
        (["0f"], {}),
        (["10 02"], {"links": 2}),
        (["ff 00"], {}),
    ],
)
def test_a_section_says_what_the_format_says(sections, fields):
    for _ in range(3):  # also as what it said before
        assert carried(*sections) == hello(**fields)


@pytest.mark.parametrize("kind", ["02", "03", "04"], ids=["claims", "intents", "yielded"])
@pytest.mark.parametrize("term", ["ffffffff", "80000001"])
def test_a_term_that_no_speaker_comes_to_is_refused(kind, term):
    assert carried(f"{kind} 04 33 0a000001 {term}") is Rejected.MALFORMED


LONG = (b"\x00\x00\xfd" + b"n" * 253).hex()


@pytest.mark.parametrize(
    "sections",
    [
        ["02"],
        ["02 05 30 0a000001 01"],  # IP version 5
        ["02 04 30 0a0000"],  # cut off
        ["02 04 30 0a000001"],
        ["02 04 31 0a000001 01"],
        ["02 04 30 0a000001 01 00"],
        ["02 04 34 0a000001 0000000001"],  # a term of five bytes
        ["02 04 30 0a000001 01 00 00 02"],  # an EIP twice
        ["02 04 30 0a000001 01", "02 04 30 0a000001 01"],
        ["02 04 40 0100000000 01"],  # beyond the last address
        ["02 04 30 ffffffff 01 00 01 01"],
        ["02 06 f0 ffffffffffffffffffffffffffffffff 01 00 01 01"],
        ["01"],
        ["01 04 0000000000000000000000000a000002 04 0000000000000000000000000a000001"],  # ends before it begins
        ["01 04 0000000000000000000000010a000001 04 0000000000000000000000000a000002"],
        ["01 05 0000000000000000000000000a000001 05 0000000000000000000000000a000002"],
        ["01 04 0000000000000000000000000a000001 04 0000000000000000000000000a000001"] * 2,
        ["05"],
        ["05 0001 01 01 64 00 00 02 6e32 0000000000000001 03 00"],
        ["05 0001 01 01 64 00 00 02 6e32 0000000000000001"],
        ["05 0001 01 01 64 00 00 02 6e32 8000000000000000 03"],  # no int64
        ["05 0002 01 01 64 64 00 00 02 6e32 0000000000000001 03"],  # an age too many
        ["05 0000 01 01 00 00 02 6e32 0000000000000001 03"],  # and one too few
        ["05 0001 00 01 00 00 02 6e32 0000000000000001 03"],
        ["05 0001 03 01 000064 00 00 02 6e32 0000000000000001 03"],
        ["05 0001 01 00 64 00 00 02 6e32 0000000000000001"],
        ["05 0001 01 05 64 00 00 02 6e32 0000000000000001 0000000003"],
        ["05 0002 01 01 64 64 00 00 02 6e32 0000000000000001 03 02 00 00 0000000000000001 03"],  # a peer twice
        ["05 0001 01 01 64 00 00 02 6e32 0000000000000001 03"] * 2,
        ["06 00 00 00"],  # a name of nothing
        ["06 00 00 03 6e32"],
        ["06 00 00"],
        ["06 00 00 01 ff"],  # not UTF-8
        ["06 01 00 01 6e"],  # like more than there was
        ["06 00 01 01 6e"],
        ["06 00 00 02 6e32 02 01 01 6e"],
        ["06" + LONG + "fd 00 01 6e"],  # 254 bytes
        ["08 05 0a000001 00 00 02 6e32"],
        ["08 04 0a000001"],
        ["08 04 0a0000"],
        ["08 04 0a000001 00 00 00"],
        ["08 04 0a000001 00 00 02 6e32 04 0a000001 02 00 00"],
        ["08 04 0a000001 00 00 02 6e32"] * 2,
        ["0a"],
        ["0a c00002"],
        ["0a c0000201 c0000202"],
        ["0a fe800000000000000000000000000001 c0000201 00"],
        ["0a fe800000000000000000000000000001 fe800000000000000000000000000002"],
        ["0a c0000201", "0a fe800000000000000000000000000001"],
        ["0c 01"],  # marks no claim
        ["02 04 30 0a000001 01", "0c"],
        ["02 04 30 0a000001 01", "0c 02"],
        ["02 04 30 0a000001 01", "0c 01 00"],
        ["02 04 30 0a000001 01", "0c 01", "0c 01"],
        ["0d"],
        ["0d 64"],
        ["0d 00000064"],
        ["0d 0064", "0d 0064"],
        ["0f 65 00 00 02 6e32"],  # more than all of them
        ["0f 30 00 00 02 6e32"] * 2,  # a peer twice
        ["0f 30"],
        ["10"],
        ["10 02", "10 02"],
    ],
)
def test_a_section_that_breaks_the_format_is_malformed(sections):
    assert carried(*sections) is Rejected.MALFORMED


@pytest.mark.parametrize(
    "end",
    [
        "02",
        "02 00",
        "02 0001",
        "02 0008 04 30 0a000001 01",
        "05 0014 0001 01 01 64 00 00 02 6e32 0000000000000001 03",
        "ff 0001",
    ],
)
def test_a_section_that_ends_beyond_the_frame_is_malformed(end):
    assert decode(resigned(SECTIONS + bytes.fromhex(end) + bytes(16)), KEYS) is Rejected.MALFORMED


@pytest.mark.parametrize("name", [b"\x00", b"\xfe" + b"n" * 254, b"\x01\xff", b"\x03n1"])
def test_a_node_without_a_proper_name_is_malformed(name):
    assert SECTIONS[69:] == b"\x02n1"
    assert decode(resigned(SECTIONS[:69] + name + bytes(16)), KEYS) is Rejected.MALFORMED


def test_an_incarnation_that_no_api_object_can_hold_is_malformed():
    frame = encode(hello(incarnation=Incarnation(2**63 - 1)), KEYS, MAC)[0]
    assert isinstance(decode(frame, KEYS), Hello)
    assert decode(resigned(frame[:26] + b"\x80" + frame[27:]), KEYS) is Rejected.MALFORMED


# ── What is known before the tag ──────────────────────────────────────────────────────────────────────────────


@given(hellos, mtus)
def test_a_peek_shows_whose_frame_it_is_and_which(said, mtu):
    for frame in encode(said, KEYS, MAC, mtu):
        assert peek(frame) == ((said.node, said.link), decode(frame, KEYS).stamp)


@given(hellos, st.data())
def test_a_peek_needs_nothing_behind_the_name(said, data):
    frame = encode(said, KEYS, MAC, 1280)[0]
    end = 70 + len(said.node.encode())
    assert peek(frame[: data.draw(st.integers(end, len(frame)))]) == peek(frame)


def test_a_peek_at_a_frame_without_a_name_shows_nothing():
    frame = encode(hello(), KEYS, MAC)[0]
    assert [peek(frame[:size]) for size in range(71)] == [None] * 71
    assert peek(frame[:72]) == peek(frame) == (("n1", hello().link), hello().stamp)


@pytest.mark.parametrize(
    ("at", "instead"),
    [(14, b"EIPx"), (18, b"\x02"), (70, b"\xff\xff")],
    ids=["foreign", "another major version", "a name that is no text"],
)
def test_a_peek_at_no_hello_shows_nothing(at, instead):
    frame = encode(hello(), KEYS, MAC)[0]
    assert peek(frame[:at] + instead + frame[at + len(instead) :]) is None


def test_a_kernel_filter_finds_what_it_matches_where_the_constants_say():
    frame = encode(hello(), KEYS, MAC)[0]
    for at, value in (
        (12, frames.ETHERTYPE.to_bytes(2, "big")),
        (frames.MAGIC_AT, frames.MAGIC),
        (frames.MAJOR_AT, bytes((frames.MAJOR,))),
        (22, OLD.id),
    ):
        assert frame[at : at + len(value)] == value


# ── Two releases side by side ─────────────────────────────────────────────────────────────────────────────────

GOLDEN = hello(
    node="node-a",
    incarnation=Incarnation(0x3000000012345678),
    sequence=0x0102030405,
    clock=86_400_000,
    digest=Digest(4, 0x1122334455667788),
    draining=True,
    claims={
        IPv4Address("192.0.2.1"): 7,
        IPv4Address("192.0.2.9"): 8,
        IPv6Address("2001:db8::1"): 9,
        IPv6Address("2001:db8:1::1"): 258,
    },
    covers=Span(IPv4Address("192.0.2.0"), IPv6Address("2001:db8::ff")),
    intents={IPv4Address("192.0.2.2"): 10},
    yielded={IPv6Address("2001:db8::2"): 11},
    heard={"node-b": Heard(Incarnation(0x3000000087654321), 40, 2), "node-c": Heard(Incarnation(1), MAX_AGE)},
    probes=frozenset({"node-c"}),
    wants=frozenset({"node-d", "node-b"}),
    moves={IPv4Address("192.0.2.9"): "node-b", IPv6Address("2001:db8::1"): "node-c"},
    link=3,
)
GOLDEN_1_0 = """
    ffffffffffff 020000000001 88b5
    45495068 01 00 0139 f4657642
    3000000012345678 0000000102030405 0000 00000003 0000000005265c00 01 00000004 1122334455667788 06 6e6f64652d61
    06 0009 00 00 06 6e6f64652d63
    07 000d 00 00 06 6e6f64652d62 05 00 01 64
    08 0023 04 c0000209 00 00 06 6e6f64652d62 06 20010db8000000000000000000000001 05 00 01 63
    03 0007 04 30 c0000202 0a
    04 0013 06 f0 20010db8000000000000000000000002 0b
    02 0014 06 f1 20010db8000100000000000000000001 0102
    05 0027 0002 02 01 0028 ffff 00 00 06 6e6f64652d62 3000000087654321 02 05 00 01 63 0000000000000001 00
    02 000a 04 30 c0000201 07 00 08 08
    02 0013 06 f0 20010db8000000000000000000000001 09
    01 0022 04 000000000000000000000000c0000200 06 20010db80000000000000000000000ff
    af8a77ce6fd012a067c4e40e787d8c1c
"""
"""The tag is what ``openssl dgst -sha256 -mac HMAC -macopt hexkey:0001..1f`` says of all from byte 6 to it, its first
half; so are those of 1.1 to 1.5."""


GOLDEN_1_1 = (
    GOLDEN_1_0.replace("45495068 01 00 0139", "45495068 01 01 0150")
    .replace("02 000a 04 30", "0a 0014 c0000201 fe800000000000000000000000000001 02 000a 04 30")
    .replace("af8a77ce6fd012a067c4e40e787d8c1c", "f00f0fd18523619321f428bb2e11d5fc")
)


GOLDEN_1_2 = (
    GOLDEN_1_1.replace("45495068 01 01 0150", "45495068 01 02 0169")
    .replace("02 000a 04 30", "0b 0016 04 c0000201 06 20010db8000000000000000000000001 02 000a 04 30")
    .replace("f00f0fd18523619321f428bb2e11d5fc", "0702f4118f50afaa777bf8889df929ab")
)
GOLDEN_1_3 = (
    GOLDEN_1_2.replace("45495068 01 02 0169", "45495068 01 03 0172")
    .replace("0000000005265c00 01", "0000000005265c00 07")
    .replace("06 0009 00", "0d 0002 0064 06 0009 00")
    .replace("0702f4118f50afaa777bf8889df929ab", "0c 0001 05 4dce7cb5d41d547b96370b425b7a58d0")
)
GOLDEN_1_4 = (
    GOLDEN_1_3.replace("45495068 01 03 0172", "45495068 01 04 0172")
    .replace("0000000005265c00 07", "0000000005265c00 17")
    .replace("4dce7cb5d41d547b96370b425b7a58d0", "e28bdea866ac88bd026c4c93fa44c78e")
)
GOLDEN_1_5 = (
    GOLDEN_1_4.replace("45495068 01 04 0172", "45495068 01 05 0195")
    .replace("0000000005265c00 17", "0000000005265c00 77")
    .replace("0d 0002 0064 06 0009 00", "0d 0002 0064 10 0001 02 06 0009 00")
    .replace(
        "03 0007 04 30",
        "0e 000f 04 00 00 06 6e6f64652d62 06 05 00 01 63 0f 000a 30 00 00 06 6e6f64652d63 03 0007 04 30",
    )
    .replace("e28bdea866ac88bd026c4c93fa44c78e", "cee3f31e09a274077290a5084dd3d376")
)
OWN = frozenset({IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1")})
WEAK = frozenset({IPv4Address("192.0.2.9"), IPv6Address("2001:db8:1::1")})


SAID_1_4 = GOLDEN._replace(addresses=BOTH, own=OWN, deaf=True, demoted=True, interval=100, weak=WEAK, routine=True)


ACCUSED = frozenset({Accused("node-b", 4), Accused("node-c", 6)})
SAID_1_5 = SAID_1_4._replace(headless=True, direct=True, unanswered=ACCUSED, links=2, lost={"node-c": 48})
GOLDEN_1_6 = (
    GOLDEN_1_5.replace("45495068 01 05 0195", "45495068 01 06 01ac")
    .replace("10 0001 02 06 0009 00", "10 0001 02 12 0014 1122334455667788 0050 ffffffffffffffff ffff 06 0009 00")
    .replace("cee3f31e09a274077290a5084dd3d376", "73919d4214b7d2ddae33115d82756167")
)


def test_version_1_is_these_bytes_forever():
    said = SAID_1_5._replace(weights={0x1122334455667788: 80, 2**64 - 1: 65535})
    assert [frame.hex() for frame in encode(said, KEYS, MAC)] == ["".join(GOLDEN_1_6.split())]
    assert decode(bytes.fromhex(GOLDEN_1_6), KEYS) == said


def test_what_older_releases_of_version_1_say_is_read():
    heedless = GOLDEN._replace(weighs=False)
    assert decode(bytes.fromhex(GOLDEN_1_0), KEYS) == heedless
    assert decode(bytes.fromhex(GOLDEN_1_1), KEYS) == heedless._replace(addresses=BOTH)
    assert decode(bytes.fromhex(GOLDEN_1_2), KEYS) == heedless._replace(addresses=BOTH, own=OWN)
    since_1_3 = {"deaf": True, "demoted": True, "interval": 100, "weak": WEAK}
    assert decode(bytes.fromhex(GOLDEN_1_3), KEYS) == heedless._replace(addresses=BOTH, own=OWN, **since_1_3)
    assert decode(bytes.fromhex(GOLDEN_1_4), KEYS) == SAID_1_4._replace(weighs=False)
    assert decode(bytes.fromhex(GOLDEN_1_5), KEYS) == SAID_1_5._replace(weighs=False)


def test_a_newer_minor_version_is_read_and_what_it_adds_is_passed_over():
    frame = encode(GOLDEN, KEYS, MAC)[0]
    newer = bytearray(frame[:-16] + b"\xc8\x00\x03new" + b"\xc8\x00\x00" + frame[-16:])
    newer[19] = 9  # minor version
    newer[56] |= 0x80  # a flag of its own
    assert decode(resigned(bytes(newer)), KEYS) == GOLDEN
    for flag, fields in ((0x80, {}), (0x82, {"deaf": True}), (0x84, {"demoted": True})):
        newer[56] = flag
        assert decode(resigned(bytes(newer)), KEYS) == GOLDEN._replace(draining=False, **fields)


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
