"""The alerts on real speakers: three on a LAN, healthy, then with all that can be broken at once, then mended.

What their /metrics say meanwhile is played to Prometheus' own evaluation. ``RECORD=1`` keeps it for ``tests/alerts``.
"""

import os
import shutil
import signal
import time
from contextlib import ExitStack

import pytest
from alert_lan import fires, key, nft, pool, samples, service, switched, until
from conftest import Running
from playing import AT_ONCE, AT_ONCE_STEPS, Recorder, save
from prometheus import NOT_ON_A_LAN, missing, prometheus
from standing_still import told, watches

pytestmark = [pytest.mark.netns, pytest.mark.long(part="alerts")]

SERVICES = "".join(service(number) for number in range(10, 14))
HEALTHY = pool("198.51.100.10-198.51.100.29") + SERVICES
LOCAL = service(14, ", externalTrafficPolicy: Local")
SICK = pool("198.51.100.10-198.51.100.14") + SERVICES + LOCAL + service(99)
"""Full, with one whose Service has no endpoint anywhere, and one that no pool can give."""
NODES = ("n1", "n2", "n3")


@pytest.fixture
def lan(new_namespace, wire, sh):
    """Three nodes, and a host beside them, on one switch."""
    return switched(new_namespace, wire, sh, *NODES, "other")[1]


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
    standing = stack.enter_context(watches())
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
    (foreign / "site.yaml").write_text(pool("198.51.100.30-198.51.100.40") + service(30))
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
    fires(recorder.phases, AT_ONCE_STEPS, AT_ONCE, tmp_path, lambda: told(standing))
    if os.environ.get("RECORD"):
        save("speaker-run", recorder.phases)
