"""How many established TCP connections survive when their EIP moves to another node, with each forwarder and scheduler.

    python benchmarks/moves.py [--quick] [--only ipvs|nftables] [--schedulers rr,mh]

Two nodes forward an EIP to the same three backends (tests/connections/moves.py), 200 connections of twenty client
addresses go through the first. nftables here, in network namespaces; IPVS in a User-Mode Linux guest.

planned: the old node goes on forwarding what still reaches it. crash: its links are cut; either it is the client that
speaks next, or the backend, whose answer the crash has swallowed. What does not survive was reset, which a client is
told at once, or is silent: it waits. Counts, not times: other work on the machine does not change them.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "connections"))

from moves import Mode, Move, Seen, survivors  # noqa: E402

from speaker.lab.namespaces import leave_host_network  # noqa: E402
from speaker.model import Forwarding  # noqa: E402

LOOSE, LIBERAL = "net.netfilter.nf_conntrack_tcp_loose", "net.netfilter.nf_conntrack_tcp_be_liberal"
SLOPPY = "net.ipv4.vs.sloppy_tcp"
PATIENCE = 10.0
"""Seconds after which a connection is called silent: TCP has tried again five times."""


def modes(kind: Forwarding, schedulers: Sequence[str]) -> Iterator[Mode]:
    for scheduler in schedulers:
        for seen in Seen:
            yield Mode(kind, scheduler, seen)
            if seen is not Seen.CLIENT:
                yield Mode(kind, scheduler, seen, hands_over=True)
            if kind is Forwarding.IPVS and seen is not Seen.LOCAL:
                yield Mode(kind, scheduler, seen, {SLOPPY: 1})
            if kind is Forwarding.NFTABLES and scheduler == "mh":
                yield Mode(kind, scheduler, seen, {LOOSE: 0})
                yield Mode(kind, scheduler, seen, {LIBERAL: 1})


def show(all_modes: Iterable[Mode], connections: int) -> None:
    for mode in all_modes:
        settings = " ".join(f"{name.rsplit('.', 1)[1]}={value}" for name, value in mode.settings.items())
        settings += "handed over" * mode.hands_over
        print(f"{mode.forwarding.value:<8} {mode.scheduler:<8} backends see {mode.seen.value}  {settings}")
        for kind in [Move.PLANNED] if mode.hands_over else Move:  # there is nobody to hand over to after a crash
            counts = survivors(mode, kind, connections, PATIENCE)
            rest = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "alive")
            print(f"    {kind.value:<32} {counts.get('alive', 0):4} of {connections} survive  {rest}", flush=True)


def in_guest(arguments: Sequence[str]) -> int:
    if subprocess.run([ROOT / "tests/ipvs/guest"], check=False).returncode != 0:
        print("skipped: needs a guest (tests/ipvs)")
        return 0
    with tempfile.TemporaryDirectory(prefix="eip-speaker-guest-") as name:
        command = Path(name, "command")
        line = shlex.join([sys.executable, str(Path(__file__).resolve()), "--inside", *arguments])
        command.write_text(f"#!/bin/sh\ncd {shlex.quote(str(ROOT))}\nexport PYTHONPATH=.\n{line}\n")
        command.chmod(0o755)
        guest = subprocess.Popen([ROOT / "tests/ipvs/guest", name], start_new_session=True)
        try:
            guest.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(guest.pid, signal.SIGKILL)  # a guest is many processes: they go together
        status = Path(name, "exit")
        return int(status.read_text()) if status.exists() else os.EX_SOFTWARE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 connections, two schedulers")
    parser.add_argument("--only", choices=["ipvs", "nftables"])
    parser.add_argument("--schedulers", help="separated by commas")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    connections = 20 if options.quick else 200
    schedulers = (options.schedulers or ("rr,mh" if options.quick else "rr,sh,mh,mh-port")).split(",")
    if options.inside:
        show(modes(Forwarding.IPVS, schedulers), connections)
        return 0
    if options.only != "ipvs":
        leave_host_network()
        show(modes(Forwarding.NFTABLES, [each for each in schedulers if each != "sh"]), connections)  # sh is mh there
    return 0 if options.only == "nftables" else in_guest(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
