"""What the wheel brings for systemd: systemd finds no fault with it, and it names what the speaker uses."""

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from speaker.cli import _parser
from speaker.ownership.parameters import Parameters
from speaker.settings import DEFAULT_KEY, DEFAULT_RUNTIME_DIR, DEFAULT_STATE

FILES = Path(__file__).resolve().parents[2] / "manifests" / "systemd"
UNIT = FILES / "eip-speaker.service"
SYSUSERS = FILES / "eip-speaker.sysusers.conf"
TMPFILES = FILES / "eip-speaker.tmpfiles.conf"
PROGRAM = "/opt/eip-speaker/bin/speaker"


def service() -> dict[str, str]:
    read = configparser.ConfigParser(interpolation=None, delimiters="=")
    read.optionxform = str  # type: ignore[assignment]  # names have capitals
    read.read(UNIT)
    return dict(read["Service"])


def lines(file: Path) -> list[list[str]]:
    return [shlex.split(line) for line in file.read_text().splitlines() if line and not line.startswith("#")]


def systemd(program: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program} (Debian's package systemd)")
    return program


def test_systemd_finds_no_fault_with_the_unit(tmp_path):
    program = systemd("systemd-analyze")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(PROGRAM, str(Path(sys.executable).with_name("speaker"))))
    verify = [program, "verify", "--man=no", "--recursive-errors=no", copy]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    copy.write_text(copy.read_text().replace("RestartSec=", "RestartSecs="))
    assert "RestartSecs" in subprocess.run(verify, capture_output=True, text=True, check=False).stderr


def test_it_starts_a_command_that_there_is_with_the_directories_it_uses():
    found = service()
    program, *words = found["ExecStart"].split()
    assert program == PROGRAM
    assert words.pop() == "$SPEAKER_FLAGS"
    arguments = _parser().parse_args(words)
    assert arguments.directory == Path("/etc", found["ConfigurationDirectory"])
    assert arguments.state.parent == DEFAULT_STATE.parent == Path("/var/lib", found["StateDirectory"])
    assert arguments.runtime_dir == DEFAULT_RUNTIME_DIR == Path("/run", found["RuntimeDirectory"])
    assert found["RuntimeDirectoryPreserve"] == "yes"  # facts that only a reboot makes void


def test_it_may_answer_and_forward_and_nothing_else():
    found = service()
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == "CAP_NET_RAW CAP_NET_ADMIN"
    assert found["NoNewPrivileges"] == "yes"
    assert found["User"] != "root"


def test_it_has_time_to_hand_over_and_its_first_process_does_that():
    found = service()
    assert int(found["TimeoutStopSec"]) > 2 * (Parameters().drain + Parameters().linger)
    assert found["KillMode"] == "mixed"


def test_the_user_is_made_and_owns_the_directory_of_the_key_alone(tmp_path):
    (made,) = lines(SYSUSERS)
    assert made[:2] == ["u", service()["User"]]
    directories = {Path(path): (mode, user) for _, path, mode, user, _ in lines(TMPFILES)}
    assert directories[DEFAULT_KEY.parent] == ("0700", service()["User"])
    assert Path("/etc", service()["ConfigurationDirectory"]) in directories
    # A root of its own: nothing is made on this machine.
    (tmp_path / "etc").mkdir()
    for command in ([systemd("systemd-sysusers")], [systemd("systemd-tmpfiles"), "--create"]):
        file = SYSUSERS if command[0] == "systemd-sysusers" else TMPFILES
        done = subprocess.run([*command, f"--root={tmp_path}", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert service()["User"] in (tmp_path / "etc/passwd").read_text()
    assert oct((tmp_path / "etc/speaker").stat().st_mode)[-3:] == "700"
