"""Speakers of two groups beside each other, on both nodes of one LAN: each is killed, drained, stopped, started and
cleaned up, and the other loses no packet and keeps every entry in the kernel."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from alert_lan import eventually
from conftest import Running
from site_yaml import endpoint, pool, service

from speaker.model import Group
from speaker.ownership.hellos.keys import generate
from speaker.settings import DEFAULT_RUNTIME_DIR, of_group

pytestmark = pytest.mark.netns

CONTROL_PLANE, PLAIN = "control-plane", ""
EIPS = {PLAIN: "198.51.100.10", CONTROL_PLANE: "198.51.100.20"}
BACKEND = "198.51.100.3"
TABLES = ("inet eip-speaker", "ip eip-speaker-strays", "ip6 eip-speaker-strays")


def site(eip):
    udp = service("web", "ipFamilies: [IPv4]", eip).replace("{port: 80}", "{port: 80, protocol: UDP}")
    slice_ = endpoint("web", f"addresses: [{BACKEND}]").replace("{port: 8080}", "{port: 8080, protocol: UDP}")
    return pool(eip) + udp + slice_


def dual(*eips):
    """One Service of both families."""
    udp = service("web", "ipFamilyPolicy: PreferDualStack", "PLACE").replace("PLACE", f'"{",".join(eips)}"')
    return pool(", ".join(f'"{eip}"' for eip in eips)) + udp.replace("{port: 80}", "{port: 80, protocol: UDP}")


class Member(Running):
    """``speaker run --group`` on one node; without ``--group`` for the group PLAIN."""

    def __init__(self, node, home, group, key, *flags, manifests=None):
        self.group, self.home = group, home
        directory = home / (group or "plain")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "manifests").mkdir(exist_ok=True)
        (directory / "manifests" / "site.yaml").write_text(manifests or site(EIPS[group]))
        self.runtime_dir = home / of_group(DEFAULT_RUNTIME_DIR, Group(group)).name
        words = ["--group", group, "--metrics", "127.0.0.1:9901"] if group else []
        peers = "--with-peers", "--key", str(key), "--forwarder", "nftables"
        super().__init__(node, directory / "manifests", directory, home.name, *peers, *words, *flags)

    def command(self, command, *words, codes=(0,)):
        argv = [sys.executable, "-m", "speaker", command, "--runtime-dir", str(self.runtime_dir), *words]
        argv += ["--group", self.group] if self.group else []
        with self.node.entered():
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode in codes, done
        return done.stdout

    def holder(self):
        return json.loads(self.command("status", "--json"))["eips"][0]["holder"]


class Side:
    """Both members of one group, by node."""

    def __init__(self, start, nodes, group):
        self._start, self.group = start, group
        self.members = {name: start(name, group) for name in nodes}

    def settle(self):
        for member in self.members.values():
            member.until("ready")
        eventually(lambda: self.holder() in self.members, self.statuses)

    def statuses(self):
        return [member.command("status") for member in self.members.values()]

    def holder(self):
        said = {member.holder() for member in self.members.values()}
        return said.pop() if len(said) == 1 else None

    def restart(self, name):
        self.members[name] = self._start(name, self.group)
        self.members[name].until("ready")


@pytest.fixture
def lan(new_namespace, wire, sh):
    """Two nodes, a client and a backend on one switch."""
    switch = new_namespace("switch")
    sh(switch, "ip link add br0 type bridge")
    sh(switch, "ip link set br0 up")
    places = {name: new_namespace(name) for name in ("n1", "n2", "backend", "client")}
    for number, place in enumerate(places.values(), 1):
        wire(switch, f"p{number}", place, "eth0")
        sh(switch, f"ip link set p{number} master br0")
        sh(place, f"ip addr add 198.51.100.{number}/24 dev eth0")
        place.sysctl("net.ipv4.ip_forward", 1)
    return places


@pytest.fixture
def short_path():
    """A socket's path has at most 107 bytes, and ``tmp_path`` says the test's name."""
    with TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def sides(lan, short_path):
    key = short_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    with ExitStack() as stack:

        def start(name, group):
            member = Member(lan[name], short_path / name, group, key, "--runtime-dir", str(runtime(name, group)))
            stack.callback(member.close)
            return member

        def runtime(name, group):
            return short_path / name / of_group(DEFAULT_RUNTIME_DIR, Group(group)).name

        both = {group: Side(start, ("n1", "n2"), group) for group in (PLAIN, CONTROL_PLANE)}
        for side in both.values():
            side.settle()
        yield both


class Packets:
    """Every 5 ms one to an EIP, and whether its echo came."""

    def __init__(self, lan, eip):
        with lan["client"].entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((eip, 80))
        self._socket.settimeout(1.0)
        self.sent, self.answered, self._over = 0, set(), threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._send, self._hear)]

    def _send(self):
        while not self._over.wait(0.005):
            with suppress(ConnectionRefusedError):  # of one before: both threads may be told of it
                self._socket.send(str(self.sent).encode())
            self.sent += 1

    def _hear(self):
        while not (self._over.is_set() and len(self.answered) == self.sent):
            try:
                self.answered.add(int(self._socket.recv(64)))
            except ConnectionRefusedError:  # it counts as unanswered
                continue
            except TimeoutError:
                if self._over.is_set():
                    return

    @contextmanager
    def counted(self):
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()
            self._socket.close()

    @property
    def lost(self):
        return self.sent - len(self.answered)


@pytest.fixture
def echo(lan):
    with lan["backend"].entered():
        listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("", 8080))
    listening.settimeout(0.2)
    over = threading.Event()

    def work():
        while not over.is_set():
            try:
                data, sender = listening.recvfrom(64)
            except TimeoutError:
                continue
            listening.sendto(data, sender)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join()
    listening.close()


def kernel(lan, sh, group):
    """All that a group has in the kernels of both nodes, with nft's handles: what was made anew has others."""
    named = Group(group).table
    wanted = [f"{family} {named(name)}" for family, name in map(str.split, TABLES)]
    found = {}
    for name in ("n1", "n2"):
        there = {line.removeprefix("table ").strip() for line in sh(lan[name], "nft list tables").splitlines()}
        for table in there & set(wanted):
            listing = json.loads(sh(lan[name], f"nft --json list table {table}"))["nftables"]
            found[name, table] = [each for each in listing if "metainfo" not in each]
    return found


