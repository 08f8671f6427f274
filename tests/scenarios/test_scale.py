"""Many EIPs: who gets them, what a death moves, and what hellos cost. Time is virtual, in seconds."""

from collections import Counter
from dataclasses import replace

import pytest

from speaker.ownership.events import SendHello, Tick
from speaker.ownership.simulation.schedule import Fault, Kind, Limits, Schedule
from speaker.ownership.simulation.world import World

FIVE = Schedule(seed=1, nodes=5, eips=100, end=2.0, limits=Limits(unanswered=2.0, settled=False))


@pytest.mark.parametrize("api", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_that_starts_spreads_its_eips_evenly(seed, api) -> None:
    world = World(replace(FIVE, seed=seed, api=api)).run()
    counts = Counter(world.holders(eip)[0] for eip in world.eips)
    assert max(counts.values()) < 1.25 * 20


def test_a_thousand_eips_move_within_a_second_and_only_the_dead_nodes(play, holder_of) -> None:
    schedule = replace(FIVE, eips=1000, limits=Limits(crash=0.5, unanswered=2.0), end=3.0)
    dead = holder_of(schedule)
    world = play(replace(schedule, faults=(Fault(2.0, Kind.CRASH, (dead,)),)))
    before = {eip: node for at, eip, node, _ in world.promises.moves if at < 2.0}
    moved = {eip for at, eip, _, _ in world.promises.moves if at >= 2.0}
    assert moved == {eip for eip, node in before.items() if node == f"n{dead}"}


@pytest.mark.parametrize("eips", [10, 1000])
def test_steady_hellos_are_one_an_interval_and_do_not_grow(eips) -> None:
    world = World(replace(FIVE, eips=eips, limits=Limits(unanswered=2.0, settled=False)))
    world.run(until=2.5)
    sent, machine = world.hellos_sent, world.hosts[0].machine
    world.run(until=3.5)
    assert world.hellos_sent - sent == pytest.approx(50, abs=5)
    orders = machine.step(world.now + 0.1, Tick())
    assert all(len(order.hello.claims) <= 64 for order in orders if isinstance(order, SendHello))
