"""``speaker lab``: its flags, and its exit codes.

The rest is imported when a lab is played: every ``speaker`` command asks this module for its flags.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import fields

from speaker.errors import EdgeError, SettingError
from speaker.lab.request import (
    AFTER,
    EIPS,
    HOLD_MS,
    NODES,
    NODES_HOLD_MS,
    NODES_ONLY,
    SCENARIOS,
    SICK_EIPS,
    SICK_LINKS,
    STOP_MS,
    Request,
    Trouble,
    parse,
    practice,
)
from speaker.lab.timeline import Timeline
from speaker.settings import DEFAULT_HELLO_MS
from speaker.system.streams import wants_colour
from speaker.tools.flags import Commands

#: As everywhere in ``speaker.cli``.
INTERRUPTED = 130


def add(commands: Commands) -> None:
    parser = commands.add_parser("lab", help="a LAN in network namespaces with the real speaker in it")
    parser.set_defaults(command=main)
    parser.add_argument("--scenario", choices=SCENARIOS, help="what to play (default: reach)")
    parser.add_argument(
        "--fault",
        metavar="NAME,…",
        help="break the LAN in one way, let `speaker explain` or `doctor` name it, and repair it; `all`: each in turn",
    )
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=int,
        help=f"how many speakers share the EIPs (default {NODES}, minority 4; reach has one)",
    )
    parser.add_argument(
        "--eips", metavar="K", type=int, help=f"how many EIPs they share (default {EIPS}, with sick links {SICK_EIPS})"
    )
    parser.add_argument(
        "--hello", metavar="MS", help=f"milliseconds between two hellos of a speaker (default {DEFAULT_HELLO_MS})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the story")
    parser.add_argument("--keep", action="store_true", help="leave the LAN up until Ctrl-C, and say how to use it")

    sick = parser.add_argument_group(
        "sick links",
        f"{', '.join(SICK_LINKS)}: the switch spoils frames, or nodes stand still; clients ask for every EIP "
        "by ARP and NDP, and what they saw is compared with what is promised",
    )
    sick.add_argument(
        "--seconds",
        metavar="S",
        type=float,
        help="how long the trouble lasts; for flap, each time (default 10; blip and flap 1, stp 2)",
    )
    sick.add_argument(
        "--after",
        metavar="S",
        type=float,
        default=AFTER,
        help=f"how long to watch afterwards; flap goes on meanwhile (default {AFTER:.0f})",
    )
    sick.add_argument("--carrier", action="store_true", help="flap: pull the cable, so that the carrier goes too")
    sick.add_argument("--second-link", action="store_true", help="send hellos over a second, healthy link too")
    sick.add_argument(
        "--loss", metavar="PERCENT", type=int, default=0, help="lose this share of all frames, all the time (default 0)"
    )
    sick.add_argument("--delay", metavar="MS", type=int, default=0, help="delay all frames, all the time (default 0)")
    sick.add_argument(
        "--hold",
        metavar="MS",
        type=int,
        help=f"burst: time between two deliveries (default {HOLD_MS}, with --only {NODES_HOLD_MS})",
    )
    sick.add_argument("--only", choices=[NODES_ONLY], default="", help="burst: hold only what nodes send each other")
    sick.add_argument(
        "--stop", metavar="MS", type=int, help=f"stutter: how long a node stands still at a time (default {STOP_MS})"
    )
    sick.add_argument("--unicast", action="store_true", help="mute: lose everything that the node sends to one host")


def _practice(args: argparse.Namespace, trouble: Trouble) -> Request:
    from speaker.lab.practice.practise import names

    for flag in ("scenario", "nodes", "eips", "hello"):
        if (value := getattr(args, flag)) is not None:
            raise SettingError(f"--{flag} {value}: not together with --fault, whose LAN is always the same")
    fault: str = args.fault
    if not {*fault.split(",")} <= {*names()}:
        raise SettingError(f"--fault {fault[:80]!r}: must be some of {', '.join(names())}")
    return practice(fault, trouble)


def main(args: argparse.Namespace) -> int:
    """Play ``args.scenario``; 0 only when it kept its promise, 1 when not, 130 when interrupted.

    Raises SettingError for flags that cannot be.
    """
    from speaker.lab.play import play

    trouble = Trouble(**{flag.name: getattr(args, flag.name) for flag in fields(Trouble)})
    if args.fault is None:
        request = parse(args.scenario or "reach", args.nodes, args.eips, args.hello, trouble)
    else:
        request = _practice(args, trouble)
    timeline = Timeline(None if args.json else sys.stdout, wants_colour(sys.stdout))
    try:
        outcome = play(request, timeline, args.keep)
    except EdgeError as error:
        print(f"speaker lab: {error}", file=sys.stderr)  # noqa: T201 -- a command's word to its user
        ok, result = False, {"ok": False, "eips": [], "problems": [str(error)]}
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    else:
        ok, result = outcome.ok, outcome.as_json()
    if args.json:
        print(json.dumps(result))  # noqa: T201
    return 0 if ok else 1
