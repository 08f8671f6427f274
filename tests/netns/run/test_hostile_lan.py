"""Three real speakers while a host on their LAN floods it, or has their key and says what it likes.

What a stranger sends costs a client no more than a failover. Who has the key may take EIPs; what it makes up fills no
memory, ends no process, and is over once it falls silent.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import hostile_host
import pytest
import replies
from site_yaml import pool, service

from speaker.ownership.hellos.keys import generate

pytestmark = [pytest.mark.netns, pytest.mark.long(part="lab")]

EIPS = (*(f"198.51.100.1{number}" for number in range(4)), "2001:db8:1::10", "2001:db8:1::11")
SITE = pool("198.51.100.10-198.51.100.19, '2001:db8:1::10-2001:db8:1::1f'") + "".join(
    service(f"s{number}", "ipFamilies: [IPv6]" if ":" in eip else "", eip=eip) for number, eip in enumerate(EIPS)
)
NAMES = ("n1", "n2", "n3")
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "8"))
FAILOVER = 1.0
"""Seconds at most without an answer, on a machine that is busy with the flood as well."""
MEMORY = 200 * 2**20
"""Bytes by which a process may grow, whatever it is told."""


class Lan:
    """``nodes`` by name, a client, and the hostile host, on one bridge."""

    def __init__(self, nodes, client, hostile, speakers, key):
        self.nodes, self.client, self.hostile = nodes, client, hostile
        self.speakers, self.key = speakers, key
        self.mains = {speaker.name: speaker.children() for speaker in speakers}

    @contextmanager
    def at_work(self, place, mode, rate=0):
        """A hostile host, or the client; what it yields is filled with its words at the end."""
        order = {
            "link": "eth0",
            "mode": mode,
            "eips": EIPS,
            "rate": rate,
            "key": str(self.key),
            "nodes": NAMES,
            "source4": "198.51.100.200",
            "source6": "2001:db8:1::200",
        }
        told = {}
        with place.entered():
            process = subprocess.Popen(
                [sys.executable, hostile_host.__file__, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(Path(replies.__file__).parent)},
            )
        try:
            yield told
            out, _ = process.communicate("", timeout=180)
            told.update(json.loads(out))
        finally:
            process.kill()
            process.wait()

    def resident(self):
        """Bytes of each process."""
        return {pid: _resident(pid) for each in self.speakers for pid in (each.process.pid, *self.mains[each.name])}

    def asked(self, seconds):
        with self.at_work(self.client, "asks") as seen:
            time.sleep(seconds)
        return seen


def _resident(pid):
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


@pytest.fixture
def lan(new_namespace, wire, sh, write, start, tmp_path):
    switch, places = new_namespace("switch"), [new_namespace(name) for name in (*NAMES, "client", "hostile")]
    sh(switch, "ip link add br0 mtu 9000 type bridge mcast_snooping 0")
    sh(switch, "ip link set br0 up")
    for number, place in enumerate(places, 1):
        wire(place, "eth0", switch, f"p{number}")
        sh(place, "ip link set eth0 mtu 9000")
        sh(switch, f"ip link set p{number} mtu 9000 master br0")
        sh(place, f"ip addr add 198.51.100.{number}/24 dev eth0")
        sh(place, f"ip addr add 2001:db8:1::{number}/64 dev eth0 nodad")
        place.sysctl("net.ipv4.ip_forward", 1)
    key = tmp_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    write("site.yaml", SITE)
    flags = ("--with-peers", "--key", str(key))
    speakers = [start(place, *flags, name=name) for place, name in zip(places, NAMES, strict=False)]
    for speaker in speakers:
        speaker.until("ready")
    found = Lan(dict(zip(NAMES, places, strict=False)), places[3], places[4], speakers, key)
    settled(found)
    return found


def settled(lan, seconds=30):
    """Every EIP is answered by one node, for a second."""
    end = time.monotonic() + seconds
    while True:
        seen = lan.asked(1.5)
        if all(one["answered"] and len(one["macs"]) == 1 for one in seen.values()):
            return seen
        assert time.monotonic() < end, seen


def is_whole(lan):
    """No process has ended, none began anew, and nothing was met that nobody foresaw."""
    for speaker in lan.speakers:
        assert speaker.process.poll() is None, speaker.last_words()
        assert speaker.children() == lan.mains[speaker.name]
        told = speaker.get("/metrics").splitlines()
        errors = [line for line in told if line.startswith("eip_speaker_internal_errors_total{")]
        assert all(line.endswith(" 0.0") for line in errors), errors


@pytest.mark.parametrize(("mode", "rate"), [("ndp", 20_000), ("jumbo", 2_000), ("spoof", 5_000)])
def test_a_strangers_flood_costs_clients_no_more_than_a_failover(lan, mode, rate):
    before = lan.resident()
    with lan.at_work(lan.client, "asks") as seen, lan.at_work(lan.hostile, mode, rate) as flood:
        time.sleep(SECONDS)
    grown = {pid: now - before[pid] for pid, now in lan.resident().items()}
    print(mode, flood, grown, json.dumps(seen, indent=1))  # noqa: T201 -- figures, with `-s`
    is_whole(lan)
    assert flood["sent"] > rate
    assert max(one["silence"] for one in seen.values()) < FAILOVER, seen
    assert max(grown.values()) < MEMORY, grown


@pytest.mark.parametrize("mode", [*hostile_host.KEY_HOLDERS])
def test_what_somebody_makes_up_who_has_the_key_ends_nothing_and_is_over_when_it_falls_silent(lan, mode):
    before = lan.resident()
    with lan.at_work(lan.client, "asks") as seen, lan.at_work(lan.hostile, mode) as flood:
        time.sleep(SECONDS)
    grown = {pid: now - before[pid] for pid, now in lan.resident().items()}
    print(mode, flood, grown, json.dumps(seen, indent=1))  # noqa: T201 -- figures, with `-s`
    is_whole(lan)
    assert flood["sent"] > SECONDS * 20
    assert max(grown.values()) < MEMORY, grown
    if mode != "owner":  # own addresses stay so for an hour: the host may live, and its speaker not
        settled(lan)
