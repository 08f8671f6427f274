"""The benchmarks in short forms, within twenty minutes, and one table of what they found.

    python benchmarks/bench.py [--only arp,failover,…] [--minutes N] [--json]

Each row is a measure with its limit, the best peer that this machine can run, ours, and ours by the peer's, all of one
run. Peers are Debian's keepalived and farpd where they are installed, MetalLB's programs where `go` can build them, and
the kernel, nft and libraries that are here anyway. A short form is for finding out what is far off: for a figure to be
relied on run the benchmark by itself.

While a benchmark runs, it is watched how much of the processors somebody else takes: what neither this program and
those below it nor the kernel's own threads account for, time that a hypervisor withholds included. If that was more
than a tenth for any ten seconds, times and rates of that benchmark are not printed; counts and sizes are. Needs root or
a user namespace.
"""

import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MINUTES = 20.0
BUSY = 0.1
"""The share of all processors' time that others may take: arp.py expects low ratios from there on."""
WINDOW = 10.0
"""Seconds, of which the busiest count."""
SAMPLE = 1.0
PR_SET_CHILD_SUBREAPER = 36
PF_KTHREAD = 0x00200000
_TICKS = os.sysconf("SC_CLK_TCK")
KEEPALIVED = "keepalived 0.1 s"


# ── What others do ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Process:
    """Seconds of CPU: of itself, and of its children that have ended."""

    parent: int
    own: float
    ended: float
    kernel: bool = False
    """A thread of the kernel's."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of CPU so far, of all processors: in use by others, and in all."""

    others: float
    total: float


def sample(stat: str, processes: Mapping[int, Process], root: int) -> Sample:
    """``stat``: the first line of /proc/stat. Interrupts are nobody's, and left out."""
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / _TICKS for word in stat.split()[1:9])
    family = below(processes, root)
    ours = sum(processes[pid].own + processes[pid].ended for pid in family)
    kernel = sum(each.own for each in processes.values() if each.kernel)
    return Sample(
        user + nice + system + steal - ours - kernel, user + nice + system + idle + iowait + irq + softirq + steal
    )


def below(processes: Mapping[int, Process], root: int) -> set[int]:
    """``root`` and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, each in processes.items():
        children.setdefault(each.parent, []).append(pid)
    found, waiting = set(), [root]
    while waiting:
        found.add(pid := waiting.pop())
        waiting += children.get(pid, [])
    return found & processes.keys()


def processes() -> dict[int, Process]:
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = file.read_text().rpartition(")")[2].split()
            own, ended = (sum(int(word) for word in words[at : at + 2]) / _TICKS for at in (11, 13))
            found[int(file.parent.name)] = Process(int(words[1]), own, ended, bool(int(words[6]) & PF_KTHREAD))
    return found


def look() -> Sample:
    return sample(Path("/proc/stat").read_text().splitlines()[0], processes(), os.getpid())


def busiest(samples: Sequence[Sample], apart: int) -> float:
    """The largest share that others took between two samples that are ``apart`` (or the first and the last), 0 to 1."""
    apart = min(apart, len(samples) - 1)
    pairs = zip(samples, samples[apart:], strict=False) if apart > 0 else ()
    return max((share(first, last) for first, last in pairs), default=0.0)


def share(first: Sample, last: Sample) -> float:
    passed = last.total - first.total
    return min(1.0, max(0.0, (last.others - first.others) / passed)) if passed > 0 else 0.0


@contextmanager
def watching() -> Iterator[list[Sample]]:
    """Samples, to which one comes every second."""
    samples, over = [look()], threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE):
            samples.append(look())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
        samples.append(look())


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Row:
    """``limit``: what ours is to be at most, or at least if ``more`` is better. ``timed``: others' work spoils it."""

    measure: str
    unit: str
    ours: float
    peers: Mapping[str, float | None] = field(default_factory=dict)
    """None: not here."""
    limit: float | None = None
    more: bool = False
    timed: bool = True
    refused: str = ""
    """Why there are no figures."""

    @property
    def best(self) -> tuple[str, float] | None:
        here = [(name, figure) for name, figure in self.peers.items() if figure is not None]
        return (max if self.more else min)(here, key=lambda peer: peer[1], default=None)

    @property
    def met(self) -> bool | None:
        if self.limit is None or self.refused:
            return None
        return self.ours >= self.limit if self.more else self.ours <= self.limit

    def cells(self) -> tuple[str, ...]:
        sign = "≥" if self.more else "≤"
        limit = "-" if self.limit is None else f"{sign} {self.limit:g} {self.unit}"
        best, absent = self.best, ", ".join(name for name, figure in self.peers.items() if figure is None)
        if self.refused:
            return self.measure, limit, "", self.refused, ""
        peer = f"{shown(best[1])} {best[0]}" if best else f"{absent}: not installed" if absent else "-"
        ratio = f"{self.ours / best[1]:.2f}" if best and best[1] else "-"
        verdict = {True: "", False: "  MISSED", None: ""}[self.met]
        return self.measure, limit, peer, f"{shown(self.ours)} {self.unit}{verdict}", ratio


