"""``speaker run --with-peers`` on two hosts of one LAN."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from alert_lan import eventually, nft, switched
from site_yaml import POOL, pool, service

from speaker.ownership.hellos.keys import generate

pytestmark = pytest.mark.netns

SITE = POOL + "".join(service(f"s{number}", eip=f"198.51.100.1{number}") for number in range(4))
EIPS = {f"198.51.100.1{number}" for number in range(4)}


@pytest.fixture
def lan(new_namespace, wire, sh):
    """Two nodes, one cable."""
    one, two = new_namespace("one"), new_namespace("two")
    wire(one, "eth0", two, "eth0")
    for number, node in enumerate((one, two), 1):
        sh(node, f"ip addr add 198.51.100.{number}/24 dev eth0")
        sh(node, "ip link set lo up")
        node.sysctl("net.ipv4.ip_forward", 1)
    return one, two


@pytest.fixture
def key(tmp_path):
    def make(name="key"):
        file = tmp_path / name
        file.write_text(generate(os.urandom(32)))
        file.chmod(0o600)
        return str(file)

    return make


@pytest.fixture(params=["socket", "auto"], ids=["sockets", "kernel"])
def pair(lan, write, start, key, request):
    """Both speakers, once each EIP has one holder that both agree on, and each holds some."""
    write("site.yaml", SITE)
    flags = ("--with-peers", "--key", key(), "--responder", request.param)
    speakers = [start(node, *flags, name=name) for node, name in zip(lan, ("n1", "n2"), strict=True)]
    for speaker in speakers:
        speaker.until("ready")
    if late := [speaker for speaker in speakers if not held(speaker)]:  # on a busy machine: the other has taken all
        level(late[0])
        for _ in range(2):
            late[0].until("claimed")
    return speakers


def ask(speaker, command, *, codes=(0,)):
    """What ``speaker COMMAND`` prints, on that speaker's host."""
    argv = [sys.executable, "-m", "speaker", command, "--runtime-dir", str(speaker.directory / "run")]
    argv += ["--json"] if command == "status" else []
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode in codes, done
    return done.stdout


def holders(speaker):
    return {eip["address"]: eip["holder"] for eip in json.loads(ask(speaker, "status"))["eips"]}


def held(speaker):
    return {eip for eip, holder in holders(speaker).items() if holder == speaker.name}


def level(speaker):
    """Each holds two. For two seconds a node refuses to take what it has just let go."""
    eventually(
        lambda: ask(speaker, "rebalance", codes=(0, 1)) and len(held(speaker)) == 2, lambda: ask(speaker, "status")
    )


def test_each_eip_has_one_holder_and_both_say_the_same(pair):
    one, two = pair
    assert holders(one) == holders(two)
    assert held(one) | held(two) == EIPS
    assert held(one) & held(two) == set()


@pytest.mark.parametrize("pair", ["auto"], indirect=True)
def test_what_the_kernel_answers_is_counted(pair, lan, sh):
    one, _ = pair
    eip = min(held(one))
    sh(lan[1], f"arping -c 3 -I eth0 {eip}")
    counted = re.compile(r'eip_speaker_kernel_answers_total\{protocol="arp"\} ([0-9.]+)')
    eventually(lambda: float(counted.search(one.get("/metrics"))[1]) >= 3, lambda: one.get("/metrics"))


def test_drained_it_hands_over_and_takes_nothing_back_until_it_is_levelled(pair):
    one, two = pair
    before = held(one)
    assert before
    printed = ask(one, "drain")
    assert {line.split()[0] for line in printed.splitlines() if "→ n2" in line} == before
    assert held(two) == EIPS
    ask(one, "undrain")
    assert held(two) == EIPS, "nothing comes back by itself"
    level(one)
    assert len(held(two)) == 2


def test_a_stopped_speaker_leaves_nothing_behind_that_answers(pair):
    one, two = pair
    gone = held(one)
    assert one.stop(signal.SIGTERM) == 0
    for _ in gone:
        two.until("claimed")
    assert held(two) == EIPS


