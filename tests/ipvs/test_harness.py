"""The guest itself: what goes wrong in it goes wrong out here, and the first that boots is taken.

Runs outside, boots guests of its own: real ones, and some that only say so."""

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
from pathlib import Path
pytestmark = pytest.mark.ipvs
def test_before(): pass
def test_hangs_once():
    if not Path("/run/out/once").exists():
        Path("/run/out/once").touch()
        signal.pause()
def test_hangs(): signal.pause()
def test_after(): pass
"""
TWO = """
import pytest, os
pytestmark = pytest.mark.ipvs
def test_one(): assert os.environ["EIP_SPEAKER_GUEST_REPORTS"]
def test_two(): pass
"""
OUTSIDE = """
import os
def test_outside(): assert not os.path.exists("/run/out/command")
"""

ONCE = "in a/test_2.py::test_hangs_once the guest hung: no report in 20 s"
NONE = "needs a guest whose kernel has IPVS; "

RUNS = """
echo "The guest is up."
sed "s#/run/out/#$1/#; s#/run/#$1/#" "$1/command" | sh
echo $? >"$1/exit"
"""
PANICS_AT_BOOT = """
echo "userspace - ptrace set fp regs failed, errno = 14"
echo "Kernel panic - not syncing: Attempted to kill init!"
echo "Call Trace:"
"""
BREAKS = """
echo "The guest is up."
echo "no such command"
exit 1
"""
PANICKED = "does not boot here: userspace - ptrace set fp regs failed, errno = 14: Kernel panic - not syncing: "
PANICKED += "Attempted to kill init!"


@pytest.fixture
def run(tmp_path, tmp_path_factory):
    """``run(tests, **environment)`` runs these and others that need no guest, and returns what pytest says."""

    def inner(tests, **environment):
        for name, text in {"a/test_1.py": OUTSIDE, "a/test_2.py": tests, "b/test_3.py": OUTSIDE}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = ipvs\n")
        for name in ("conftest.py", "guest", "guest-qemu"):
            if not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(HERE / name)
        bare = {name: os.environ[name] for name in os.environ if name != "CI" and "EIP_SPEAKER_GUEST" not in name}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-ra", "-o", f"cache_dir={tmp_path_factory.getbasetemp() / 'cache'}"],
            cwd=tmp_path,
            env=bare | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return inner


@pytest.mark.parametrize(
    ("tests", "outcomes", "shown"),
    [
        (
            PANICS,
            "3 failed, 5 passed, 1 skipped",
            ["assert 2 == 1", "because", "in this test the guest ended early", "before this test the guest ended"],
        ),
        (
            HANGS,
            "2 failed, 4 passed",
            [
                "in this test the guest hung: no report in 20 s",
                "in test_hangs\n",
                "sys_pause",
                "a guest was lost",
                ONCE,
            ],
        ),
    ],
    ids=["panics", "hangs"],
)
def test_what_happens_in_the_guest_shows_outside(run, tests, outcomes, shown):
    done = run(tests, EIP_SPEAKER_GUEST_SILENCE="20")
    if NONE in done.stdout:
        pytest.skip("needs a guest whose kernel has IPVS")
    for text in (outcomes, *shown):
        assert text in done.stdout
    assert done.stdout.count("its console") == 2, "once of each guest, as another one goes on where one is lost"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("uml", "qemu", "environment", "outcomes", "shown"),
    [
        (PANICS_AT_BOOT, RUNS, {}, "2 passed, 2 skipped", f"SKIPPED [2] .: {NONE}uml: {PANICKED}\n"),
        (PANICS_AT_BOOT, RUNS, {"CI": "1"}, "2 passed, 2 skipped", f"SKIPPED [2] .: {NONE}uml: {PANICKED}\n"),
        (PANICS_AT_BOOT, RUNS, {"EIP_SPEAKER_GUEST": "uml,qemu"}, "4 passed", f"qemu, since uml: {PANICKED}\n"),
        (
            *(PANICS_AT_BOOT, "", {"EIP_SPEAKER_GUEST": "uml,qemu"}, "2 passed, 2 skipped"),
            f"SKIPPED [2] .: {NONE}uml: {PANICKED}; qemu: does not boot here: it says nothing\n",
        ),
        (
            BREAKS,
            RUNS,
            {"EIP_SPEAKER_GUEST": "uml,qemu"},
            "2 failed, 2 passed",
            "before this test the guest ended early",
        ),
        (
            *(None, RUNS, {}, "2 passed, 2 skipped"),
            f"SKIPPED [2] .: {NONE}uml: apt-get install --no-install-recommends ipvsadm\n",
        ),
        (None, RUNS, {"CI": "1"}, "1 failed, 2 passed, 1 skipped", "--no-install-recommends ipvsadm"),
    ],
    ids=[
        "what does not boot is skipped",
        "in CI too",
        "the next one is taken",
        "neither boots",
        "what boots and breaks is a failure",
        "what is not installed is skipped",
        "in CI that is one failure",
    ],
)
def test_the_first_guest_that_boots_is_taken(run, tmp_path, uml, qemu, environment, outcomes, shown):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("ipvsadm", "ip", "modprobe", "qemu-system-x86_64", "nft"):
        (programs / name).touch(mode=0o755)
    for name in ("sh", "sed"):
        (programs / name).symlink_to(shutil.which(name))
    if uml is None:
        (programs / "ipvsadm").unlink()
    for name, text in (("guest", uml or ""), ("guest-qemu", qemu)):
        (tmp_path / name).write_text(f"#!/bin/sh\n[ $# -gt 0 ] || exit 0\n{text}")
        (tmp_path / name).chmod(0o755)
    done = run(TWO, PATH=str(programs), **environment)
    assert f"= {outcomes} in" in done.stdout
    assert shown in done.stdout
    assert done.returncode == ("failed" in outcomes)


def test_a_guest_can_be_made_to_panic_at_boot_to_see_what_happens_then(run):
    if subprocess.run([HERE / "guest"], capture_output=True, check=False).returncode != 0:
        pytest.skip("there is no kernel to boot")
    done = run(TWO, EIP_SPEAKER_GUEST="uml", EIP_SPEAKER_GUEST_BROKEN="uml", CI="1")
    assert "2 passed, 2 skipped" in done.stdout
    assert f"SKIPPED [2] .: {NONE}uml: does not boot here: " in done.stdout
    assert "Kernel panic" in done.stdout
    assert done.returncode == 0
