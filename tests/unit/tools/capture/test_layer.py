"""The scapy layer and the speaker's own packing read and write the same bytes."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from some_hellos import hellos, mtus

from speaker.model import Mac
from speaker.ownership.hello import Digest, Incarnation
from speaker.ownership.hello import Hello as Said
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.frames import Rejected
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.hellos.layout import Kind
from speaker.tools.capture.layer import Hello, HelloSection

KEYS, OTHERS = Keys(Key(bytes(range(32)))), Keys(Key(bytes(range(100, 140))))
FLAGS = ("draining", "deaf", "demoted", "recalled", "headless")
MAC = Mac(b"\x02\x00\x00\x00\x00\x01")


def rebuilt(frame):
    """From its fields alone, lengths included: nothing of the bytes that were read is left."""
    hello = frame[Hello]
    sections = [HelloSection(kind=each.kind, value=each.value) for each in hello.sections]
    fields = {name: hello.getfieldval(name) for name in hello.default_fields}
    fields |= {"length": None, "node_length": None, "sections": sections}
    return bytes(Ether(dst=frame.dst, src=frame.src, type=frame.type) / Hello(**fields))


IN_ORDER = ("draining", "deaf", "demoted", "recalled", "routine", "headless", "direct")


@given(hellos, mtus)
def test_what_the_speaker_packs_is_read_field_by_field_and_built_again_byte_by_byte(said, mtu):
    for raw in frames.encode(said, KEYS, MAC, mtu):
        frame, meant = Ether(raw), frames.decode(raw, KEYS)
        hello = frame[Hello]
        assert isinstance(meant, Said)
        assert (hello.node.decode(), hello.incarnation, hello.sequence) == (meant.node, *meant.stamp[:2])
        assert (hello.part, hello.link, hello.clock) == (meant.part, meant.link, meant.clock)
        assert Digest(hello.claims, hello.sum) == meant.digest
        assert {str(hello.flags)} - {""} == {"+".join(n for n in IN_ORDER if getattr(meant, n))} - {""}
        assert {Kind(section.kind) for section in hello.sections} >= ({Kind.CLAIMS} if meant.claims else set())
        assert rebuilt(frame) == bytes(frame) == raw
        assert Hello.meaning(frame, KEYS) == Hello.meaning(frame) == meant


def test_without_the_right_key_it_means_the_same_and_proves_nothing():
    (raw,) = frames.encode(Said("node2", Incarnation(1), 1, 1, claims={ip_address("192.0.2.10"): 5}), KEYS, MAC)
    assert Hello.meaning(Ether(raw), OTHERS) is Rejected.WRONG_KEY
    assert Hello.meaning(Ether(raw)) == frames.decode(raw, KEYS)


@given(hellos, st.data())
def test_a_hello_that_is_cut_or_spoilt_anywhere_is_still_a_packet_to_show(said, data):
    (raw, *_) = frames.encode(said, KEYS, MAC, 9000)
    spoilt = bytearray(raw[: data.draw(st.integers(14, len(raw)))])
    for at in data.draw(st.lists(st.integers(0, len(spoilt) - 1), max_size=5)):
        spoilt[at] = data.draw(st.integers(0, 255))
    assert isinstance(Ether(bytes(spoilt)).show(dump=True), str)
    assert isinstance(frames.unverified(bytes(spoilt)), Said | Rejected)


@pytest.mark.parametrize("payload", [b"", b"EIPx" + bytes(60), b"\x00"])
def test_another_protocol_on_the_ethertype_is_no_hello(payload):
    frame = Ether(bytes(12) + b"\x88\xb5" + payload)
    assert not frame.haslayer(Hello)
    assert bool(frame.haslayer(Raw)) is bool(payload)
