"""How much memory a process may take, as its cgroup has it; and how it ends when it can have no more."""

import json
import subprocess
import sys

import pytest

from speaker.system.garbage import MAIN, OUT_OF_MEMORY, memory_limit


@pytest.mark.parametrize(
    ("entries", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "536870912\n"}, 536870912),
        ("0::/pod/agent\n", {"pod/agent/memory.max": "max\n", "pod/memory.max": "1000\n"}, 1000),
        ("0::/pod/agent\n", {"pod/agent/memory.max": "900\n", "pod/memory.max": "1000\n"}, 900),
        ("0::/pod\n", {"pod/memory.max": "max\n"}, None),
        ("5:cpu,memory:/pod\n", {"memory/pod/memory.limit_in_bytes": "700\n"}, 700),
        # In a container the path is the host's.
        ("4:memory:/kubepods/x\n0::/\n", {"memory/memory.limit_in_bytes": "600\n"}, 600),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("4:cpuset:/\n", {}, None),
        ("", {}, None),
        ("what is this\n5:memory\n0::/\n", {"memory.max": "500\n"}, 500),
    ],
    ids=[
        "version 2",
        "the pod's",
        "its own",
        "no limit",
        "version 1",
        "seen from inside",
        "none of version 1",
        "no",
        "-",
        "lines of another form",
    ],
)
def test_the_limit_is_the_least_of_the_groups_around(tmp_path, entries, files, limit):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(entries)
    assert memory_limit(tmp_path, tmp_path / "own") == limit


def test_where_nothing_can_be_read_there_is_no_limit(tmp_path):
    assert memory_limit(tmp_path, tmp_path / "nothing") is None


GREEDY = """
from speaker.system.garbage import bound_memory, end_if_exhausted
bound_memory({limit})
taken = []
try:
    while True:
        taken.append(bytearray({piece}))
except MemoryError as error:
    if {lets_go}:
        taken.clear()
    end_if_exhausted(error)
print("goes on", len(taken))
"""


def greedy(**how: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", GREEDY.format(**how)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_who_can_get_no_more_memory_ends_with_the_reason_and_before_the_limit():
    done = greedy(limit=2**27, piece=2**20, lets_go=False)
    assert done.returncode == OUT_OF_MEMORY
    assert json.loads(done.stderr)["event"] == "out of memory"


def test_who_gave_it_back_goes_on():
    done = greedy(limit=2**27, piece=2**20, lets_go=True)
    assert (done.returncode, done.stdout) == (0, "goes on 0\n")


def test_what_was_too_large_ends_nobody():
    done = greedy(limit=2**27, piece=2**30, lets_go=False)
    assert (done.returncode, done.stdout) == (0, "goes on 0\n")


def test_what_it_may_take_is_a_share_of_the_limit():
    done = greedy(limit=2**27, piece=2**20, lets_go=False)
    assert int(json.loads(done.stderr)["error"].split()[3]) < 2**27 * MAIN + 2**27
