"""`make bench`: what it makes of figures, and of a machine on which others work."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["bench"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_it_starts_and_the_kernel_does_is_not_others_work(bench: ModuleType) -> None:
    ticks = bench._TICKS
    stat = f"cpu  {400 * ticks} 0 {200 * ticks} {1000 * ticks} 0 {50 * ticks} {60 * ticks} {7 * ticks} 0 0"
    processes = {
        1: bench.Process(0, 90, 5),  # somebody else's, with what it has reaped
        10: bench.Process(1, 10, 100),  # this program, with benchmarks that have ended
        11: bench.Process(10, 200, 0),
        12: bench.Process(11, 30, 0),
        2: bench.Process(0, 1, 0, kernel=True),
        9: bench.Process(2, 40, 0, kernel=True),
    }
    found = bench.sample(stat, processes, 10)
    assert found.others == pytest.approx(400 + 200 + 7 - (10 + 100 + 200 + 30) - 41)
    assert found.total == pytest.approx(400 + 200 + 1000 + 50 + 60 + 7)


def test_a_process_that_ended_between_two_looks_has_no_children(bench: ModuleType) -> None:
    assert bench.below({11: bench.Process(10, 1, 0)}, 10) == {11}
    assert bench.below({}, 10) == set()


@pytest.mark.parametrize(
    ("others", "apart", "expected"),
    [
        ([0, 0, 0, 2, 2, 2], 1, 1.0),  # a second of two processors
        ([0, 0, 0, 2, 2, 2], 5, 0.2),
        ([0, 0, 0, 2, 2, 2], 50, 0.2),  # shorter than the window: all of it
        ([5, 4.9, 4.8], 1, 0.0),  # the kernel accounts for a tick here and there
        ([1], 10, 0.0),
        ([], 10, 0.0),
    ],
)
def test_the_busiest_seconds_count(bench: ModuleType, others: list[float], apart: int, expected: float) -> None:
    samples = [bench.Sample(each, 2.0 * at) for at, each in enumerate(others)]
    assert bench.busiest(samples, apart) == pytest.approx(expected)


def test_what_others_work_spoils_is_not_printed(bench: ModuleType) -> None:
    rows = [
        bench.Row("a time", "ms", 123.4, {"a peer": 567.8}, limit=100),
        bench.Row("a size", "MB", 61.0, {"a peer": 30.5}, timed=False),
    ]
    quiet, busy = (bench.table(bench.judged(rows, others)) for others in (bench.BUSY, 0.34))
    assert "123" in quiet
    assert "568 a peer" in quiet
    assert "MISSED" in quiet
    assert "123" not in busy
    assert "568" not in busy
    assert "MISSED" not in busy
    assert "refused: others took 34%" in busy
    assert "61 MB" in busy
    assert "2.00" in busy


@pytest.mark.parametrize(
    ("peers", "more", "expected"),
    [
        ({"slow": 9.0, "fast": 3.0}, False, ("3 fast", "2.00")),
        ({"slow": 3.0, "fast": 12.0}, True, ("12 fast", "0.50")),
        ({"farpd": None, "fast": 3.0}, False, ("3 fast", "2.00")),
        ({"farpd": None, "keepalived": None}, False, ("farpd, keepalived: not installed", "-")),
        ({"perfect": 0.0}, False, ("0 perfect", "-")),
        ({}, False, ("-", "-")),
    ],
)
def test_the_best_peer_that_is_here_is_shown(bench: ModuleType, peers, more: bool, expected) -> None:
    cells = bench.Row("it", "s", 6.0, peers, more=more).cells()
    assert (cells[2], cells[4]) == expected


@pytest.mark.parametrize(
    ("limit", "more", "met"),
    [(6, False, True), (5, False, False), (6, True, True), (7, True, False), (None, True, None)],
)
def test_a_limit_is_met_or_missed(bench: ModuleType, limit: float | None, more: bool, met: bool | None) -> None:
    assert bench.Row("it", "s", 6.0, limit=limit, more=more).met is met


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('without the agent: no etcd\n{"a": 1}\n', {"a": 1}),
        ('{not this\n[{"a": 1}]\n', [{"a": 1}]),
        (json.dumps({"a": [1]}, indent=2), {"a": [1]}),
        ("needs etcd and kube-apiserver in /nowhere", None),
        ("", None),
    ],
)
def test_the_json_at_the_end_is_read(bench: ModuleType, said: str, expected: object) -> None:
    assert bench.result(said) == expected


PLAY = """
import sys, bench
bench.take_orphans()
for script, seconds in zip(sys.argv[1::2], sys.argv[2::2]):
    print(bench.play(bench.Bench(script, 60, lambda _: iter(())), float(seconds)).failed)
