"""A thief of an agent's token writes records, which is all that he can do. The wire is the judge."""

from dataclasses import replace

import pytest
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.world import World

from speaker.model import MAX_TERM
from speaker.ownership.hello import MAX_INCARNATION

TRIO = Schedule(seed=11, nodes=3, eips=6, api=True, end=9.0, limits=Limits(crash=0.5))


def holders(world):
    return {eip: world.holders(eip) for eip in world.eips}


@pytest.mark.parametrize("term", [2**30, MAX_TERM - 1, MAX_TERM])
@pytest.mark.parametrize("whose", ["n0", "n7", None])
def test_no_forged_record_moves_an_eip_or_makes_a_failover_later(term, whose) -> None:
    world = World(replace(TRIO, faults=(Fault(5.0, Kind.CRASH_HOLDER),)), trace=True)
    before = holders(world.run(until=2.0))
    for eip in world.eips:
        world.api.forge(eip, whose, term, MAX_INCARNATION)
    assert holders(world.run(until=4.9)) == before
    world.run()
    assert world.promises.broken is None, world.promises.broken
    assert len(world.promises.failovers) >= 1
    assert all(len(found) == 1 for found in holders(world).values())


def test_terms_rise_by_one_above_a_forged_one() -> None:
    world = World(replace(TRIO, faults=(Fault(5.0, Kind.CRASH_HOLDER),)), trace=True)
    world.run(until=2.0)
    for eip in world.eips:
        world.api.forge(eip, "n0", 2**30, 1)
    world.run()
    assert max(record.term for record in world.api.records.values()) <= 2**30 + 2
