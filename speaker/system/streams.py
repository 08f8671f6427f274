"""A command's own streams: closed by whoever started it, full, or no longer read (``| head``)."""

import io
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO


def stand_ready() -> None:
    """Makes sure that all three are open and take any character, whatever the caller closed and whatever its locale.

    A free number would be given to the next file or socket, and what is printed would end up there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # That nothing can be written to stdout must be noticed. For stderr there is nobody to tell.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            os.set_inheritable(number, True)
    if _is(sys.stdout, 1):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Stdout(1, "w", closefd=False)),
            encoding=getattr(sys.stdout, "encoding", "utf-8"),
            errors="backslashreplace",
            line_buffering=os.isatty(1),
        )
    if sys.stderr is None:
        # Never closed, as Python's own.
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def wants_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """https://no-color.org: any non-empty value forbids; ``TERM=dumb`` cannot."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _is(stream: Any, number: int) -> bool:
    """False where somebody has put something else in its place."""
    try:
        return stream is None or stream.fileno() == number
    except OSError:
        return False


class _Stdout(io.FileIO):
    """Remembers whether a write failed: not everybody who prints reports that."""

    refused: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.refused = error
            raise


def refusal() -> OSError | None:
    """Why not everything that was printed has left; None: it has."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.refused if isinstance(raw, _Stdout) else None


def give_up() -> None:
    """Python would try to write the rest at its end, and complain about it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
