"""Answers per second and latency of the speaker, by its sockets and by its program in the kernel, beside the kernel
answering for itself and others' responders, in one run.

    python benchmarks/arp.py [--quick] [--responders kernel,sockets,…] [--json]

Two network namespaces joined by a veth pair: the responder's (the speaker's process on one core, or the kernel with
the addresses on lo, for NDP on the link itself) and the client's, on another core. Rounds of kernel and speaker
alternate and the best of each is shown: what else a shared machine does can only slow a round down, and it hits the
speaker, which takes two cores, harder than the kernel. Trust the ratios of a quiet machine. Needs root or a user
namespace.

Others are Debian's farpd (IPv4 alone), where it is installed, and MetalLB's speaker with a real API server, where Go
builds it from its module and etcd and kube-apiserver are; neither with 10,000 EIPs in a --quick run. One that does not
begin to answer is left out.

Foreign: 50,000 ARP requests a second for addresses that nobody here has, and what part of a core the process takes
meanwhile. The machine may not manage as many: the rate that it did manage is told.
"""

import argparse
import asyncio
import contextlib
import ctypes
import dataclasses
import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from speaker.lab.namespaces import Namespace
from speaker.layer2 import filter as sieve
from speaker.layer2.kernel import KernelResponder
from speaker.layer2.link import LinkResponder, Links
from speaker.model import Family, Gratuitous, IPAddress, Link, Mac, Placement
from speaker.model.events import Announcements, Event
from speaker.ownership.parameters import Parameters
from speaker.packets import arp, ndp
from speaker.packets import packet_socket as wire
from speaker.packets.bpf import ACCEPT, REJECT, Instruction, if_equal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from link_owner import LinkOwner

from speaker.packets import BROADCAST, UNKNOWN

sys.path.insert(0, str(Path(__file__).parent))

from arp_peers import cpu_of, farpd, metallb, why_no_farpd, why_no_metallb

WINDOW = 32
PATIENCE = 0.1
"""Seconds until an answer counts as lost."""
MANY = 10_000
RING = 16_384
"""Prepared requests at least, so that one EIP is asked for in large batches, too."""
NODE = {Family.IPV4: "10.0.0.1/8", Family.IPV6: "fd00::1/64"}
CLIENT = {Family.IPV4: "10.0.0.2/8", Family.IPV6: "fd00::2/64"}
FIRST = {Family.IPV4: IPv4Address("10.1.0.0"), Family.IPV6: IPv6Address("fd00::1:0:0")}
FRAME_LENGTH = {Family.IPV4: arp.LENGTH, Family.IPV6: ndp.ADVERTISEMENT_LENGTH}
ETHERTYPE = {Family.IPV4: arp.ETHERTYPE, Family.IPV6: ndp.ETHERTYPE}
PEERS = ("farpd", "metallb")
RESPONDERS = ("kernel", "sockets", "program", *PEERS)
FOREIGN = IPv4Address("10.200.0.0")
FOREIGN_RATE, BURST = 50_000, 50
"""Requests a second, and how many at once."""
STARTS, ENOUGH = 60.0, 0.9
"""Seconds in which a responder has to begin to answer, and for how many of the addresses: a busy machine loses some."""
IS_REPLY = {Family.IPV4: (0x28, 20, 2), Family.IPV6: (0x30, 54, ndp.ADVERTISEMENT)}  # BPF load, offset, value


def eips(family: Family, count: int) -> list[IPAddress]:
    return [FIRST[family] + at for at in range(count)]


# ── the two ends ──────────────────────────────────────────────────────────────────────────────────────────────


