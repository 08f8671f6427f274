"""The eBPF program that answers a link's plain requests where they arrive, at tc ingress. Pure.

It decides nothing differently from ``answer.py``: a well-formed request from one host about one EIP that is answered
here gets the same bytes, and everything else goes on to the sockets. It answers until the deadline in ``State`` and no
longer, and not while an urgent hello waits to be read, which may say that another node has the EIP (ownership rules 27
and 28).
"""

import struct
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from speaker.model import Mac
from speaker.packets import PACKET_MULTICAST, arp, ndp
from speaker.packets.ebpf import (
    BYTE,
    FRAME,
    HALF,
    LONG,
    WORD,
    Label,
    Line,
    add,
    add_number,
    add_to,
    assembled,
    call,
    either,
    invert,
    jump,
    leave,
    load,
    map_itself,
    map_value,
    mask,
    move,
    move_number,
    shift_right,
    store,
    store_number,
    unless,
    where,
    where_above,
    where_above_number,
    where_any_of,
    where_different,
    where_not,
)

STATE = struct.Struct("=QIIQQ")
"""The only value in the state's array: nanoseconds of CLOCK_BOOTTIME until which requests are answered; how many urgent
hellos have arrived, and of how many the consequences are done; how many requests were answered by ARP, and by NDP."""
DEADLINE, ARRIVED, HEARD, ARPS, NDPS = 0, 8, 12, 16, 24
KEY = 16
"""Bytes: an EIP as in IPv6 packets, or ``::ffff:a.b.c.d``."""
WATCHED, ANSWERED = b"\0\0\0\0", b"\1\0\0\0"
"""The map's values for an EIP."""
GOES_ON, ANSWERS = 0xFFFFFFFF, 7
"""Verdicts: TCX_NEXT, which is TC_ACT_UNSPEC; TCX_REDIRECT."""

_LENGTH, _PKTTYPE, _PROTOCOL, _VLAN, _DATA, _DATA_END = 0, 4, 16, 20, 76, 80  # of struct __sk_buff
_LOOKUP, _REDIRECT, _CSUM_DIFF, _CHANGE_TAIL, _BOOT_NS = 1, 23, 28, 38, 125  # of the kernel's helpers
_CONTEXT, _FROM, _TO, _STATE = 6, 7, 8, 9  # registers
_ASKED, _ASKER = -16, -32  # on the stack, two keys
_ICMP_SOURCE, _CHECKED = 22, 64  # where the checksum's bytes begin and how many they are
_MAPPED = bytes(10) + b"\xff\xff"
_MAGIC_AT = 14  # behind Ethernet's header


class HelloFrames(NamedTuple):
    """How a hello differs from other frames: its EtherType, where its flags are, the bit of a routine one, and how
    those of our group begin; others do not matter here."""

    ethertype: int
    flags_at: int
    routine: int
    magic: bytes = b""


def key(address: bytes) -> bytes:
    """The key for an EIP of 4 or 16 bytes."""
    return _MAPPED + address if len(address) == 4 else address


def program(eips: int, state: int, link: int, mac: Mac, hellos: HelloFrames | None) -> bytes:
    """The program for the link with index ``link``, whose MAC is ``mac``. ``eips`` and ``state``: descriptors of the
    maps. ``hellos`` None: nobody sends any."""
    return assembled(list(_lines(eips, state, link, mac, hellos)))


def _lines(eips: int, state: int, link: int, mac: Mac, hellos: HelloFrames | None) -> Iterator[Line]:
    yield move(_CONTEXT, 1)
    yield from _frame()
    yield map_value(_STATE, state)
    yield load(WORD, 0, _CONTEXT, _VLAN)
    yield where_not(0, 0, "go on")
    yield load(WORD, 0, _CONTEXT, _PKTTYPE)
    yield where_above_number(0, PACKET_MULTICAST, "go on")
    yield load(WORD, 0, _CONTEXT, _PROTOCOL)
    yield where(0, _number(arp.ETHERTYPE.to_bytes(2)), "arp")
    yield where(0, _number(ndp.ETHERTYPE.to_bytes(2)), "ndp")
    if hellos is not None:
        yield from _urgent(hellos)
    yield Label("go on")
    yield move_number(0, GOES_ON)
    yield leave()

    yield Label("arp")
    yield from _is_arp_request()
    yield from _is_ours(eips, "arp")
    yield from _from_a_station(22, mac, "arp")
    yield from _cut_to(arp.LENGTH, "arp")
    yield from _arp_reply(mac)
    yield from _count(ARPS)
    yield jump("send")

    yield Label("ndp")
    yield from _is_solicitation()
    yield from _is_ours(eips, "ndp")
    yield from _from_a_station(80, mac, "ndp")
    yield from _checksum()
    yield unless(0, 0xFFFF, "go on")
    yield from _cut_to(ndp.ADVERTISEMENT_LENGTH, "ndp")
    yield from _advertisement(mac)
    yield from _checksum()
    yield invert(0)
    yield store(HALF, _FROM, 56, 0)
    yield from _count(NDPS)

    yield Label("send")
    yield move_number(1, link)
    yield move_number(2, 0)
    yield call(_REDIRECT)
    yield leave()


