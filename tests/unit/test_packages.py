"""The systemd part as deb and rpm: what is in them, that they are the same every time, and what their scripts do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from speaker import __version__

ROOT = Path(__file__).resolve().parents[2]
SYSTEMD = ROOT / "manifests" / "systemd"
SCRIPTS = ROOT / "manifests" / "packages"
PLACES = {
    "usr/lib/systemd/system/eip-speaker.service": SYSTEMD / "eip-speaker.service",
    "usr/lib/sysusers.d/eip-speaker.conf": SYSTEMD / "eip-speaker.sysusers.conf",
    "usr/lib/tmpfiles.d/eip-speaker.conf": SYSTEMD / "eip-speaker.tmpfiles.conf",
    "usr/share/doc/eip-speaker/copyright": ROOT / "LICENSE",
}


def built(kind: str, directory: Path) -> Path:
    program = Path(sys.executable).with_name("nfpm")
    if not program.exists():
        pytest.skip("needs nfpm, which `make .venv/.dev` installs")
    directory.mkdir()
    command = [program, "package", "--config", "manifests/packages/package.yaml", "--packager", kind]
    named = os.environ | {"VERSION": __version__, "REPOSITORY": "example/eip"}
    subprocess.run([*command, "--target", f"{directory}/"], cwd=ROOT, env=named, check=True, capture_output=True)
    (made,) = directory.iterdir()
    return made


@pytest.mark.parametrize(
    ("kind", "name", "begins"),
    [
        ("deb", f"eip-speaker_{__version__}_all.deb", b"!<arch>\n"),
        ("rpm", f"eip-speaker-{__version__}-1.noarch.rpm", b"\xed\xab\xee\xdb"),
    ],
)
def test_a_package_is_the_same_every_time(kind, name, begins, tmp_path):
    first, second = built(kind, tmp_path / "first"), built(kind, tmp_path / "second")
    assert first.name == second.name == name
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(begins)


def test_the_deb_has_the_units_files_and_names_what_it_needs(tmp_path):
    if shutil.which("dpkg-deb") is None:
        pytest.skip("needs dpkg-deb")
    package, unpacked = built("deb", tmp_path / "made"), tmp_path / "unpacked"
    subprocess.run(["dpkg-deb", "--raw-extract", package, unpacked], check=True)
    files = {str(each.relative_to(unpacked)) for each in unpacked.rglob("*") if each.is_file()}
    assert files == {*PLACES, *(f"DEBIAN/{each}" for each in ("control", "md5sums", "postinst", "postrm", "prerm"))}
    assert all((unpacked / place).read_bytes() == source.read_bytes() for place, source in PLACES.items())
    control = (unpacked / "DEBIAN" / "control").read_text()
    assert f"Version: {__version__}\n" in control
    assert "Homepage: https://github.com/example/eip\n" in control
    assert "Depends: systemd (>= 245), python3 (>= 3.11), python3-venv\n" in control


@pytest.fixture
def run(tmp_path):
    """``run("preremove", "remove")``: what it told systemd, where systemd runs, and what it printed."""
    said = tmp_path / "said"
    said.touch()
    for name in ("systemctl", "systemd-sysusers", "systemd-tmpfiles"):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho {name} "$@" >>{said}\n')
        tool.chmod(0o755)

    def script(name: str, *words: str, booted: bool = True, program: bool = False) -> tuple[list[str], str]:
        said.write_text("")
        text = (SCRIPTS / name).read_text()
        text = text.replace("/run/systemd/system", str(tmp_path if booted else tmp_path / "not-there"))
        text = text.replace("-x /opt/eip-speaker/bin/speaker", "-x /bin/sh" if program else "-x /not-there")
        copy = tmp_path / "script"
        copy.write_text(text)
        found = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", copy, *words], env=found, check=True, capture_output=True, text=True)
        return said.read_text().splitlines(), done.stdout

    return script


def test_it_makes_the_user_and_the_directories_and_says_how_to_get_the_program(run):
    told, printed = run("postinstall", "configure")
    assert told == [
        "systemd-sysusers eip-speaker.conf",
        "systemd-tmpfiles --create eip-speaker.conf",
        "systemctl daemon-reload",
    ]
    assert "pip install eip-speaker" in printed
    assert run("postinstall", "configure", booted=False, program=True) == (told[:2], "")


@pytest.mark.parametrize("word", ["upgrade", "1"])
def test_an_upgrade_does_not_stop_the_speaker(run, word):
    assert run("preremove", word) == ([], "")


@pytest.mark.parametrize("word", ["remove", "0"])
def test_a_removal_stops_it_first(run, word):
    assert run("preremove", word) == (["systemctl disable --now eip-speaker.service"], "")
    assert run("preremove", word, booted=False) == ([], "")
