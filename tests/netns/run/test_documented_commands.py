"""What the documentation has one type is typed: page by page, on a host that has links and files of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from documented import LINES, ROOT, Line, first_word, where

pytestmark = [pytest.mark.netns, pytest.mark.long(part="practice")]

SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [192.0.2.0/24], exclude: [192.0.2.1-192.0.2.9], interface: eth0}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {eip-speaker.io/addresses: 192.0.2.10}}
spec: {type: LoadBalancer, loadBalancerClass: eip-speaker.io/speaker, ports: [{port: 80}]}
"""
OWN_FILES = """
set -e
mount --make-rprivate /
cp -a /etc "$0/etc"
mount --bind "$0/etc" /etc
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir -p /etc/speaker
echo ready
exec sleep infinity
"""


class Host:
    """A shell in ``node`` that sees an /etc, a /run and a /var/lib of its own."""

    def __init__(self, node, directory: Path) -> None:
        self.site = directory / "site"
        self.site.mkdir()
        (self.site / "site.yaml").write_text(SITE)
        with node.entered():
            self.holder = subprocess.Popen(
                ["unshare", "--mount", "bash", "-c", OWN_FILES, str(directory)], stdout=subprocess.PIPE, text=True
            )
        assert self.holder.stdout is not None
        if self.holder.stdout.readline() != "ready\n":
            pytest.skip("needs the right to mount")
        self.running: subprocess.Popen[str] | None = None

    def start(self, line: str, **options: Any) -> subprocess.Popen[str]:
        words = ["nsenter", "-t", str(self.holder.pid), "-m", "-n", f"--wd={ROOT}", "bash", "-c", f"exec {line}"]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background ignores it
        environment = os.environ | {"PATH": path}
        return subprocess.Popen(
            words, stderr=subprocess.STDOUT, text=True, env=environment, preexec_fn=heeds, **options
        )

    def type(self, line: Line) -> None:
        text = line.text.replace(".venv/bin/", "").replace(" DIR", f" {self.site}")
        told = text.split()
        if "run" in told[:2] and "--dry-run" not in told:
            self.stop()
            self.running = self.start(text, stdout=subprocess.PIPE)
            self.until(self.running, r"\bready\b")
            return
        if told[:2] == ["speaker", "cleanup"]:
            self.stop()  # as the page says
        process = self.start(text, stdout=subprocess.PIPE)
        if told[1] == "capture":
            self.until(process, "")
            process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=180)
        # connections: a kernel that does not list them; drain: nobody else is there; explain, doctor: what they find.
        may_end_with_1 = {"connections", "drain", "explain", "doctor"}
        ends = (130,) if told[1] == "capture" else (0, 1) if told[1] in may_end_with_1 else (0,)
        assert process.returncode in ends, f"{line.file}:{line.number}: {text}: {process.returncode}: {said}"
        assert "Traceback" not in said

    def until(self, process: subprocess.Popen[str], pattern: str) -> None:
        assert process.stdout is not None
        seen = []
        for said in process.stdout:
            seen.append(said)
            if re.search(pattern, said):
                return
        raise AssertionError(f"it ended: {''.join(seen)}")

    def stop(self) -> None:
        if self.running is not None:
            self.running.send_signal(signal.SIGTERM)
            self.running.communicate(timeout=180)
            self.running = None

    def close(self) -> None:
        self.stop()
        self.holder.kill()
        self.holder.communicate()


@pytest.fixture
def host(new_namespace, wire, sh, tmp_path) -> Iterator[Host]:
    node, other = new_namespace("node"), new_namespace("other")
    for link, addresses in (
        ("eth0", ("192.0.2.2/24", "2001:db8::2/64")),
        ("eth1", ("203.0.113.1/24", "2001:db8:2::1/64")),
    ):
        wire(node, link, other, link)
        for address in addresses:
            sh(node, f"ip addr add {address} dev {link}{' nodad' * (':' in address)}")
    node.sysctl("net.ipv4.ip_forward", 1)
    sh(node, "ip link set lo up")
    made = Host(node, tmp_path)
    yield made
    made.close()


HERE = [line for line in LINES if "test_documented_commands.py" in where(line)[0]]
PAGES: dict[str, list[Line]] = {}
for line in HERE:
    # Blocks about routes and settings are alternatives to each other.
    page = line.file if first_word(line.text) == "speaker" else f"{line.file}:{line.block}"
    PAGES.setdefault(page, []).append(line)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_typed_from_top_to_bottom(page, host):
    lines = PAGES[page]
    kept = {"speaker connections", "speaker capture", "speaker status", "speaker explain", "speaker doctor"}
    if any(" ".join(line.words[:2]) in kept for line in lines):
        for before in ("speaker keygen", "speaker run DIR --with-peers"):
            host.type(Line(page, 0, before))
        if any(line.words[:2] == ["speaker", "keygen"] and "--add" not in line.words for line in lines):
            Path(f"/proc/{host.holder.pid}/root/etc/speaker/key").unlink()
    for line in lines:
        host.type(line)


def test_every_line_that_is_to_run_here_is_typed():
    assert sorted(line for lines in PAGES.values() for line in lines) == sorted(HERE)
    assert {first_word(line.text) for line in HERE} == {"speaker", "ip", "sysctl"}
