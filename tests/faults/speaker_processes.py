"""The processes of a running speaker, told apart by what they do and not by who started whom."""

import os
from collections.abc import Iterator
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
    """``wire``, who answers ARP; ``main``, the other that runs the speaker, if there is one; nothing of who is gone."""
    ours = [one for one in family(pid) if "python" in _program(one)]
    if not ours:
        return {}
    wire = max(ours, key=_packet_sockets)
    others = [one for one in ours if one != wire]
    return {"wire": wire, **({"main": others[0]} if others else {})}


def _program(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 -- a name, also of a file that was replaced
    return ""


def _packet_sockets(pid: int) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/net/packet").read_text().splitlines()[1:]
        return len({line.split()[-1] for line in lines} & set(_sockets(pid)))
    return 0


def _sockets(pid: int) -> Iterator[str]:
    """Their inodes."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            name = os.readlink(fd)  # noqa: PTH115 -- no path
            if name.startswith("socket:["):
                yield name.removeprefix("socket:[").removesuffix("]")
