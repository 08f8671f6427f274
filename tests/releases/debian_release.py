"""Programs of a Debian release other than this machine's, unpacked into a folder of its own and run from there. They
stay in ``~/.cache/eip-speaker``."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from debian_packages import KEYRING, Archive

CACHE = Path.home() / ".cache" / "eip-speaker"

_LIBC = ("libc6", "zlib1g")
NFT = (*_LIBC, "nftables", "libnftables1", "libnftnl11", "libmnl0", "libgmp10", "libjansson4", "libxtables12",
       "libedit2", "libtinfo6", "libbsd0", "libmd0")  # fmt: skip
PYTHON_313 = (*_LIBC, "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib", "libssl3t64", "libzstd1",
              "libexpat1", "libffi8", "libbz2-1.0", "liblzma5")  # fmt: skip


class Release:
    """The folder ``root``, as if it were /."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def program(self, path: str, environment: str = "") -> Path:
        """A script of that program's name, in a folder that fits into PATH, which runs it with its own libraries."""
        folders = [*self.root.glob("lib/*-linux-*"), *self.root.glob("usr/lib/*-linux-*")]  # of old, two
        (loader,) = (found for folder in folders for found in folder.glob("ld-linux-*.so.*"))
        script = self.root / "programs" / Path(path).name
        script.parent.mkdir(exist_ok=True)
        command = f"{loader} --library-path {':'.join(map(str, folders))} {self.root / path}"
        script.write_text(f'#!/bin/sh\nexec env {environment} {command} "$@"\n')
        script.chmod(0o755)
        return script


def unpacked(release: str, name: str, packages: tuple[str, ...]) -> Release:
    """Skips the test where that cannot be had."""
    root = CACHE / f"debian-{release}-{name}"
    if not root.exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and KEYRING.exists()):
            pytest.skip(f"needs apt-get, dpkg-deb and {KEYRING}, to have {name} of Debian's {release} beside our own")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            try:
                made = Path(directory, "root")
                Archive(Path(directory), release).unpack(packages, made)
            except subprocess.SubprocessError as error:
                said = getattr(error, "stderr", "") or ""
                pytest.skip(f"Debian's {release} cannot be had here: {error} {said.strip()[-300:]}")
            made.rename(root)
    return Release(root)
