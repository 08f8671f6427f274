"""The alerts, each as Prometheus evaluates it: silent on what a healthy LAN told, and firing on what a sick one did."""

import re
import shutil
import subprocess

import pytest
import yaml
from playing import (
    ALERTS,
    AT_ONCE,
    AT_ONCE_STEPS,
    BY_FAULT,
    BY_FAULT_STEPS,
    OF_A_TENANT,
    OF_A_TENANT_STEPS,
    OF_AGENTS,
    OF_AGENTS_STEPS,
    OF_HEALTH,
    OF_HEALTH_STEPS,
    ROOT,
    RULES,
    STEP,
    evaluated,
    firing,
    load,
    served,
    summaries,
)
from render import PROMETHEUS_RULE, prometheus_rule

GROUPS = yaml.safe_load(RULES.read_text())["groups"]
BY_NAME = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()


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
    url = BY_NAME[alert]["annotations"]["runbook_url"]
    assert url == f"https://github.com/REPOSITORY/blob/main/docs/runbooks.md#{alert.lower()}"
    section = RUNBOOKS.split(f"\n## {alert}\n")[1].split("\n## ")[0].rstrip().splitlines()
    assert section[-1].startswith("    ")
    assert section[-2] == ""


def test_no_runbook_is_of_an_alert_that_is_not_there():
    assert re.findall(r"^## (.*)$", RUNBOOKS, re.MULTILINE) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_in_its_summary_whom_it_concerns(alert):
    """By labels that its expression keeps, or by its value."""
    summary, expr = BY_NAME[alert]["annotations"]["summary"], BY_NAME[alert]["expr"]
    named = re.findall(r"\$labels\.(\w+)|(\$value)", summary)
    kept = {label.strip() for each in re.findall(r"by \(([^)]*)\)", expr) for label in each.split(",")}
    kept |= {"instance"} if " by " not in expr else set()
    assert named, summary
    assert {label for label, _ in named if label} <= kept


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_that_keeps_the_eip_the_node_or_the_pool_names_it(alert):
    summary, expr = BY_NAME[alert]["annotations"]["summary"], BY_NAME[alert]["expr"]
    for label in ("eip", "instance", "pool", "link"):
        kept = re.match(rf"\D*by \([^)]*\b{label}\b", expr) or (label == "instance" and " by " not in expr)
        assert not kept or f"$labels.{label} " in summary, label


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        ("SpeakerLost", 'eip_speaker_peers_silent{link="eth0"'),
        ("HellosFiltered", 'eip_speaker_hellos_filtered_total{link="eth0"'),
        ("KeyOrVersionMismatch", 'eip_speaker_hellos_received_total{link="eth0",result="wrong_key"'),
        ("NameClash", "eip_speaker_name_taken{"),
        ("NameClash", "eip_speaker_name_clashes_total{"),
        ("InternalErrors", 'eip_speaker_internal_errors_total{task="source"'),
        ("ObjectsWithoutRoom", "eip_speaker_objects_without_room{"),
        ("ApiStale", "eip_speaker_api_up{"),
    ],
)
def test_an_alert_of_several_nodes_together_names_them(alert, series, tmp_path):
    """And no other node: neither one that is well, nor one of another job or cluster."""
    well, ill = ("1x40", "0x40") if alert == "ApiStale" else ("0x40", "0+1x40")
    nodes = {("n1", "agents", "a"): ill, ("n2", "agents", "a"): ill, ("n3", "agents", "a"): well}
    nodes |= {("n4", "others", "a"): ill, ("n5", "agents", "b"): ill}
    head = series if series.endswith("{") else f"{series},"
    given = {f'{head}instance="{n}",job="{job}",cluster="{c}"}}': values for (n, job, c), values in nodes.items()}
    told = [each for each in summaries(given, alert, 30, tmp_path) if "n1" in each]
    assert [{*re.findall(r"\bn[1-5]\b", each)} for each in told] == [{"n1", "n2"}]


# What the netns suite and that of the agents recorded (RECORD=1), each phase stretched to minutes and hours.

