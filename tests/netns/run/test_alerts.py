"""The alerts on real speakers: three on a LAN, healthy, then with all that can be broken at once, then mended.

What their /metrics say meanwhile is played to Prometheus' own evaluation. ``RECORD=1`` keeps it for ``tests/alerts``.
"""

import os
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import Running
from playing import SICK_LAN, Recorder, firing, save
from prometheus import NOT_ON_A_LAN, missing, prometheus

from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

POOL = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: lan}}
spec: {{addresses: [198.51.100.10-198.51.100.{last}], interface: eth0}}
"""
SERVICE = """
---
apiVersion: v1
kind: Service
metadata: {{name: s{number}, namespace: default, annotations: {{eip-speaker.io/addresses: 198.51.100.{number}}}}}
spec: {{type: LoadBalancer, ports: [{{port: 80}}]{more}}}
"""
HEALTHY = POOL.format(last=29) + "".join(SERVICE.format(number=number, more="") for number in range(10, 14))
LOCAL = SERVICE.format(number=14, more=", externalTrafficPolicy: Local")
SICK = POOL.format(last=14) + HEALTHY.split("\n", 6)[-1] + LOCAL + SERVICE.format(number=99, more="")
"""Full, with one whose Service has no endpoint anywhere, and one that no pool can give."""
NODES = ("n1", "n2", "n3")
STEPS = {"healthy": 24, "sick": 18, "mended": 48}
GUARD = 60.0


@pytest.fixture
def lan(new_namespace, wire, sh):
    """Three nodes, and a host beside them, on one switch."""
    switch = new_namespace("switch")
    sh(switch, "ip link add br0 type bridge")
    sh(switch, "ip link set br0 up")
    hosts = [new_namespace(name) for name in (*NODES, "other")]
    for number, host in enumerate(hosts, 1):
        wire(host, "eth0", switch, f"p{number}")
        sh(switch, f"ip link set p{number} master br0")
        sh(host, f"ip addr add 198.51.100.{number}/24 dev eth0")
        host.sysctl("net.ipv4.ip_forward", 1)
    return hosts


def key(home: Path) -> str:
    file = home / f"key-{len(list(home.glob('key-*')))}"
    file.touch(mode=0o600)
    file.write_text(generate(os.urandom(32)))
    return str(file)


def nft(host, ruleset):
    with host.entered():
        subprocess.run(["nft", "-f", "-"], input=ruleset, text=True, check=True)


def until(speakers, name, wanted):
    """Until the values of that sample, of all speakers together, are as ``wanted`` says."""
    deadline = time.monotonic() + GUARD
    while not wanted(found := [v for speaker in speakers for v in samples(speaker.get("/metrics"), name)]):
        assert time.monotonic() < deadline, (name, found)
        time.sleep(0.2)


def samples(text, name):
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]


@pytest.fixture
def stack():
    """Who writes the test leaves what is in it at its end."""
    with ExitStack() as found:
        yield found


def told_by(speakers):
    """Of each node what it tells as long as it is among the ``speakers``."""
    return {("speaker", name): lambda name=name: speakers[name].get("/metrics") for name in NODES}


def test_all_that_is_broken_is_told_once_and_what_is_mended_no_more(lan, write, start, sh, tmp_path, stack):
    """And the dashboard shows it, as Prometheus has it."""
    if shutil.which("nft") is None:
        pytest.skip("no nft: apt-get install nftables")
    if reason := missing():
        pytest.skip(reason)
    *nodes, other = lan
    shared = key(tmp_path)
    write("site.yaml", HEALTHY)
    speakers = {}
    watching = stack.enter_context(prometheus(tmp_path, told_by(speakers)))
    speakers |= {
        name: start(node, "--with-peers", "--key", shared, name=name) for node, name in zip(nodes, NODES, strict=True)
    }
    recorder = Recorder(
        lambda: {"speaker": {name: speaker.get("/metrics") for name, speaker in speakers.items()}}, time.monotonic
    )
    for speaker in speakers.values():
        speaker.until("ready")
    everyone = list(speakers.values())
    until(everyone, "eip_speaker_answered{", lambda found: found == [1.0] * 4)
    until(everyone, "eip_speaker_held_since_timestamp_seconds{", lambda found: len(found) == 4)
    for speaker in everyone:
        assert samples(speaker.get("/metrics"), 'eip_speaker_eips{state="by_nobody"}') == [0.0]
    recorder.begin("healthy")
    time.sleep(2.5)  # two countings of hellos
    recorder.end()
    watching.until(f"count(up == 1) == {len(NODES)}")

    # Broken.
    speakers["n2"].process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    speakers["n2"].process.send_signal(signal.SIGCONT)
    speakers.pop("n3").close()
    write("site.yaml", SICK)
    living = list(speakers.values())
    until(living, 'eip_speaker_services_refused{reason="', lambda found: found == [1.0] * 2)
    write("broken.yaml", "kind: [")
    until(living, "eip_speaker_manifests_valid", lambda found: found == [0.0] * 2)
    until(living, "eip_speaker_held_since_timestamp_seconds{", lambda found: len(found) == 4)
    silent = next(
        n for n in ("n1", "n2") if 'held_since_timestamp_seconds{eip="198.51.100.10"}' in speakers[n].get("/metrics")
    )
    nft(
        nodes[NODES.index(silent)],
        """table netdev broken { chain out { type filter hook egress device eth0 priority 0;
           ether type arp arp saddr ip 198.51.100.10 drop; }; }""",
    )
    nft(
        nodes[0],
        """table netdev lossy { chain in { type filter hook ingress device eth0 priority 0;
           ether type 0x88b5 numgen random mod 100 < 45 drop; }; }""",
    )
    sh(other, "ip addr add 198.51.100.11/32 dev eth0")
    sh(other, "arping -c 1 -w 1 -i eth0 -S 198.51.100.11 198.51.100.11", check=False)
    (foreign := tmp_path / "foreign").mkdir()
    (foreign / "site.yaml").write_text(
        POOL.format(last=40).replace(".10-", ".30-") + SERVICE.format(number=30, more="")
    )
    stranger = Running(
        other, foreign, tmp_path / "n4", "n4", "--with-peers", "--key", key(tmp_path), "--metrics", "off"
    )
    try:
        stranger.until("ready")
        until(living, "eip_speaker_answered{", lambda found: 0.0 in found and 2.0 in found)
        until(
            living, 'eip_speaker_hellos_received_total{link="eth0",result="wrong_key"}', lambda found: len(found) == 2
        )
        sh(other, "arping -c 1 -w 1 -i eth0 -S 198.51.100.11 198.51.100.11", check=False)
        until(living, 'eip_speaker_eips{state="conflict"}', lambda found: 1.0 in found)
        recorder.begin("sick")
        time.sleep(5)
        recorder.end()
    finally:
        stranger.close()

    # Mended.
    sh(other, "ip addr del 198.51.100.11/32 dev eth0")
    nft(nodes[0], "delete table netdev lossy")
    nft(nodes[NODES.index(silent)], "delete table netdev broken")
    (tmp_path / "manifests" / "broken.yaml").unlink()
    write("site.yaml", HEALTHY)
    speakers["n3"] = start(nodes[2], "--with-peers", "--key", shared, name="n3", home="n3-again")
    speakers["n3"].until("ready")
    everyone = list(speakers.values())
    until(everyone, 'eip_speaker_eips{state="conflict"}', lambda found: found == [0.0] * 3)
    until(everyone, "eip_speaker_answered{", lambda found: found == [1.0] * 4)
    until(everyone, "eip_speaker_peers_silent{", lambda found: not any(found))
    recorder.begin("mended")
    time.sleep(2.5)
    recorder.end()
    assert watching.unanswered() <= NOT_ON_A_LAN
    if os.environ.get("RECORD"):
        save("speaker-run", recorder.phases)
    assert firing(recorder.phases, STEPS, {"healthy": set(), "sick": SICK_LAN, "mended": set()}, tmp_path) == ""
