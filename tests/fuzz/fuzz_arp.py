"""python tests/fuzz/fuzz_arp.py -runs=200000: no bytes make ARP raise anything but MalformedPacket."""

import sys
from ipaddress import IPv4Address
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports():
    import replies

    from speaker.errors import MalformedPacket
    from speaker.layer2.answer import Claims, Ignored, answer_arp
    from speaker.model import Mac
    from speaker.packets import arp

CLAIMS = Claims(Mac(b"\x02\x00\x00\x00\x00\x01"))
CLAIMS.add(IPv4Address("192.0.2.10").packed)
CLAIMS.deadline = 1.0


def one(data: bytes) -> None:
    """The first byte is the packet type; then the frame, tried as it is and behind a right header."""
    pkttype, frame = (data[0] if data else 0), data[1:]
    for attempt in (frame, frame[:12] + arp.FIXED + frame[20:], frame[:38] + b"\xc0\x00\x02\x0a" + frame[42:]):
        outcome = answer_arp(attempt, pkttype, CLAIMS, 0.0)
        assert isinstance(outcome, bytes | Ignored)
        try:
            packet = arp.parse(attempt)
        except MalformedPacket:
            assert not isinstance(outcome, bytes)
            continue
        assert attempt.startswith(packet.pack())
        if isinstance(outcome, bytes):
            assert outcome == replies.reply(packet, CLAIMS.mac).pack()


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