def others_of(group):
    return CONTROL_PLANE if group == PLAIN else PLAIN


def warnings(side):
    """The log from now on is read later: what is warned of, in all that was read."""
    found = [entry for member in side.members.values() for entry in member.log]
    return [entry for entry in found if entry.get("level") in ("warning", "error")]


def killed(side):
    name = side.holder()
    side.members[name].stop(signal.SIGKILL)
    (other,) = side.members.keys() - {name}
    eventually(lambda: side.members[other].holder() == other, side.members[other].status)
    side.restart(name)


def drained(side):
    name = side.holder()
    side.members[name].command("drain")
    side.members[name].command("undrain")


def stopped_and_started(side):
    for name in list(side.members):
        assert side.members[name].stop() == 0
        side.restart(name)
        eventually(lambda: side.holder() is not None, side.statuses)


def cleaned_up(side):
    for member in side.members.values():
        assert member.stop() == 0
        member.command("cleanup")


@pytest.mark.parametrize("group", [PLAIN, CONTROL_PLANE], ids=["without a group", "control-plane"])
def test_what_becomes_of_one_group_the_other_does_not_notice(lan, sides, echo, sh, group):
    mine, other = sides[group], sides[others_of(group)]
    before, held_by = kernel(lan, sh, other.group), other.holder()
    assert {name for name, _ in before} == {"n1", "n2"}
    with Packets(lan, EIPS[other.group]).counted() as packets:
        for happens in (killed, drained, stopped_and_started, cleaned_up):
            happens(mine)
            assert other.holder() == held_by, happens
            assert kernel(lan, sh, other.group) == before, happens
    assert packets.sent > 500
    assert packets.lost == 0
    assert kernel(lan, sh, group) == {}, "cleaned up, nothing is left of it"
    assert [member.stop() for member in other.members.values()] == [0, 0]
    assert warnings(other) == []


