"""A frame as it was on the wire → what it says, by the speaker's own reading of hellos, ARP and NDP. Pure."""

from typing import NamedTuple, TypeAlias

from speaker.errors import MalformedPacket
from speaker.model import Mac
from speaker.ownership.hello import Hello
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.frames import Rejected
from speaker.ownership.hellos.keys import Keys
from speaker.packets import arp, ndp
from speaker.packets.ethernet import HEADER_LENGTH

Message: TypeAlias = Hello | Rejected | arp.ArpPacket | ndp.NeighborMessage | MalformedPacket

MAX_FRAME = 65536
"""Bytes; no link carries more, whatever a file says."""
_VLAN = b"\x81\x00"
_ICMPV6, _NEXT_HEADER, _TYPE = 58, 20, 54


class Seen(NamedTuple):
    """``vlan``: the tag that the frame carried, None without one."""

    source: Mac
    message: Message
    vlan: int | None = None


def read(frame: bytes, keys: Keys | None, ethertype: int = frames.ETHERTYPE) -> Seen | None:
    """None for what is about nothing that we show. ``keys``: None believes hellos as they are."""
    if not HEADER_LENGTH <= len(frame) <= MAX_FRAME:
        return None
    vlan = None
    if frame[12:14] == _VLAN:
        vlan = int.from_bytes(frame[14:16], "big") & 0xFFF
        frame = frame[:12] + frame[16:]
    message = _message(frame, keys, ethertype)
    return None if message is None else Seen(Mac(frame[6:12]), message, vlan)


def _message(frame: bytes, keys: Keys | None, ethertype: int) -> Message | None:
    kind = int.from_bytes(frame[12:14], "big")
    try:
        if kind == ethertype:
            return frames.unverified(frame) if keys is None else frames.decode(frame, keys)
        if kind == arp.ETHERTYPE:
            return arp.parse(frame)
        if kind == ndp.ETHERTYPE and _is_neighbour_message(frame):
            return ndp.parse(frame)
    except MalformedPacket as error:
        return error
    return None


def _is_neighbour_message(frame: bytes) -> bool:
    kinds = (ndp.SOLICITATION, ndp.ADVERTISEMENT)
    return len(frame) > _TYPE and frame[_NEXT_HEADER] == _ICMPV6 and frame[_TYPE] in kinds
