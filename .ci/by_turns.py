"""A pytest plugin for what takes longer than a run of CI may: as many of the chosen tests as there is time for.

``TURN`` says at which of them to begin, so that over some runs every one is among the first. After ``MINUTES`` no
further test begins: the rest are skipped for that reason, which the report counts.
"""

import os
import time

import pytest

BEGUN = time.monotonic()
STEP = 37
"""Tests that each turn begins further on."""
REASON = "no time left: it has its turn in another run"


def rotated(tests: list, turn: int) -> list:
    """The same, from another one on."""
    first = turn * STEP % len(tests) if tests else 0
    return tests[first:] + tests[:first]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list) -> None:
    items[:] = rotated(items, int(os.environ["TURN"]))


def pytest_runtest_setup() -> None:
    if time.monotonic() - BEGUN > 60 * float(os.environ["MINUTES"]):
        pytest.skip(REASON)
