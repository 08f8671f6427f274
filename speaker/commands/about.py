"""``speaker help``, ``speaker version`` and ``speaker completion``: the command line about itself."""

import argparse
from pathlib import Path

from speaker import __version__
from speaker.api.fields import did_you_mean
from speaker.commands.parser import subparsers
from speaker.errors import SettingError
from speaker.tools.flags import Commands
from speaker.tools.table import printable

SHELLS = ("bash", "zsh", "fish")

EXIT_CODES = """\
exit codes:
  0    everything is done, and right
  1    it did not work, or the output could not be written
  2    the command line cannot work
  130  Ctrl-C
  141  the reader of a pipe has ended (`speaker … | head`)

Colours appear on a terminal only, and not if NO_COLOR is set. `speaker help COMMAND` explains a command."""


def add(commands: Commands) -> None:
    helped = commands.add_parser("help", help="explain the speaker, or one of its commands")
    helped.add_argument("topic", metavar="COMMAND", nargs="?", help="(default: list all commands)")
    helped.set_defaults(command=_help)
    commands.add_parser("version", help="print the version").set_defaults(command=_version)
    completion = commands.add_parser(
        "completion",
        help="print a script for completion in a shell",
        description='bash: eval "$(speaker completion bash)" in ~/.bashrc. '
        "zsh: speaker completion zsh > DIR/_speaker, with a DIR of $fpath. "
        "fish: speaker completion fish > ~/.config/fish/completions/speaker.fish",
    )
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    completion.set_defaults(command=_completion)


def _help(args: argparse.Namespace) -> int:
    known = subparsers(args.parser)
    if args.topic is None:
        args.parser.print_help()
    elif args.topic in known:
        known[args.topic].print_help()
    else:
        raise SettingError(f"help: {printable(args.topic)}: no such command: {did_you_mean(args.topic, known)}")
    return 0


def _version(_: argparse.Namespace) -> int:
    print(f"speaker {__version__}")  # noqa: T201
    return 0


def _completion(args: argparse.Namespace) -> int:
    import shtab

    for parser in subparsers(args.parser).values():
        for action in parser._actions:
            if action.type is Path:
                action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(args.parser, args.shell))  # noqa: T201
    return 0
