"""The Grafana dashboard asks for what there is, in words that Prometheus understands."""

import json
import re
import shutil
import subprocess

import pytest
import yaml
from playing import ROOT, load, series, served

DASHBOARD = json.loads((ROOT / "manifests" / "dashboard" / "grafana.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
WHAT_GRAFANA_PUTS_IN = {"$__rate_interval": "5m", "$__range": "1h", "$job": ".*"}


def expressions(panel):
    for target in PANELS[panel]["targets"]:
        asked = target["expr"]
        for variable, value in WHAT_GRAFANA_PUTS_IN.items():
            asked = asked.replace(variable, value)
        yield asked


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_what_there_is(panel):
    for asked in expressions(panel):
        named = set(re.findall(r"\beip_speaker_\w+", asked))
        assert named
        assert named <= served()


def test_no_two_panels_are_in_one_place():
    places = [tuple(panel["gridPos"].values()) for panel in PANELS.values()]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in PANELS.values()})


def test_prometheus_understands_every_question(tmp_path):
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool: apt-get install prometheus")
    asked = [one for panel in PANELS for one in expressions(panel)]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(asked)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    given = series(load("agents"), {"healthy": 40, "sick": 1, "mended": 1})
    tests = {
        "rule_files": ["rules.yaml"],
        "tests": [{"interval": "30s", "input_series": given, "promql_expr_test": []}],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    ran = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
