"""``speaker cleanup`` on a real kernel: it removes, or says what it could not look at."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from speaker.forwarding.forwarder import forwarded
from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

POOL = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [198.51.100.10], interface: eth0}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: LoadBalancer, ports: [{port: 80}]}}
"""
FLAGS = ("--forwarder", "nftables", "--metrics", "off")


@pytest.fixture
def node(new_namespace, wire, sh):
    node, client = new_namespace("node"), new_namespace("client")
    wire(node, "eth0", client, "eth0")
    sh(node, "ip addr add 198.51.100.1/24 dev eth0")
    return node


@pytest.fixture
def cleanup(tmp_path):
    """``cleanup(node)``: what it said and how it ended; ``before``: words in front of the command."""

    def run(node, *before: str, runtime_dir: Path = tmp_path / "run", **environment: str) -> tuple[int, str, str]:
        command = [*before, sys.executable, "-m", "speaker", "cleanup", "--runtime-dir", str(runtime_dir)]
        with node.entered():
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
        return done.returncode, done.stdout, done.stderr

    return run


def test_beside_a_running_speaker_it_removes_nothing_and_says_what_to_do_first(
    node, write, start, sh, cleanup, tmp_path
):
    write("site.yaml", POOL)
    speaker = start(node, *FLAGS)
    speaker.until("ready")
    before = sh(node, "nft list ruleset")
    code, out, complaint = cleanup(node)
    assert (code, out) == (1, "")
    assert "another speaker is already running here" in complaint
    assert "stop it first (SIGTERM)" in complaint
    assert sh(node, "nft list ruleset") == before
    assert speaker.stop() == 0
    assert forwarded(tmp_path / "run") == "nftables"
    assert cleanup(node) == (0, "nftables table inet eip-speaker\n", "")
    assert forwarded(tmp_path / "run") == ""
    assert cleanup(node) == (0, "there was nothing to remove\n", "")
    assert sh(node, "nft list tables") == ""


def test_beside_a_running_speaker_that_does_not_forward_nftables_table_is_removed(node, write, start, sh, cleanup):
    """One that an agent of another overlay left, and that the one here has no right to look for."""
    write("site.yaml", POOL)
    speaker = start(node, "--forwarder", "none", "--metrics", "off")
    speaker.until("ready")
    sh(node, "nft add table inet eip-speaker")
    assert cleanup(node) == (0, "nftables table inet eip-speaker\n", "")
    sh(node, "ip link add eip-speaker0 type bridge")
    code, _, complaint = cleanup(node)
    assert code == 1, "kube-proxy in ipvs mode goes on with what IPVS has"
    assert "stop it first (SIGTERM)" in complaint
    speaker.stop()


def test_beside_one_that_hands_connections_over_or_does_not_answer_it_removes_nothing(
    node, write, start, sh, cleanup, tmp_path
):
    named = "{name: web, annotations: {eip-speaker.io/addresses: 198.51.100.10}}"
    write("site.yaml", POOL.replace("{name: web}", named))
    node.sysctl("net.ipv4.ip_forward", 1)
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(generate(os.urandom(32)))
    none = "--forwarder", "none", "--metrics", "off"
    handing_over = start(node, *none, "--with-peers", "--key", str(key), "--hand-over")
    handing_over.until("ready")
    sh(node, "nft add table inet eip-speaker")
    assert cleanup(node)[:2] == (1, "")
    assert "eip-speaker" in sh(node, "nft list tables")
    handing_over.stop()
    silent = start(node, *none, home="silent")
    silent.until("ready")
    sh(node, "nft add table inet eip-speaker")
    (main,) = silent.children()
    os.kill(main, signal.SIGSTOP)
    try:
        assert cleanup(node, runtime_dir=silent.directory / "run")[:2] == (1, "")
        assert "eip-speaker" in sh(node, "nft list tables")
    finally:
        os.kill(main, signal.SIGCONT)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a right up")
def test_without_the_right_to_look_it_says_so_and_ends_with_1(node, cleanup, sh):
    sh(node, "nft add table inet eip-speaker")
    code, out, complaint = cleanup(node, "setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin")
    assert (code, out) == (1, "")
    assert complaint == "speaker: cleanup needs CAP_NET_ADMIN (root): nothing was examined or removed\n"
    assert "eip-speaker" in sh(node, "nft list tables")


def test_a_table_that_cannot_be_removed_without_the_program_is_named(node, cleanup, sh, tmp_path):
    sh(node, "nft add table inet eip-speaker")
    empty = tmp_path / "bin"
    empty.mkdir()
    code, out, complaint = cleanup(node, PATH=str(empty))
    assert (code, out) == (1, "")
    assert complaint.startswith("speaker: nftables table inet eip-speaker is still there: ")
    assert "the program nft is not installed" in complaint
