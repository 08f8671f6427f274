"""The commands and their exit codes.

0: everything is done and right. 1: it did not work (a mistake in the manifests, an EIP out of reach), or the output
could not be written. 2: the command line cannot work. 130: Ctrl-C. 141: nobody reads stdout any longer.

``speaker run`` and ``speaker agent`` are the product. Each is two processes on a node, and both begin in
``commands/serve.py``. To read on:

- The wire process agrees with its peers which node holds an EIP, and answers ARP and NDP: ``wire/process.py``.
- The main process reads what is wanted and has the kernel forward it, with IPVS or nftables: ``node/host.py``.
"""

import argparse
import sys
from contextlib import nullcontext

from speaker import __version__
from speaker.commands import serve, tools
from speaker.errors import EdgeError, SettingError
from speaker.lab import command as lab
from speaker.system import streams
from speaker.tools import explain
from speaker.tools.flags import Parser, parse, subparsers
from speaker.tools.terminal import printable, progress

COMMANDS = (
    *(serve.add, tools.add_validate, tools.add_keygen, tools.add_control_plane, tools.add_plan, tools.add_convert),
    *(tools.add_cleanup, tools.add_control, tools.add_connections, explain.add_commands, tools.add_capture),
    *(lab.add, tools.add_about),
)
"""Each adds some commands, and the function that carries them out. `speaker help` lists them in this order."""

INTERRUPTED, UNHEARD = 130, 141
"""128 + SIGINT and 128 + SIGPIPE, which is what a shell shows for programs ended by these signals."""


def main(argv: list[str] | None = None) -> int:
    streams.stand_ready()
    try:
        code = _obey(sys.argv[1:] if argv is None else argv)
    except (OSError, ExceptionGroup, SystemExit):  # SystemExit: -h and --version
        if (refusal := streams.refusal()) is None:
            raise
        return _unheard(refusal)
    return code if (refusal := streams.refusal()) is None else _unheard(refusal)


def _obey(argv: list[str]) -> int:
    try:
        args = parse(_parser(), argv)
        # Somebody who watches is shown the last state.
        working = None if getattr(args, "watch", False) else getattr(args, "working", None)
        with progress(working) if working else nullcontext():
            code: int = args.command(args)
    except SettingError as error:
        return _complain(error, 2)
    except EdgeError as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _complain(error: object, code: int) -> int:
    # A path or a peer's name in it must not control the terminal.
    print(*map(printable, f"speaker: {error}".split("\n")), sep="\n", file=sys.stderr)  # noqa: T201 -- to its user
    return code


def _unheard(refusal: OSError) -> int:
    """Nobody reads stdout, as with `speaker … | head`, or it is full."""
    streams.give_up()
    if isinstance(refusal, BrokenPipeError):
        return UNHEARD
    return _complain(f"cannot write to stdout: {refusal.strerror}", 1)


def _parser() -> Parser:
    parser = Parser(
        prog="speaker",
        description="A layer-2 load balancer for bare-metal Kubernetes.",
        epilog=tools.EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"speaker {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    for command in subparsers(parser).values():
        command.set_defaults(spoken_to=command)
    return parser
