"""Whatever ends the lab, nothing of it stays: no process, no namespace, no name in /run/netns."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.netns

LAB = (sys.executable, "-W", "error", "-m", "speaker", "lab")
#: Seconds: how long the kernel may take to end a killed process, or the lab to end in good order.
PATIENCE = 60


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_no_child_and_no_namespace_stays(kept_lab, number):
    lab = kept_lab()
    children = _children(lab.process.pid)
    namespaces = {namespace for pid in (lab.process.pid, *children) for namespace in _namespaces_of(pid)}
    namespaces.discard(str(Path("/proc/self/ns/net").readlink()))
    assert children, "the speaker"
    assert all(_is_marked(pid, lab.mark) for pid in (lab.process.pid, *children))
    assert len(namespaces) >= 9, "one for each host, and the lab's own"

    endings = [os.pidfd_open(pid) for pid in children]
    try:
        lab.process.send_signal(number)
        lab.process.wait(PATIENCE)
        for ending in endings:
            assert select.select([ending], [], [], PATIENCE)[0], "a child lives on"
    finally:
        for ending in endings:
            os.close(ending)
    # Not by the namespaces' numbers alone: the kernel gives them to the next ones, which a test beside this may make.
    assert not [pid for pid in _pids() if _is_marked(pid, lab.mark)]
    assert not any(namespace in mounts for mounts in _mounts() for namespace in namespaces)
    shutil.rmtree(_directory(lab.story), ignore_errors=True)  # all that a SIGKILL leaves


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_lab_that_may_clean_up_leaves_no_file_and_exits_with_its_verdict(kept_lab, number):
    lab = kept_lab()
    directory = _directory(lab.story)
    assert directory.is_dir()
    lab.process.send_signal(number)
    assert lab.process.wait(PATIENCE) == 0
    assert not directory.exists()


@pytest.mark.parametrize(
    ("words", "then", "code", "complaint"),
    [
        ((), "| head -1", 141, ""),
        (("--scenario", "crash", "--nodes", "2", "--eips", "2"), "| head -1", 141, ""),
        (("--json",), ">/dev/full", 1, "speaker: cannot write to stdout: No space left on device\n"),
    ],
)
def test_a_lab_that_nobody_listens_to_ends_without_a_traceback(namespaces, words, then, code, complaint):
    line = f'"$@" {then}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line, "bash", *LAB, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, complaint)


def _directory(story: str) -> Path:
    found = re.search(r"/\S*speaker-lab-[^/\s]+", story)
    assert found is not None, story
    return Path(found.group())


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _children(parent: int) -> list[int]:
    """And theirs."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        tasks = list(Path(f"/proc/{parent}/task").iterdir())
        found = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [*found, *(pid for child in found for pid in _children(child))]


def _namespaces_of(pid: int) -> set[str]:
    """Every network namespace that a process is in or holds open, as ``net:[inode]``."""
    found = set()
    with suppress(OSError):
        for path in (Path(f"/proc/{pid}/ns/net"), *Path(f"/proc/{pid}/fd").iterdir()):
            with suppress(OSError):
                found.add(str(path.readlink()))
    return {name for name in found if name.startswith("net:[")}


def _is_marked(pid: int, mark: str) -> bool:
    with suppress(OSError):
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def _mounts() -> Iterator[str]:
    for pid in _pids():
        with suppress(OSError):
            yield Path(f"/proc/{pid}/mountinfo").read_text()
