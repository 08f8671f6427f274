"""docs/mqtt.md says what there is, no more and no less."""

import json
import re
from pathlib import Path

import pytest
from mqtt_schemas import DIRECTORY, schema_of, validator
from prometheus_client import CollectorRegistry

from speaker.cli import main
from speaker.telemetry.metrics import MqttMetrics
from speaker.telemetry.mqtt.messages import Topics

TEXT = (Path(__file__).parents[4] / "docs" / "mqtt.md").read_text()


def cells(heading: str) -> set[str]:
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = (line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def test_every_flag_is_listed(capsys):
    with pytest.raises(SystemExit):
        main(["agent", "--help"])
    flags = set(re.findall(r"--mqtt[a-z-]*", capsys.readouterr().out))
    assert {each.split()[0] for each in cells("Set up")} == flags


def test_every_metric_is_listed():
    registry = CollectorRegistry()
    MqttMetrics(registry)
    names = {each.name if each.type == "gauge" else f"{each.name}_total" for each in registry.collect()}
    assert cells("Metrics") == names


def test_every_topic_and_event_is_listed_and_each_topic_has_a_schema():
    topics = Topics("PREFIX")
    states = {topics.eip("ADDRESS"), topics.pool("NAME"), topics.node("NODE"), topics.hold("NODE", "ADDRESS")}
    every = {*states, topics.controller, topics.event("EVENT")}
    kinds = {one["title"] for one in json.loads((DIRECTORY / "event.schema.json").read_text())["oneOf"]}
    assert cells("Topics") == {each.removeprefix("PREFIX/v1/") for each in every} | kinds
    schemas = {schema_of(each, "PREFIX") for each in every}
    assert {f"{name}.schema.json" for name in schemas} == {path.name for path in DIRECTORY.iterdir()}
    assert all(f"mqtt/v1/{name}.schema.json" in TEXT for name in schemas)


@pytest.mark.parametrize("path", sorted(DIRECTORY.iterdir()), ids=lambda path: path.name)
def test_schemas_are_schemas_and_let_fields_be_added(path):
    validator(path.name.removesuffix(".schema.json"))
    assert "additionalProperties" not in json.dumps(json.loads(path.read_text()))
