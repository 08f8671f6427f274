"""The wire process outlives the main one, for a while: what it held it answers for, and the next main process takes it
over as it is."""

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from site_yaml import POOL, service
from speaker_processes import told_apart

from speaker.lab.outage import asking, outages
from speaker.ownership.hellos.keys import generate
from speaker.ownership.parameters import Parameters
from speaker.settings import DEFAULT_HELLO_MS
from speaker.system.process import priority_of

pytestmark = pytest.mark.netns

EIPS = [IPv4Address(f"198.51.100.1{number}") for number in range(4)]
SITE = POOL + "".join(service(f"s{number}", eip=eip) for number, eip in enumerate(EIPS))
ASK = 0.002
"""Seconds between two requests for one EIP."""
WATCHED = 3.0
"""Seconds: a main process starts again within them."""
FAILOVER_MS = Parameters.for_hello(DEFAULT_HELLO_MS / 1000).worst_failover * 1000
PATIENCE = 180.0
OUTLIVE = 8
"""Seconds."""
SOON = 0.5
"""Seconds by which it may be too early, counting from when a main process was killed."""


@pytest.fixture
def lan(new_namespace, wire, sh):
    """(nodes, client): a switch of veth pairs."""
    switch, client = new_namespace("switch"), new_namespace("client")
    nodes = [new_namespace(f"n{number}") for number in (1, 2, 3)]
    sh(switch, "ip link add lan type bridge")
    sh(switch, "ip link set lan up")
    for number, host in enumerate((*nodes, client), 1):
        wire(switch, f"port{number}", host, "eth0")
        sh(switch, f"ip link set port{number} master lan")
        sh(host, f"ip addr add 198.51.100.{number}/24 dev eth0")
        host.sysctl("net.ipv4.ip_forward", 1)
    return nodes, client


@pytest.fixture
async def three(lan, write, start, tmp_path):
    """Three speakers that share the EIPs, once every EIP has a holder; and the client."""
    write("site.yaml", SITE)
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(generate(os.urandom(32)))
    nodes, client = lan
    flags = ("--with-peers", "--key", str(key))
    speakers = [start(node, *flags, name=f"n{number}") for number, node in enumerate(nodes, 1)]
    for speaker in speakers:
        speaker.until("ready")
    await until(lambda: set().union(*map(held, speakers)) == set(map(str, EIPS)))
    return speakers, client


def tasks_of(process):
    return list(Path(f"/proc/{process}/task").iterdir())


def held(speaker):
    return {eip["address"] for eip in speaker.status()["eips"] if eip["claimed"]}


def busiest(speakers):
    return max(speakers, key=lambda speaker: len(held(speaker)))


def lost(asks, since):
    """Requests without an answer, however late it came (on a busy machine it does); once nothing is asked any more."""
    sent = Counter(sample.eip for sample in asks.samples(since))
    came = Counter(reply.address for reply in asks.replies() if not reply.unasked and reply.at >= since)
    return {str(eip): max(0, sent[eip] - came[eip]) for eip in EIPS}


def seen_from(asks):
    """EIP → the MACs that answered for it."""
    found = {}
    for reply in asks.replies():
        if not reply.unasked:
            found.setdefault(str(reply.address), set()).add(reply.mac)
    return found


async def until(holds):
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return found


async def pause(seconds):
    await asyncio.sleep(seconds)


def another_main(speaker, before):
    now = told_apart(speaker.process.pid).get("main")
    return now if now not in (None, before) else None


async def test_when_the_main_process_is_killed_not_one_probe_is_lost_and_another_takes_over(three):
    speakers, client = three
    victim = busiest(speakers)
    processes, before = told_apart(victim.process.pid), held(victim)
    assert before
    async with asking(client, "eth0", EIPS, ASK) as asks:
        await pause(0.5)
        since = time.monotonic()
        os.kill(processes["main"], signal.SIGKILL)
        await until(lambda: another_main(victim, processes["main"]))
        await pause(WATCHED)
    assert lost(asks, since) == {str(eip): 0 for eip in EIPS}
    assert {eip: len(macs) for eip, macs in seen_from(asks).items()} == {str(eip): 1 for eip in EIPS}, "nothing moves"
    assert told_apart(victim.process.pid)["wire"] == processes["wire"]
    assert held(victim) == before
    assert victim.process.poll() is None


