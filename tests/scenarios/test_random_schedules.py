"""Random faults, every promise checked after every step. ``make fuzz`` plays a hundred thousand."""

import os

import pytest
from simulation.families import FAMILIES, schedules
from simulation.schedule import Schedule
from simulation.shrink import broken, shrink, story

NUMBER = int(os.environ.get("SPEAKER_SCHEDULES", "500"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken(part: int) -> None:
    for schedule in schedules(NUMBER // PARTS, seed=part):
        if broken(schedule) is not None:
            pytest.fail(story(shrink(schedule)), pytrace=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_run(family: str) -> None:
    make, _ = FAMILIES[family]
    assert story(make(4)) == story(make(4))


def test_a_schedule_that_keeps_its_promises_is_not_shrunk() -> None:
    schedule: Schedule = FAMILIES["crash"][0](1)
    assert shrink(schedule) == schedule
