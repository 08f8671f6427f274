"""Planned moves. Time is virtual, in seconds."""

from dataclasses import replace

import pytest
from simulation.families.nodes import upgrade
from simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule
from simulation.shrink import broken

TRIO = Schedule(seed=4, nodes=3, eips=6, end=6.0, limits=Limits(planned=(2.0, 5.0)))


@pytest.mark.parametrize("api", [False, True])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_drain_hands_over_without_an_instant_unanswered(play, holder_of, api, loss) -> None:
    limits = replace(TRIO.limits, one_answer=0.6 if loss else None, causeless=not loss)
    schedule = replace(TRIO, api=api, loss=loss, limits=limits)
    drained = holder_of(schedule)
    world = play(replace(schedule, faults=(Fault(2.0, Kind.DRAIN, (drained,)),)))
    assert not any(f"n{drained}" in world.holders(eip) for eip in world.eips)


def test_the_last_of_two_drained_together_answers_until_its_limit(play) -> None:
    """The doubt "both nodes draining at once": the EIP goes back and forth at most once, then its holder answers until
    the drain limit; nobody eligible is left."""
    faults = (Fault(2.0, Kind.DRAIN, (0,)), Fault(2.016, Kind.DRAIN, (1,)))
    schedule = Schedule(seed=4, nodes=2, eips=2, delay=0.02, faults=faults, end=8.0)
    world = play(schedule)
    assert all(len([m for m in world.promises.moves if m[1] == eip]) <= 3 for eip in world.eips)
    ends = [begin for eip, begin, _ in world.promises.gaps if begin > 1.0]
    assert all(begin >= 2.0 + schedule.times.drain for begin in ends)


def test_a_drained_node_cut_off_from_its_successor_yields_to_the_record() -> None:
    """Shrunk from mixed seed 843030230: 12c ("heard intending that term, then silent") kept the drained node answering
    beside its successor until the drain limit. 12c is for those who could take over."""
    schedule = Schedule(
        seed=843030230,
        nodes=2,
        eips=4,
        loss=0.02,
        duplication=0.1,
        delay=0.005,
        api=True,
        asks=True,
        end=13.0,
        limits=Limits(one_answer=0.37, unanswered=5.0, causeless=False),
        faults=(
            Fault(1.6537, Kind.DRAIN, (1,), 3.5),
            Fault(1.6819, Kind.PAIR, (1, 0), 1.3414),
            Fault(2.6193, Kind.PARTITION, (0,), 2.1402),
        ),
    )
    assert broken(schedule) is None


def test_an_api_outage_stops_no_handover(play, holder_of) -> None:
    schedule = replace(TRIO, api=True)
    outage = Fault(1.5, Kind.API_OUTAGE, (0, 1, 2), FOR_GOOD)
    play(replace(schedule, faults=(outage, Fault(2.0, Kind.DRAIN, (holder_of(schedule),)))))


@pytest.mark.parametrize("lasts", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("api", [False, True])
def test_a_drain_that_is_taken_back_leaves_no_instant_unanswered(play, holder_of, api, lasts) -> None:
    """What was handed over stays where it is (rule 31); what was not is kept."""
    schedule = replace(TRIO, api=api)
    drained = holder_of(schedule)
    world = play(replace(schedule, faults=(Fault(2.0, Kind.BRIEF_DRAIN, (drained,), lasts),)))
    taken_back = [move for move in world.promises.moves if move[0] > 2.2 and move[2] == f"n{drained}"]
    assert taken_back == []


def test_in_an_upgrade_two_that_both_claimed_what_nobody_held_count_as_one_move() -> None:
    """Upgrade seed 760947962: the duel at the start was taken for a move of the upgrade."""
    assert broken(upgrade(760947962)) is None
