"""What a scenario may ask for: a world that keeps its promises, and who holds what before anything goes wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulation.schedule import Schedule
from simulation.shrink import story
from simulation.world import World

Play = Callable[[Schedule], World]
HolderOf = Callable[[Schedule], int]


@pytest.fixture
def play() -> Play:
    """Runs a schedule to its end; fails with the trace if a promise breaks."""

    def run(schedule: Schedule) -> World:
        world = World(schedule, trace=True).run()
        if world.promises.broken is not None:
            pytest.fail(story(schedule), pytrace=False)
        return world

    return run


@pytest.fixture
def holder_of() -> HolderOf:
    """The node that holds the first EIP at 1.4 s: the same seed gives the same holder whatever happens later."""

    def find(schedule: Schedule) -> int:
        world = World(replace(schedule, faults=())).run(until=1.4)
        return int(world.holders(world.eips[0])[0].removeprefix("n"))

    return find
