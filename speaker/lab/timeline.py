"""The story on the screen: when, who, what. Colours only where a person looks (a terminal, and no NO_COLOR)."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TextIO


class Tone(Enum):
    """SGR parameters (ECMA-48)."""

    PLAIN = ""
    DIM = "2"
    BOLD = "1"
    GOOD = "32"
    BAD = "1;31"
    EIP = "36"


@dataclass(slots=True)
class Timeline:
    """Writes to ``stream``, or nowhere (``None``: ``--json``)."""

    stream: TextIO | None
    colour: bool = False
    began: float = field(default_factory=time.monotonic)

    def say(self, who: str, what: str, tone: Tone = Tone.PLAIN, at: float | None = None) -> None:
        """One line: milliseconds since the start, who did it, what happened; ``at``: when, by CLOCK_MONOTONIC."""
        elapsed = ((time.monotonic() if at is None else at) - self.began) * 1000
        when = self.paint(f"{elapsed:6.0f} ms", Tone.DIM)
        self.write(f"{when}  {self.paint(f'{who:<8}', Tone.BOLD)} {self.paint(what, tone)}")

    def write(self, line: str = "") -> None:
        if self.stream is not None:
            self.stream.write(f"{line}\n")
            self.stream.flush()

    def table(self, rows: Iterable[tuple[str, ...]]) -> None:
        """With an empty line on both sides; the first row is the heading."""
        heading, *lines = columns(rows)
        for line in ("", self.paint(heading, Tone.BOLD), *lines, ""):
            self.write(line)

    def verdict(self, problems: Iterable[str], well: str) -> None:
        """A line for each problem, and ``well`` where that is not empty."""
        for problem in problems:
            self.write(self.paint(f"✗ {problem}", Tone.BAD))
        if well:
            self.write(self.paint(f"✓ {well}", Tone.GOOD))

    def paint(self, text: str, tone: Tone) -> str:
        return f"\x1b[{tone.value}m{text}\x1b[0m" if self.colour and tone.value else text


def columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines, cells of a column equally wide; the last column runs free."""
    table = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)][:-1]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in table
    ]


#: Characters that all bars of one line share.
BARS = 12


def bars(counts: Mapping[str, int], names: Iterable[str]) -> str:
    """``pod1 ▇▇▇▇▇▇▇▇ 8  pod2 ▇▇▇▇ 4``: shares of the whole, for all ``names``, also those that never answered."""
    total = sum(counts.values()) or 1
    shares = ((name, counts.get(name, 0)) for name in names)
    return "  ".join(
        " ".join(filter(None, (name, "▇" * round(BARS * count / total), str(count)))) for name, count in shares
    )
