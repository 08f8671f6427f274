"""``python -m simulation --schedules 2000 --seed 1``: exit 1 and a shrunk trace if one fails."""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from multiprocessing import Pool

from simulation.families import FAMILIES, schedules
from simulation.schedule import Schedule
from simulation.shrink import broken, shrink, story

_CHUNK = 10
"""Schedules handed to a process at a time: a third of a second."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", choices=sorted(FAMILIES), help="only this one; SEED then numbers its schedules")
    parser.add_argument("--keep-going", action="store_true", help="count what breaks instead of stopping at the first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (one per core)")
    arguments = parser.parse_args()
    began, failures, played = time.monotonic(), 0, Counter[str]()
    with Pool(arguments.jobs) as pool:
        for number, (family, seed, found) in enumerate(pool.imap(_play, _chosen(arguments), _CHUNK), 1):
            played[family] += 1
            if found is not None:
                failures += 1
                if not arguments.keep_going:
                    pool.terminate()
                    print(story(shrink(_made(family, seed))))  # noqa: T201
                    return 1
                print(f"{family} {seed}: {found}", flush=True)  # noqa: T201
            if number % 1000 == 0:
                print(f"{number} schedules, {time.monotonic() - began:.0f} s", file=sys.stderr)  # noqa: T201
    for family, count in sorted(played.items()):
        print(f"{count:7} {family}")  # noqa: T201
    print(f"{arguments.schedules} schedules, {failures} broke a promise, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 1 if failures else 0


def _play(named: tuple[str, int]) -> tuple[str, int, str | None]:
    """A schedule is sent by its name: what is compiled cannot be pickled."""
    found = broken(_made(*named))
    return (*named, None if found is None else str(found))


def _made(family: str, seed: int) -> Schedule:
    make, _ = FAMILIES[family]
    return make(seed)


def _chosen(arguments: argparse.Namespace) -> Iterable[tuple[str, int]]:
    if arguments.family is None:
        return ((schedule.family, schedule.seed) for schedule in schedules(arguments.schedules, arguments.seed))
    return ((arguments.family, arguments.seed + i) for i in range(arguments.schedules))


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:
        # Sets of EIPs and of names are walked in the order of their hashes: with others a seed tells another story.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    sys.exit(main())
