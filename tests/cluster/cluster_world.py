"""A corner of this machine that vanishes as a whole: process, mount and network namespaces, for a cluster to live in.

The world's first process is a child of ours that the kernel kills when we end, however that comes; with it the kernel
kills everything in its process namespace, and with that go mounts, network namespaces and links. What no namespace
holds, the control groups and the files, is removed by a sweeper: a process that waits for us to end.

Started as a program, this file is the world's first process, or the sweeper.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0
"""Seconds; a guard against a hang, not an expectation."""


class World:
    """``with World(name, directory) as world``: ``directory`` is the world's own, and gone afterwards.

    The process that enters has to be the one that lives as long as the world is to.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        self._unshare: subprocess.Popen[str] | None = None
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        self.first = 0

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True)
        me = [sys.executable, "-I", "-S", __file__]
        # It ends when the pipe to it does: thus after us, whatever ends us.
        self._sweeper = subprocess.Popen(
            [*me, "sweep", self.name, str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            # The kernel kills unshare with us, and the world with unshare.
            bound = ("setpriv", "--pdeathsig", "KILL", "unshare", "--kill-child", "--fork")
            self._unshare = subprocess.Popen(
                [*bound, "--mount", "--net", "--pid", *me, "begin"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            self.first = told_ready(self._unshare, 1)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._unshare is not None:
            self._unshare.kill()
            self._unshare.wait()
        if self.first:
            _wait_for_end(self.first)
        for process in self._started:
            process.wait()
        assert self._sweeper is not None
        assert self._sweeper.stdin is not None
        self._sweeper.stdin.close()
        self._sweeper.wait()

    @property
    def sweeper(self) -> int:
        """Process id of who cleans up after us."""
        assert self._sweeper is not None
        return self._sweeper.pid

    def add_place(self, label: str) -> None:
        """A network namespace, empty but for ``lo``."""
        self.run("ip", "netns", "add", label)
        self.run("ip", "link", "set", "lo", "up", place=label)
        off = [
            f"net.ipv6.conf.{which}.{name}=0" for which in ("all", "default") for name in ("accept_dad", "accept_ra")
        ]
        self.run("sysctl", "-qw", *off, place=label)

    def inside(self, place: str = "") -> list[str]:
        """The words in front of a command that is to run in this network namespace, or in the world's own."""
        return into(self.first, "mount", "pid", net=self.network(place) if place else "")

    def network(self, place: str) -> str:
        """The file of its network namespace, as we see it."""
        return f"/proc/{self.first}/root/run/netns/{place}"

    def run(self, *command: str | Path, place: str = "", check: bool = True, stdin: str = "") -> str:
        """What it says, whatever its exit status unless that is to be checked."""
        return completed([*self.inside(place), *map(str, command)], check=check, stdin=stdin)

    def start(self, name: str, *command: str | Path, place: str = "") -> subprocess.Popen[bytes]:
        """A process that lives until the world ends; what it says goes to the file ``name``.log."""
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.inside(place), *map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._started.append(process)
        return process

    def adopt(self, process: subprocess.Popen[bytes]) -> None:
        self._started.append(process)


def into(process: int, *kinds: str, net: str = "") -> list[str]:
    """nsenter(1) to the namespaces of a process."""
    return [
        "nsenter",
        f"--target={process}",
        *(f"--{kind}" for kind in kinds),
        f"--net={net}" if net else "--net",
        "--",
    ]


def completed(command: list[str], *, check: bool = True, stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)}: exit {done.returncode}: {(done.stderr + done.stdout).strip()[-2000:]}"
        )
    return done.stdout


def told_ready(process: subprocess.Popen[str], depth: int) -> int:
    """Waits until the descendant so many generations down says so; returns its process id as we see it."""
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.readline().strip()
    if said != "ready":
        raise RuntimeError(f"{process.args}: ended with {process.wait()}")
    found = process.pid
    for _ in range(depth):
        (found,) = map(int, Path(f"/proc/{found}/task/{found}/children").read_text().split())
    return found


def _wait_for_end(process: int) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], PATIENCE)
        os.close(descriptor)


# ── Control groups ──


def _hierarchies(*kinds: str) -> list[Path]:
    """Where they are mounted, of these kinds: ``cgroup`` is version 1, ``cgroup2`` is version 2."""
    mounted = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [Path(where) for _, where, kind, *_ in mounted if kind in kinds]


def make_groups(name: str, *nodes: str) -> None:
    """``name``/NODE in every hierarchy; together they weigh ten times what each process outside does."""
    for hierarchy in _hierarchies("cgroup") or _hierarchies("cgroup2"):
        for path in (hierarchy / name, *(hierarchy / name / node for node in nodes)):
            path.mkdir(exist_ok=True)
            _settle(path)
        for file, weight in (("cpu.shares", "10240"), ("cpu.weight", "1000")):
            if (hierarchy / name / file).exists():
                (hierarchy / name / file).write_text(weight)


def _settle(group: Path) -> None:
    for setting in ("cpuset.cpus", "cpuset.mems"):  # v1: empty, and nothing can run in it
        file = group / setting
        if file.exists() and not (group / "cgroup.controllers").exists():
            file.write_text((group.parent / setting).read_text())
    offered = group / "cgroup.controllers"
    if offered.exists():
        wanted = {"cpu", "cpuset", "memory", "pids", "io"} & set(
            (group.parent / "cgroup.controllers").read_text().split()
        )
        words = " ".join(f"+{each}" for each in sorted(wanted))
        (group.parent / "cgroup.subtree_control").write_text(words)
        (group / "cgroup.subtree_control").write_text(words)


def groups_left(name: str) -> list[Path]:
    """Deepest first. On machines with both versions runc makes some in either."""
    found = [path for hierarchy in _hierarchies("cgroup", "cgroup2") for path in _tree(hierarchy / name)]
    return sorted(found, key=lambda path: -len(path.parts))


def _tree(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        yield from (each for each in path.rglob("*") if each.is_dir())


def sweep(name: str, directory: Path) -> None:
    """Removes what no namespace holds. Groups can go as soon as their last process is buried."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for path in groups_left(name):
            with suppress(OSError):
                path.rmdir()
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists() and not groups_left(name):
            return
        time.sleep(0.1)


# ── The world's first process ──


def begin() -> None:
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    Path("/run/lock").mkdir()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries whoever has no parent left
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "begin":
        begin()
    else:
        sys.stdin.read()
        sweep(sys.argv[2], Path(sys.argv[3]))