async def test_every_thread_of_the_wire_process_has_its_priority(three):
    """One that starts a main process without it kept answers waiting on a busy host, as it has the interpreter."""
    victim = busiest(three[0])
    main, wire = (told_apart(victim.process.pid)[role] for role in ("main", "wire"))
    os.kill(main, signal.SIGKILL)
    await until(lambda: another_main(victim, main))
    of_threads = {task.name: priority_of(int(task.name)) for task in tasks_of(wire)}
    assert len(of_threads) > 1
    assert set(of_threads.values()) == {priority_of(wire)}


async def test_the_main_process_that_takes_over_does_what_is_asked_next(three, write):
    victim = busiest(three[0])
    main = told_apart(victim.process.pid)["main"]
    os.kill(main, signal.SIGKILL)
    await until(lambda: another_main(victim, main))
    write("site.yaml", SITE.replace("port: 80", "port: 81"))
    await until(lambda: forwards(victim, 81))
    assert victim.stop() == 0


def forwards(speaker, port):
    with speaker.node.entered():
        listed = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=False).stdout
    return f". {port} " in listed


async def test_when_the_main_process_stands_still_not_one_probe_is_lost(three):
    speakers, client = three
    main = told_apart(busiest(speakers).process.pid)["main"]
    async with asking(client, "eth0", EIPS, ASK) as asks:
        await pause(0.5)
        since = time.monotonic()
        os.kill(main, signal.SIGSTOP)
        await pause(WATCHED)
        os.kill(main, signal.SIGCONT)
        await pause(0.5)
    assert lost(asks, since) == {str(eip): 0 for eip in EIPS}
    assert {len(macs) for macs in seen_from(asks).values()} == {1}


async def test_when_both_are_killed_what_they_held_is_out_for_one_failover_and_nothing_else_is(three):
    speakers, client = three
    victim = busiest(speakers)
    before = held(victim)
    async with asking(client, "eth0", EIPS, ASK) as asks:
        await pause(0.5)
        since = time.monotonic()
        for pid in told_apart(victim.process.pid).values():
            with suppress(ProcessLookupError):  # one ends with the other
                os.kill(pid, signal.SIGKILL)
        await pause(WATCHED)
    out = {str(eip): outage for eip, outage in outages(asks.samples(since), ASK).items()}
    assert all(outage.over for outage in out.values()), out
    assert {eip for eip, outage in out.items() if outage.ms > FAILOVER_MS} == set(), out
    assert {eip for eip, macs in seen_from(asks).items() if len(macs) > 1} == before
    assert {eip for eip, missing in lost(asks, since).items() if missing} == before


async def test_alone_a_node_that_no_main_process_returns_to_goes_on_answering_until_one_does(
    lan, write, start, tmp_path
):
    """Nobody would gain by its silence."""
    nodes, client = lan
    write("site.yaml", SITE)
    speaker = start(nodes[0], "--outlive", str(OUTLIVE))
    speaker.until("ready")
    processes, state = told_apart(speaker.process.pid), tmp_path / "state.json"
    known = state.read_text()
    async with asking(client, "eth0", EIPS, ASK) as asks:
        await pause(0.5)
        state.write_text("nobody can start from this")
        since = time.monotonic()
        os.kill(processes["main"], signal.SIGKILL)
        await pause(OUTLIVE + WATCHED)
        state.write_text(known)
        write("site.yaml", SITE.replace("port: 80", "port: 81"))
        await until(lambda: forwards(speaker, 81))
    assert lost(asks, since) == {str(eip): 0 for eip in EIPS}
    speaker.process.send_signal(signal.SIGTERM)
    await until(lambda: speaker.process.poll() is not None)
    assert speaker.process.returncode == 0
