"""Classic BPF, which the kernel runs on a frame before a packet socket sees it: the instructions of programs. Pure.

A load beyond the end of a frame rejects it (bpf(2)).
"""

from typing import NamedTuple, TypeAlias

from speaker.packets import PACKET_OUTGOING


class Instruction(NamedTuple):
    """``struct sock_filter`` (<linux/filter.h>): ``jt`` and ``jf`` skip that many instructions."""

    code: int
    jt: int
    jf: int
    k: int


Program: TypeAlias = tuple[Instruction, ...]

ACCEPT = Instruction(0x06, 0, 0, 0xFFFF)  # ret: this many bytes of the frame
REJECT = Instruction(0x06, 0, 0, 0)
LOAD_PKTTYPE = Instruction(0x30, 0, 0, 0xFFFFF004)
"""SKF_AD_OFF + SKF_AD_PKTTYPE: ``sll_pkttype`` (``PACKET_HOST`` and so on). A frame of a foreign VLAN looks untagged
here; only this tells."""
LOAD_VLAN_TAG = Instruction(0x20, 0, 0, 0xFFFFF02C)
"""SKF_AD_OFF + SKF_AD_VLAN_TAG: the tag that was taken off the frame, 0 where it had none."""

LOAD_LINK = Instruction(0x20, 0, 0, 0xFFFFF008)
"""SKF_AD_OFF + SKF_AD_IFINDEX: the link that the frame has come to. A packet socket of one protocol on a link is given
frames of that link's own VLANs as well, without their tags (``orig_dev`` in net/core/dev.c); only this tells."""
LOAD_LENGTH = Instruction(0x80, 0, 0, 0)
"""Of the frame."""
TO_INDEX, FROM_INDEX, SHIFT_LEFT_BY_INDEX = (Instruction(code, 0, 0, 0) for code in (0x07, 0x87, 0x6C))
"""Between the number that was loaded and the other register."""


def load_byte(at: int) -> Instruction:
    return Instruction(0x30, 0, 0, at)


def load_half(at: int) -> Instruction:
    return Instruction(0x28, 0, 0, at)


def load_word(at: int) -> Instruction:
    return Instruction(0x20, 0, 0, at)


def set_to(value: int) -> Instruction:
    return Instruction(0x00, 0, 0, value)


def keep_bits(mask: int) -> Instruction:
    return Instruction(0x54, 0, 0, mask)


def shift_right(by: int) -> Instruction:
    return Instruction(0x74, 0, 0, by)


def jump(by: int) -> Instruction:
    return Instruction(0x05, 0, 0, by)


def if_equal(value: int, jt: int, jf: int) -> Instruction:
    return Instruction(0x15, jt, jf, value)


def if_above(value: int, jt: int, jf: int) -> Instruction:
    return Instruction(0x25, jt, jf, value)


def if_from(value: int, jt: int, jf: int) -> Instruction:
    return Instruction(0x35, jt, jf, value)


def if_any_of(bits: int, jt: int, jf: int) -> Instruction:
    return Instruction(0x45, jt, jf, bits)


def only_if(load: Instruction, *values: int) -> Program:
    """Goes on where the loaded number is one of ``values``, else rejects."""
    checks = [if_equal(value, len(values) - at, 0) for at, value in enumerate(values)]
    return (load, *checks, REJECT)


SENT_HERE = only_if(LOAD_PKTTYPE, PACKET_OUTGOING)
"""Goes on where this host sends the frame."""


def on_link(index: int, program: Program) -> Program:
    """``program`` for what has come to the link of that index, and to none of its VLANs."""
    return (*only_if(LOAD_LINK, index), *program)
