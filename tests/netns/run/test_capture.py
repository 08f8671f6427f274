"""``speaker capture`` beside two real speakers that share EIPs: who is who, by name, and again from what it wrote."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import replies

from speaker.model import Mac
from speaker.ownership.hellos.keys import generate
from speaker.packets import arp

pytestmark = pytest.mark.netns

SITE = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [198.51.100.10-198.51.100.19], interface: eth0}
""" + "".join(
    f"""
---
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: default, annotations: {{eip-speaker.io/addresses: 198.51.100.1{number}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}
"""
    for number in range(4)
)
PATIENCE = 120.0
EIPS = {f"198.51.100.1{number}" for number in range(4)}
EIP, CLIENT_IP = IPv4Address("198.51.100.10"), IPv4Address("198.51.100.50")
CLIENT, STRANGER = Mac(b"\x02\x00\x00\x00\x00\x50"), Mac(b"\x02\x00\x00\x00\x00\x99")


class Capture:
    """A running ``speaker capture … --json``, read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if wanted(self.events[-1]):
                return self.events[-1]
        assert self.process.stderr is not None
        raise AssertionError(f"it ended: {self.process.stderr.read()}")

    def claims(self) -> dict[str, str]:
        """Who said last that it claims which EIP."""
        return {eip: event["node"] for event in self.events if event["event"] == "claims" for eip in event["eips"]}

    def greeted(self) -> set[str]:
        return {event["node"] for event in self.events if event["event"] == "hello"}


def capture(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error::ResourceWarning", "-m", "speaker", "capture", *arguments]


@contextmanager
def capturing(node, *arguments: str) -> Iterator[Capture]:
    with node.entered():
        process = subprocess.Popen(
            capture("eth0", "--json", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background ignores it
        )
    guard = threading.Timer(PATIENCE, process.kill)  # against a hang, not an expectation
    guard.start()
    with process:
        try:
            yield Capture(process)
        finally:
            guard.cancel()
            process.kill()


def send(node, frame: bytes) -> None:
    with node.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as opened:
        opened.bind(("eth0", 0))
        opened.send(frame)


@contextmanager
def sending(node, frame: bytes) -> Iterator[None]:
    """Again and again: what grew old on a busy machine is not answered."""
    over = threading.Event()

    def send_on() -> None:
        while not over.is_set():
            send(node, frame)
            over.wait(0.2)

    thread = threading.Thread(target=send_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def nodes(new_namespace, wire, sh):
    one, two = new_namespace("one"), new_namespace("two")
    wire(one, "eth0", two, "eth0")
    for number, node in enumerate((one, two), 1):
        sh(node, f"ip addr add 198.51.100.{number}/24 dev eth0")
        node.sysctl("net.ipv4.ip_forward", 1)
    return {"n1": one, "n2": two}


def test_names_who_claims_who_asks_who_answers_and_who_must_not(nodes, write, start, tmp_path):
    write("site.yaml", SITE)
    key, pcap = tmp_path / "key", tmp_path / "seen.pcap"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    with capturing(nodes["n1"], "--key", str(key), "--write", str(pcap)) as running:
        for name, node in nodes.items():
            start(node, "--with-peers", "--key", str(key), name=name)
        running.until(lambda _: running.claims().keys() == EIPS and running.greeted() == nodes.keys())
        running.until(lambda event: event["event"] == "announces" and event["address"] == str(EIP))
        holder = running.claims()[str(EIP)]
        (other,) = nodes.keys() - {holder}
        with sending(nodes[other], arp.request(CLIENT, CLIENT_IP, EIP).pack()):
            asked = running.until(lambda event: event.get("sender") == str(CLIENT_IP))
            answered = running.until(lambda event: event.get("to") == str(CLIENT_IP))
        send(nodes[other], replies.gratuitous_reply(STRANGER, EIP).pack())
        alarm = running.until(lambda event: event["alarm"])
        running.process.send_signal(signal.SIGINT)
        rest, words = running.process.communicate(timeout=180)
    assert asked["sentence"] == f"{CLIENT_IP} (02:00:00:00:00:50) asks who has {EIP}"
    assert answered["sentence"].startswith(f"{holder} answers {CLIENT_IP}: {EIP} is at ")
    assert alarm["sentence"].startswith(f"a stranger (02:00:00:00:00:99) announces {EIP} at")
    assert f", but {holder} claims it (term " in alarm["sentence"]
    assert all(event["verified"] for event in running.events if event["event"] in ("hello", "claims"))
    assert (running.process.returncode, words) == (130, "")

    live = [*running.events, *map(json.loads, rest.splitlines())]
    again = read_again(pcap, "--key", str(key))
    assert told(again)[: len(told(live))] == told(live), "it may have been interrupted between keeping and telling"
    unverified = read_again(pcap)
    assert [event["sentence"].removesuffix(" [unverified]") for event in unverified] == [
        event["sentence"] for event in again
    ]
    assert {event["verified"] for event in unverified if event["event"] == "claims"} == {False}


def read_again(pcap: Path, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        capture(str(pcap), "--json", *arguments), capture_output=True, text=True, check=False, timeout=180
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def told(events: list[dict[str, Any]]) -> list[str]:
    """Without who fell silent: live that is noticed between two frames, too."""
    return [event["sentence"] for event in events if event["event"] != "silent"]


def test_so_many_seconds_later_it_ends_by_itself_and_says_how_much_it_saw(nodes):
    with nodes["n1"].entered():
        done = subprocess.run(
            capture("eth0", "--seconds", "0.2"), capture_output=True, text=True, check=False, timeout=180
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("alarms: none\n")
