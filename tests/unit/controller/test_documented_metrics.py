"""The controller's metrics are listed in the documentation, no more and no less."""

import re
from pathlib import Path

from speaker.controller.run import ControllerMetrics

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


def test_every_metric_of_the_controller_is_listed():
    section = OPERATIONS.read_text().split("\n## The controller's metrics\n")[1].split("\n## ")[0]
    listed = set(re.findall(r"^\| `([a-z_]+)`", section, re.MULTILINE))
    collected = ControllerMetrics().registry.collect()
    assert listed == {f"{each.name}_total" if each.type == "counter" else each.name for each in collected}
