"""``speaker lab``: its flags, and its exit codes.

The rest is imported when a lab is played: every ``speaker`` command asks this module for its flags.
"""

import argparse
import asyncio
import json
import sys

from speaker.errors import EdgeError
from speaker.lab.request import EIPS, NODES, SCENARIOS, parse
from speaker.lab.timeline import Timeline, wants_colour
from speaker.settings import DEFAULT_HELLO_MS

#: As everywhere in ``speaker.cli``.
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of ``speaker lab``."""
    parser.add_argument("--scenario", choices=SCENARIOS, default="reach", help="what to play (default: reach)")
    parser.add_argument(
        "--nodes", metavar="N", type=int, help=f"how many speakers share the EIPs (default {NODES}; reach has one)"
    )
    parser.add_argument("--eips", metavar="K", type=int, help=f"how many EIPs they share (default {EIPS})")
    parser.add_argument(
        "--hello", metavar="MS", help=f"milliseconds between two hellos of a speaker (default {DEFAULT_HELLO_MS})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the story")
    parser.add_argument("--keep", action="store_true", help="leave the LAN up until Ctrl-C, and say how to get in")


def main(args: argparse.Namespace) -> int:
    """Play ``args.scenario``; 0 only when it kept its promise, 1 when not, 130 when interrupted.

    Raises SettingError for flags that cannot be.
    """
    from speaker.lab.play import play

    request = parse(args.scenario, args.nodes, args.eips, args.hello)
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
