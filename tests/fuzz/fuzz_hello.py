"""python tests/fuzz/fuzz_hello.py -runs=200000: no bytes make hello or a key file raise anything unasked.

Fuzzers do not find tags, so every input is tried as it is, behind our header, and signed, as a whole body and as the
sections of one: what a peer might send.
"""

import hmac
import sys
from contextlib import suppress

import atheris

with atheris.instrument_imports():
    from speaker.errors import SettingError
    from speaker.model import Mac
    from speaker.ownership.hello import Hello, Span
    from speaker.ownership.hellos import keys
    from speaker.ownership.hellos.frames import MIN_MTU, Rejected, decode, encode, peek

KEYS = keys.Keys(keys.Key(bytes(32)), keys.Key(bytes(range(32))))
MAC = Mac(b"\x02\x00\x00\x00\x00\x01")
HEADER = b"\xff" * 6 + MAC + b"\x88\xb5EIPh\x01\x00"

FIXED = bytes(43) + b"\x02n1"


def signed(body: bytes) -> bytes:
    length = (12 + len(body) + 16) & 0xFFFF
    head = HEADER + length.to_bytes(2, "big") + KEYS.signing.id + body
    return head + hmac.digest(KEYS.signing.secret, head[6:], "sha256")[:16]


def again(found: Hello) -> None:
    """What was read can be said, in narrow frames too, and is then heard the same."""
    parts = [decode(frame, KEYS) for frame in encode(found, KEYS, MAC, MIN_MTU)]
    for field in ("claims", "intents", "yielded", "heard", "moves"):
        assert {key: value for part in parts for key, value in getattr(part, field).items()} == getattr(found, field)
    for field in ("probes", "wants", "own", "weak"):
        assert frozenset().union(*(getattr(part, field) for part in parts)) == getattr(found, field)
    for field in ("draining", "deaf", "demoted", "revision", "interval"):
        assert {getattr(part, field) for part in parts} == {getattr(found, field)}
    told = [part.addresses for part in parts if part.addresses]
    assert told == [found.addresses] * bool(found.addresses)
    covered = [part.covers for part in parts if part.covers is not None]
    assert (Span(covered[0].first, covered[-1].last) if covered else None) == found.covers


def one(data: bytes) -> None:
    for body in (data, FIXED + data):
        frame = signed(body)
        for unsigned in (body, HEADER + body, frame[:-1] + bytes((frame[-1] ^ 1,))):
            peek(unsigned)
            assert isinstance(decode(unsigned, KEYS), Rejected)
        found = decode(frame, KEYS)
        if isinstance(found, Hello):
            assert peek(frame) == ((found.node, found.link), found.stamp)
            again(found)
        else:
            assert found in (Rejected.MALFORMED, Rejected.OVERSIZED)
    with suppress(SettingError):
        keys.parse(data, "f")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
