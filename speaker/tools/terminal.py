"""What commands print for people: tables of text that strangers may have written, next steps, and notes while something
takes long.
"""

import shlex
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def write(out: TextIO, lines: Iterable[str]) -> None:
    out.writelines(f"{line}\n" for line in lines)
    out.flush()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines with aligned columns; an empty cell is a dash."""
    cells = [head, *([printable(cell) or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def printable(text: str) -> str:
    """Names of peers come from the LAN: a host that has the key must not be able to control the operator's terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


# ── What to do next: a line that can be pasted as it is ─────────────────────────────────────────────────────


def following(*words: str, argv: Sequence[str] | None = None) -> str:
    """``Next: speaker WORD…``, with the name that this process was started by if a shell would not find ``speaker``."""
    return f"Next: {command(*words, argv=argv)}"


def command(*words: str, argv: Sequence[str] | None = None) -> str:
    started = (sys.argv if argv is None else argv)[0]
    known = Path(started).name != "speaker" or shutil.which("speaker") == started
    return shlex.join(["speaker" if known else started, *words])


# ── A word on stderr for what takes longer than somebody who waits expects ──────────────────────────────────

SOON, THEN = 2.0, 10.0
"""Seconds until the first note, and between the next ones."""


@contextmanager
def progress(what: str, stream: TextIO | None = None, soon: float = SOON, then: float = THEN) -> Iterator[None]:
    """Says that ``what`` takes long while the block runs: ``speaker: still reading the manifests after 2 s``."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    over = threading.Event()

    def tell() -> None:
        wait = passed = soon
        while not over.wait(wait):
            print(f"speaker: still {what} after {passed:g} s", file=stream, flush=True)
            wait, passed = then, passed + then

    # A daemon thread: it must not keep a process alive that ends with an error.
    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
