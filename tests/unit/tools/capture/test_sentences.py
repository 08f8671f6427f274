"""What is said of frames: each sentence here is what somebody reads at three in the morning."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
import replies
from hypothesis import given
from hypothesis import strategies as st

from speaker.model import Mac
from speaker.ownership.hello import EVERYTHING, Digest, Heard, Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.score import claim_hash
from speaker.packets import arp, ndp
from speaker.tools.capture.neighbourhood import MAX_FRAME, Event, Neighbourhood, What, read, sentence

KEYS, OTHERS = Keys(Key(b"k" * 32)), Keys(Key(b"o" * 32))
N1, N2, CLIENT, STRANGER = (Mac(bytes((2, 0, 0, 0, 0, last))) for last in (1, 2, 0x50, 0x99))
EIP, EIP6, ASKER = IPv4Address("192.0.2.10"), IPv6Address("2001:db8::10"), IPv4Address("192.0.2.50")
LIFE = Incarnation(1 << 40)


def hello(node="node2", sequence=1, claims=None, **fields):
    claims = {ip_address(eip): term for eip, term in (claims or {}).items()}
    digest = Digest(len(claims), sum(claim_hash(eip, term) for eip, term in claims.items()) % 2**64)
    said = Hello(node, LIFE, sequence, 1, digest, claims=claims, covers=EVERYTHING)
    return said._replace(**fields)


def sent(said, source=N2, keys=KEYS):
    (frame,) = frames.encode(said, keys, source)
    return frame


class Listener:
    """Frames in, sentences out; a millisecond passes with each."""

    def __init__(self, keys=KEYS, all_hellos=False):
        self.keys, self.now = keys, 1000.0
        self.neighbourhood = Neighbourhood(keys is not None, all_hellos)
        self.events: list[Event] = []

    def hears(self, *captured):
        told = []
        for frame in captured:
            self.now += 0.001
            if (seen := read(frame, self.keys)) is not None:
                told += self.neighbourhood.notice(self.now, seen)
        self.events += told
        return [sentence(event) for event in told]

    def after(self, seconds):
        self.now += seconds
        return [sentence(event) for event in self.neighbourhood.pass_time(self.now)]


def test_a_node_is_told_of_once_and_then_what_changes():
    link = Listener()
    assert link.hears(sent(hello(claims={"192.0.2.10": 5}, heard={"node1": Heard(LIFE, 1)}))) == [
        "node2 sends a hello: it holds 1 EIP and hears node1",
        "node2 claims 192.0.2.10 (term 5)",
    ]
    assert link.hears(sent(hello(sequence=2, claims={"192.0.2.10": 5}))) == []
    assert link.hears(sent(hello(sequence=3, claims={"192.0.2.10": 5}, draining=True))) == [
        "node2 is draining: it hands its EIPs over"
    ]
    assert link.hears(sent(hello(sequence=4, draining=True, yielded={EIP: 5}))) == [
        "node2 gives up 192.0.2.10 (term 5)"
    ]


def test_every_hello_is_told_of_where_that_is_asked_for():
    link = Listener(all_hellos=True)
    for sequence in (1, 2):
        assert link.hears(sent(hello(sequence=sequence))) == [
            "node2 sends a hello: it holds no EIP and hears no other node"
        ]


def test_what_is_repeated_or_comes_late_says_nothing():
    link = Listener()
    link.hears(sent(hello(sequence=2, claims={"192.0.2.10": 5})))
    assert link.hears(sent(hello(sequence=2)), sent(hello(sequence=1))) == []


def test_a_node_that_falls_silent_is_told_of_with_what_it_held():
    link = Listener()
    link.hears(sent(hello(claims={"192.0.2.10": 5})))
    assert link.after(0.3) == []
    assert link.after(0.1) == ["node2 has sent no hello for 0.4 s; it held 192.0.2.10 (term 5)"]
    assert link.after(10) == []


def test_two_nodes_that_claim_one_eip_are_named_together():
    link = Listener()
    link.hears(sent(hello(claims={"192.0.2.10": 5})))
    assert link.hears(sent(hello("node1", claims={"192.0.2.10": 6}), N1))[1:] == [
        "node1 claims 192.0.2.10 (term 6); also claimed by node2"
    ]


def test_two_hosts_of_one_name_are_an_alarm():
    link = Listener()
    link.hears(sent(hello()))
    told = link.hears(sent(hello(incarnation=Incarnation(LIFE + 1)), N1))
    assert told[0] == "node2 is the name of two hosts: 02:00:00:00:00:01 uses it too, and the first host is still alive"
    assert link.events[-2].alarm


def test_many_eips_are_counted_and_json_has_them_all():
    link = Listener()
    _, told = link.hears(sent(hello(claims={f"192.0.2.{last}": 1 for last in range(10, 20)})))
    assert told == (
        "node2 claims 192.0.2.10 (term 1), 192.0.2.11 (term 1), 192.0.2.12 (term 1), 192.0.2.13 (term 1), and 6 more"
    )
    assert len(link.events[-1].as_json()["eips"]) == 10


@pytest.mark.parametrize(
    ("frame", "told", "alarm"),
    [
        (arp.request(CLIENT, ASKER, EIP).pack(), "192.0.2.50 (02:00:00:00:00:50) asks who has 192.0.2.10", False),
        (
            arp.request(CLIENT, IPv4Address(0), EIP).pack(),
            "02:00:00:00:00:50 probes whether 192.0.2.10 is in use",
            False,
        ),
        (
            replies.reply(arp.request(CLIENT, ASKER, EIP), N2).pack(),
            "node2 answers 192.0.2.50: 192.0.2.10 is at 02:00:00:00:00:02",
            False,
        ),
        (
            replies.reply(arp.request(CLIENT, ASKER, EIP), STRANGER).pack(),
            "a stranger (02:00:00:00:00:99) answers 192.0.2.50: 192.0.2.10 is at 02:00:00:00:00:99, "
            "but node2 claims it (term 5)",
            True,
        ),
        (replies.gratuitous_request(N2, EIP).pack(), "node2 announces 192.0.2.10 at 02:00:00:00:00:02", False),
        (replies.gratuitous_reply(N2, EIP).pack(), "node2 announces 192.0.2.10 at 02:00:00:00:00:02", False),
        (
            replies.gratuitous_reply(STRANGER, EIP).pack(),
            "a stranger (02:00:00:00:00:99) announces 192.0.2.10 at 02:00:00:00:00:99, but node2 claims it (term 5)",
            True,
        ),
        (
            replies.gratuitous_request(N1, EIP).pack(),
            "node1 announces 192.0.2.10 at 02:00:00:00:00:01, but node2 claims it (term 5)",
            False,
        ),
        (
            replies.reply(arp.request(CLIENT, ASKER, IPv4Address("192.0.2.1")), STRANGER).pack(),
            "a host answers 192.0.2.50: 192.0.2.1 is at 02:00:00:00:00:99",
            False,
        ),
        (
            ndp.solicitation(CLIENT, IPv6Address("fe80::50"), EIP6).pack(),
            "fe80::50 (02:00:00:00:00:50) asks who has 2001:db8::10",
            False,
        ),
        (
            replies.advertisement(ndp.solicitation(CLIENT, IPv6Address("fe80::50"), EIP6), N2).pack(),
            "node2 answers fe80::50: 2001:db8::10 is at 02:00:00:00:00:02",
            False,
        ),
        (
            replies.unsolicited(STRANGER, EIP6).pack(),
            "a stranger (02:00:00:00:00:99) announces 2001:db8::10 at 02:00:00:00:00:99, but node2 claims it (term 7)",
            True,
        ),
        (
            arp.request(CLIENT, ASKER, EIP).pack()[:30],
            "02:00:00:00:00:50 sends malformed ARP or NDP: 30 bytes: ARP takes 42",
            False,
        ),
        (sent(hello(), STRANGER, OTHERS), "02:00:00:00:00:99 sends a hello that is signed with another key", False),
        (
            sent(hello(sequence=9))[:-1] + b"?",
            "02:00:00:00:00:02 sends a forged hello: it names our key, but its signature is wrong",
            True,
        ),
    ],
)
def test_who_asks_who_answers_and_who_does_so_though_a_node_claims_it(frame, told, alarm):
    link = Listener()
    link.hears(sent(hello("node1"), N1), sent(hello(claims={"192.0.2.10": 5, "2001:db8::10": 7})))
    assert link.hears(frame) == [told]
    assert link.events[-1].alarm is alarm


def test_who_sends_from_an_eip_as_its_own_address_is_an_alarm():
    link = Listener()
    link.hears(sent(hello(claims={"192.0.2.10": 5})))
    uses, asks = link.hears(arp.request(STRANGER, EIP, IPv4Address("192.0.2.1")).pack())
    assert uses == ("a stranger (02:00:00:00:00:99) uses 192.0.2.10 as its own address, but node2 claims it (term 5)")
    assert asks == "192.0.2.10 (02:00:00:00:00:99) asks who has 192.0.2.1"


def test_of_another_vlan_that_is_said():
    frame = arp.request(CLIENT, ASKER, EIP).pack()
    (told,) = Listener().hears(frame[:12] + b"\x81\x00\x00\x07" + frame[12:])
    assert told.endswith("asks who has 192.0.2.10 [VLAN 7]")


def test_without_a_key_hellos_are_told_as_unverified_whoever_signed_them():
    link = Listener(keys=None)
    assert link.hears(sent(hello(claims={"192.0.2.10": 5}), keys=OTHERS)) == [
        "node2 sends a hello: it holds 1 EIP and hears no other node [unverified]",
        "node2 claims 192.0.2.10 (term 5) [unverified]",
    ]
    assert [event.as_json()["verified"] for event in link.events] == [False, False]


def test_an_event_in_json_has_what_a_program_wants_and_the_sentence():
    link = Listener()
    link.hears(sent(hello(claims={"192.0.2.10": 5})), replies.reply(arp.request(CLIENT, ASKER, EIP), STRANGER).pack())
    assert link.events[-1].as_json() == {
        "time": 1000.002,
        "event": "answers",
        "mac": "02:00:00:00:00:99",
        "address": "192.0.2.10",
        "to": "192.0.2.50",
        "holders": {"node2": 5},
        "alarm": True,
        "sentence": sentence(link.events[-1]),
    }


# ── Hostile ───────────────────────────────────────────────────────────────────────────────────────────────────

NASTY = ["\x1b[31mnode2", "node\u202e2", "a\nb", "\x9b2J", "\x07", "n" * 253, "\u2028"]


@pytest.mark.parametrize("name", NASTY)
def test_what_a_name_says_to_a_terminal_never_reaches_it(name):
    link = Listener(keys=None)
    said = hello(name, claims={"192.0.2.10": 5}, heard={name + "x" if len(name) < 253 else "x": Heard(LIFE, 1)})
    told = link.hears(sent(said), replies.gratuitous_reply(STRANGER, EIP).pack()) + link.after(1)
    assert len(told) == 4
    assert all(text.isprintable() for text in told)


GOOD = [
    sent(hello(claims={"192.0.2.10": 5, "2001:db8::10": 7}, heard={"node1": Heard(LIFE, 1)})),
    arp.request(CLIENT, ASKER, EIP).pack(),
    replies.gratuitous_reply(STRANGER, EIP).pack(),
    ndp.solicitation(CLIENT, IPv6Address("fe80::50"), EIP6).pack(),
    replies.unsolicited(STRANGER, EIP6).pack(),
]


@st.composite
def spoilt(draw):
    """A frame of those that count, cut anywhere, with some bytes changed."""
    frame = bytearray(draw(st.sampled_from(GOOD)))
    for at in draw(st.lists(st.integers(0, len(frame) - 1), max_size=6)):
        frame[at] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))] if draw(st.booleans()) else frame)


ETHERTYPES = st.sampled_from([b"\x88\xb5", b"\x08\x06", b"\x86\xdd", b"\x81\x00\x00\x01\x88\xb5"])
headed = st.builds(lambda kind, rest: bytes(12) + kind + rest, ETHERTYPES, st.binary(max_size=200))


@given(st.lists(spoilt() | headed | st.binary(max_size=100), max_size=8), st.sampled_from([None, KEYS]))
def test_whatever_the_bytes_are_each_makes_printable_sentences_or_none(captured, keys):
    link = Listener(keys)
    assert all(text.isprintable() and text for text in link.hears(*captured))
    assert all(event.as_json()["sentence"] == sentence(event) for event in link.events)


def test_a_frame_longer_than_any_link_carries_is_passed_over():
    frame = replies.gratuitous_request(STRANGER, EIP).pack()
    assert read(frame.ljust(MAX_FRAME, b"\0"), None) is not None
    assert read(frame.ljust(MAX_FRAME + 1, b"\0"), None) is None


def test_whoever_makes_up_nodes_and_eips_without_end_fills_no_memory():
    link = Listener(keys=None)
    link.neighbourhood = Neighbourhood(verified=False, most_nodes=3, most_eips=4)
    for number in range(20):
        mac = Mac(bytes((2, 0, 0, 0, 1, number)))
        link.hears(sent(hello(f"n{number}", claims={f"192.0.2.{number}": 1, f"192.0.3.{number}": 1}), mac))
    greeted = [event for event in link.events if event.what is What.HELLO]
    claimed = [event for event in link.events if event.what is What.CLAIMS]
    assert (len(greeted), len(claimed)) == (3, 2)
