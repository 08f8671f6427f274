"""Faults in any function of a running speaker, by chance: ``make chaos CHAOS=300 SEED=7``.

A site is played through its phases to see which functions run. Then one function after the other raises, in the main
or in the wire process, once or for 15 seconds. Clients ask for every EIP by ARP and NDP. No fault may silence one for
longer than a failover, and each is told of. A line a fault; at the end those that broke a promise.

    chaos.py --fault "wire speaker.layer2.answer:answer_arp CancelledError once STEADY"     # one of those again
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from chaos_lab import ChaosLab
from chaos_plan import Fault, drawn, read

from speaker.lab.namespaces import leave_host_network


async def played(lab: ChaosLab, faults: Iterator[Fault], count: int) -> list[str]:
    """Strikes until ``count`` have raised; the sentences of those that broke a promise."""
    broken: list[str] = []
    for fault in faults:
        struck = await lab.strikes(fault)
        if struck.raised:
            sentences = [*lab.broken(struck)]
            print("BROKEN" if sentences else "ok    ", struck, flush=True)  # noqa: T201
            broken += [f"{fault}: {'; '.join(sentences)}"] if sentences else []
            count -= 1
        if not count:
            break
    return broken


async def chaos(lab: ChaosLab, options: argparse.Namespace) -> list[str]:
    if options.fault:
        return await played(lab, map(read, options.fault), len(options.fault))
    ran = await lab.record()
    print(", ".join(f"{len(places)} functions in {process}" for process, places in ran.items()), flush=True)  # noqa: T201
    return await played(lab, drawn(ran, options.seed), options.count)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=300)
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments.add_argument("--seconds", type=float, default=15.0, help="for which a fault lasts that does")
    arguments.add_argument("--hello", type=int, default=100, help="milliseconds between two hellos")
    arguments.add_argument("--fault", action="append", help="play this and no other")
    arguments.add_argument("--responder", choices=("auto", "socket"), default="socket")
    options = arguments.parse_args()
    leave_host_network()
    print(f"seed {options.seed}", flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        lab = ChaosLab(Path(name), options.seconds, options.hello)
        lab.responder = options.responder
        with lab:
            broken = asyncio.run(chaos(lab, options))
    print(*broken, f"{len(broken)} broke a promise" if broken else "no promise is broken", sep="\n")  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
