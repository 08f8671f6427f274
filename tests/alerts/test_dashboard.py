"""The Grafana dashboard asks for what there is, in words that Prometheus understands. That it is answered is tested
where there are speakers: ``netns/run/test_alerts.py``, ``agents/test_alerts_of_agents.py``."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from playing import load, series, served
from prometheus import DASHBOARD, NOT_IN_A_CLUSTER, NOT_ON_A_LAN, OF_BUGS, questions

DOCS, MANIFESTS = (Path(__file__).parents[2] / name for name in ("docs", "manifests"))
COLUMNS = 24
"""Of Grafana's grid."""
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}


def expressions(panel):
    return [asked for title, asked in questions() if title == panel]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_what_there_is(panel):
    for asked in expressions(panel):
        named = set(re.findall(r"\beip_speaker_\w+", asked))
        assert named
        assert named <= served()


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_leaves_nothing_to_grafana_that_we_do_not_know(panel):
    assert not [asked for asked in expressions(panel) if "$" in asked]


def test_a_panel_on_which_something_can_be_bad_leads_to_the_runbook_of_that():
    """And every link to one that there is."""
    linked = {panel["title"]: [each["url"] for each in panel.get("links", ())] for panel in DASHBOARD["panels"]}
    headings = re.findall(r"^## (\w+)$", (DOCS / "runbooks.md").read_text(), re.MULTILINE)
    there = {f"https://github.com/REPOSITORY/blob/main/docs/runbooks.md#{each.lower()}" for each in headings}
    assert {url for urls in linked.values() for url in urls} <= there
    assert {title for title, urls in linked.items() if not urls} == {
        *("EIPs held", "Speakers", "Failed over", "The slowest", "EIPs by node", "How long failovers took"),
        *("Answers", "Who holds what since when"),
    }


@pytest.mark.parametrize("kind", ["pod-monitor", "service-monitor"])
def test_legends_show_the_names_of_nodes(kind):
    """They show ``instance``, which is an address and a port if the monitors do not say otherwise."""
    named = [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}]
    found = yaml.safe_load_all((MANIFESTS / "components" / kind / "monitors.yaml").read_text())
    monitors = [each["spec"] for each in found if each["kind"] != "Service"]
    endpoints = [one for each in monitors for one in each.get("podMetricsEndpoints") or each["endpoints"]]
    assert [each["relabelings"] for each in endpoints] == [named, named]
    values = yaml.safe_load((MANIFESTS / "chart" / "values.yaml").read_text())
    assert values[kind.replace("-m", "M")]["relabelings"] == named
    by_node = [t for p in DASHBOARD["panels"] for t in p["targets"] if re.search(r"by \([^)]*instance", t["expr"])]
    assert all("{{instance}}" in each["legendFormat"] for each in by_node)


def test_no_two_panels_are_in_one_place():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (column, row)
        for at in places
        for column in range(at["x"], at["x"] + at["w"])
        for row in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(column for column, _ in cells) < COLUMNS
    assert len(places) == len(PANELS) == len({panel["id"] for panel in PANELS.values()})


def test_prometheus_understands_every_question(tmp_path):
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool: apt-get install prometheus")
    asked = [one for panel in PANELS for one in expressions(panel)]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(asked)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    given = series(load("agents"), {"healthy": 40, "refused": 1, "allowed": 1, "sick": 1, "mended": 1})
    tests = {
        "rule_files": ["rules.yaml"],
        "tests": [{"interval": "30s", "input_series": given, "promql_expr_test": []}],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    ran = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_question_is_answered_in_one_of_the_lab_runs():
    assert NOT_ON_A_LAN & NOT_IN_A_CLUSTER == OF_BUGS