def _urgent(hellos: HelloFrames) -> Iterator[Line]:
    yield unless(0, _number(hellos.ethertype.to_bytes(2)), "go on")
    yield from _within(hellos.flags_at + 1, "urgent")
    if hellos.magic:
        yield from _stands(WORD, _MAGIC_AT, hellos.magic)
    yield load(BYTE, 0, _FROM, hellos.flags_at)
    yield where_any_of(0, hellos.routine, "go on")
    yield Label("urgent")
    yield move_number(1, 1)
    yield add_to(WORD, _STATE, ARRIVED, 1)


def _frame() -> Iterator[Line]:
    yield load(WORD, _FROM, _CONTEXT, _DATA)
    yield load(WORD, _TO, _CONTEXT, _DATA_END)


def _within(length: int, otherwise: str = "go on") -> Iterator[Line]:
    """The frame has that many bytes where we can see them."""
    yield move(1, _FROM)
    yield add_number(1, length)
    yield where_above(1, _TO, otherwise)


def _is_arp_request() -> Iterator[Line]:
    yield from _within(arp.LENGTH)
    yield from _stands(WORD, 12, arp.FIXED[:4])
    yield from _stands(WORD, 16, arp.FIXED[4:])
    yield from _stands(HALF, 20, arp.REQUEST)
    for place, at in ((_ASKED, 38), (_ASKER, 28)):
        for part in range(0, 12, 4):
            yield store_number(WORD, FRAME, place + part, _signed(_MAPPED[part : part + 4]))
        yield load(WORD, 0, _FROM, at)
        yield store(WORD, FRAME, place + 12, 0)


def _is_solicitation() -> Iterator[Line]:
    """The form that every host sends: one option, the asker's MAC, and an address that is not a group's."""
    yield from _within(ndp.ADVERTISEMENT_LENGTH)
    yield from _stands(HALF, 20, bytes((58, ndp.HOP_LIMIT)))
    yield from _stands(HALF, 54, bytes((ndp.SOLICITATION, 0)))
    yield from _stands(HALF, 18, b"\x00\x20")
    yield from _stands(HALF, 78, bytes((ndp.SOURCE_LINK_LAYER, 1)))
    yield load(BYTE, 0, _FROM, 14)
    yield shift_right(0, 4)
    yield where_not(0, 6, "go on")
    yield load(BYTE, 0, _FROM, 22)
    yield where(0, ndp.MULTICAST, "go on")
    for place, at in ((_ASKED, 62), (_ASKER, 22)):
        yield load(LONG, 0, _FROM, at)
        yield store(LONG, FRAME, place, 0)
        yield load(LONG, 1, _FROM, at + 8)
        yield store(LONG, FRAME, place + 8, 1)
    yield either(0, 1)
    yield where(0, 0, "go on")


def _is_ours(eips: int, family: str) -> Iterator[Line]:
    """It is about an EIP that is answered here at this moment, from a host that does not use one itself."""
    yield from _looked_up(eips, _ASKED)
    yield where(0, 0, "go on")
    yield load(WORD, 0, 0, 0)
    yield where(0, 0, "go on")
    yield from _looked_up(eips, _ASKER)
    yield where_not(0, 0, "go on")
    yield call(_BOOT_NS)
    yield load(LONG, 1, _STATE, DEADLINE)
    yield where_above(1, 0, f"{family} in time")
    yield jump("go on")
    yield Label(f"{family} in time")
    yield load(WORD, 1, _STATE, ARRIVED)
    yield load(WORD, 2, _STATE, HEARD)
    yield where_different(1, 2, "go on")


def _looked_up(eips: int, place: int) -> Iterator[Line]:
    yield map_itself(1, eips)
    yield move(2, FRAME)
    yield add_number(2, place)
    yield call(_LOOKUP)


