"""Programs of a Debian release other than this machine's (``debian_packages.py``), for tests."""

import shutil
import subprocess

import pytest
from debian_packages import KEYRING, LIBC, NFT, Release, release

PYTHON_313 = (*LIBC, "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib", "libssl3t64", "libzstd1",
              "libexpat1", "libffi8", "libbz2-1.0", "liblzma5")  # fmt: skip

__all__ = ["NFT", "PYTHON_313", "Release", "unpacked"]


def unpacked(name: str, what: str, packages: tuple[str, ...]) -> Release:
    """Skips the test where that cannot be had."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and KEYRING.exists()):
        pytest.skip(f"needs apt-get, dpkg-deb and {KEYRING}, to have {what} of Debian's {name} beside our own")
    try:
        return release(name, what, packages)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", "") or ""
        pytest.skip(f"Debian's {name} cannot be had here: {error} {said.strip()[-300:]}")
