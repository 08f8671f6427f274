"""The controller's metrics are listed in the documentation, no more and no less."""

import re
from pathlib import Path

from speaker.controller.run import ControllerMetrics
from speaker.telemetry.metrics import Metrics

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


def test_every_metric_of_the_controller_is_listed():
    section = OPERATIONS.read_text().split("\n## The controller's metrics\n")[1].split("\n## ")[0]
    listed = set(re.findall(r"^\| `([a-z_]+)`", section, re.MULTILINE))
    elsewhere = {each.name for each in Metrics().registry.collect()}
    collected = [each for each in ControllerMetrics().registry.collect() if each.name not in elsewhere]
    assert listed == {f"{each.name}_total" if each.type == "counter" else each.name for each in collected}
