"""Every schedule of a small world (``simulation/exploring``): no promise breaks, and one without a rule breaks some."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from simulation import wrong_rules
from simulation.exploring.search import explore, replay
from simulation.exploring.world import Small, SmallWorld
from simulation.host import Make
from simulation.schedule import Kind

from speaker.ownership.machine.machine import Ownership

TESTS = Path(__file__).parents[1]
CALM = Small(faults=0)
WRONG: Mapping[str, tuple[Make, Small]] = {
    "deaf and up": (partial(Ownership, rules=wrong_rules.DeafIsUp()), Small(kinds=(Kind.DEAF,))),
    "weak claims beat": (partial(Ownership, rules=wrong_rules.StandsForNothing()), Small(kinds=(Kind.PARTITION,))),
    "no weak claims": (partial(Ownership, rules=wrong_rules.AllClaimsAreStrong()), Small(kinds=(Kind.PARTITION,))),
    "no listening": (partial(Ownership, rules=wrong_rules.NoListening()), Small(kinds=(Kind.CABLE,))),
}


@pytest.mark.long(part="exploration")
def test_no_way_through_a_small_world_breaks_a_promise() -> None:
    """Two minutes of one core, however long those take."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "simulation.exploring", "--brief", "--jobs", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("name", WRONG)
def test_the_way_to_a_broken_promise_is_found_and_can_be_gone_again(name: str) -> None:
    make, small = WRONG[name]
    found = explore(small, states=600, make=make)
    assert not found.failed
    first = min(found.broken, key=lambda each: len(each.trail))
    broken = replay(small, first.trail, make).promises.broken
    assert broken is not None
    assert broken.promise.value == first.promise
    assert replay(small, first.trail).promises.broken is None, "the rules as they are keep it"


def test_where_nothing_goes_wrong_the_same_states_come_back() -> None:
    found = explore(CALM, states=100)
    assert (found.left, found.broken, found.failed) == (0, (), False)
    assert found.states < found.met


def test_a_search_that_is_cut_short_says_so() -> None:
    found = explore(CALM, states=5)
    assert (found.states, found.left > 0) == (5, True)


def world_at(intervals: int, *happens: str) -> SmallWorld:
    world = SmallWorld(Small(faults=1, frames=1), lambda what: what in happens)
    while world.depth < intervals:
        assert world.go_on()
        world.choose()
    return world


def test_a_state_has_one_number_whenever_it_is_met() -> None:
    """What peers hold is asked for every fifteen intervals."""
    assert world_at(60).key() == world_at(90).key()


@pytest.mark.parametrize("happens", ["crash n0", "deaf n1", "n0 to n1 lost", "n0 to n1 late"])
def test_another_state_has_another_number(happens: str) -> None:
    at = 20 if happens.startswith("n0 to") else 60
    assert world_at(at, happens).key() != world_at(at).key()
