"""The guest itself: what goes wrong in it goes wrong out here. Runs outside, boots guests of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

PANICS = """
import pytest, os
pytestmark = pytest.mark.ipvs
def test_a_kernel_of_its_own(): assert os.path.exists("/run/out/command")
def test_skips(): pytest.skip("because")
@pytest.mark.parametrize("n", [1, 2])
def test_fails_on_two(n): assert n == 1
def test_cannot_write_outside():
    with pytest.raises(OSError, match="Read-only"): open(__file__ + ".new", "w")
def test_panics(): open("/proc/sysrq-trigger", "w").write("c")
def test_after(): pass
"""
HANGS = """
import pytest, signal
pytestmark = pytest.mark.ipvs
def test_before(): pass
def test_hangs(): signal.pause()
def test_after(): pass
"""


OUTSIDE = """
import os
def test_outside(): assert not os.path.exists("/run/out/command")
"""


@pytest.mark.parametrize(
    ("tests", "outcomes", "shown"),
    [
        (
            PANICS,
            "3 failed, 5 passed, 1 skipped",
            ["assert 2 == 1", "because", "in this test the guest ended early", "before this test the guest ended"],
        ),
        (HANGS, "2 failed, 3 passed", ["in this test the guest hung: no report in 4 s", "in test_hangs"]),
    ],
    ids=["panics", "hangs"],
)
def test_what_happens_in_the_guest_shows_outside(tmp_path, tests, outcomes, shown):
    if not shutil.which("linux.uml"):
        pytest.skip("needs the package user-mode-linux")
    for name, text in {"a/test_1.py": OUTSIDE, "a/test_2.py": tests, "b/test_3.py": OUTSIDE}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = ipvs\n")
    for name in ("conftest.py", "guest", "xstate.c"):
        shutil.copy(HERE / name, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"EIP_SPEAKER_GUEST": "uml", "EIP_SPEAKER_GUEST_SILENCE": "4"},
        capture_output=True,
        text=True,
        check=False,
    )
    for text in (outcomes, *shown):
        assert text in done.stdout
    assert done.returncode == 1