def _from_a_station(at: int, mac: Mac, family: str) -> Iterator[Line]:
    """The asker's MAC is neither a group's, nor zero, nor ours."""
    yield load(BYTE, 0, _FROM, at)
    yield where_any_of(0, 1, "go on")
    yield load(WORD, 1, _FROM, at)
    yield load(HALF, 2, _FROM, at + 4)
    yield move(0, 1)
    yield either(0, 2)
    yield where(0, 0, "go on")
    yield unless(1, _number(mac[:4]), f"{family} asker")
    yield unless(2, _number(mac[4:]), f"{family} asker")
    yield jump("go on")
    yield Label(f"{family} asker")


def _cut_to(length: int, family: str) -> Iterator[Line]:
    """A reply does not have the padding of its request."""
    yield load(WORD, 0, _CONTEXT, _LENGTH)
    yield where(0, length, f"{family} cut")
    yield move(1, _CONTEXT)
    yield move_number(2, length)
    yield move_number(3, 0)
    yield call(_CHANGE_TAIL)
    yield where_not(0, 0, "go on")
    yield from _frame()
    yield from _within(length)
    yield Label(f"{family} cut")


def _arp_reply(mac: Mac) -> Iterator[Line]:
    yield load(WORD, 1, _FROM, 22)
    yield load(HALF, 2, _FROM, 26)
    yield load(WORD, 3, _FROM, 28)
    yield load(WORD, 4, _FROM, 38)
    yield from _put_mac(0)
    yield from _put_own(6, mac)
    yield store_number(HALF, _FROM, 20, _number(arp.REPLY))
    yield from _put_own(22, mac)
    yield store(WORD, _FROM, 28, 4)
    yield from _put_mac(32)
    yield store(WORD, _FROM, 38, 3)


def _advertisement(mac: Mac) -> Iterator[Line]:
    """Still without a checksum."""
    yield load(WORD, 1, _FROM, 80)
    yield load(HALF, 2, _FROM, 84)
    yield from _put_mac(0)
    yield from _put_own(6, mac)
    yield store_number(WORD, _FROM, 14, _number(b"\x60\0\0\0"))
    for place, at in ((_ASKED, 22), (_ASKER, 38)):
        for part in (0, 8):
            yield load(LONG, 3, FRAME, place + part)
            yield store(LONG, _FROM, at + part, 3)
    yield store_number(HALF, _FROM, 54, _number(bytes((ndp.ADVERTISEMENT, 0))))
    yield store_number(HALF, _FROM, 56, 0)
    yield store_number(WORD, _FROM, 58, _number(b"\x60\0\0\0"))
    yield store_number(HALF, _FROM, 78, _number(bytes((ndp.TARGET_LINK_LAYER, 1))))
    yield from _put_own(80, mac)


def _checksum() -> Iterator[Line]:
    """The folded sum, over a pseudo-header and 32 bytes of ICMPv6: 0xFFFF if the checksum in it is right."""
    yield move_number(1, 0)
    yield move_number(2, 0)
    yield move(3, _FROM)
    yield add_number(3, _ICMP_SOURCE)
    yield move_number(4, _CHECKED)
    yield move_number(5, _number(b"\0\0\0\x5a"))  # the lower and upper half of one word: 32 + 58
    yield call(_CSUM_DIFF)
    for _ in range(2):
        yield move(1, 0)
        yield shift_right(1, 16)
        yield mask(0, 0xFFFF)
        yield add(0, 1)


def _stands(size: int, at: int, what: bytes) -> Iterator[Line]:
    yield load(size, 0, _FROM, at)
    yield unless(0, _number(what), "go on")


def _put_mac(at: int) -> Iterator[Line]:
    """The asker's MAC, from registers 1 and 2."""
    yield store(WORD, _FROM, at, 1)
    yield store(HALF, _FROM, at + 4, 2)


def _put_own(at: int, mac: Mac) -> Iterator[Line]:
    yield store_number(WORD, _FROM, at, _signed(mac[:4]))
    yield store_number(HALF, _FROM, at + 4, _number(mac[4:]))


def _count(at: int) -> Iterator[Line]:
    yield move_number(1, 1)
    yield add_to(LONG, _STATE, at, 1)


def _number(what: Sequence[int]) -> int:
    """As this processor would load those bytes."""
    return int.from_bytes(bytes(what), sys.byteorder)


def _signed(what: bytes) -> int:
    return int.from_bytes(what, sys.byteorder, signed=True)
