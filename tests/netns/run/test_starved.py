"""A host with little to give: 64 descriptors and a crowd on every socket, an nft that cannot be run. EIPs are answered,
the problem is told, and what was asked for meanwhile is in force once there is more."""

import os
import socket
import sys

import pytest
from site_yaml import POOL

pytestmark = pytest.mark.netns


def web(name, port=0):
    check = f"\n  externalTrafficPolicy: Local\n  healthCheckNodePort: {port}" if port else ""
    return f"""\
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  type: LoadBalancer
  ports: [{{port: 80}}]{check}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-4, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints: [{{addresses: [10.0.0.1], nodeName: n1}}]
"""


def answered(sh, client, eip="198.51.100.10"):
    """Within a few requests: an EIP is probed for before its first answer."""
    return "1 packets received" in sh(client, f"arping -C 1 -c 60 -w 60 -i eth0 {eip}", check=False)


def test_with_64_descriptors_a_crowd_on_every_socket_keeps_nobody_out(lan, write, start, sh, tmp_path, monkeypatch):
    node, client = lan
    starved = tmp_path / "starved"
    starved.write_text(f'#!/bin/sh\nulimit -n 64\nexec {sys.executable} "$@"\n')
    starved.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(starved))
    write("pool.yaml", POOL)
    write("web.yaml", web("web", 30001))
    speaker = start(node, "--forwarder", "nftables")
    speaker.until("health check", port=30001)
    with node.entered():
        crowds = [
            *(socket.create_connection(("127.0.0.1", 9900)) for _ in range(300)),
            *(socket.create_connection(("127.0.0.1", 30001)) for _ in range(300)),
        ]
    for _ in range(300):
        crowds.append(socket.socket(socket.AF_UNIX))
        crowds[-1].connect(str(speaker.directory / "run" / "control"))
    assert answered(sh, client)
    assert "eip_speaker_eips" in speaker.get("/metrics")
    assert "200 OK" in sh(node, "curl -sS -i --max-time 60 http://198.51.100.1:30001/", check=False)
    write("other.yaml", web("other"))
    speaker.until("claimed", eip="198.51.100.11")
    assert answered(sh, client, "198.51.100.11")
    assert not [line for line in speaker.log if line["event"] == "edge failed"]
    for each in crowds:
        each.close()


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ("exit 0", "its output cannot be read|there is no table"),
        ("echo garbage", "its output cannot be read|there is no table"),
        ("echo '{\"nftables\": [{'", "its output cannot be read|there is no table"),
        (None, "not executable: Permission denied"),
    ],
)
def test_an_nft_that_breaks_while_we_run_is_told_and_tried_again(
    lan, write, start, sh, tmp_path, monkeypatch, instead, told
):
    node, client = lan
    nft = tmp_path / "bin" / "nft"
    nft.parent.mkdir()
    (real,) = [f"{folder}/nft" for folder in os.environ["PATH"].split(":") if os.access(f"{folder}/nft", os.X_OK)][:1]
    nft.symlink_to(real)
    write("pool.yaml", POOL)
    write("web.yaml", web("web"))
    with monkeypatch.context() as here:
        here.setenv("PATH", str(nft.parent))
        speaker = start(node, "--forwarder", "nftables")
    speaker.until("ready")
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\n{instead}\n")
    broken.chmod(0o755 if instead is not None else 0o644)
    broken.rename(nft)
    sh(node, f"{real} delete table inet eip-speaker")  # so that it is looked at, not remembered
    write("other.yaml", web("other"))
    failed = speaker.until("edge failed")
    assert any(words in failed["error"] for words in told.split("|"))
    assert answered(sh, client)
    assert failed["error"] in speaker.get("/healthz")
    nft.unlink()
    nft.symlink_to(real)
    speaker.until("claimed", eip="198.51.100.11")
    assert "198.51.100.11" in sh(node, f"{real} list table inet eip-speaker")
