"""Programs of another processor, run by QEMU (Debian's qemu-user-static) for as long as that is asked for."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BINFMT = Path("/proc/sys/fs/binfmt_misc")
PROCESSORS = {
    "arm64": ("qemu-aarch64-static", 183),
    "amd64": ("qemu-x86_64-static", 62),
}
"""By Debian's name: QEMU's program, and the number that ELF has for it."""


@contextmanager
def emulated(architecture: str) -> Iterator[None]:
    """Machine-wide, under a name of our own; put back afterwards. Raises LookupError where QEMU is missing."""
    name, number = PROCESSORS[architecture]
    if (program := shutil.which(name)) is None:
        raise LookupError(f"{name} is missing (Debian: qemu-user-static)")
    ours = BINFMT / f"eip-speaker-{architecture}"
    mounted = not (BINFMT / "register").exists()
    if mounted:
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], check=True)
    try:
        # 64 bits, little endian, an executable or a shared object (e_type 2 or 3), for this machine.
        magic = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0" + number.to_bytes(2, "little")
        mask = b"\xff" * 7 + b"\0" * 9 + b"\xfe\xff" + b"\xff\xff"
        # F: QEMU is opened now, so that it is there behind a change of the root, too.
        if ours.exists():  # of one that was killed
            ours.write_text("-1")
        line = f":{ours.name}:M::{_escaped(magic)}:{_escaped(mask)}:{program}:F"
        (BINFMT / "register").write_text(line)
        try:
            yield
        finally:
            ours.write_text("-1")
    finally:
        if mounted:
            subprocess.run(["umount", BINFMT], check=True)


def _escaped(found: bytes) -> str:
    return re.sub("..", lambda two: rf"\x{two[0]}", found.hex())
