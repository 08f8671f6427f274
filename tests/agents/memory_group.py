"""A memory cgroup of our own, of version 1, as a container has one: what is started in it may take so much together."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup/memory")


def _own() -> Path:
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return ROOT / next((path.lstrip("/") for _, of, path in lines if of == "memory"), "")


class MemoryGroup:
    """Raises OSError where there can be none."""

    def __init__(self, name: str, limit: int) -> None:
        self._outside = _own()
        self.path = self._outside / f"{name}-{os.getpid()}"
        self.path.mkdir()
        (self.path / "memory.limit_in_bytes").write_text(str(limit))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is started in the block is in it."""
        self._move(self.path)
        try:
            yield
        finally:
            self._move(self._outside)

    def _move(self, where: Path) -> None:
        (where / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def kills(self) -> int:
        """By the kernel, for want of memory."""
        words = dict(line.split() for line in (self.path / "memory.oom_control").read_text().splitlines())
        return int(words["oom_kill"])

    def close(self) -> None:
        """Whoever is in it goes on outside."""
        while pids := (self.path / "cgroup.procs").read_text().split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    (self._outside / "cgroup.procs").write_text(pid)
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"{self.path} is still in use")
