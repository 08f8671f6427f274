"""Random schedules, by family of faults. The same family and seed give the same schedule in every run."""

from collections.abc import Callable, Iterator
from random import Random

from simulation.families import hellos, links, mixed, nodes
from simulation.schedule import Schedule

FAMILIES: dict[str, tuple[Callable[[int], Schedule], int]] = {
    "crash": (nodes.crash, 4),
    "crash_loss": (nodes.crash_loss, 2),
    "drain": (nodes.drain, 2),
    "rebalance": (nodes.rebalance, 2),
    "freeze": (nodes.freeze, 2),
    "preferred": (nodes.preferred, 2),
    "stutter": (nodes.stutter, 1),
    "bursts": (links.bursts, 1),
    "mixed": (mixed.mixed, 6),
    "flap": (nodes.flap, 1),
    "split": (links.split, 1),
    "split_faults": (hellos.split_faults, 1),
    "release": (hellos.release, 1),
    "lease_blind": (hellos.lease_blind, 1),
    "equal": (nodes.equal, 3),
    "windows": (hellos.windows, 1),
    "clock_back": (nodes.clock_back, 1),
    "ineligible_many": (nodes.ineligible_many, 1),
    "one_cable": (links.one_cable, 1),
    "two_deaths": (nodes.two_deaths, 1),
    "replay": (hellos.replay, 1),
    "steady": (hellos.steady, 1),
    "as_frames": (mixed.as_frames, 1),
    "rotation": (hellos.rotation, 1),
    "stranger": (hellos.stranger, 1),
    "meddled": (nodes.meddled, 2),
    "upgrade": (nodes.upgrade, 1),
    "deaf": (links.deaf, 1),
    "deaf_start": (links.deaf_start, 1),
    "blip": (links.blip, 1),
    "flap_ports": (links.flap_ports, 1),
    "minority": (links.minority, 1),
    "partial": (links.partial, 1),
    "nobroadcast": (links.nobroadcast, 1),
    "mute": (links.mute, 1),
    "mute_all": (links.mute_all, 1),
    "throttled": (links.throttled, 1),
    "filtered": (links.filtered, 1),
    "sick": (links.sick, 1),
    "oneway": (links.oneway, 1),
    "mute_start": (links.mute_start, 1),
    "all_demoted": (links.all_demoted, 1),
    "silent": (links.silent, 1),
    "silent_drain": (links.silent_drain, 1),
    "started_apart": (links.started_apart, 1),
    "mixed_intervals": (links.mixed_intervals, 1),
    "api_frozen": (nodes.api_frozen, 1),
    "unasked": (links.unasked, 1),
}
"""Name → maker, and how many of a round's schedules are of its kind."""


def schedules(number: int, seed: int) -> Iterator[Schedule]:
    """``number`` schedules, the families taking turns by weight; ``seed`` chooses which."""
    turns = [make for make, weight in FAMILIES.values() for _ in range(weight)]
    random = Random(seed)
    for _ in range(number):
        yield random.choice(turns)(random.randrange(2**32))
