"""Packages of a Debian release other than this machine's, fetched and verified by apt with a state of its own: nothing
is installed. What was unpacked stays in ``~/.cache/eip-speaker``."""

import os
import subprocess
import tempfile
from pathlib import Path

CACHE = Path.home() / ".cache" / "eip-speaker"
LIBC = ("libc6", "zlib1g")
NFT = (*LIBC, "nftables", "libnftables1", "libnftnl11", "libmnl0", "libgmp10", "libjansson4", "libxtables12",
       "libedit2", "libtinfo6", "libbsd0", "libmd0")  # fmt: skip
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PATIENCE = 300
"""Seconds; against a hang."""


class Archive:
    """Of one release; ``directory`` is apt's, and empty. CalledProcessError and TimeoutExpired tell what apt said."""

    def __init__(self, directory: Path, release: str) -> None:
        self._directory = directory
        for needed in ("lists/partial", "cache/archives/partial", "debs"):
            (directory / needed).mkdir(parents=True)
        (directory / "sources").write_text(f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {release} main\n")
        (directory / "apt.conf").write_text(
            f'Dir::State::Lists "{directory}/lists";\nDir::State::status "/dev/null";\n'
            f'Dir::Cache "{directory}/cache";\n'
            f'Dir::Etc::SourceList "{directory}/sources";\nDir::Etc::SourceParts "-";\n'
            'APT::Sandbox::User "root";\nAcquire::Languages "none";\n'
        )
        self._run("apt-get", "update", "--error-on=any")

    def meant_by(self, package: str) -> str:
        """What a package depends on that is there for nothing else."""
        told = self._run("apt-cache", "depends", package).splitlines()
        return next(line.split()[1] for line in told if "Depends:" in line)

    def unpack(self, packages: tuple[str, ...], root: Path) -> None:
        self._run("apt-get", "download", *packages)
        for package in sorted((self._directory / "debs").iterdir()):
            self._run("dpkg-deb", "--extract", str(package), str(root))

    def _run(self, *command: str) -> str:
        return subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "APT_CONFIG": str(self._directory / "apt.conf")},
            cwd=self._directory / "debs",
        ).stdout


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


def release(name: str, what: str, packages: tuple[str, ...]) -> Release:
    """``packages`` of the release ``name``, fetched once; ``what`` they bring. Raises as ``Archive`` does."""
    root = CACHE / f"debian-{name}-{what}"
    if not root.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            made = Path(directory, "root")
            Archive(Path(directory), name).unpack(packages, made)
            made.rename(root)
    return Release(root)
