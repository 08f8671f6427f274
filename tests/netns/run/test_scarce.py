"""A host that has run out of something: what is answered is answered on, people are told, and it passes."""

import asyncio
import json
import os
import resource
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from site_yaml import POOL, service
from speaker_processes import family, told_apart

from speaker.lab.outage import asking, outages

pytestmark = pytest.mark.netns

FIRST, SECOND = IPv4Address("198.51.100.10"), IPv4Address("198.51.100.11")
ASK = 0.005
GAP_MS = 250.0
"""What the machine alone may keep an answer back."""
LINGER = 0.5
"""Seconds that it is asked on."""
PATIENCE = 120.0
"""Seconds until a test gives up; what was refused is tried again after a while of its own."""
FEW_DESCRIPTORS, IDLE = 64, 2000
LOUD = ("warning", "error", "critical")
METRICS, HEALTH_CHECK_PORT = ("127.0.0.1", 9900), 31999


ONE, TWO = POOL + service("a"), POOL + service("a") + service("b")


@pytest.fixture
def home(tmp_path):
    """Where the speaker named n2 keeps its files: a tmpfs of one megabyte."""
    place = tmp_path / "n2"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount (root, or `unshare -Urnm`)")
    (place / "run").mkdir()
    yield place
    # A process that is being killed may still be in it.
    subprocess.run(["umount", "--lazy", "--recursive", str(place)], check=True)


@contextmanager
def answered_throughout(client, *eips):
    """The client asks for them all the time, and nobody is silent."""
    over, begun = asyncio.Event(), []

    async def ask():
        async with asking(client, "eth0", eips, ASK) as asks:
            begun.append((asyncio.get_running_loop(), time.monotonic()))
            await over.wait()
        return asks

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(ask())
        while not begun:
            loop.run_until_complete(asyncio.sleep(0.01))
        yield  # the prober and the capture need no loop of ours
        loop.run_until_complete(asyncio.sleep(LINGER))
        over.set()
        asks = loop.run_until_complete(task)
    longest = outages(asks.samples(begun[0][1]), ASK)
    assert set(longest) == set(eips)
    assert all(outage.over and outage.ms <= GAP_MS for outage in longest.values()), longest


def complaint(speaker):
    """The next line of its log that somebody should look at."""
    for line in speaker.process.stderr:
        entry = json.loads(line)
        speaker.log.append(entry)
        if entry.get("level") in LOUD:
            return entry
    raise AssertionError(f"ended: {speaker.log[-5:]}")


def wrong(speaker):
    """Nobody is to be forwarded to here."""
    return [each for each in speaker.status().get("problems", []) if "endpoint" not in each]


def healed(speaker, write, eip=SECOND):
    """What was asked meanwhile is done, and nothing is wrong any more."""
    if not any(entry["event"] == "claimed" and entry.get("eip") == str(eip) for entry in speaker.log):
        speaker.until("claimed", eip=str(eip))
    deadline = time.monotonic() + PATIENCE
    while problems := wrong(speaker):
        assert time.monotonic() < deadline, problems
        time.sleep(0.1)  # the file is written when it is written
    assert speaker.process.poll() is None


def limit(pid, what, soft):
    _, hard = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (soft, hard))


