"""The rights that the systemd unit gives are enough: a user of its own, two capabilities, no new privileges."""

import configparser
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_yaml import POOL, service

pytestmark = pytest.mark.netns

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "manifests" / "systemd" / "eip-speaker.service"
NOBODY = 65534
PATIENCE = 180.0
"""Seconds; against a hang."""
SITE = f"""{POOL}{service("web")}---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web, namespace: default, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints: [{{addresses: [198.51.100.2]}}]
"""


def rights() -> list[str]:
    """setpriv(1) for what the unit says."""
    read = configparser.ConfigParser(interpolation=None, delimiters="=")
    read.read(UNIT)
    names = read["Service"]["AmbientCapabilities"].lower().replace("cap_", "+").split()
    only = ",".join(("-all", *names))
    sets = [f"--{each}={only}" for each in ("bounding-set", "inh-caps", "ambient-caps")]
    user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    return ["setpriv", *user, *sets, "--no-new-privs", "--"]


@pytest.fixture
def python() -> list[str]:
    """One that others than root may run, with what the speaker needs."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become another user")
    path = os.pathsep.join((str(ROOT), *(each for each in sys.path if each.endswith("-packages"))))
    for program in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = [*rights(), "env", f"PYTHONPATH={path}", "PYTHONDONTWRITEBYTECODE=1", program]
        done = subprocess.run(
            [*command, "-c", "import speaker.standalone.run"], capture_output=True, check=False, cwd="/"
        )
        if done.returncode == 0:
            return command
    pytest.skip("needs a Python that others than root may run")


@pytest.fixture
def home() -> Iterator[Path]:
    """Where everybody can go, and nobody write but in two directories; pytest's own is for root alone."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        for name in ("state", "run", "site"):
            (place / name).mkdir()
            if name != "site":
                os.chown(place / name, NOBODY, NOBODY)
        (place / "site" / "site.yaml").write_text(SITE)
        yield place


def test_with_the_rights_of_the_unit_it_answers_and_forwards(new_namespace, wire, sh, python, home):
    node, client = new_namespace("node"), new_namespace("client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 198.51.100.1/24 dev eth0")
    sh(client, "ip addr add 198.51.100.2/24 dev eth0")
    node.sysctl("net.ipv4.ip_forward", 1)
    flags = (
        "--forwarder=nftables",
        f"--state={home}/state/state.json",
        f"--runtime-dir={home}/run",
        "--log-format=json",
    )
    with node.entered():
        running = subprocess.Popen(
            [*python, "-m", "speaker", "run", home / "site", *flags],
            stderr=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
    guard = threading.Timer(PATIENCE, running.kill)
    guard.start()
    try:
        assert running.stderr is not None
        log = []
        for line in running.stderr:
            log.append(json.loads(line))
            if log[-1]["event"] == "ready":
                break
        assert log[-1]["event"] == "ready", log
        assert "1 packets received" in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")
        assert "198.51.100.10" in sh(node, "nft list table inet eip-speaker")
        assert [entry for entry in log if entry["event"] in ("edge failed", "internal error", "problem")] == []
        told = Path(f"/proc/{running.pid}/status").read_text()
        assert f"Uid:\t{NOBODY}\t{NOBODY}" in told
        assert "NoNewPrivs:\t1" in told
        running.terminate()
        assert running.wait() == 0
    finally:
        guard.cancel()
        running.kill()
        running.wait()
        running.stderr.close()
