"""Many EIPs: who gets them, what a death moves, and what hellos cost. Time is virtual, in seconds."""

from collections import Counter
from dataclasses import replace

import pytest
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.world import World

FIVE = Schedule(seed=1, nodes=5, eips=100, end=2.0, limits=Limits(unanswered=2.0, settled=False))
FRAMES = pytest.mark.parametrize("mtu", [None, 1500], ids=["values", "frames"])
"""As frames nodes have long random names too: other scores."""


@FRAMES
@pytest.mark.parametrize("api", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_that_starts_spreads_its_eips_evenly(seed, api, mtu) -> None:
    world = World(replace(FIVE, seed=seed, api=api, mtu=mtu)).run()
    counts = Counter(world.holders(eip)[0] for eip in world.eips)
    assert max(counts.values()) < 1.25 * 20


@FRAMES
def test_a_thousand_eips_move_within_half_a_second_and_only_the_dead_nodes(play, mtu) -> None:
    schedule = replace(FIVE, eips=1000, mtu=mtu, limits=Limits(crash=0.5, unanswered=2.0), end=3.0)
    world = play(replace(schedule, faults=(Fault(2.0, Kind.CRASH, (2,)),)))
    before = {eip: node for at, eip, node, _ in world.promises.moves if at < 2.0}
    moved = {eip for at, eip, _, _ in world.promises.moves if at >= 2.0}
    dead = world.hosts[2].name
    assert moved == {eip for eip, node in before.items() if node == dead}
    assert len(moved) > 150


@FRAMES
def test_steady_hellos_are_at_most_two_frames_an_interval_and_do_not_grow(mtu) -> None:
    """One hello leaves by every link in every interval; with names of 120 characters it takes two frames."""
    sent = {}
    for eips in (10, 1000):
        world = World(replace(FIVE, eips=eips, mtu=mtu, limits=Limits(unanswered=2.0, settled=False)))
        world.run(until=2.5)
        began = world.network.hellos_sent
        world.run(until=3.5)
        sent[eips] = (world.network.hellos_sent - began) / 50
    assert sent[10] == pytest.approx(1, abs=0.1)
    assert sent[1000] <= (1.1 if mtu is None else 2.1)