def shown(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def judged(rows: Sequence[Row], others: float) -> list[Row]:
    """What ``others`` took spoils what is about time."""
    if others <= BUSY:
        return list(rows)
    why = f"refused: others took {others:.0%}"
    return [replace(row, ours=0.0, peers={}, refused=why) if row.timed else row for row in rows]


def table(rows: Sequence[Row]) -> str:
    lines = [("measure", "limit", "best peer here", "ours", "ours / peer"), *(row.cells() for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


# ── Of each benchmark ─────────────────────────────────────────────────────────────────────────────────────────


def of_arp(found: Any) -> Iterator[Row]:
    titles = {"kernel": "the kernel", "farpd": "farpd", "metallb": "MetalLB"}
    for row in found["answers"]:
        protocol, by = "ARP" if row["family"] == "IPv4" else "NDP", row["measured"]
        what = f"{protocol}, {row['count']:,} EIPs"
        peers = {title: by.get(name) for name, title in titles.items() if name in by or name in found["absent"]}

        def of(field_: str, peers: Mapping[str, Any] = peers) -> dict[str, float | None]:
            return {name: each and each[field_] for name, each in peers.items()}

        least = 15.0 if (protocol, row["count"]) == ("NDP", 10_000) else 1.0
        ratio = row["ratios"]["program"]
        yield Row(f"{what}: answers by the kernel's own rate", "x", ratio, {"the kernel": 1.0}, least, more=True)
        for name in ("program", "sockets"):
            rate = by[name]["per_second"]
            yield Row(f"{what}, {name}: answers a second", "/s", rate, of("per_second"), more=True)
        yield Row(f"{what}, program: median wait", "µs", by["program"]["p50"], of("p50"), 10.0)
        for name in ("program", "sockets"):
            if (cpu := by[name]["foreign_cpu"]) is not None:
                theirs = {
                    title: each and 100 * each for title, each in of("foreign_cpu").items() if title != "the kernel"
                }
                most = 0.05 if name == "program" else None
                rate = f"{by[name]['foreign_per_second'] / 1000:.0f},000 foreign requests a second"
                yield Row(f"{rate}, {what}, {name}", "% of a core", 100 * cpu, theirs, most)


def of_failover(found: Any) -> Iterator[Row]:
    good = [each for each in found["rounds"] if each["stall_ms"] <= 30]

    def median(contender: str, fault: str, what: str) -> float | None:
        cell = [each[what] for each in good if (each["contender"], each["fault"]) == (contender, fault)]
        return statistics.median(cell) if cell else None

    for fault, what, limit in (
        ("cut", "served", 500.0), ("crash", "asked", 500.0), ("drain", "served", 20.0), ("drain", "asked", 20.0),
    ):  # fmt: skip
        theirs = median("keepalived-0.1s", fault, f"{what}_ms")
        name = KEEPALIVED + (", two nodes answer" if fault == "crash" else "")
        for contender, title in (("agents-100", "agents"), ("ours-100", "speaker run")):
            if (ours := median(contender, fault, f"{what}_ms")) is not None:
                yield Row(f"{fault}, {what}, {title}: longest silence", "ms", ours, {name: theirs}, limit)


def of_startup(found: Any) -> Iterator[Row]:
    least = found["least"]
    for name in ("agent", "run"):
        for what, title, unit, limit in (("took", "time", "s", 1.0), ("cpu", "CPU", "s of CPU", 0.6)):
            if name in least:
                peer = least.get("keepalived", {}).get(what)
                yield Row(
                    f"exec to the first answer, {name}: {title}", unit, least[name][what], {"keepalived": peer}, limit
                )


def of_rest(found: Any) -> Iterator[Row]:
    for rest in found["rest"]:
        at = f"at rest, {rest['services']:,} Services: "
        for what, title, unit, limit, timed in (
            ("cpu_s", "CPU of a node", "s/min", 0.3, True),
            ("wakes", "wake-ups", "/s", 12.0, True),
            ("pss_mb", "memory (PSS)", "MB", 60.0, False),
        ):
            ours, theirs = (
                max((sum(part[what] for part in node["parts"].values()) for node in rest[who].values()), default=None)
                for who in ("agents", "keepalived")
            )
            yield Row(at + title, unit, ours, {KEEPALIVED: theirs}, limit, timed=timed)
        asked = sum(rest["requests"].values()) * 60 / rest["seconds"]
        yield Row(at + "API requests, all agents", "/min", asked, limit=30.0, timed=False)


def of_services(found: Any) -> Iterator[Row]:
    for one in found["services"]:
        yield Row(
            f"{one['how']} to the first answer, p50",
            "ms",
            one["p50_ms"],
            limit=75.0 if one is found["services"][0] else None,
        )


def of_nftables(found: Any) -> Iterator[Row]:
    clock = {name: times[0] for name, times in found["clock_cpu_s"].items()}
    what = f"nftables, {found['services']:,} Services: "
    yield Row(what + "rules from nothing", "s", clock["forwarder: from nothing"], {"nft -f": clock["nft -f"]})
    yield Row(what + "one endpoint changed", "s", clock["forwarder: one endpoint changed"], limit=0.1)


def of_traffic(found: Any) -> Iterator[Row]:
    for measure, medians in found["medians"].items():
        name, _, unit = measure.rpartition(" ") if "," in measure else (measure, "", "/s")
        yield Row(
            f"traffic, {name.strip(',')}", unit, medians["ours"], {"a rule by hand": medians["by hand"]}, more=True
        )


def of_allocator(found: Any) -> Iterator[Row]:
    small, large = (times[0] for times in found[0]["assign_unchanged_one_more_s"])
    yield Row(f"assigning {found[0]['services']:,} Services from a /16", "s of CPU", small, limit=1.0)
    yield Row("the same from a /8, by the /16", "x", large / small, limit=1.2)


def of_health(found: Any) -> Iterator[Row]:
    for kind, shares in found.items():
        peers = {name: 100 * shares[name] for name in ("streams", "aiohttp") if name in shares}
        yield Row(f"health checks by {kind}, 300 a second", "% of a core", 100 * shares["prober"], peers)


def of_loaded(found: Any) -> Iterator[Row]:
    def answered(who: str) -> float | None:
        return 100 - 100 * found[who]["out"] / found[who]["seconds"] if who in found else None

    yield Row(
        "20 endless loops: answered for", "%", answered("ours"), {KEEPALIVED: answered("keepalived")}, 99.9, more=True
    )


def of_netlink(found: Any) -> Iterator[Row]:
    row = found["addresses"]
    what = f"reading {row['of'][0]:,} addresses by netlink"
    yield Row(what, "ms of CPU", 1000 * row["ours_s"], {"pyroute2": 1000 * row["pyroute2_s"]})


def of_memory(found: Any) -> Iterator[Row]:
    mb, services = found["ours"][-1]["mb"], found["ours"][-1]["services"]
    theirs = found.get("MetalLB", {})
    for what, ours, name in (
        ("both processes of an agent", mb["agent"] + mb["its wire process"], "speaker"),
        ("controller", mb["controller"], "controller"),
    ):
        yield Row(
            f"{services:,} Services: {what} (RSS)", "MB", ours, {f"MetalLB's {name}": theirs.get(name)}, timed=False
        )


@dataclass(frozen=True, slots=True)
class Bench:
    """``seconds``: it takes at most so long, or is ended."""

    command: str
    seconds: float
    rows: Callable[[Any], Iterator[Row]]

    @property
    def name(self) -> str:
        return self.command.partition(".py")[0]


BENCHES = (
    Bench("arp.py --quick --json", 400, of_arp),
    Bench(
        "failover.py --rounds 2 --only cut,crash,drain --contenders keepalived-0.1s,ours-100,agents-100 --json",
        300,
        of_failover,
    ),
    Bench("startup.py --rounds 3 --json", 120, of_startup),
    Bench("rest.py --services 1000 --seconds 30 --json", 240, of_rest),
    Bench("cluster_agents.py --only services --json", 180, of_services),
    Bench("forwarding_nftables.py --quick --json", 60, of_nftables),
    Bench("forwarding_traffic.py --quick --only host --json", 60, of_traffic),
    Bench("allocator.py --quick --json", 60, of_allocator),
    Bench("health.py --targets 300 --seconds 5 --kinds tcp,http --json", 90, of_health),
    Bench("loaded.py --seconds 20 --contenders keepalived,ours --json", 150, of_loaded),
    Bench("netlink.py --count 500 --json", 60, of_netlink),
    Bench("memory.py --services 200 --with-metallb --json", 300, of_memory),
)


# ── Running ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Ran:
    bench: Bench
    took: float
    others: float
    rows: Sequence[Row]
    failed: str = ""
    """Why there are no rows."""


def result(text: str) -> Any:
    """The JSON at the end of what a benchmark printed, whatever it said before; None where there is none."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.startswith(("{", "[")):
            with suppress(json.JSONDecodeError):
                return json.loads("\n".join(lines[at:]))
    return None


def play(bench: Bench, seconds: float) -> Ran:
    began, (script, *flags) = time.monotonic(), bench.command.split()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, watching() as samples:
        process = subprocess.Popen(
            [sys.executable, HERE / script, *flags], stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        failed = ""
        try:
            if process.wait(seconds):
                failed = f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            failed = f"ended after {seconds:.0f} s"
        finally:
            process.kill()
            process.wait()
            end_all()
        said, complaints = (stream.seek(0) or stream.read() for stream in (out, err))
    others = busiest(samples, round(WINDOW / SAMPLE))
    found = None if failed else result(said)
    if found is None:
        last = next(iter((complaints.splitlines() or said.splitlines())[-1:]), "it printed nothing")
        return Ran(bench, time.monotonic() - began, others, (), f"{failed}: {last}" if failed else last)
    return Ran(bench, time.monotonic() - began, others, judged(list(bench.rows(found)), others))


def take_orphans() -> None:
    """This process is the parent of whatever below it loses its own (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all() -> None:
    """Whatever the benchmark started and left running."""
    while left := below(processes(), os.getpid()) - {os.getpid()}:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def all_of(benches: Sequence[Bench], until: float, tell: Callable[[str], None]) -> Iterator[Ran]:
    for bench in benches:
        left = until - time.monotonic()
        if left < bench.seconds / 4:
            ran = Ran(bench, 0.0, 0.0, (), "not begun: no time was left")
        else:
            tell(f"== {bench.command}")
            ran = play(bench, min(left, bench.seconds))
            tell(f"   took {ran.took:.0f} s; others took up to {ran.others:.0%} of the machine")
        if ran.failed:
            tell(f"   {bench.name}: {ran.failed}")
        yield ran


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(bench.name for bench in BENCHES), help="(default %(default)s)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="in all (default %(default)g)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - {bench.name for bench in BENCHES}:
        parser.error(f"--only {','.join(sorted(unknown))}: none of these; see --help")
    until = time.monotonic() + 60 * options.minutes
    take_orphans()

    def tell(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    with watching() as samples:
        time.sleep(2)
    before = busiest(samples, len(samples))
    tell(f"before: load {os.getloadavg()[0]:.1f}, others take {before:.0%} of {os.cpu_count()} processors")
    ran = list(all_of([bench for bench in BENCHES if bench.name in names], until, tell))
    rows = [row for each in ran for row in each.rows]
    missing = [f"{each.bench.name}: {each.failed}" for each in ran if each.failed]
    if options.json:
        print(json.dumps({"before": before, "rows": [asdict(row) for row in rows], "not_run": missing}))
    else:
        print("", table(rows), *missing, sep="\n")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
