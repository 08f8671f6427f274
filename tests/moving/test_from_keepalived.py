"""docs/migration/keepalived.md, there and back, each line typed on two hosts with Debian's keepalived; clients count.

This kernel has no IPVS, so keepalived runs with ``--vrrp``, and a table of nftables stands for its virtual servers: it
is there as long as keepalived is. Run with ``-s`` it prints the table. Times are printed and not asked for.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from documented import ROOT, blocks
from real_api import bound_to_us
from test_there_and_back import CALM, SETTLES, TCP_POD_PORT, TCP_PORT, TWICE, Connections, served

from speaker.lab.capture import relapses
from speaker.lab.lan import Lan
from speaker.lab.namespaces import Namespace
from speaker.lab.outage import Asks, asking
from speaker.lab.scene import ASK_INTERVAL, LINK
from speaker.lab.topology import lab_topology

pytestmark = pytest.mark.netns

PAGE = ROOT / "docs" / "migration" / "keepalived.md"
EIPS = tuple(map(ip_address, ("192.0.2.200", "192.0.2.201")))
MASTER, BACKUP = "node1", "node2"
HOSTS = (MASTER, BACKUP)
PODS = ("pod1", "pod3")
"""The real servers, one behind each host."""
PATIENCE = 120.0

FILES = """
set -e
mount --make-rprivate /
cp -a /etc "$0/etc"
mount --bind "$0/etc" /etc
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mkdir -p /etc/speaker /etc/eip-speaker /etc/keepalived
echo ready
exec sleep infinity
"""
CONF = """
! An ordinary pair of directors.
global_defs {{
    router_id {name}
}}
vrrp_instance VI_1 {{
    state BACKUP
    interface eth0
    virtual_router_id 51
    priority {priority}
    advert_int 1
    authentication {{
        auth_type PASS
        auth_pass hunter2
    }}
    virtual_ipaddress {{
        192.0.2.200/24 dev eth0
        192.0.2.201/24 dev eth0
    }}
}}
virtual_server_group WEB {{
    192.0.2.200-201 {port}
}}
virtual_server group WEB {{
    lb_algo rr
    lb_kind NAT
    protocol TCP
    real_server 10.244.1.11 {pod_port} {{
        TCP_CHECK {{
            connect_timeout 3
        }}
    }}
    real_server 10.244.2.11 {pod_port} {{
        TCP_CHECK {{
            connect_timeout 3
        }}
    }}
}}
"""
IPVS = f"""
table ip virtual-servers {{
  chain prerouting {{
    type nat hook prerouting priority dstnat
    ip daddr 192.0.2.200/31 tcp dport {TCP_PORT} \\
      dnat to numgen inc mod 2 map {{ 0: 10.244.1.11, 1: 10.244.2.11 }} : {TCP_POD_PORT}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat
    ct original ip daddr 192.0.2.200/31 masquerade
  }}
}}
"""
FLAGS = re.search(r"SPEAKER_FLAGS=(.*)", PAGE.read_text())[1].split()


class Host:
    """A root shell on one of the two, with /etc, /run and /var/lib of its own, and what its systemd would run."""

    def __init__(self, name: str, place: Namespace, directory: Path) -> None:
        self.name, self.place, self.directory = name, place, directory
        self.etc, self.programs = directory / "etc", {}
        self.directory.mkdir()
        with place.entered():
            self.holder = subprocess.Popen(
                ["unshare", "--mount", "bash", "-c", FILES, str(directory)],
                stdout=subprocess.PIPE, text=True, preexec_fn=bound_to_us(),
            )  # fmt: skip
        assert self.holder.stdout is not None
        if self.holder.stdout.readline() != "ready\n":
            pytest.skip("needs the right to mount")
        priority = 150 if name == MASTER else 100
        conf = CONF.format(name=name, priority=priority, port=TCP_PORT, pod_port=TCP_POD_PORT)
        (self.etc / "keepalived" / "keepalived.conf").write_text(conf)

    def _inside(self, *words: str) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-m", "-n", *words]

    def run(self, line: str) -> tuple[int, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        words = self._inside("bash", "-c", f"cd {self.directory} && {line}")
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=PATIENCE, env=os.environ | {"PATH": path}
        )
        return done.returncode, done.stdout + done.stderr

    def systemctl(self, verb: str, unit: str) -> None:
        if verb == "start":
            if unit == "keepalived":
                self.nft(IPVS)
            with self.place.entered(), (self.directory / f"{unit}.log").open("ab") as log:
                self.programs[unit] = subprocess.Popen(
                    self._inside(*COMMANDS[unit], *(("--node", self.name, *FLAGS) if unit == "eip-speaker" else ())),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=bound_to_us(),
                )  # fmt: skip
            return
        program = self.programs.pop(unit)
        program.terminate()
        program.wait(timeout=PATIENCE)
        if unit == "keepalived":
            self.nft("delete table ip virtual-servers\n")

    def nft(self, text: str) -> None:
        with self.place.entered():
            subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)

    def has(self) -> bool:
        """Whether keepalived has bound the addresses here."""
        return all(f"{eip}/24" in self.run("ip -4 addr show dev eth0")[1] for eip in EIPS)

    def status(self) -> dict:
        code, said = self.run("speaker status --json")
        return json.loads(said) if code == 0 else {"eips": []}

    def told(self) -> str:
        return "\n".join(log.read_text()[-3000:] for log in self.directory.glob("*.log"))

    def close(self) -> None:
        self.holder.stdout.close()
        for program in self.programs.values():
            program.kill()
            program.wait()
        self.holder.kill()
        self.holder.wait()


SPEAKER = str(Path(sys.executable).with_name("speaker"))
COMMANDS = {
    "keepalived": ("keepalived", "--dont-fork", "--log-console", "--vrrp"),
    "eip-speaker": (SPEAKER, "run", "/etc/eip-speaker", "--wait", "--metrics=off"),
}


class Row(NamedTuple):
    way: str
    double_answers: int
    connections: int
    failed: int
    slowest: float
    """Seconds, of a connection."""
    gap: float
    """Seconds, the longest for which some EIP was not answered for."""

    def __str__(self) -> str:
        return (
            f"{self.way:6} double answers {self.double_answers}   failed connections {self.failed} of "
            f"{self.connections}, slowest {self.slowest:.2f} s   gap {self.gap:.2f} s"
        )


def row(way: str, since: float, connections: Connections, asks: Asks) -> Row:
    answers = [reply for reply in asks.replies() if reply.at >= since]
    made = [took for at, took in connections.made if at >= since]
    failed = [why for at, why in connections.failed if at >= since]
    gaps = [0.0]
    for eip in EIPS:
        good = [each.sent for each in asks.samples(since) if each.eip == eip and each.answered is not None]
        gaps += [later - earlier for earlier, later in pairwise(good)]
    twice = len(relapses(answers, TWICE))
    return Row(way, twice, len(made) + len(failed), len(failed), max(made), max(gaps) - ASK_INTERVAL)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, Host]]:
    if shutil.which("keepalived") is None:
        pytest.skip("keepalived is not installed")
    try:
        Namespace("may we?").close()
    except PermissionError as error:
        pytest.skip(f"needs the right to make network namespaces (root, or `unshare -Urnm`): {error}")
    with Lan(lab_topology(2, 2)) as lan:
        found: dict[str, Host] = {}
        try:
            for name in HOSTS:
                found[name] = Host(name, lan.namespace(name), tmp_path / name)
            found["lan"] = lan  # type: ignore[assignment]
            yield found
        finally:
            for name in HOSTS:
                if name in found:
                    found[name].close()


WHOM = {"on a backup:": (BACKUP,), "on each host:": HOSTS, "on the master:": (MASTER,), "on the backups:": (BACKUP,)}
"""The end of the paragraph before a block → where it is typed."""


def whom(paragraph: str) -> tuple[str, ...]:
    return next(hosts for words, hosts in WHOM.items() if paragraph.lower().endswith(words))


def sections() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """Heading → hosts and line, in order."""
    text = PAGE.read_text()
    lines = text.splitlines()
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for number, block in blocks(text):
        before = lines[: number - 1]
        heading = next((each.removeprefix("## ") for each in reversed(before) if each.startswith("## ")), "")
        paragraph = " ".join("\n".join(before).strip().rpartition("\n\n")[2].split("\n"))
        found.setdefault(heading, []).extend((whom(paragraph), line) for line in block)
    return found


async def until(condition: Callable[[], bool], told: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < end, told()
        await asyncio.sleep(0.1)


async def typed(hosts: dict[str, Host], heading: str, ready: Callable[[str, str], Awaitable[None]]) -> None:
    """``ready`` waits for what the page says is so before that line of that host."""
    for names, line in sections()[heading]:
        for name in names:
            await ready(name, line)
            if line.startswith("systemctl "):
                _, verb, unit = line.split()
                await asyncio.to_thread(hosts[name].systemctl, verb, unit)
            elif line == "speaker status":
                continue
            else:
                code, said = await asyncio.to_thread(hosts[name].run, line)
                assert code == (1 if " convert " in line else 0), (name, line, said)


def said_of(host: Host) -> str:
    return " ".join(f"{eip.get('reason', '')} {eip.get('message', '')}" for eip in host.status()["eips"])


def copied(hosts: dict[str, Host]) -> None:
    """What the page has one copy."""
    key = hosts[MASTER].etc / "speaker" / "key"
    code, said = hosts[MASTER].run("speaker keygen /etc/speaker/key")
    assert code == 0, said
    for name in HOSTS:
        files = [*(hosts[BACKUP].directory / "out").glob("*.yaml")]
        assert len(files) == 2
        for file in files:
            shutil.copy(file, hosts[name].etc / "eip-speaker")
        if name != MASTER:
            shutil.copy2(key, hosts[name].etc / "speaker" / "key")


async def test_there_and_back_nobody_answers_twice_and_no_connection_fails(hosts, capsys):
    lan = hosts.pop("lan")
    client, asker = (lan.namespace(name) for name in ("client", "host1"))
    connections = Connections(client, EIPS)
    master, backup = hosts[MASTER], hosts[BACKUP]

    def at_one() -> bool:
        """All EIPs, and both hosts say at which; one that has only begun says nothing yet."""
        said = [eip["holder"] for host in (master, backup) for eip in host.status()["eips"]]
        return len(said) == 2 * len(EIPS) and len({*said} & {*HOSTS}) == len({*said}) == 1

    async def before_the_move(name: str, line: str) -> None:
        if (name, line) == (MASTER, "systemctl stop keepalived"):
            await until(lambda: said_of(backup).count("waits until") == 2, backup.told)

    async def before_the_way_back(name: str, line: str) -> None:
        if name == MASTER and line == "systemctl stop eip-speaker":
            await until(lambda: master.has() and master.status()["eips"] == [], master.told)

    for host in (master, backup):
        host.systemctl("start", "keepalived")
    await until(master.has, master.told)
    await typed(hosts, "", lambda name, line: asyncio.sleep(0))
    copied(hosts)
    rows = []
    async with served([lan.namespace(pod) for pod in PODS]), asking(asker, LINK, EIPS, ASK_INTERVAL) as asks:
        keeps_on = asyncio.create_task(connections.keep_on())
        try:
            for way, heading, ready in (
                ("there", "The move", before_the_move),
                ("back", "The way back", before_the_way_back),
            ):
                await asyncio.sleep(CALM)
                since = time.monotonic()
                await typed(hosts, heading, ready)
                await asyncio.sleep(SETTLES)
                rows.append(row(way, since, connections, asks))
                with capsys.disabled():
                    print("", rows[-1], *[why for at, why in connections.failed if at >= since][:10], sep="\n")  # noqa: T201
                if way == "there":
                    assert not master.has()
                    await until(at_one, master.told)
        finally:
            keeps_on.cancel()
            await asyncio.wait([keeps_on])
    assert master.has()
    for each in rows:
        assert (each.double_answers, each.failed) == (0, 0), each
