"""A failing schedule made small: fewer faults, less noise, the same promise broken."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from simulation.host import Make
from simulation.promises import Broken, Promise
from simulation.schedule import Kind, Schedule
from simulation.world import World
from speaker.ownership.machine.machine import Ownership

_SAME = 1e-4
"""Seconds; further apart are two different moves."""


def broken(schedule: Schedule, make: Make = Ownership) -> Broken | None:
    world = World(schedule, make).run()
    return world.promises.broken or (_swayed(world, make) if schedule.limits.unswayed else None)


def _swayed(world: World, make: Make) -> Broken | None:
    faults = tuple(fault for fault in world.schedule.faults if fault.kind is not Kind.STRANGER)
    twin = World(replace(world.schedule, faults=faults), make).run()
    for ours, theirs in zip_longest(world.promises.moves, twin.promises.moves):
        if ours is None or theirs is None or ours[1:] != theirs[1:] or abs(ours[0] - theirs[0]) > _SAME:
            at = (ours or theirs or (0.0,))[0]
            return Broken(Promise.UNSWAYED, at, world.trace.readable(f"with a stranger {ours}, without {theirs}"))
    return None


def shrink(schedule: Schedule, make: Make = Ownership) -> Schedule:
    """One change at a time as long as the same promise stays broken; the schedule itself if it breaks none."""
    first = broken(schedule, make)
    if first is None:
        return schedule
    while True:
        for smaller in _smaller(schedule):
            found = broken(smaller, make)
            if found is not None and found.promise is first.promise:
                schedule = smaller
                break
        else:
            return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for index in range(len(schedule.faults)):
        yield schedule.without(index)
    if schedule.eips > 1 and not any(fault.eip for fault in schedule.faults):
        yield replace(schedule, eips=1)
    if schedule.links > 1:
        yield replace(schedule, links=1)
    if schedule.loss:
        yield replace(schedule, loss=0.0)
    if schedule.duplication:
        yield replace(schedule, duplication=0.0)
    if schedule.api:
        yield replace(schedule, api=False)
    if schedule.drift:
        yield replace(schedule, drift=False)
    if schedule.mtu is not None and not any(f.kind in (Kind.STRANGER, Kind.KEY_ROTATION) for f in schedule.faults):
        yield replace(schedule, mtu=None)
    limits = schedule.limits
    named = [limit[0] for limit in (limits.left, limits.takes_nothing) if limit is not None]
    used = max((*named, *(node for fault in schedule.faults for node in fault.nodes)), default=1)
    if schedule.nodes > max(used + 1, 2):
        yield replace(schedule, nodes=schedule.nodes - 1)


def story(schedule: Schedule, make: Make = Ownership, lines: int = 60) -> str:
    """The schedule, its last ``lines`` trace lines and the broken promise."""
    world = World(schedule, make, trace=True).run()
    trace = world.trace.lines or []
    shown = trace if len(trace) <= lines else ["          …", *trace[-lines:]]
    return "\n".join([str(schedule), *shown])
