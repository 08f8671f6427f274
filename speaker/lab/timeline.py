"""The story on the screen: when, who, what. Colours only where a person looks (a terminal, and no NO_COLOR)."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TextIO


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


# ── The speaker's log events as sentences ───────────────────────────────────────────────────────────────────

_ALARMING = frozenset({"warning", "error", "critical"})
#: Fields that every event carries, or that the sentence already says.
_COMMON = frozenset({"event", "level", "timestamp", "logger"})


def sentence(event: Mapping[str, Any]) -> tuple[str, Tone] | None:
    """What to say about one log event; None for what a newcomer need not read."""
    match _with_names(event):
        case {"event": "started", "forwarder": forwarder}:
            return f"the speaker starts, forwarding with {forwarder}", Tone.PLAIN
        case {"event": "manifests read", "pools": pools, "services": services}:
            return f"reads {pools} pools and {services} Services", Tone.PLAIN
        case {"event": "assigned" | "released" as verb, "service": service, "addresses": [*addresses]}:
            gets_or_loses = "gets" if verb == "assigned" else "gives back"
            return f"{service} {gets_or_loses} {' and '.join(map(str, addresses))}", Tone.PLAIN
        case {"event": "assigned" | "released" as verb, "count": count}:
            return f"{count} Services {'get an address' if verb == 'assigned' else 'give theirs back'}", Tone.PLAIN
        case {"event": "forwarding", "count": count}:
            return f"the kernel forwards: {count} changes to its tables", Tone.PLAIN
        case {"event": "claimed", "eip": eip, "link": link}:
            return f"claims {eip} on {link}", Tone.EIP
        case {"event": "withdrawn", "eip": eip, **more}:
            holder = more.get("holder")
            return f"stops answering for {eip}" + (f", which {holder} claims now" if holder else ""), Tone.EIP
        case {"event": "peer heard", "peer": peer}:
            return f"hears {peer}", Tone.DIM
        case {"event": "peer silent", "peer": peer}:
            return f"no longer hears {peer}", Tone.DIM
        case {"event": "handing over"}:
            return "hands over what it holds", Tone.PLAIN
        case {"event": "frozen"}:
            return "was away for too long: it gives everything up and listens first", Tone.PLAIN
        case {"event": "link lost", "link": link}:
            return f"cannot use {link}", Tone.PLAIN
        case {"level": level} if level in _ALARMING:
            details = " ".join(f"{name}={value}" for name, value in event.items() if name not in _COMMON)
            return f"{level}: {event.get('event')} {details}".rstrip(), Tone.BAD
        case _:
            return None


def _with_names(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line about many as one about the first of them."""
    match event:
        case {"count": int(count), "eips": [first, *_]}:
            return {**event, "eip": f"{first} and {count - 1} more"}
        case {"count": int(count), "peers": [first, *_]}:
            return {**event, "peer": f"{first} and {count - 1} more"}
        case _:
            return event
