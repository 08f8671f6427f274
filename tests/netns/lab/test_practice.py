"""Each fault that can be injected in namespaces is named first by `speaker explain` or `doctor`, and nothing is wrong
before it and after it: one LAN, played through as the lab's users do."""

import json
import subprocess
import sys

import pytest

from speaker.lab.practice_table import FAULTS
from speaker.lab.practise import ALL

pytestmark = [pytest.mark.netns, pytest.mark.long(part="practice")]

GUARD = 900.0
"""Seconds; against a hang, not an expectation."""


@pytest.fixture(scope="module")
def played(namespaces):
    """What the lab printed; it plays when the first test asks."""
    command = [sys.executable, "-W", "error", "-m", "speaker", "lab", "--fault", ALL, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GUARD)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_before_anything_is_broken_nothing_is_wrong_on_any_node(played):
    assert played["healthy"]
    assert set(played["healthy"]) == {""}


@pytest.mark.parametrize("fault", [fault.name for fault in FAULTS])
def test_the_fault_is_named_first_and_nothing_is_wrong_once_it_is_mended(played, fault):
    found = next(each for each in played["faults"] if each["name"] == fault)
    assert found["kind"] == found["expected"], found
    assert found["words"]
    assert found["after"] == "", found


def test_a_fault_that_nobody_knows_is_refused_with_the_names_of_those_there_are():
    done = subprocess.run(
        [sys.executable, "-m", "speaker", "lab", "--fault", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--fault 'nonsense'" in done.stderr
    assert FAULTS[0].name in done.stderr