def test_each_group_has_its_own_eip_and_hears_its_own_peers_alone(sides, echo, lan):
    for group, side in sides.items():
        status = json.loads(side.members["n1"].command("status", "--json"))
        assert [eip["address"] for eip in status["eips"]] == [EIPS[group]]
        assert [peer["node"] for peer in status["peers"]] == ["n2"]
        with Packets(lan, EIPS[group]).counted() as packets:
            eventually(lambda: len(packets.answered) > 20, side.statuses)
        assert packets.lost == 0


BOTH = "198.51.100.20", "2001:db8::20"


@pytest.fixture
def dual_lan(lan, sh):
    for number, name in enumerate(("n1", "n2", "backend", "client"), 1):
        sh(lan[name], f"ip -6 addr add 2001:db8::{number}/64 dev eth0 nodad")
        lan[name].sysctl("net.ipv6.conf.all.forwarding", 1)
    return lan


@pytest.fixture
def begin(dual_lan, short_path):
    key = short_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    with ExitStack() as stack:

        def begin(name, group, *flags):
            runtime = short_path / name / of_group(DEFAULT_RUNTIME_DIR, Group(group)).name
            words = "--runtime-dir", str(runtime), *flags
            member = Member(dual_lan[name], short_path / name, group, key, *words, manifests=dual(*BOTH))
            stack.callback(member.close)
            return member

        yield begin


def held(member):
    return {eip["address"]: eip["holder"] for eip in json.loads(member.command("status", "--json"))["eips"]}


@pytest.mark.parametrize("first", [PLAIN, CONTROL_PLANE], ids=["without a group", "control-plane"])
@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")], ids=["one node", "two nodes"])
def test_what_one_group_holds_the_other_never_takes_not_even_in_its_failover(begin, first, nodes):
    """Both families; on the holder's own node, which hears no hello of its own, and beside it."""
    holders = {name: begin(name, first) for name in nodes}
    for member in holders.values():
        member.until("ready")
    eventually(lambda: all(None not in held(member).values() for member in holders.values()), lambda: "")
    others = {name: begin(name, others_of(first)) for name in nodes}
    for member in others.values():
        found = set()
        while found != set(BOTH):  # of one that moves meanwhile it is said again
            found.add(member.until("peer's address")["eip"])
        assert all(
            str(Group(first)) in entry["peer"] or entry["peer"] in nodes
            for entry in member.log
            if entry["event"] == "peer's address"
        )
    assert any(
        str(Group(first)) in finding for finding in json.loads(others["n1"].command("status", "--json"))["problems"]
    )
    gone = next(iter(holders)) if len(nodes) > 1 else None
    if gone is not None:
        holders[gone].process.kill()
        survivor = holders[nodes[1]]
        eventually(lambda: set(held(survivor).values()) == {nodes[1]}, lambda: survivor.command("status"))
    else:
        holders["n1"].process.kill()
        holders["n1"].process.wait()
        back = begin("n1", first)
        back.until("ready")
        eventually(lambda: set(held(back).values()) == {"n1"}, lambda: back.command("status"))
    for member in others.values():
        assert set(held(member).values()) == {None}
        assert member.stop() == 0
        assert [entry for entry in member.log if entry["event"] == "claimed"] == []


METRICS = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"


def received(member, port):
    """What became of the hellos that its speaker received, by its own count."""
    with member.node.entered():
        asked = [sys.executable, "-c", METRICS, f"http://127.0.0.1:{port}/metrics"]
        text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    lines = [line for line in text.splitlines() if line.startswith("eip_speaker_hellos_received_total{")]
    return {line.partition('result="')[2].partition('"')[0] for line in lines if not line.endswith(" 0.0")}


def test_a_speaker_reads_the_hellos_of_its_group_and_is_not_woken_by_others(sides):
    """Nothing is rejected: the kernel keeps them out."""
    for side, port in zip(sides.values(), (9900, 9901), strict=True):
        eventually(lambda: received(side.members["n1"], port), lambda: "nothing is counted yet")  # noqa: B023 - at once
        assert received(side.members["n1"], port) == {"read"}
