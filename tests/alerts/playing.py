"""What was scraped from real speakers, played to Prometheus' own evaluation of the alerts (`promtool test rules`).

A recording is a list of phases: what was done, and the /metrics of every instance twice, some seconds apart. Each phase
is stretched: gauges stay as they were in its second scrape, counters go on at the pace between the two.
"""

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from speaker.controller.run import ControllerMetrics
from speaker.telemetry.eips import METRICS as EIPS
from speaker.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "manifests" / "alerts" / "rules.yaml"
RECORDED = Path(__file__).parent / "recorded"
STEP = 30
"""Seconds between two scrapes, as they are played."""


SICK_LAN = {
    "EipAnsweredByNobody",
    "EipAnsweredByTwo",
    "EipHeldByNobody",
    "EipConflict",
    "PoolNearlyFull",
    "ServicesWithoutEip",
    "SpeakerLost",
    "HellosLost",
    "KeyOrVersionMismatch",
    "SpeakerFrozen",
    "ManifestsRejected",
}
"""What the LAN of the netns suite is told of while it is sick."""


SICK_CLUSTER = {"SpeakerLost", "ApiStale", "ControllerWithoutLeader"}
"""What the cluster of the agents is told of while a node is dead, its API frozen and its controller gone."""


@dataclass(frozen=True)
class Scrape:
    """``text`` by job and instance, ``at`` seconds."""

    at: float
    text: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Phase:
    """What was the matter, between two scrapes."""

    name: str
    first: Scrape
    second: Scrape


def read() -> list[str]:
    return [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


ALERTS = read()


def served() -> set[str]:
    """Every name of a sample that there is."""
    registries = Metrics().registry, Metrics(api=True).registry, ControllerMetrics().registry
    families = [family for registry in registries for family in registry.collect()]
    ends: dict[str, list[str]] = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    return {family.name + end for family in families for end in ends.get(family.type, [""])} | set(EIPS)


# ── Recordings ──


def save(name: str, phases: Iterable[Phase]) -> None:
    """Only what the alerts look at: the rest would fill the repository."""
    used = _used()
    kept = [
        {
            "name": phase.name,
            **{
                which: {
                    "at": scrape.at,
                    "text": {
                        job: {
                            instance: "".join(
                                line + "\n" for line in text.splitlines() if line.split("{")[0].split(" ")[0] in used
                            )
                            for instance, text in instances.items()
                        }
                        for job, instances in scrape.text.items()
                    },
                }
                for which, scrape in (("first", phase.first), ("second", phase.second))
            },
        }
        for phase in phases
    ]
    (RECORDED / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def load(name: str) -> list[Phase]:
    found = json.loads((RECORDED / f"{name}.json").read_text())
    return [Phase(each["name"], Scrape(**each["first"]), Scrape(**each["second"])) for each in found]


def _used() -> set[str]:
    text = RULES.read_text()
    return {word for line in text.splitlines() for word in _words(line) if word.startswith("eip_speaker_")}


def _words(line: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in line).split()


# ── Playing ──

_Key = tuple[str, tuple[tuple[str, str], ...]]


def _samples(scrape: Scrape) -> dict[_Key, tuple[float, bool]]:
    """Value, and whether it counts."""
    found = {}
    for job, instances in scrape.text.items():
        for instance, text in instances.items():
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    labels = {**sample.labels, "job": job, "instance": instance}
                    counts = sample.name.endswith(("_total", "_count", "_sum", "_bucket"))
                    if not math.isnan(sample.value):  # promtool has no word for it
                        found[sample.name, tuple(sorted(labels.items()))] = sample.value, counts
    return found


def series(phases: Iterable[Phase], steps: Mapping[str, int]) -> list[dict[str, str]]:
    """As promtool reads them; each phase lasts so many ``steps``."""
    played = [(_samples(each.first), _samples(each.second), each, steps[each.name]) for each in phases]
    keys = sorted({key for first, second, _, _ in played for key in second})
    return [{"series": _written(key), "values": " ".join(_values(key, played))} for key in keys]


def _values(key: _Key, played: Iterable[tuple[Any, Any, Phase, int]]) -> Iterable[str]:
    there = False
    for first, second, phase, count in played:
        if key not in second:
            yield from (("stale", f"_x{count - 1}") if there else (f"_x{count}",))
            there = False
            continue
        value, counts = second[key]
        if not counts:
            yield f"{value}x{count - 1}" if count > 1 else f"{value}"
        else:
            pace = (value - first.get(key, (0.0, True))[0]) / (phase.second.at - phase.first.at) * STEP
            begun = first.get(key, (0.0, True))[0]
            yield f"{begun}+{max(pace, 0.0):.6f}x{count - 1}"
        there = True


def _written(key: _Key) -> str:
    name, labels = key
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}"


def firing(phases: list[Phase], steps: Mapping[str, int], wanted: Mapping[str, set[str]], home: Path) -> str:
    """Whether at the end of each phase those alerts fire that are ``wanted`` of it, and no other, and in the first one
    at no time any other: "" or what promtool says. Skips without promtool."""
    tests, at = [], 0
    for number, phase in enumerate(phases):
        at += steps[phase.name]
        # ALERTS is the series that Prometheus itself makes of what fires.
        since = f"[{at * STEP}s]" if number == 0 else "[1s]"
        tests += [
            _asked(
                f'count(count_over_time(ALERTS{{alertname="{alert}",alertstate="firing"}}{since})) > bool 0',
                at - 1,
                float(alert in wanted[phase.name]),
            )
            for alert in ALERTS
        ]
    return _promtool(series(phases, steps), tests, home)


def evaluated(given: Mapping[str, str], wanted: Mapping[int, Mapping[str, int]], home: Path) -> str:
    """As ``firing``, of ``given`` series; after each so many steps every alert fires as often as is ``wanted``."""
    tests = [
        _asked(f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', at, fires.get(alert, 0))
        for at, fires in wanted.items()
        for alert in ALERTS
    ]
    return _promtool([{"series": name, "values": values} for name, values in given.items()], tests, home)


def _asked(expression: str, at: int, value: float) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": value}]
    return {"expr": f"{expression} or vector(0)", "eval_time": f"{at * STEP}s", "exp_samples": samples}


def _promtool(given: list[dict[str, str]], asked: list[dict[str, Any]], home: Path) -> str:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool: apt-get install prometheus")
    whole = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP}s",
        "tests": [{"interval": f"{STEP}s", "input_series": given, "promql_expr_test": asked}],
    }
    (file := home / "tests.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    ran = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


class Recorder:
    """``scrape()`` gives the text of every instance by job, ``clock`` seconds."""

    def __init__(self, scrape: Callable[[], Mapping[str, Mapping[str, str]]], clock: Callable[[], float]) -> None:
        self._scrape, self._clock = scrape, clock
        self.phases: list[Phase] = []
        self._begun: tuple[str, Scrape] | None = None

    def _now(self) -> Scrape:
        return Scrape(self._clock(), self._scrape())

    def begin(self, name: str) -> None:
        """What is from now on is of this phase."""
        self._begun = name, self._now()

    def end(self) -> None:
        assert self._begun is not None
        self.phases.append(Phase(*self._begun, self._now()))
