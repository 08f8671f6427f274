"""Hellos as bytes: keys, strangers, and sockets that take nothing. Time is virtual, in seconds."""

from collections import Counter
from dataclasses import replace

import pytest
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.shrink import broken
from simulation.wire import REPLAYED
from simulation.world import World

from speaker.ownership.hellos.frames import MIN_MTU, Rejected

TRIO = Schedule(seed=4, nodes=3, eips=6, mtu=1500, end=5.0)
QUIET = Limits(quiet_after=1.9)


@pytest.mark.parametrize("api", [False, True])
@pytest.mark.parametrize("mtu", [MIN_MTU, 1500])
def test_a_crash_costs_no_more_when_a_hello_takes_several_frames(play, holder_of, api, mtu) -> None:
    schedule = replace(TRIO, nodes=5, eips=40, mtu=mtu, api=api, limits=Limits(crash=0.5))
    before = replace(schedule, mtu=None)
    play(replace(schedule, faults=(Fault(2.0, Kind.CRASH, (holder_of(before),)),)))


def test_names_and_eips_of_these_tests_do_fill_several_frames() -> None:
    sent = {}
    for mtu in (MIN_MTU, 1500):
        world = World(replace(TRIO, nodes=5, eips=200, mtu=mtu, per_hello=64))
        world.run(until=2.5)
        began = world.network.hellos_sent
        world.run(until=3.5)
        sent[mtu] = world.network.hellos_sent - began
    assert sent[1500] <= 2 * 5 * 11
    assert sent[MIN_MTU] > 2 * 5 * 11


@pytest.mark.parametrize("over", [0.02, 0.3])
def test_nobody_notices_a_key_that_is_replaced_in_order(play, over) -> None:
    world = play(replace(TRIO, faults=(Fault(2.0, Kind.KEY_ROTATION, (), over),), limits=QUIET))
    assert not any(port.refused[Rejected.WRONG_KEY] for host in world.hosts for port in host.ports.values())


def test_a_key_of_its_own_is_a_node_that_nobody_hears(play) -> None:
    world = play(replace(TRIO, faults=(Fault(2.0, Kind.WRONG_KEY, (0,), 1.0),)))
    assert world.hosts[1].ports[1].refused[Rejected.WRONG_KEY] > 5
    assert all(len(world.holders(eip)) == 1 for eip in world.eips)


FLOODED = replace(TRIO, links=2, faults=(Fault(1.5, Kind.STRANGER, (), 3.0),), limits=replace(QUIET, unswayed=True))


def test_a_stranger_changes_nothing_and_is_counted_by_reason() -> None:
    assert broken(FLOODED) is None
    world = World(FLOODED).run()
    refused: Counter[object] = Counter()
    for host in world.hosts:
        for port in host.ports.values():
            refused.update(port.refused)
    assert {*refused} >= {
        Rejected.FOREIGN,
        Rejected.TRUNCATED,
        Rejected.OVERSIZED,
        Rejected.WRONG_KEY,
        Rejected.FORGED,
        REPLAYED,
    }


def test_what_a_node_said_on_one_link_is_not_believed_on_another(play) -> None:
    """A stranger on both of two LANs needs no key to repeat one's frames on the other: newer than the last one heard
    there, and silent about what is claimed there. Every EIP of that link went to whoever heard it (the family
    "stranger" found it; a frame now counts on the link that its life was proven on)."""
    for seed in range(5):
        play(replace(FLOODED, seed=seed))


@pytest.mark.parametrize("api", [False, True])
def test_a_holder_whose_hellos_do_not_leave_stops_answering_before_others_begin(play, holder_of, api) -> None:
    """Its cable is in, it hears everyone, ARP would work: only what it sends is lost (a full queue, a filter)."""
    before = replace(TRIO, mtu=None, api=api)
    mute = holder_of(before)
    world = World(replace(before, faults=(Fault(2.0, Kind.SEND_FAILS, (mute,), 1.5),)))
    while world.clock.now < before.end:
        world.run(until=world.clock.now + 0.005)
        assert all(len(world.holders(eip)) <= 1 for eip in world.eips)
    assert world.promises.broken is None
    assert not any(f"n{mute}" in world.holders(eip) for eip in world.eips)


def test_a_link_on_which_nothing_leaves_costs_the_other_link_nothing(play) -> None:
    schedule = replace(TRIO, mtu=None, links=2, faults=(Fault(2.0, Kind.SEND_FAILS, (0,), 1.5, link=1),))
    world = play(schedule)
    assert {world.network.link_of[eip] for at, eip, _, _ in world.promises.moves if at > 2.0} <= {1}


@pytest.mark.parametrize("seed", range(8))
def test_clocks_that_differ_and_drift_change_no_promise(play, seed) -> None:
    schedule = replace(TRIO, mtu=None, seed=seed, drift=True, asks=True, limits=Limits(crash=0.5))
    play(replace(schedule, faults=(Fault(2.0, Kind.CRASH_HOLDER), Fault(3.0, Kind.FREEZE, (1,), 0.25))))
