"""python tests/fuzz/fuzz_ndp.py -runs=200000: no bytes make NDP raise anything but MalformedPacket."""

import sys
from ipaddress import IPv6Address
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports():
    import replies

    from speaker.errors import MalformedPacket
    from speaker.layer2.answer import Claims, Ignored, answer_ndp
    from speaker.model import Mac
    from speaker.packets import ndp

EIP = IPv6Address("2001:db8::10")
CLAIMS = Claims(Mac(b"\x02\x00\x00\x00\x00\x01"))
CLAIMS.add(EIP.packed)
CLAIMS.deadline = 1.0


def mended(frame: bytes) -> bytes:
    """The same bytes as a whole neighbour message about our EIP with a right checksum: past the first gates."""
    body = frame[58:62].ljust(4, b"\x00") + EIP.packed + frame[78:]
    kind = bytes((ndp.SOLICITATION + len(frame) % 2, 0))
    addresses = frame[22:54].ljust(32, b"\x00")
    length = 4 + len(body)
    padded = addresses + body + bytes(len(body) % 2)
    total = int.from_bytes(padded, "big") + int.from_bytes(kind, "big") + length + 58
    checksum = (-total % 0xFFFF).to_bytes(2, "big")
    header = frame[:12].ljust(12, b"\x00") + b"\x86\xdd\x60\x00\x00\x00" + length.to_bytes(2, "big") + b"\x3a\xff"
    return header + addresses + kind + checksum + body


def one(data: bytes) -> None:
    """The first byte is the packet type; then the frame, tried as it is and mended."""
    pkttype, frame = (data[0] if data else 0), data[1:]
    for attempt in (frame, mended(frame[:1500])):
        outcome = answer_ndp(attempt, pkttype, CLAIMS, 0.0)
        assert isinstance(outcome, bytes | Ignored)
        assert outcome is not Ignored.CHECKSUM or attempt is frame
        try:
            packet = ndp.parse(attempt)
        except MalformedPacket:
            assert not isinstance(outcome, bytes)
            continue
        packet.pack()
        if isinstance(outcome, bytes):
            assert isinstance(packet, ndp.NeighborSolicitation)
            assert outcome == replies.advertisement(packet, CLAIMS.mac).pack()


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