def test_it_goes_on_when_its_main_process_dies(pair):
    one, two = pair
    before = holders(two)
    (main,) = one.children()
    os.kill(main, signal.SIGKILL)
    one.until("main process replaced", end="killed by SIGKILL", held=len(held(two) ^ EIPS))
    one.until("ready")
    assert holders(one) == holders(two) == before


def test_of_a_failover_while_it_had_no_main_process_the_next_one_tells_once(pair):
    one, two = pair
    lost = held(two)
    (main,) = one.children()
    os.kill(main, signal.SIGKILL)
    two.process.kill()
    one.until("main process replaced")  # it takes longer to start than a silent peer is waited for
    lines = [one.until("claimed", before="n2", why="silent") for _ in lost]
    assert {line["eip"] for line in lines} == lost
    took = [line["unanswered"] for line in lines]
    one.until("ready")
    count, total = (
        float(line.split()[-1])
        for line in one.get("/metrics").splitlines()
        if line.startswith(("eip_speaker_failover_seconds_count", "eip_speaker_failover_seconds_sum"))
    )
    assert (count, total) == (len(took), pytest.approx(sum(took), abs=1e-6))


def test_its_main_process_dies_with_it(pair):
    one, two = pair
    (main,) = one.children()
    one.stop(signal.SIGKILL)
    two.until("peer silent", peer="n1")
    assert not Path(f"/proc/{main}").exists() or "\nState:\tZ" in Path(f"/proc/{main}/status").read_text()


def test_a_key_is_rotated_step_by_step_without_anybody_losing_anybody(pair, tmp_path):
    one, two = pair
    file = tmp_path / "key"
    for step in ("--add", "--promote", "--retire"):
        done = subprocess.run([sys.executable, "-m", "speaker", "keygen", str(file), step], check=False)
        assert done.returncode == 0
        for speaker in pair:
            speaker.until("keys read")
    assert held(one) | held(two) == EIPS
    assert held(one) & held(two) == set()
    assert not [entry for speaker in pair for entry in speaker.log if entry["event"] == "peer silent"]


def test_a_peer_with_another_key_is_no_peer_and_is_told_of(lan, write, start, key):
    write("site.yaml", SITE)
    one = start(lan[0], "--with-peers", "--key", key("a"), name="n1")
    start(lan[1], "--with-peers", "--key", key("b"), name="n2")
    foreign = one.until("foreign hellos")
    assert foreign["link"] == "eth0"
    assert foreign["reason"] == "wrong_key"