@contextmanager
def idle(node, count, *places):
    """So many connections to each place of the node, which say nothing; as many of them as it takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count * len(places) + 500
    if hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, has {hard}")
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with node.entered():
            for place in places:
                kind = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
                for _ in range(count):
                    sock = stack.enter_context(socket.socket(kind, socket.SOCK_STREAM))
                    sock.setblocking(False)
                    with suppress(OSError):
                        sock.connect(place)
        yield


def control(speaker):
    return str(speaker.directory / "run" / "control")


# ── descriptors ───────────────────────────────────────────────────────────────────────────────────────────────


def test_with_few_descriptors_and_many_idle_clients_what_is_asked_is_done_when_they_are_gone(lan, write, start):
    node, client = lan
    write("site.yaml", ONE)
    speaker = start(node, "--metrics", "127.0.0.1:9900")
    for pid in family(speaker.process.pid):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, FEW_DESCRIPTORS))
    speaker.until("ready")
    assert {resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] for pid in family(speaker.process.pid)} == {
        FEW_DESCRIPTORS
    }
    with answered_throughout(client, FIRST):
        with idle(node, FEW_DESCRIPTORS, METRICS, control(speaker)):
            write("site.yaml", TWO)
            time.sleep(3)  # in which it tries
            assert speaker.process.poll() is None
        healed(speaker, write)


def test_with_no_descriptor_left_it_answers_says_so_and_goes_on_when_there_are_some(lan, write, start):
    node, client = lan
    write("site.yaml", ONE)
    speaker = start(node, "--metrics", "127.0.0.1:9900")
    speaker.until("ready")
    with answered_throughout(client, FIRST):
        for pid in told_apart(speaker.process.pid).values():
            limit(pid, resource.RLIMIT_NOFILE, len(list(Path(f"/proc/{pid}/fd").iterdir())))
        write("site.yaml", TWO)
        assert "oo many open files" in str(complaint(speaker))
        for pid in told_apart(speaker.process.pid).values():
            limit(pid, resource.RLIMIT_NOFILE, 1024)
        healed(speaker, write)


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cage():
    """A control group that limits processes; moves everybody out at the end."""
    for root in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        place = root / f"eip-speaker-{os.getpid()}"
        try:
            place.mkdir()
        except OSError:
            continue
        if (place / "pids.max").exists():
            break
        place.rmdir()
    else:
        pytest.skip("needs a control group that limits processes (root, cgroup pids)")
    yield place
    for pid in (place / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (root / "cgroup.procs").write_text(pid)
    deadline = time.monotonic() + PATIENCE
    while True:  # who was killed leaves when it is reaped
        try:
            place.rmdir()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def test_with_no_process_to_be_had_it_answers_says_so_and_goes_on_when_there_are_some(lan, write, start, cage):
    node, client = lan
    write("site.yaml", ONE)
    speaker = start(node, "--metrics", "127.0.0.1:9900", "--forwarder", "nftables")
    speaker.until("ready")
    for pid in family(speaker.process.pid):
        (cage / "cgroup.procs").write_text(str(pid))
    with answered_throughout(client, FIRST):
        (cage / "pids.max").write_text((cage / "pids.current").read_text())
        write("site.yaml", TWO)
        assert "temporarily unavailable" in (said := str(complaint(speaker))) or "new thread" in said
        (cage / "pids.max").write_text("max")
        healed(speaker, write)
    speaker.close()


# ── disks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_on_a_full_disk_it_answers_says_so_and_goes_on_when_there_is_room(lan, write, start, home):
    node, client = lan
    write("site.yaml", ONE)
    speaker = start(node, "--metrics", "127.0.0.1:9900", name="n2")
    speaker.until("ready")
    with answered_throughout(client, FIRST):
        filler = home / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            for size in (4096, 1):
                with suppress(OSError):
                    while True:
                        file.write(b"x" * size)
        write("site.yaml", TWO)
        assert "No space left" in str(complaint(speaker))
        filler.unlink()
        healed(speaker, write)


def test_with_a_read_only_runtime_directory_it_answers_says_so_and_goes_on_when_it_is_not(lan, write, start, home):
    node, client = lan
    write("site.yaml", ONE)
    speaker = start(node, "--metrics", "127.0.0.1:9900", name="n2")
    speaker.until("ready")
    over = str(home / "run")
    with answered_throughout(client, FIRST):
        # Files that are open for writing keep the tmpfs from being remounted: a mount upon it has none.
        subprocess.run(["mount", "--bind", over, over], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", over], check=True)
        write("site.yaml", TWO)
        assert "ead-only" in str(complaint(speaker))
        with answered_throughout(client, FIRST, SECOND):
            pass
        subprocess.run(["umount", over], check=True)
        healed(speaker, write)


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────


def test_two_thousand_idle_clients_on_every_listening_socket_keep_nobody_from_anything(lan, write, start, sh):
    node, client = lan
    checked = service("a", f"externalTrafficPolicy: Local\n  healthCheckNodePort: {HEALTH_CHECK_PORT}")
    write("site.yaml", POOL + service("b") + checked)
    speaker = start(node, "--metrics", "127.0.0.1:9900", "--forwarder", "nftables")
    speaker.until("ready")
    listening = {tuple(METRICS), ("127.0.0.1", HEALTH_CHECK_PORT)}
    deadline = time.monotonic() + PATIENCE
    while f":{HEALTH_CHECK_PORT} " not in sh(node, "ss -Hltn"):
        assert time.monotonic() < deadline, sh(node, "ss -Hltnp")
        time.sleep(0.1)
    with answered_throughout(client, SECOND):  # the other has no endpoint here
        with idle(node, IDLE, *listening, control(speaker)):
            write("site.yaml", POOL + service("b") + service("c") + checked)
            speaker.until("claimed")
            assert speaker.process.poll() is None
        assert "eip_speaker" in speaker.get("/metrics"), "and people can ask again"
        assert wrong(speaker) == []
