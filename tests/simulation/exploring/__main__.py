"""``python -m simulation.exploring --seconds 3600``: exit 1, and how it came about, if a promise breaks."""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import repeat
from multiprocessing import Pool
from typing import NamedTuple

from simulation.exploring.memo import Found
from simulation.exploring.search import explore, story
from simulation.exploring.world import Small
from simulation.schedule import Kind

_MOST = 1_000_000
"""States of one search: 32 MB."""
_WORLDS = (
    Small(2, 1, faults=1),
    Small(2, 1, faults=0, frames=3),
    Small(2, 2, faults=1),
    Small(3, 1, faults=1),
    Small(3, 1, faults=0, frames=2),
    Small(2, 1, faults=1, api=True),
    Small(2, 1, faults=1, frames=1),
    Small(3, 2, faults=1),
    Small(2, 1, faults=2),
    Small(3, 1, faults=1, api=True),
    Small(3, 1, faults=1, frames=1),
    Small(3, 1, faults=2),
    Small(3, 2, faults=2),
)
"""The smallest first: what each leaves of its time goes to those behind it."""
_BRIEF = (
    Small(2, 1, faults=1, kinds=(Kind.CRASH, Kind.DEAF, Kind.BLACKOUT, Kind.MUTE_ALL)),
    Small(2, 1, faults=0, frames=3),
    Small(3, 1, faults=1, kinds=(Kind.CRASH, Kind.BLACKOUT)),
)
"""To the end: some two minutes of one core. A freeze and a cable teach patience, which fades for a minute, and no state
comes back before: `make explore` has them."""
_HEAD = "nodes EIPs faults frames API   states      met depth left  broken  seconds"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.exploring", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, metavar="N", help="for all worlds together")
    parser.add_argument("--states", type=int, default=_MOST, metavar="N", help="the most in one world")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="worlds at a time")
    parser.add_argument("--brief", action="store_true", help="what `make test-long` has time for, and all of that")
    arguments = parser.parse_args()
    worlds = _BRIEF if arguments.brief else _WORLDS
    until = float("inf") if arguments.brief else time.monotonic() + arguments.seconds
    wrong = False
    print(_HEAD)  # noqa: T201
    with Pool(arguments.jobs, maxtasksperchild=1) as pool:
        # So many rounds of worlds still want time, each world's own among them.
        rounds = (-(-(len(worlds) - number) // arguments.jobs) for number in range(len(worlds)))
        for result in pool.imap(_explored, zip(worlds, repeat(arguments.states), repeat(until), rounds)):
            print(result.line, *result.stories, sep="\n\n", flush=True)  # noqa: T201
            wrong |= bool(result.stories) or (arguments.brief and result.left > 0)
    return 1 if wrong else 0


class _Result(NamedTuple):
    line: str
    left: int
    stories: list[str]


def _explored(work: tuple[Small, int, float, int]) -> _Result:
    small, states, until, rounds = work
    began = time.monotonic()
    found = explore(small, states, max(1.0, (until - began) / rounds))
    numbers = f"{found.states:8} {found.met:8} {found.depth:5} {found.left:4} {found.times_broken:7}"
    line = (
        f"{small.nodes:5} {small.eips:4} {small.faults:6} {small.frames:6} {'yes' if small.api else 'no':3} {numbers}"
    )
    if found.failed:
        raise RuntimeError(f"{small}: the search itself failed")
    stories = [story(small, each) for each in _shortest(found.broken)]
    return _Result(f"{line} {time.monotonic() - began:8.0f}  {small.only}", found.left, stories)


def _shortest(found: Iterable[Found]) -> Iterator[Found]:
    """One of each kind."""
    known = set()
    for each in sorted(found, key=lambda each: len(each.trail)):
        if each.kind not in known:
            known.add(each.kind)
            yield each


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # As in ``python -m simulation``: sets are walked in the order of hashes.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    sys.exit(main())
