"""Three minutes of everything at once; an hour of it is `make soak`. What it is and what it promises: soak.py."""

import os
import random

import pytest
from slopes import Series
from soak import SERVICES, soak

SECONDS = float(os.environ.get("SOAK_SECONDS", "180"))
SEED = int(os.environ.get("SOAK_SEED", 1 if "CI" in os.environ else random.randrange(1 << 32)))
"""In CI the same every time, as Hypothesis' are: what a search finds there, nobody can mend that day."""


@pytest.mark.netns
@pytest.mark.long(part="soak")
def test_nothing_grows_and_nothing_is_broken(namespaces, capsys):
    result = soak(SERVICES, SECONDS, SEED)
    with capsys.disabled():
        print("", result, sep="\n")  # noqa: T201
    assert result.problems(SECONDS) == []


SECONDS_OF_A_SERIES = range(160)


def series(**values):
    """Of one process that was looked at once a second."""
    found = Series("n1 wire")
    for at in SECONDS_OF_A_SERIES:
        found.add(float(at), {measure: value(at) for measure, value in values.items()})
    return found


@pytest.mark.parametrize(
    ("values", "told"),
    [
        pytest.param({"memory": lambda at: 30_000 + 100 * (at % 7)}, [], id="memory that wanders"),
        pytest.param({"memory": lambda at: 30_000 + (80_000 if at % 9 == 0 else 0)}, [], id="memory for a moment"),
        pytest.param({"memory": lambda at: 30_000 + 100 * at}, ["memory +6000.0 KiB"], id="memory that grows"),
        pytest.param({"descriptors": lambda at: 12 + at // 20}, ["descriptors +3.0"], id="descriptors that grow"),
        pytest.param({"tasks": lambda at: 12 + at // 5}, ["tasks +12.0"], id="tasks that grow"),
        pytest.param({"log": lambda at: 2.0 * at}, [], id="a log that goes on"),
        pytest.param({"log": lambda at: 10.0 * at}, ["writes 600 KiB of log a minute"], id="a log that floods"),
        pytest.param({"log": lambda at: at * at / 100}, ["writes more and more log"], id="a log that swells"),
    ],
)
def test_what_grows_is_told_and_what_wanders_is_not(values, told):
    steep = series(**values).steep()
    assert len(steep) == len(told)
    assert all(words in sentence for words, sentence in zip(told, steep, strict=True)), steep
