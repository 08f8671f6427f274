"""What to do next: a line that can be pasted as it is."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def following(*words: str, argv: Sequence[str] | None = None) -> str:
    """``Next: speaker WORD…``, by the name that this process was started by where a shell finds no ``speaker``."""
    return f"Next: {command(*words, argv=argv)}"


def command(*words: str, argv: Sequence[str] | None = None) -> str:
    started = (sys.argv if argv is None else argv)[0]
    known = Path(started).name != "speaker" or shutil.which("speaker") == started
    return shlex.join(["speaker" if known else started, *words])