DAY = 24 * 3600 // STEP
RECORDINGS = {
    "speaker-run": (AT_ONCE_STEPS | {"healthy": DAY}, AT_ONCE),
    "by-fault": (BY_FAULT_STEPS, BY_FAULT),
    "agents": (OF_AGENTS_STEPS | {"healthy": DAY}, OF_AGENTS),
    "tenant": (OF_A_TENANT_STEPS, OF_A_TENANT),
    "health": (OF_HEALTH_STEPS | {"healthy": DAY}, OF_HEALTH),
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_healthy_day_is_silent_what_broke_is_told_and_what_was_mended_no_more(name, tmp_path):
    steps, wanted = RECORDINGS[name]
    assert firing(load(name), steps, wanted, tmp_path) == ""


def test_every_alert_is_driven_by_a_real_fault():
    wanted = [fires for _, phases in RECORDINGS.values() for fires in phases.values()]
    assert set().union(*wanted) == set(ALERTS)


@pytest.mark.parametrize(
    "given",
    [
        {'eip_speaker_internal_errors_total{task="source",instance="n1"}': "5x200"},
        {'eip_speaker_internal_errors_total{task="source",instance="n1"}': "5x60 0x100", "eip_speaker_api_up": "1x200"}
        | {"eip_speaker_controller_leads": "1x200"},
        {'eip_speaker_conntrack_entries{instance="n1"}': "0x200", 'eip_speaker_conntrack_max{instance="n1"}': "0x200"},
        {'eip_speaker_eips_without_rules{instance="n1"}': "0x200"},
        {'eip_speaker_held_since_timestamp_seconds{eip="192.0.2.10",instance="n1"}': "1x60 2x100"},
        {'eip_speaker_manifests_valid{instance="n1"}': "1x200"},
        {
            'eip_speaker_pool_addresses{pool="lan",family="IPv4",instance="c1"}': "0x200",
            'eip_speaker_pool_addresses_in_use{pool="lan",family="IPv4",instance="c1"}': "0x200",
        },
        {
            'eip_speaker_eips{state="by_nobody",instance="n1"}': "2x200",
            'eip_speaker_eips{state="by_nobody",instance="n2"}': "0x200",
        },
    ],
    ids=[
        "old errors",
        "begun anew",
        "no conntrack",
        "rules",
        "one move",
        "valid",
        "an empty pool",
        "one who does not know",
    ],
)
def test_what_is_no_fault_is_silent(given, tmp_path):
    assert evaluated(given, {74: {}, 150: {}}, tmp_path) == ""


@pytest.mark.parametrize(
    ("alert", "counted"),
    [
        ("InternalErrors", 'eip_speaker_internal_errors_total{task="source",instance="n1"}'),
        ("HellosFiltered", 'eip_speaker_hellos_filtered_total{link="eth0",instance="n1"}'),
    ],
)
def test_what_comes_soon_after_a_restart_is_told_although_more_of_it_was_counted_before(alert, counted, tmp_path):
    assert evaluated({counted: "5x60 _x4 1x40"}, {60: {}, 66: {alert: 1}, 90: {}}, tmp_path) == ""


AGENT = {'eip_speaker_api_up{job="agents",instance="n1"}': "0x100", "eip_speaker_controller_leads": "1x100"}


@pytest.mark.parametrize(
    ("edge", "fires"),
    [("/api/v1/services", {}), ("records", {}), ("session", {}), ("nodes", {}), ("reconcile", {"EdgeFails": 1})],
)
def test_an_api_that_is_away_is_told_once_and_hides_no_other_refusal(edge, fires, tmp_path):
    counted = f'eip_speaker_edge_errors_total{{job="agents",instance="n1",edge="{edge}"}}'
    assert evaluated({counted: "0+1x100"} | AGENT, {90: {"ApiStale": 1} | fires}, tmp_path) == ""


HELD = "eip_speaker_held_since_timestamp_seconds"


@pytest.mark.parametrize(
    ("before", "fires"),
    [("1x60 stale", {}), ("1x60 _ stale", {}), ("1x140", {"EipAnsweredByTwo": 1})],
    ids=["scraped twice a minute", "scraped once a minute", "it goes on"],
)
def test_what_a_node_said_when_it_was_scraped_last_is_no_second_holder(before, fires, tmp_path):
    """A node died, or gave the EIP up, just after it was scraped, and another that took it is scraped at once."""
    of = '{eip="192.0.2.10",instance="%s"}'
    held = {HELD + of % "n1": before, HELD + of % "n2": "_x60 2x80"}
    assert evaluated(held, {at: {} for at in range(58, 64)} | {70: fires}, tmp_path) == ""