def ip_batch(lines: list[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


@contextlib.contextmanager
def segment(family: Family) -> Iterator[tuple[Namespace, Namespace]]:
    """The responder's and the client's namespaces, both with an address on eth0."""
    with Namespace("node") as node, Namespace("client") as client:
        with node.entered():
            ip_batch(["link set lo up", f"link add eth0 type veth peer name eth0 netns {client.path}"])
        for side, address in ((node, NODE[family]), (client, CLIENT[family])):
            side.sysctl("net.ipv6.conf.eth0.addr_gen_mode", 1)
            side.sysctl("net.ipv6.conf.eth0.accept_dad", 0)
            with side.entered():
                ip_batch(["link set eth0 up", f"address add {address} dev eth0"])
        yield node, client


def link_here(name: str) -> Link:
    shown = json.loads(subprocess.run(["ip", "-j", "link", "show", name], capture_output=True, check=True).stdout)[0]
    return Link(shown["ifindex"], name, Mac(bytes.fromhex(shown["address"].replace(":", ""))))


@contextlib.contextmanager
def kernel_answers(node: Namespace, family: Family, count: int) -> Iterator[int]:
    with node.entered():
        if family is Family.IPV4:
            ip_batch([f"address add {address}/32 dev lo" for address in eips(family, count)])
        else:  # the kernel answers solicitations only for addresses of the very link
            ip_batch([f"address add {address}/128 dev eth0 nodad noprefixroute" for address in eips(family, count)])
    yield 0


@contextlib.contextmanager
def speaker_answers(node: Namespace, family: Family, count: int, by: str = "sockets") -> Iterator[int]:
    with node.entered():
        serving = subprocess.Popen(
            [sys.executable, __file__, "--serve", family.value, str(count), by],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    with serving:
        assert serving.stdout
        assert serving.stdout.readline() == b"ready\n"
        yield serving.pid
        assert serving.stdin
        serving.stdin.close()


@contextlib.contextmanager
def peer_answers(node: Namespace, family: Family, count: int, by: str) -> Iterator[int]:
    with {"farpd": farpd, "metallb": metallb}[by](node, eips(family, count), core=0) as pid:
        yield pid


class Tally:
    """An observer that adds up what was announced and knows when it is enough."""

    def __init__(self) -> None:
        self._missing, self._enough = 0, asyncio.Event()

    def expect(self, count: int) -> None:
        """So many more: those that came since ``enough`` count."""
        self._missing += count
        if self._missing > 0:
            self._enough.clear()

    async def enough(self) -> None:
        await self._enough.wait()

    def count(self, what: Event, number: int) -> None:
        if isinstance(what, Announcements):
            self._missing -= number
            if self._missing <= 0:
                self._enough.set()

    def tell(self, event: Event) -> None:
        print(event, file=sys.stderr)


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def failed(link: Link, error: Exception) -> None:
    print(f"{link.name}: {error}", file=sys.stderr)


async def serve(family: Family, count: int, by: str) -> None:
    """The speaker's process: answers until its standard input ends."""
    observer = Tally()
    observer.expect(count)
    owner = LinkOwner(request_age=Parameters().request_age, lost=failed)
    in_kernel = partial(KernelResponder, hellos=None) if by == "program" else None
    speaker = LinkResponder(link_here("eth0"), observer, owner, in_kernel=in_kernel)
    speaker.take({address.packed: Gratuitous(burst=1) for address in eips(family, count)})
    speaker.extend(boottime() + 3600)
    async with asyncio.TaskGroup() as tasks:
        speaker.start(tasks)
        await observer.enough()
        print("ready", flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
        await ended.wait()
        speaker.stop()


# ── the client ────────────────────────────────────────────────────────────────────────────────────────────────


def request(family: Family, client: Mac, address: IPAddress) -> bytes:
    if isinstance(address, IPv4Address):
        sender = ipaddress.ip_interface(CLIENT[family]).ip
        assert isinstance(sender, IPv4Address)
        return arp.ArpPacket(BROADCAST, client, 1, client, sender, UNKNOWN, address).pack()
    asker = ipaddress.ip_interface(CLIENT[family]).ip
    assert isinstance(asker, IPv6Address)
    return ndp.solicitation(client, asker, address).pack()


class NoAnswersError(Exception):
    """Raised when a responder does not begin to answer."""


class Client:
    """Asks for every EIP in turn, with frames made beforehand; counts what comes back."""

    def __init__(self, family: Family, count: int) -> None:
        link = link_here("eth0")
        load, at, value = IS_REPLY[family]
        replies_only = (Instruction(load, 0, 0, at), if_equal(value, 0, 1), ACCEPT, REJECT)
        length = FRAME_LENGTH[family]
        self._mac = link.mac
        self._packets = wire.PacketSocket(link, ETHERTYPE[family], replies_only, room=64, frame_length=length)
        frames = [request(family, link.mac, address) for address in eips(family, count)]
        frames *= -(-RING // count)
        self._ring = wire.Batch(len(frames), length, with_details=False)
        self._ring.data[:] = b"".join(frames)
        self._inbox = wire.Batch(WINDOW, 64, with_details=False)
        self._next = 0
        self._fd = self._packets.fileno()

    def close(self) -> None:
        self._packets.close()

    def until_answered(self, count: int) -> None:
        """Nearly all of them: some look about first (farpd), or begin to answer one after the other."""
        deadline = time.perf_counter() + STARTS
        while (answers := self._asked_once(count)) < ENOUGH * count:
            if time.perf_counter() > deadline:
                raise NoAnswersError(f"{answers} of {count} answered after {STARTS:.0f} s")
            time.sleep(1.0)

    def _asked_once(self, count: int) -> int:
        """Answers to one request for each; the wait for them is short until some came."""
        answers = asked = 0
        while asked < count:
            some = min(WINDOW, count - asked)
            self.ask(some)
            asked += some
            while some > 0 and (came := self.heard(PATIENCE if answers or count == some else PATIENCE / 50)):
                answers, some = answers + came, some - came
        return answers

    def foreign(self, seconds: float) -> float:
        """Requests a second that were sent."""
        frames = self._foreign_ring()
        began, sent = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < seconds:
            if sent < passed * FOREIGN_RATE:
                sent += wire.sendmmsg(self._fd, frames.address, BURST, 0)
        return sent / passed

    def _foreign_ring(self) -> wire.Batch:
        frames = [request(Family.IPV4, self._mac, FOREIGN + at) for at in range(BURST)]
        ring = wire.Batch(BURST, len(frames[0]), with_details=False)
        ring.data[:] = b"".join(frames)
        return ring

    def ask(self, count: int) -> None:
        while count:
            some = min(count, self._ring.count - self._next)
            taken = wire.sendmmsg(self._fd, self._ring.skip(self._next), some, 0)
            assert taken > 0, os.strerror(ctypes.get_errno())
            self._next = (self._next + taken) % self._ring.count
            count -= taken

    def heard(self, patience: float = PATIENCE) -> int:
        """At least one answer, or 0 after ``patience`` without. Polls: a client that sleeps would measure how fast
        the machine wakes its core."""
        started = time.perf_counter()
        while True:
            count = wire.recvmmsg(self._fd, self._inbox.address, WINDOW, socket.MSG_DONTWAIT, None)
            if count > 0:
                return count
            if time.perf_counter() > started + patience:
                return 0

    def throughput(self, seconds: float) -> tuple[float, int]:
        """Answers per second with ``WINDOW`` requests under way, and how many never came."""
        answers = lost = 0
        self.ask(WINDOW)
        started = time.perf_counter()
        while (now := time.perf_counter()) < started + seconds:
            came = self.heard()
            if came == 0:
                lost += WINDOW
                came = WINDOW
            else:
                answers += came
            self.ask(came)
        while self.heard():
            pass
        return answers / (now - started), lost

    def latencies(self, count: int) -> list[float]:
        """Seconds from request to answer, one at a time, 1,000 a second."""
        found = []
        due = time.perf_counter()
        for _ in range(count):
            due += 0.001
            time.sleep(max(0.0, due - time.perf_counter()))
            asked = time.perf_counter()
            self.ask(1)
            if self.heard():
                found.append(time.perf_counter() - asked)
        return found


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Measured:
    per_second: float
    p50: float
    p99: float
    lost: int
    foreign_cpu: float | None = None
    """Share of a core of the process, with so many foreign requests a second; None where there is no process."""
    foreign_per_second: float = 0.0

    def __str__(self) -> str:
        lost = f" ({self.lost} lost)" if self.lost else ""
        foreign = (
            f", foreign {self.foreign_per_second / 1000:.0f} k/s {self.foreign_cpu:.1%}"
            if self.foreign_cpu is not None
            else ""
        )
        return f"{self.per_second / 1000:6.1f} k/s, p50 {self.p50:4.0f} p99 {self.p99:4.0f} us{lost}{foreign}"


def measure(responder: str, family: Family, count: int, seconds: float, asks: int) -> Measured:
    answers = {
        "kernel": kernel_answers,
        "sockets": speaker_answers,
        "program": partial(speaker_answers, by="program"),
        "farpd": partial(peer_answers, by="farpd"),
        "metallb": partial(peer_answers, by="metallb"),
    }[responder]
    with segment(family) as (node, client), answers(node, family, count) as pid:
        with client.entered():
            asker = Client(family, count)
        try:
            asker.until_answered(count)
            asker.throughput(seconds / 4)  # warm
            per_second, lost = asker.throughput(seconds)
            waits = sorted(asker.latencies(asks))
            foreign = foreign_load(asker, pid, seconds) if family is Family.IPV4 else (None, 0.0)
        finally:
            asker.close()
    return Measured(per_second, waits[len(waits) // 2] * 1e6, waits[len(waits) * 99 // 100] * 1e6, lost, *foreign)


def foreign_load(asker: Client, pid: int, seconds: float) -> tuple[float | None, float]:
    """As ``Measured.foreign_cpu`` and the next; ``pid`` 0: there is no process."""
    if not pid:
        return None, asker.foreign(seconds)
    before, began = cpu_of(pid), time.perf_counter()
    rate = asker.foreign(seconds)
    return (cpu_of(pid) - before) / (time.perf_counter() - began), rate


def best(rounds: list[Measured]) -> Measured:
    return max(rounds, key=lambda one: one.per_second)


def busy() -> float:
    """The share of all cores' time that goes to something else just now, 0 to 1."""

    def read() -> tuple[int, int]:
        spent = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return spent[3], sum(spent)

    idle, total = read()
    time.sleep(0.5)
    idle_then, total_then = read()
    return 1 - (idle_then - idle) / (total_then - total)


@dataclass(frozen=True, slots=True)
class Row:
    family: Family
    count: int
    measured: Mapping[str, Measured]
    """By responder."""

    @property
    def ratios(self) -> dict[str, float]:
        """To the kernel's own rate."""
        kernel = self.measured.get("kernel")
        return {by: each.per_second / kernel.per_second for by, each in self.measured.items()} if kernel else {}

    def __str__(self) -> str:
        head = f"{'ARP' if self.family is Family.IPV4 else 'NDP'} {self.count:6} EIPs"
        lines = []
        for by, measured in self.measured.items():
            ratio = f"   {self.ratios[by]:5.2f} x" if by in self.ratios else ""
            lines.append(f"{'' if lines else head:17} {by:>8} {measured}{ratio}")
        return "\n".join(lines)


def lacking(names: Sequence[str]) -> dict[str, str]:
    """Who of them cannot be here, and why."""
    reasons = {"farpd": why_no_farpd, "metallb": why_no_metallb}
    return {name: why for name in names if name in reasons and (why := reasons[name]())}


def takes_part(responder: str, family: Family, count: int, quick: bool) -> bool:
    if responder == "farpd" and family is not Family.IPV4:
        return False
    return responder not in PEERS or count == 1 or not quick


class Turns:
    """How long, in seconds, another task of the loop had to wait for its turn at worst."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.longest, last = max(self.longest, now - last), now


async def announce(count: int) -> dict[str, float]:
    """Milliseconds to announce ``count`` EIPs: the speaker (two ARP packets or one advertisement each, in slices
    between which other tasks run), the longest those waited for a turn, and a plain send loop of as many frames."""
    found = {}
    for family in Family:
        observer, turns, wanted = Tally(), Turns(), eips(family, count)
        link = link_here("eth0")
        async with Links(observer, LinkOwner(lost=failed)) as layer2:
            layer2.extend(boottime() + 3600)
            layer2.keep([link])
            watching = asyncio.create_task(turns.watch())
            for what, call in (
                ("take", partial(layer2.take, dict.fromkeys(wanted, Placement(link, Gratuitous(burst=1))))),
                ("announce", partial(layer2.announce, wanted)),
            ):
                observer.expect(count)
                await asyncio.sleep(0.5)
                started = time.perf_counter()
                call()
                found[f"{family} {what}: the call"] = (time.perf_counter() - started) * 1e3
                await asyncio.sleep(0)
                turns.longest = 0.0
                await observer.enough()
                found[f"{family} {what}: every EIP once"] = (time.perf_counter() - started) * 1e3
                if family is Family.IPV4:
                    observer.expect(count)
                    await observer.enough()
                    found[f"{family} {what}: and by reply"] = (time.perf_counter() - started) * 1e3
                found[f"{family} {what}: longest turn"] = turns.longest * 1e3
            started = time.perf_counter()
            layer2.drop(wanted)
            found[f"{family} drop: the call"] = (time.perf_counter() - started) * 1e3
            await asyncio.sleep(0)
            turns.longest = 0.0
            await asyncio.sleep(2 * sieve.LATER)
            found[f"{family} drop: longest turn"] = turns.longest * 1e3
            watching.cancel()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as plain:
            plain.bind(("eth0", 0))
            if family is Family.IPV4:
                frames = [arp.announce_by_request(link.mac, one.packed) for one in wanted]
                frames += [arp.announce_by_reply(link.mac, one.packed) for one in wanted]
            else:
                parts = [ndp.advertisement_part(link.mac, one.packed) for one in wanted]
                frames = [ndp.unsolicited_advertisement(part) for part in parts]
            started = time.perf_counter()
            for frame in frames:
                plain.send(frame)
            found[f"{family} send loop"] = (time.perf_counter() - started) * 1e3
    return found


def announcing() -> dict[str, float]:
    with segment(Family.IPV4) as (node, _), node.entered():
        done = subprocess.run([sys.executable, __file__, "--announce"], capture_output=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="one short round of each")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--responders", default=",".join(RESPONDERS), help="(default %(default)s)")
    arguments.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments.add_argument("--announce", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # the process that started this one had been pinned
    cores = sorted(os.sched_getaffinity(0))
    if options.serve or options.announce:
        os.sched_setaffinity(0, {cores[0]})
        if options.serve:
            asyncio.run(serve(Family(options.serve[0]), int(options.serve[1]), options.serve[2]))
        else:
            print(json.dumps(asyncio.run(announce(MANY))))
        return
    if unknown := set(options.responders.split(",")) - set(RESPONDERS):
        arguments.error(f"--responders {','.join(sorted(unknown))}: not one of {', '.join(RESPONDERS)}")
    seconds, asks, rounds = (0.4, 300, 1) if options.quick else (1.0, 1000, 5)
    names = options.responders.split(",")
    absent = lacking(names)
    for why in absent.values():
        print(why, file=sys.stderr)
    os.sched_setaffinity(0, {cores[-1]})
    table, before = [], busy()
    if not options.json:
        print(f"the machine is {before:.0%} busy with other work{': expect low ratios' if before > 0.1 else ''}")
    for family in Family:
        for count in (1, MANY):
            here = [name for name in names if name not in absent and takes_part(name, family, count, options.quick)]
            runs: dict[str, list[Measured]] = {name: [] for name in here}
            for _ in range(rounds):
                for responder, measured in runs.items():
                    try:
                        measured.append(measure(responder, family, count, seconds, asks))
                    except (NoAnswersError, AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
                        if responder not in PEERS:
                            raise
                        print(f"{responder}, {family}, {count}: {error!r}", file=sys.stderr)
            table.append(Row(family, count, {name: best(found) for name, found in runs.items() if found}))
            if not options.json:
                print(table[-1], flush=True)
    announced = announcing()
    if options.json:
        rows = [dataclasses.asdict(row) | {"ratios": row.ratios} for row in table]
        print(json.dumps({"busy": before, "absent": absent, "answers": rows, "announcing_ms": announced}))
        return
    print(f"\n{MANY} EIPs, milliseconds:")
    for name, milliseconds in announced.items():
        print(f"  {name:30} {milliseconds:8.1f}")


if __name__ == "__main__":
    main()
