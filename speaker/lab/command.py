"""``speaker lab``: its flags, and its exit codes.

The rest is imported when a lab is played: every ``speaker`` command asks this module for its flags.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import fields, replace

from speaker.errors import EdgeError, SettingError
from speaker.lab import request as asked
from speaker.lab.timeline import Timeline
from speaker.settings import DEFAULT_HELLO_MS
from speaker.system.streams import wants_colour
from speaker.tools.flags import Commands

#: As everywhere in ``speaker.cli``.
INTERRUPTED = 130


def add(commands: Commands) -> None:
    parser = commands.add_parser("lab", help="a LAN in network namespaces with the real speaker in it")
    parser.set_defaults(command=main)
    parser.flag("--scenario", "what to play (default: reach)", choices=asked.SCENARIOS)
    fault = "break the LAN in one way, let `speaker explain` or `doctor` name it, and repair it; `all`: each in turn"
    parser.word("--fault", "NAME,…", fault, None)
    shared = f"how many speakers share the EIPs (default {asked.NODES}, minority 4; reach has one)"
    parser.number("--nodes", "N", shared)
    eips = f"how many EIPs they share (default {asked.EIPS}, with sick links {asked.SICK_EIPS})"
    parser.number("--eips", "K", eips)
    hello = f"milliseconds between two hellos of a speaker (default {DEFAULT_HELLO_MS})"
    parser.word("--hello", "MS", hello, None)
    responder = "what answers ARP and NDP of speakers that share EIPs (default: socket)"
    parser.flag("--responder", responder, choices=("auto", "socket"))
    parser.switch("--json", "print one JSON object instead of the story")
    parser.switch("--keep", "leave the LAN up until Ctrl-C, and say how to use it")
    parser.group(
        "sick links",
        f"{', '.join(asked.SICK_LINKS)}: the switch spoils frames, or nodes stand still; clients ask for every EIP "
        "by ARP and NDP, and what they saw is compared with what is promised",
    )
    lasts = "how long the trouble lasts; for flap, each time (default 10; blip and flap 1, stp 2)"
    parser.number("--seconds", "S", lasts, float)
    after = f"how long to watch afterwards; flap goes on meanwhile (default {asked.AFTER:.0f})"
    parser.number("--after", "S", after, float, asked.AFTER)
    parser.switch("--carrier", "flap: pull the cable, so that the carrier goes too")
    parser.switch("--second-link", "send hellos over a second, healthy link too")
    parser.number("--loss", "PERCENT", "lose this share of all frames, all the time (default 0)", default=0)
    parser.number("--delay", "MS", "delay all frames, all the time (default 0)", default=0)
    hold = f"burst: time between two deliveries (default {asked.HOLD_MS}, with --only {asked.NODES_HOLD_MS})"
    parser.number("--hold", "MS", hold)
    only = "burst: hold only what nodes send each other"
    parser.flag("--only", only, choices=[asked.NODES_ONLY], default="")
    stop = f"stutter: how long a node stands still at a time (default {asked.STOP_MS})"
    parser.number("--stop", "MS", stop)
    parser.switch("--unicast", "mute: lose everything that the node sends to one host")


def _practice(args: argparse.Namespace, trouble: asked.Trouble) -> asked.Request:
    from speaker.lab.practise import names

    for flag in ("scenario", "nodes", "eips", "hello", "responder"):
        if (value := getattr(args, flag)) is not None:
            raise SettingError(f"--{flag} {value}: not together with --fault, whose LAN is always the same")
    fault: str = args.fault
    if not {*fault.split(",")} <= {*names()}:
        raise SettingError(f"--fault {fault[:80]!r}: must be some of {', '.join(names())}")
    return asked.practice(fault, trouble)


def main(args: argparse.Namespace) -> int:
    """Play ``args.scenario``; 0 only when it kept its promise, 1 when not, 130 when interrupted.

    Raises SettingError for flags that cannot be.
    """
    from speaker.lab.play import play

    trouble = asked.Trouble(**{flag.name: getattr(args, flag.name) for flag in fields(asked.Trouble)})
    if args.fault is None:
        request = asked.parse(args.scenario or "reach", args.nodes, args.eips, args.hello, trouble)
        request = replace(request, responder=args.responder or request.responder)
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