print(bench.below(bench.processes(), bench.os.getpid()) == {bench.os.getpid()})
"""
LEAVES = """
import subprocess, sys
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("needs etcd")
"""


def test_a_benchmark_that_cannot_run_says_why_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    scripts = {
        "leaves.py": (LEAVES, 600),
        "fails.py": ("raise SystemExit('no such link')", 600),
        "hangs.py": ("import time\nwhile True: time.sleep(60)", 1),
    }
    words = [sys.executable, "-c", PLAY]
    for name, (text, seconds) in scripts.items():
        (tmp_path / name).write_text(text)
        words += [str(tmp_path / name), str(seconds)]
    ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SCRIPT.parent)})
    *reasons, alone = ran.stdout.splitlines()
    assert reasons == ["needs etcd", "exit code 1: no such link", "ended after 1 s: it printed nothing"]
    assert alone == "True"


def test_what_there_is_no_time_for_is_not_begun(bench: ModuleType) -> None:
    said: list[str] = []
    (ran,) = bench.all_of(bench.BENCHES[:1], 0.0, said.append)
    assert "not begun" in ran.failed
    assert said == [f"   {bench.BENCHES[0].name}: {ran.failed}"]


def test_every_short_form_is_of_a_script_that_exists(bench: ModuleType) -> None:
    assert all((SCRIPT.parent / each.command.split()[0]).is_file() for each in bench.BENCHES)
    assert len({each.name for each in bench.BENCHES}) == len(bench.BENCHES)


def answers(**other: float | None) -> dict[str, object]:
    one = {"per_second": 300_000.0, "p50": 12.0, "p99": 90.0, "lost": 0, "foreign_cpu": None, "foreign_per_second": 5e4}
    return {**one, **other}


def test_rates_are_beside_the_best_of_all_responders_and_who_is_not_here_is_named(bench: ModuleType) -> None:
    measured = {
        "kernel": answers(),
        "sockets": answers(per_second=150_000.0, foreign_cpu=0.04),
        "program": answers(per_second=360_000.0, p50=9.0, foreign_cpu=0.0),
        "metallb": answers(per_second=75_000.0, p50=54.0, foreign_cpu=0.14),
    }
    row = {"family": "IPv4", "count": 1, "measured": measured, "ratios": {"program": 1.2, "sockets": 0.5}}
    found = {"absent": {"farpd": "farpd is not installed"}, "answers": [row]}
    rows = {row.measure: row.cells() for row in bench.of_arp(found)}
    assert rows["ARP, 1 EIPs: answers by the kernel's own rate"][1:] == ("≥ 1 x", "1 the kernel", "1.2 x", "1.20")
    assert rows["ARP, 1 EIPs, sockets: answers a second"][2:] == ("300,000 the kernel", "150,000 /s", "0.50")
    foreign = "50,000 foreign requests a second, ARP, 1 EIPs, sockets"
    assert rows[foreign][2:] == ("14 MetalLB", "4 % of a core", "0.29")


def test_without_any_peer_it_says_who_is_not_installed(bench: ModuleType) -> None:
    measured = {name: answers(foreign_cpu=0.0) for name in ("sockets", "program")} | {"kernel": answers()}
    row = {"family": "IPv4", "count": 1, "measured": measured, "ratios": {"program": 1.0, "sockets": 1.0}}
    found = {"absent": {"farpd": "", "metallb": ""}, "answers": [row]}
    (cells,) = (row.cells() for row in bench.of_arp(found) if "foreign" in row.measure and "sockets" in row.measure)
    assert cells[2] == "farpd, MetalLB: not installed"


FAILOVER = [
    {"contender": "keepalived-0.1s", "fault": "cut", "served_ms": 300.0, "asked_ms": 300.0, "stall_ms": 1.0},
    {"contender": "ours-100", "fault": "cut", "served_ms": 200.0, "asked_ms": 210.0, "stall_ms": 1.0},
    {"contender": "ours-100", "fault": "cut", "served_ms": 220.0, "asked_ms": 210.0, "stall_ms": 1.0},
    {"contender": "ours-100", "fault": "cut", "served_ms": 9000.0, "asked_ms": 9000.0, "stall_ms": 900.0},
]


def test_a_round_in_which_the_prober_stood_still_does_not_count(bench: ModuleType) -> None:
    (row,) = bench.of_failover({"rounds": FAILOVER})
    assert (row.ours, row.best) == (210.0, ("keepalived 0.1 s", 300.0))


def test_at_rest_the_worst_node_counts_with_all_its_processes(bench: ModuleType) -> None:
    part = {"cpu_s": 0.1, "wakes": 5.0, "pss_mb": 20.0}
    agents = {"a": {"parts": {"wire": part}}, "b": {"parts": {"wire": part, "main": part}}}
    rest = {"services": 1000, "seconds": 30.0, "agents": agents, "keepalived": {}, "requests": {"get": 3, "patch": 2}}
    rows = list(bench.of_rest({"rest": [rest]}))
    assert [row.ours for row in rows] == pytest.approx([0.2, 10.0, 40.0, 10.0])
    assert rows[0].cells()[2] == "keepalived 0.1 s: not installed"
