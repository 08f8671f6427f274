"""The lab without root: in a user namespace where the machine allows one, with advice where it does not."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.netns

NOBODY = 65534


@pytest.fixture
def as_nobody(tmp_path):
    """``as_nobody("-m", "speaker", …)`` runs this Python (or its twin that nobody may read) without any privilege."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give it up")
    paths = [str(Path.cwd()), sysconfig.get_path("purelib")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    tmp_path.chmod(0o777)

    def run(python: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, *arguments],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        try:
            if run(python, "-c", "import speaker.lab.play").returncode == 0:
                return lambda *arguments, **more: run(python, *arguments, **more)
        except OSError:
            continue
    return pytest.skip("no Python here that a user without privileges may run with our dependencies")


def need_user_namespaces(as_nobody) -> None:
    """A chroot has none either (create_user_ns, kernel/user_namespace.c)."""
    if as_nobody("-c", "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0").returncode != 0:
        pytest.skip("this machine allows no user namespace")


def test_without_root_every_eip_is_reached_in_a_user_namespace(as_nobody):
    need_user_namespaces(as_nobody)
    done = as_nobody("-W", "error", "-m", "speaker", "lab", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is True


def test_without_root_a_speaker_hands_over_in_a_user_namespace(as_nobody):
    need_user_namespaces(as_nobody)
    done = as_nobody("-W", "error", "-m", "speaker", "lab", "--scenario", "drain", "--nodes", "2", "--json")
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert found["moves"] > 0
    assert not any(eip["lost"] for eip in found["eips"])


def test_where_nothing_is_allowed_the_lab_names_the_setting_to_change(as_nobody):
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("needs util-linux's unshare and setpriv")
    need_user_namespaces(as_nobody)
    # A user namespace of its own, so that forbidding more of them forbids them nowhere else.
    forbid = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all"
    lab = "import sys; from speaker.cli import main; sys.exit(main(['lab', '--json']))"
    done = as_nobody(
        "-c",
        "import os, sys; os.execvp('unshare', ['unshare', '-Ur', 'sh', '-c',"
        f' \'{forbid} "$0" -c "$1"\', sys.executable, {lab!r}])',
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is False
    assert "sudo sysctl -w user.max_user_namespaces=" in done.stderr
