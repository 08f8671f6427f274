"""What was scraped from real speakers, played to Prometheus' own evaluation of the alerts (`promtool test rules`).

A recording is a list of phases: what was done, and the /metrics of every instance twice, some seconds apart. Each phase
is stretched: gauges stay as they were in its second scrape, counters go on at the pace between the two.
"""

import json
import math
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from speaker.controller.run import ControllerMetrics
from speaker.telemetry.metrics import TEXTS, Metrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "manifests" / "alerts" / "rules.yaml"
RECORDED = Path(__file__).parent / "recorded"
STEP = 30
"""Seconds between two scrapes, as they are played."""


# What is to fire: phase → alert → how often; and how many steps a phase is stretched to.

SICK_LAN = {
    "EipAnsweredByNobody": 1,
    "EipAnsweredByTwo": 1,
    "EipHeldByNobody": 1,
    "EipConflict": 1,
    "PoolNearlyFull": 1,
    "ServicesWithoutEip": 1,
    "SpeakerLost": 1,
    "HellosLost": 1,
    "KeyOrVersionMismatch": 1,
    "SpeakerFrozen": 1,
    "ManifestsRejected": 2,
}
"""With all at once that ``netns/run/test_alerts.py`` breaks; two nodes have the bad manifests."""
AT_ONCE = {"sick": SICK_LAN}
AT_ONCE_STEPS = {"healthy": 24, "sick": 18, "mended": 48}
OF_AGENTS = {
    "refused": {"ControllerApiErrors": 1},
    "sick": {"SpeakerLost": 1, "ApiStale": 1, "ControllerWithoutLeader": 1},
}
"""On the cluster of ``agents/test_alerts_of_agents.py``: its controller lacks a right; a node is dead, the API frozen
and the controller gone."""
OF_AGENTS_STEPS = {"healthy": 24, "refused": 40, "allowed": 30, "sick": 18, "mended": 48}
OF_A_TENANT = {"full": {"ObjectsWithoutRoom": 1}}
"""With a namespace that writes more than agents have room for: ``agents/test_a_tenants_weight.py``."""
OF_A_TENANT_STEPS = {"healthy": 24, "full": 18, "mended": 48}
OF_HEALTH = {"some": {"EndpointsUnhealthy": 1}, "all": {"AllEndpointsUnhealthy": 1}}
"""With one endpoint of two that fails its health check, then both: ``netns/run/test_health_checks.py``."""
OF_HEALTH_STEPS = {"healthy": 24, "some": 18, "all": 18, "mended": 48}
GROWING, FLAPS = 2, 3
"""Of the phases in which a pool gets fuller, and an EIP moves, those that come before the one in which that is told."""
BY_FAULT: dict[str, dict[str, int]] = {
    "InternalErrors": {"InternalErrors": 1},
    "EdgeFails": {"EdgeFails": 1},
    "KubeProxyHasNoRules": {"KubeProxyHasNoRules": 1},
    "ConntrackNearlyFull": {"ConntrackNearlyFull": 1},
    "NameClash": {"NameClash": 1},
    "HellosFiltered": {"HellosFiltered": 1, "HellosLost": 3},
    "PoolFullSoon": {"PoolFullSoon": 1},
    "EipFlapping": {"EipFlapping": 1},
}
"""With one fault after the other, as ``netns/run/test_alerts_by_fault.py`` has them. All three nodes say besides that
they lose the hellos that are filtered."""
BY_FAULT_STEPS = (
    {"healthy": 20, "mended": 50}
    | dict.fromkeys(BY_FAULT, 50)
    | {f"PoolFullSoon {number}": 60 for number in range(1, GROWING + 1)}
    | {"PoolFullSoon": 150}
    | {f"EipFlapping {number}": 2 for number in range(1, FLAPS + 1)}
    | {"EipFlapping": 4}
)
"""Each but the last moves lasts longer than what an alert looks back: none ends while its fault is there, and each has
ended when the next one has begun."""


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
    return {family.name + end for family in families for end in ends.get(family.type, [""])} | set(TEXTS)


# ── Recordings ──


Told = dict[str, dict[str, dict[str, str | None]]]
"""Job → instance → series → value; None: it is gone."""


def save(name: str, phases: Iterable[Phase]) -> None:
    """Only what the alerts look at, and of that what is not as in the scrape before: the rest would fill the
    repository."""
    used, before, kept = _used(), Told(), []
    for phase in phases:
        scrapes = []
        for scrape in (phase.first, phase.second):
            now = {
                job: {instance: _read(text, used) for instance, text in instances.items()}
                for job, instances in scrape.text.items()
            }
            scrapes.append({"at": round(scrape.at, 3), "told": _changes(before, now)})
            before = now
        kept.append({"name": phase.name, "scrapes": scrapes})
    (RECORDED / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def load(name: str) -> list[Phase]:
    phases, now = [], Told()
    for each in json.loads((RECORDED / f"{name}.json").read_text()):
        scrapes = []
        for scrape in each["scrapes"]:
            now = {
                job: {instance: _changed(now.get(job, {}).get(instance, {}), told) for instance, told in some.items()}
                for job, some in scrape["told"].items()
            }
            text = {job: {instance: _text(told) for instance, told in some.items()} for job, some in now.items()}
            scrapes.append(Scrape(scrape["at"], text))
        phases.append(Phase(each["name"], *scrapes))
    return phases


def _read(text: str, used: set[str]) -> dict[str, str | None]:
    lines = (line for line in text.splitlines() if line.split("{")[0].split(" ")[0] in used)
    return dict(line.rsplit(" ", 1) for line in lines)  # type: ignore[arg-type]


def _text(told: Mapping[str, str | None]) -> str:
    return "".join(f"{series} {value}\n" for series, value in told.items())


def _changes(before: Told, now: Told) -> Told:
    """Every instance that there is now, each with what is news of it."""
    return {
        job: {instance: _news(before.get(job, {}).get(instance, {}), told) for instance, told in instances.items()}
        for job, instances in now.items()
    }


def _news(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> dict[str, str | None]:
    gone = dict.fromkeys(before.keys() - now.keys())
    return {**{one: value for one, value in now.items() if before.get(one) != value}, **gone}


def _changed(before: Mapping[str, str | None], news: Mapping[str, str | None]) -> dict[str, str | None]:
    return {one: value for one, value in {**before, **news}.items() if value is not None}


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
    there, last, added = False, 0.0, 0.0  # last: what it really was; added: by the stretching of a counter
    for first, second, phase, count in played:
        if key not in second:
            yield from (("stale", f"_x{count - 1}") if there else (f"_x{count}",))
            there = False
            continue
        value, counts = second[key]
        if not counts:
            yield f"{value}x{count - 1}" if count > 1 else f"{value}"
        else:
            begun = first.get(key, (0.0, True))[0]
            added = 0.0 if begun < last else added  # it was started anew
            lasted = phase.second.at - phase.first.at
            pace = max(value - begun, 0.0) / lasted * STEP if lasted else 0.0
            # A counter that fell by a millionth would have been started anew, for Prometheus.
            yield f"{begun + added:.6f}+{max(pace - 2e-6, 0.0):.6f}x{count - 1}"
            last, added = value, added + pace * (count - 1) - (value - begun)
        there = True


def _written(key: _Key) -> str:
    name, labels = key
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}"


Fires = Mapping[str, int]
"""Alert → how often it fires at a time, by its labels."""


def firing(
    phases: list[Phase],
    steps: Mapping[str, int],
    wanted: Mapping[str, Fires],
    home: Path,
    but_for: Collection[str] = (),
) -> str:
    """Whether at the end of each phase those alerts fire that are ``wanted`` of it, each so often, and at no time any
    other, but for what ends; and whether each has begun as often as is wanted, and no more: "" or what promtool says.
    It looks at no alert of ``but_for``. Skips without promtool."""
    tests, at, before, begun = [], 0, Counter[str](), Counter[str]()
    fires = f'ALERTS{{alertstate="firing",alertname!~"{"|".join(but_for)}"}}'
    for phase in phases:
        at, now = at + steps[phase.name], Counter(wanted.get(phase.name, {}))
        for each in but_for:
            now.pop(each, None)
        tests.append(_asked(f"count by (alertname) ({fires})", at - 1, now))
        known = "|".join(sorted({*now, *before, *but_for}))
        others = f'ALERTS{{alertstate="firing",alertname!~"{known}"}}[{steps[phase.name] * STEP}s]'
        tests.append(_asked(f"count by (alertname) (count_over_time({others}))", at - 1, {}))
        before, begun = now, begun + (now - before)
    begins = f"count by (alertname) ({fires} unless {fires} offset {STEP}s)"
    tests.append(_asked(f"sum_over_time(({begins})[{at * STEP}s:{STEP}s])", at - 1, begun))
    return _promtool(series(phases, steps), tests, home)


def evaluated(given: Mapping[str, str], wanted: Mapping[int, Fires], home: Path) -> str:
    """As ``firing``, of ``given`` series; after each so many steps those alerts fire."""
    tests = [_asked(f"count by (alertname) ({FIRING})", at, fires) for at, fires in wanted.items()]
    return _promtool([{"series": name, "values": values} for name, values in given.items()], tests, home)


def summaries(given: Mapping[str, str], alert: str, at: int, home: Path) -> list[str]:
    """Of ``given`` series, what that alert says after so many steps: as promtool shows what nothing was expected of."""
    series = [{"series": name, "values": values} for name, values in given.items()]
    told = _promtool(series, [], home, [{"eval_time": f"{at * STEP}s", "alertname": alert, "exp_alerts": []}])
    return re.findall(r'summary="((?:[^"\\]|\\.)*)"', told)


FIRING = 'ALERTS{alertstate="firing"}'
"""The series that Prometheus itself makes of what fires."""


def _asked(expression: str, at: int, wanted: Fires) -> dict[str, Any]:
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": value} for alert, value in sorted(wanted.items())]
    return {"expr": expression, "eval_time": f"{at * STEP}s", "exp_samples": samples}


def _promtool(
    given: list[dict[str, str]], asked: list[dict[str, Any]], home: Path, alerts: Sequence[dict[str, Any]] = ()
) -> str:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool: apt-get install prometheus")
    test = {"interval": f"{STEP}s", "input_series": given, "promql_expr_test": asked, "alert_rule_test": [*alerts]}
    whole = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP}s", "tests": [test]}
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

    def moment(self, name: str) -> None:
        """A phase of which one scrape is enough: nothing counts in it."""
        now = self._now()
        self.phases.append(Phase(name, now, now))
