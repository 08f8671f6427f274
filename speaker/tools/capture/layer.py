"""Hellos as a scapy layer, which reads and builds the bytes that ``ownership/hellos/frames.py`` describes.

Edge to scapy, which is GPL-2.0-only: imported by ``speaker capture`` alone, and from a scapy shell::

    from speaker.tools.capture.layer import Hello
    sniff(iface="eth0", filter="ether proto 0x88b5", prn=lambda frame: frame.show())

What a hello means is asked of the speaker's own reader: ``Hello.meaning``.
"""

from typing import Any

from scapy import fields
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_layers

from speaker.ownership import hello as said
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Keys
from speaker.ownership.hellos.layout import Kind

_TAG = 16
_HEAD = 4 + 1 + 1 + 2 + 4 + 8 + 8 + 2 + 4 + 8 + 1 + 4 + 8 + 1
"""Bytes before the name."""


class HelloSection(Packet):
    name = "hello section"
    fields_desc = [  # noqa: RUF012 -- scapy's own way
        fields.ByteEnumField("kind", Kind.CLAIMS, {int(kind): kind.name for kind in Kind}),
        fields.FieldLenField("length", None, length_of="value", fmt="!H"),
        fields.XStrLenField("value", b"", length_from=lambda section: section.length),
    ]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


class Hello(Packet):
    """``length`` is computed if it is None; ``tag`` is used as given, as ``frames.encode`` signs."""

    name = "hello"
    fields_desc = [  # noqa: RUF012 -- scapy's own way
        fields.StrFixedLenField("magic", frames.MAGIC, 4),
        fields.ByteField("major", frames.MAJOR),
        fields.ByteField("minor", frames.MINOR),
        fields.ShortField("length", None),
        fields.XStrFixedLenField("key_id", bytes(4), 4),
        fields.LongField("incarnation", 0),
        fields.LongField("sequence", 0),
        fields.ShortField("part", 0),
        fields.IntField("link", 0),
        fields.LongField("clock", 0),
        fields.FlagsField("flags", 0, 8, ["draining", "deaf", "demoted", "recalled", "routine", "headless", "direct"]),
        fields.IntField("claims", 0),
        fields.LongField("sum", 0),
        fields.FieldLenField("node_length", None, length_of="node", fmt="B"),
        fields.StrLenField("node", b"", length_from=lambda hello: hello.node_length),
        fields.PacketListField("sections", [], HelloSection, length_from=lambda hello: hello.sections_length()),
        fields.XStrFixedLenField("tag", bytes(_TAG), _TAG),
    ]

    def sections_length(self) -> int:
        return max(0, int(self.length) - _HEAD - int(self.node_length) - _TAG)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.length is None:
            pkt = pkt[:6] + len(pkt).to_bytes(2, "big") + pkt[8:]
        return pkt + pay

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **__: Any) -> type[Packet]:
        """Other protocols use the EtherType too."""
        return cls if not _pkt or _pkt.startswith((frames.MAGIC, frames.OF_GROUPS)) else Raw

    @staticmethod
    def meaning(frame: Packet, keys: Keys | None = None) -> said.Hello | frames.Rejected:
        """Of a whole frame, from its Ethernet header on. Without ``keys``, whoever signed it is believed."""
        raw = bytes(frame)
        return frames.unverified(raw) if keys is None else frames.decode(raw, keys, None)


bind_layers(Ether, Hello, type=frames.ETHERTYPE)
