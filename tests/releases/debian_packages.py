"""Packages of a Debian release other than this machine's, fetched and verified by apt with a state of its own: nothing
is installed."""

import os
import subprocess
from pathlib import Path

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
