"""eBPF, for what a classic filter cannot do: the instructions that our program needs, and their bytes. Pure.

Registers are numbers: 0 is the result of a call, 1 to 5 are its arguments and lost in it, 6 to 9 are kept, FRAME is the
end of the stack. A jump names the label that it goes to.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

FRAME = 10
BYTE, HALF, WORD, LONG = 0x10, 0x08, 0x00, 0x18
"""How much a load or a store moves: 1, 2, 4 or 8 bytes."""
_LOAD, _STORE, _STORE_NUMBER, _ATOMIC = 0x61, 0x63, 0x62, 0xC3
_MAP, _MAP_VALUE = 1, 2
_WIDE = struct.Struct("=BBhi")


class Instruction(NamedTuple):
    """``struct bpf_insn`` (<linux/bpf.h>). ``number`` of 64 bits takes a second one."""

    code: int
    to: int = 0
    source: int = 0
    offset: int = 0
    number: int = 0
    label: str = ""
    """Where a jump goes."""


class Label(NamedTuple):
    """A place between two instructions."""

    name: str


Line: TypeAlias = Instruction | Label


def load(size: int, to: int, source: int, at: int) -> Instruction:
    return Instruction(_LOAD | size, to, source, at)


def store(size: int, to: int, at: int, source: int) -> Instruction:
    return Instruction(_STORE | size, to, source, at)


def store_number(size: int, to: int, at: int, number: int) -> Instruction:
    return Instruction(_STORE_NUMBER | size, to, 0, at, number)


def add_to(size: int, to: int, at: int, source: int) -> Instruction:
    """In one step, whatever other processors do; WORD or LONG."""
    return Instruction(_ATOMIC | size, to, source, at)


def map_itself(to: int, descriptor: int) -> Instruction:
    return Instruction(0x18, to, _MAP, 0, descriptor)


def map_value(to: int, descriptor: int) -> Instruction:
    """Where the only value of an array begins."""
    return Instruction(0x18, to, _MAP_VALUE, 0, descriptor)


def move(to: int, source: int) -> Instruction:
    return Instruction(0xBF, to, source)


def move_number(to: int, number: int) -> Instruction:
    """Of 32 bits: those above become 0."""
    return Instruction(0xB4, to, 0, 0, _signed(number))


def add(to: int, source: int) -> Instruction:
    return Instruction(0x0F, to, source)


def add_number(to: int, number: int) -> Instruction:
    return Instruction(0x07, to, 0, 0, number)


def mask(to: int, bits: int) -> Instruction:
    return Instruction(0x57, to, 0, 0, bits)


def shift_right(to: int, bits: int) -> Instruction:
    return Instruction(0x77, to, 0, 0, bits)


def invert(to: int) -> Instruction:
    return Instruction(0xA7, to, 0, 0, -1)


def either(to: int, source: int) -> Instruction:
    """Bitwise or."""
    return Instruction(0x4F, to, source)


def call(helper: int) -> Instruction:
    return Instruction(0x85, number=helper)


def leave() -> Instruction:
    """Register 0 is the verdict."""
    return Instruction(0x95)


def jump(label: str) -> Instruction:
    return Instruction(0x05, label=label)


def unless(register: int, number: int, label: str) -> Instruction:
    """Goes to ``label`` unless the lower 32 bits of ``register`` are ``number``."""
    return Instruction(0x56, register, 0, 0, _signed(number), label)


def where(register: int, number: int, label: str) -> Instruction:
    """Goes to ``label`` where the 64 bits of ``register`` are ``number``, of 31 bits."""
    return Instruction(0x15, register, 0, 0, number, label)


def where_not(register: int, number: int, label: str) -> Instruction:
    """Goes to ``label`` where the 64 bits of ``register`` are not ``number``, of 31 bits."""
    return Instruction(0x55, register, 0, 0, number, label)


def where_different(register: int, other: int, label: str) -> Instruction:
    return Instruction(0x5D, register, other, label=label)


def where_above(register: int, other: int, label: str) -> Instruction:
    """Unsigned."""
    return Instruction(0x2D, register, other, label=label)


def where_above_number(register: int, number: int, label: str) -> Instruction:
    return Instruction(0x25, register, 0, 0, number, label)


def where_any_of(register: int, bits: int, label: str) -> Instruction:
    return Instruction(0x45, register, 0, 0, bits, label)


def assembled(lines: Sequence[Line]) -> bytes:
    """What the kernel takes. Each label is there once."""
    places = dict(_places(lines))
    code = [line for line in lines if isinstance(line, Instruction)]
    return b"".join(_encoded(code, places))


def _places(lines: Iterable[Line]) -> Iterator[tuple[str, int]]:
    at = 0
    for line in lines:
        if isinstance(line, Label):
            yield line.name, at
        else:
            at += _length(line)


def _length(line: Instruction) -> int:
    return 2 if line.code == 0x18 else 1


def _encoded(code: Iterable[Instruction], places: dict[str, int]) -> Iterator[bytes]:
    at = 0
    for line in code:
        at += _length(line)
        offset = places[line.label] - at if line.label else line.offset
        yield _WIDE.pack(line.code, line.source << 4 | line.to, offset, line.number)
        if _length(line) == 2:
            yield _WIDE.pack(0, 0, 0, 0)


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
