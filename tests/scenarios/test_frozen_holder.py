"""The holder stops (SIGSTOP, a stalled hypervisor) and goes on. Time is virtual, in seconds."""

from dataclasses import replace

import pytest

from speaker.ownership.simulation.promises import Promise
from speaker.ownership.simulation.schedule import Fault, Kind, Limits, Schedule
from speaker.ownership.simulation.shrink import broken
from speaker.ownership.simulation.world import World

PAIR = Schedule(seed=1, nodes=2, eips=1, asks=True, end=8.0)


def test_a_holder_frozen_for_five_seconds_answers_nothing_that_waited(play, holder_of) -> None:
    holder = holder_of(PAIR)
    world = play(replace(PAIR, faults=(Fault(2.0, Kind.FREEZE, (holder,), 5.0),)))
    assert world.holders(world.eips[0]) == [f"n{1 - holder}"]
    assert [node for _, _, node, _ in world.promises.moves] == [f"n{holder}", f"n{1 - holder}"]


@pytest.mark.parametrize("begins_ms", range(0, 100, 10))
@pytest.mark.parametrize("lasts_ms", [100, 150, 185, 195, 205, 250, 310, 330])
def test_no_freeze_of_any_length_answers_stale_while_hellos_arrive(play, holder_of, begins_ms, lasts_ms) -> None:
    fault = Fault(2.0 + begins_ms / 1000, Kind.FREEZE, (holder_of(PAIR),), lasts_ms / 1000)
    play(replace(PAIR, faults=(fault,), end=4.0))


FOUR_LOST = Schedule(
    seed=1,
    nodes=2,
    eips=1,
    asks=True,
    end=4.0,
    limits=Limits(causeless=False),
    faults=(
        Fault(2.0, Kind.ONE_WAY, (0, 1), 0.15),
        Fault(2.13, Kind.FREEZE, (0,), 0.15),
        Fault(2.22, Kind.ONE_WAY, (1, 0), 0.09),
    ),
)


def test_a_freeze_below_the_self_lease_costs_no_more_than_the_hellos_that_were_lost(holder_of) -> None:
    """The doubt about 185 ms, closed: a stale answer needs the holder's last hellos lost, the freeze right behind them,
    *and* the successor's claim lost. It ends with the first hello that gets through, as in any split."""
    assert holder_of(FOUR_LOST) == 0
    world = World(FOUR_LOST, trace=True)
    world.run(until=2.27)
    assert world.holders(world.eips[0]) == ["n1"]
    world.run(until=2.29)
    assert world.holders(world.eips[0]) == ["n0", "n1"]
    world.run(until=2.31 + 0.1 + 0.002)  # the cut ends at 2.31, one hello interval and the link's delay later:
    assert world.holders(world.eips[0]) == ["n1"]
    world.run()
    assert world.promises.broken is None


def test_a_holder_that_was_away_too_long_does_not_take_old_hellos_for_fresh_ones() -> None:
    """Shrunk from windows seed 1259624543: n0's queue from before the split made it a witness for n3, whom n2 then
    waited for although n3 could not be heard."""
    schedule = Schedule(
        seed=1259624543,
        nodes=4,
        eips=24,
        api=True,
        per_hello=3,
        end=9.0,
        faults=(Fault(1.536, Kind.FREEZE, (0,), 0.582), Fault(1.812, Kind.PARTITION, (0, 1, 2), 1.086)),
        limits=Limits(unanswered=4.0),
    )
    found = broken(schedule)
    assert found is None or found.promise is not Promise.RECORD
