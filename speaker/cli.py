"""The commands and their exit codes.

0: done, everything right. 1: it did not work out (a mistake in the manifests, an EIP out of reach), or what there was
to say could not be written. 2: the command line cannot work. 130: Ctrl-C. ``speaker run`` is the product; follow it
into ``commands/serve.py``.
"""

import argparse
import sys

from speaker import __version__
from speaker.commands import capture, files, host, serve
from speaker.errors import EdgeError, SettingError
from speaker.lab import command as lab
from speaker.system import streams

COMMANDS = (serve.add, files.add, host.add, capture.add, lab.add)
"""Each adds a few commands, with what carries them out; `speaker help` lists them in this order."""

INTERRUPTED = 130
"""128 + SIGINT, what a shell shows for a program that was interrupted."""


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
    args = _parser().parse_args(argv, argparse.Namespace(argv=argv))
    try:
        code: int = args.command(args)
    except SettingError as error:
        return _complain(error, 2)
    except EdgeError as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _complain(error: object, code: int) -> int:
    print(f"speaker: {error}", file=sys.stderr)  # noqa: T201 -- a command's word to its user
    return code


def _unheard(refusal: OSError) -> int:
    """Nobody reads stdout, as with `speaker … | head`, or it takes no more."""
    streams.give_up()
    if not isinstance(refusal, BrokenPipeError):
        _complain(f"cannot write to stdout: {refusal.strerror}", 1)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="speaker", description="A layer-2 load balancer for bare-metal Kubernetes.")
    parser.add_argument("--version", action="version", version=f"speaker {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    return parser
