"""The processes of a running speaker. Both run the same command: who started whom tells them apart."""

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
    """``wire`` and ``main``: the first speaker, and the first that it started. Nothing of who is gone."""
    return dict(zip(("wire", "main"), filter(_is_speaker, family(pid)), strict=False))


def _is_speaker(pid: int) -> bool:
    words = _command(pid)
    return "-m" in words and "speaker" in words


def _command(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []
