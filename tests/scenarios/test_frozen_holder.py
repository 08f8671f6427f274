"""The holder stops (SIGSTOP, a stalled hypervisor) and goes on. Time is virtual, in seconds."""

from dataclasses import replace

import pytest
from simulation.host import Host
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.shrink import broken
from simulation.world import World

from speaker.model import IPAddress

PAIR = Schedule(seed=1, nodes=2, eips=1, asks=True, end=8.0)


def test_a_holder_frozen_for_five_seconds_answers_nothing_that_waited(play, holder_of) -> None:
    holder = holder_of(PAIR)
    world = play(replace(PAIR, faults=(Fault(2.0, Kind.FREEZE, (holder,), 5.0),)))
    assert world.holders(world.eips[0]) == [f"n{1 - holder}"]
    assert [node for _, _, node, _ in world.promises.moves] == [f"n{holder}", f"n{1 - holder}"]


LENGTHS_MS = range(150, 331, 10)
PHASES_MS = range(0, 100, 10)


def answers_by_the_replaced(schedule: Schedule) -> list[str]:
    """Requests answered by a node that thawed, after the claim of another, made later than its own, could have reached
    it."""
    world, stale = World(schedule), []

    def answered(host: Host, eip: IPAddress, asked_at: float) -> None:
        claims = [(at, node) for at, e, node, _ in world.promises.moves if e == eip]
        own = max(at for at, node in claims if node == host.name)
        if host.thawed[1] > 0 and any(own < at < world.clock.now - schedule.delay for at, node in claims):
            stale.append(f"{host.name} at {world.clock.now:.4f}, asked at {asked_at:.4f}")

    world.promises.answered = answered  # type: ignore[method-assign]
    world.run()
    return stale


@pytest.mark.parametrize("lasts_ms", LENGTHS_MS)
def test_no_freeze_of_any_length_answers_stale_while_hellos_arrive(play, holder_of, lasts_ms) -> None:
    """Whatever the phase of its own hello the freeze begins in; requests carry the time the kernel received them."""
    holder = holder_of(PAIR)
    for begins_ms in PHASES_MS:
        fault = Fault(2.0 + begins_ms / 1000, Kind.FREEZE, (holder,), lasts_ms / 1000)
        schedule = replace(PAIR, faults=(fault,), end=3.5)
        play(schedule)
        assert answers_by_the_replaced(schedule) == []


@pytest.mark.parametrize("lasts_ms", LENGTHS_MS)
def test_nor_does_one_whose_last_hellos_were_lost_before_it(holder_of, lasts_ms) -> None:
    """The doubt about 185 ms. The peer lost the holder's last one to four hellos, so it takes over during the freeze;
    the holder comes back below its self-lease, and reads the successor's claim before it reads the requests
    (rule 28)."""
    holder = holder_of(PAIR)
    for lost in (1, 2, 3, 4):
        for begins_ms in PHASES_MS:
            at = 2.0 + begins_ms / 1000
            faults = (
                Fault(at - lost * 0.1, Kind.ONE_WAY, (holder, 1 - holder), lost * 0.1),
                Fault(at, Kind.FREEZE, (holder,), lasts_ms / 1000),
            )
            schedule = replace(PAIR, faults=faults, end=3.5, limits=Limits(causeless=False))
            assert answers_by_the_replaced(schedule) == []
            assert broken(schedule) is None


@pytest.mark.parametrize("lasts_ms", [150, 190, 210, 300, 340, 600])
def test_two_frozen_together_answer_nothing_stale(play, lasts_ms) -> None:
    """Two guests of one hypervisor, paused and resumed in the same instant, beside a third that goes on."""
    trio = replace(PAIR, nodes=3, eips=4, end=5.0)
    for pair in ((0, 1), (0, 2), (1, 2)):
        for begins_ms in PHASES_MS:
            schedule = replace(trio, faults=(Fault(2.0 + begins_ms / 1000, Kind.FREEZE, pair, lasts_ms / 1000),))
            play(schedule)
            assert answers_by_the_replaced(schedule) == []


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
    *and* the successor's claim lost (without the last there is none, see the sweep above). It ends with the first hello
    that gets through, as in any split: "each lost hello adds one interval" covers it, and no timer could: the holder
    was away for less than the time in which it may answer without having been heard."""
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
    assert broken(schedule) is None
