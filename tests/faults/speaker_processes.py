"""The processes of a running speaker, told apart by what they run and not by who started whom."""

from contextlib import suppress
from pathlib import Path


def family(pid: int) -> list[int]:
    """``pid`` and every process that it started, or that these did."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found.extend(map(int, (task / "children").read_text().split()))
    return found


def told_apart(pid: int) -> dict[str, int]:
    """``wire`` and ``main``: the first of each, since what is about to run something else looks like who started it.
    Nothing of who is gone."""
    roles: dict[str, int] = {}
    for one in family(pid):
        words = _command(one)
        if "-m" in words and any(word.startswith("speaker") for word in words):
            roles.setdefault("wire" if any(word.startswith("speaker.wire") for word in words) else "main", one)
    return roles


def _command(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []
