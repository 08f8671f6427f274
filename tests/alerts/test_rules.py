"""The alerts, each as Prometheus evaluates it: silent on what a healthy LAN told, and firing on what a sick one did."""

import re
import shutil
import subprocess

import pytest
import yaml
from playing import ALERTS, ROOT, RULES, SICK_CLUSTER, SICK_LAN, STEP, firing, load
from render import PROMETHEUS_RULE, prometheus_rule

from speaker.controller.run import ControllerMetrics
from speaker.telemetry.eips import METRICS as EIPS
from speaker.telemetry.metrics import Metrics

GROUPS = yaml.safe_load(RULES.read_text())["groups"]
BY_NAME = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()


def served():
    """Every name of a sample that there is."""
    registries = Metrics().registry, Metrics(api=True).registry, ControllerMetrics().registry
    families = [family for registry in registries for family in registry.collect()]
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    return {family.name + end for family in families for end in ends.get(family.type, [""])} | EIPS.keys()


def test_the_rule_of_the_operator_has_the_same_alerts():
    assert PROMETHEUS_RULE.read_text() == prometheus_rule(), "python manifests/render.py alerts"


def test_promtool_reads_the_rules():
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool: apt-get install prometheus")
    ran = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_asks_for_what_there_is(alert):
    named = set(re.findall(r"\beip_speaker_\w+", BY_NAME[alert]["expr"]))
    assert named
    assert named <= served()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_runbook_that_ends_in_a_command(alert):
    assert BY_NAME[alert]["annotations"]["runbook"] == f"docs/runbooks.md#{alert.lower()}"
    section = RUNBOOKS.split(f"\n## {alert}\n")[1].split("\n## ")[0].rstrip().splitlines()
    assert section[-1].startswith("    ")
    assert section[-2] == ""


def test_no_runbook_is_of_an_alert_that_is_not_there():
    assert re.findall(r"^## (.*)$", RUNBOOKS, re.MULTILINE) == ALERTS


def test_nothing_is_templated_as_helm_would_take_it_for_its_own():
    assert "{{" not in RULES.read_text()


# What the netns suite and that of the agents recorded (RECORD=1), each phase stretched to minutes and hours.

DAY = 24 * 3600 // STEP
RECORDINGS = {
    "speaker-run": ({"healthy": DAY, "sick": 18, "mended": 48}, {"healthy": set(), "sick": SICK_LAN, "mended": set()}),
    "agents": ({"healthy": DAY, "sick": 18, "mended": 48}, {"healthy": set(), "sick": SICK_CLUSTER, "mended": set()}),
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_healthy_day_is_silent_what_broke_is_told_and_what_was_mended_no_more(name, tmp_path):
    steps, wanted = RECORDINGS[name]
    assert firing(load(name), steps, wanted, tmp_path) == ""