def test_without_a_key_it_refuses_to_start_and_says_how_to_make_one(lan, write, tmp_path):
    write("site.yaml", SITE)
    missing = tmp_path / "no-such-key"
    argv = [sys.executable, "-m", "speaker", "run", str(tmp_path / "manifests"), "--with-peers", "--key", str(missing)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2
    assert f"speaker keygen {missing}" in done.stderr


def test_a_cloned_host_says_so_and_holds_nothing_and_the_original_goes_on_when_it_stops(lan, write, start, key, sh):
    write("site.yaml", SITE)
    one, two = lan
    flags = ("--with-peers", "--key", key())
    original = start(one, *flags)
    original.until("ready")
    clone = start(two, *flags, home="clone")
    told, answer = clone.until("name clash"), original.until("name clash")
    assert (told["silent"], answer["silent"]) == (True, False)
    assert sh(one, "ip -br link show eth0").split()[2] in told["message"]
    for speaker in (clone, original):
        while "eip_speaker_name_clashes_total 1.0" not in speaker.get("/metrics"):
            pass
        assert any("another host has this node's name" in problem for problem in told_problems(speaker))
    clone.stop()
    assert not [entry for entry in clone.log if entry["event"] == "claimed"]
    assert held(original) == EIPS
    original.stop()
    assert not [entry for entry in original.log if entry["event"] == "withdrawn" and entry["reason"] == "name_clash"]


def told_problems(speaker):
    return json.loads(ask(speaker, "status"))["problems"]


def test_a_peers_own_address_is_not_claimed(lan, write, start, key):
    pool = SITE.replace("198.51.100.10-198.51.100.19", "198.51.100.2-198.51.100.19")
    write(
        "site.yaml", pool.replace("eip-speaker.io/addresses: 198.51.100.13", "eip-speaker.io/addresses: 198.51.100.2")
    )
    flags = ("--with-peers", "--key", key())
    one, two = (start(node, *flags, name=name) for node, name in zip(lan, ("n1", "n2"), strict=True))
    told = one.until("peer's address")
    assert (told["eip"], told["peer"]) == ("198.51.100.2", "n2")
    assert "198.51.100.2" not in held(one)
    assert any("198.51.100.2" in problem for problem in told_problems(one))
    two.stop()


# ── A port that passes hellos, and not what clients ask: no MLD querier, or ARP is suppressed ─────────────────────────

SIX = [f"2001:db8:9::1{number}" for number in range(6)]
FOUR = [f"198.51.100.1{number}" for number in range(3)]
BOTH_FAMILIES = pool('198.51.100.10-198.51.100.19, "2001:db8:9::10-2001:db8:9::19"') + "".join(
    service(f"s{number}", "ipFamilies: [IPv6]" if ":" in eip else "", eip=f'"{eip}"')
    for number, eip in enumerate(FOUR + SIX)
)


@pytest.fixture
def ports(new_namespace, wire, sh):
    """The switch, and by name three nodes and a client on it."""
    names = "n1", "n2", "n3", "client"
    switch, places = switched(new_namespace, wire, sh, *names)
    for number, place in enumerate(places, 1):
        sh(place, f"ip addr add 2001:db8:9::{number}/64 dev eth0 nodad")
    return {"switch": switch, **dict(zip(names, places, strict=True))}


@pytest.fixture(params=["socket", "auto"], ids=["sockets", "kernel"])
def three(ports, write, start, key, request):
    write("site.yaml", BOTH_FAMILIES)
    flags = ("--with-peers", "--key", key(), "--responder", request.param)
    found = {name: start(ports[name], *flags, name=name) for name in ("n1", "n2", "n3")}
    for speaker in found.values():
        speaker.until("ready")
    eventually(
        lambda: (
            all(holders(each) == holders(found["n1"]) for each in found.values())
            and None not in holders(found["n1"]).values()
        ),
        lambda: ask(found["n1"], "status"),
    )
    return found


def answered(client, sh):
    """The EIPs whose MAC a client that knows none gets by asking."""
    for version, eips in ((4, FOUR), (6, SIX)):
        sh(client, f"ip -{version} neigh flush dev eth0")
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        with client.entered(), socket.socket(family, socket.SOCK_DGRAM) as probe:
            for eip in eips:
                probe.sendto(b"", (eip, 80))
    time.sleep(1.5)  # until the kernel has asked twice, a second apart, or once and been answered
    known = [line.split() for line in sh(client, "ip neigh show dev eth0").splitlines()]
    return {words[0] for words in known if "lladdr" in words} & {*FOUR, *SIX}


@pytest.mark.parametrize(
    ("lost", "eips"),
    [
        ("ether daddr & ff:ff:00:00:00:00 == 33:33:00:00:00:00", SIX),
        ("ether type arp ether daddr ff:ff:ff:ff:ff:ff", FOUR),
    ],
    ids=["multicast", "ARP broadcasts"],
)
def test_who_gets_no_questions_of_clients_loses_the_eips_they_are_for(ports, three, sh, lost, eips):
    before = holders(three["n1"])
    victim = before[eips[0]]
    assert answered(ports["client"], sh) == {*FOUR, *SIX}
    rule = f"oifname p{victim[1]} {lost} drop"
    nft(ports["switch"], f"table bridge port {{ chain out {{ type filter hook forward priority 0; {rule}; }}; }}")
    others = next(speaker for name, speaker in three.items() if name != victim)
    eventually(
        lambda: (
            victim not in {holder for eip, holder in holders(others).items() if eip in eips}
            and answered(ports["client"], sh) == {*FOUR, *SIX}
        ),
        lambda: ask(others, "status"),
    )
