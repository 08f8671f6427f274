"""What is remembered of speakers has a bound."""

from ipaddress import IPv4Address

from speaker.model import Mac
from speaker.node.handover import MAX_SPEAKERS, HandOver
from speaker.node.report import Report
from speaker.telemetry.metrics import Metrics
from speaker.wire.told import Speaker


def test_speakers_without_end_are_not_remembered_and_whoever_spoke_last_is(tmp_path):
    hand_over = HandOver(None, Report(Metrics(), tmp_path))
    heard = Speaker(Mac(bytes(6)), (IPv4Address("192.0.2.1"),))
    for number in range(MAX_SPEAKERS + 100):
        hand_over.speaker(1, f"n{number}", heard)
        hand_over.speaker(1, "real", heard)
    assert len(hand_over._speakers) == MAX_SPEAKERS
    assert (1, "real") in hand_over._speakers
