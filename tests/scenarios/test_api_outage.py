"""The API server is slow, stale or gone. Time is virtual, in seconds."""

from dataclasses import replace

import pytest
from simulation.families.nodes import meddled
from simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule
from simulation.shrink import broken

TRIO = Schedule(seed=4, nodes=3, eips=4, api=True, end=8.0)
ALL = (0, 1, 2)


def test_an_outage_moves_nothing(play) -> None:
    play(replace(TRIO, faults=(Fault(2.0, Kind.API_OUTAGE, ALL, 4.0),), limits=Limits(quiet_after=1.5)))


def test_failover_goes_on_over_hello_and_the_record_is_put_right_afterwards(play, holder_of) -> None:
    faults = (Fault(2.0, Kind.API_OUTAGE, ALL, 2.0), Fault(2.5, Kind.CRASH, (holder_of(TRIO),)))
    play(replace(TRIO, faults=faults, limits=Limits(crash=0.5)))


def test_an_api_that_comes_back_naming_a_dead_holder_is_not_believed(play, holder_of) -> None:
    dead = holder_of(TRIO)
    faults = (Fault(2.0, Kind.API_OUTAGE, ALL, 1.0), Fault(2.2, Kind.CRASH, (dead,)))
    world = play(replace(TRIO, faults=faults, limits=Limits(crash=0.5, quiet_after=2.9)))
    assert all(record.holder != f"n{dead}" for record in world.api.records.values())


def test_holders_that_nobody_hears_keep_while_the_others_have_no_api(play) -> None:
    """The wire says that somebody answers: nobody asks a Lease."""
    keys = tuple(Fault(0.0, Kind.WRONG_KEY, (n,)) for n in ALL)
    outage = Fault(5.0, Kind.API_OUTAGE_OTHERS, lasts=4.0)
    limits = Limits(wire_answer=0.12, no_cause=True, unanswered=5.0, causeless=False)
    play(replace(TRIO, eips=1, apart=0.4, faults=(*keys, outage), end=12.0, limits=limits))


def test_a_stale_watch_makes_nobody_yield_to_the_past(play) -> None:
    faults = (Fault(2.0, Kind.STALE_WATCH, (0,), 3.0), Fault(2.2, Kind.CRASH_HOLDER, lasts=0.5))
    play(replace(TRIO, faults=faults))


def test_a_node_that_boots_without_the_api_joins_over_hello(play, holder_of) -> None:
    faults = (Fault(1.9, Kind.API_OUTAGE, ALL, FOR_GOOD), Fault(2.0, Kind.CRASH, (0,), 0.5))
    world = play(replace(TRIO, faults=faults, limits=Limits(crash=0.5)))
    assert all(len(world.holders(eip)) == 1 for eip in world.eips)


@pytest.mark.parametrize("seed", [2563071540, 4068106479])
def test_a_record_that_is_deleted_before_the_reply_to_its_making_is_made_once_more(seed) -> None:
    """The watch told of the deletion before the writer heard that the record, which was gone already, stood. The holder
    believed the reply, and the record was never made again."""
    assert broken(meddled(seed)) is None
