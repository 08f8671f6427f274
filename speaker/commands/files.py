"""``speaker validate`` and ``speaker keygen``: those that work on files, on any host."""

import argparse
import sys
from pathlib import Path

from speaker.settings import DEFAULT_KEY, parse_balancers
from speaker.tools import flags
from speaker.tools.flags import Commands


def add(commands: Commands) -> None:
    _add_validate(commands)
    _add_keygen(commands)


def _add_validate(commands: Commands) -> None:
    validate = commands.add_parser("validate", help="check the YAML files in DIR; exits with 1 if something is wrong")
    validate.add_argument("directory", metavar="DIR", type=Path, help=flags.DIRECTORY)
    validate.add_argument(
        "--with-peers",
        action="store_true",
        help="also check that every Service names its addresses, as `speaker run --with-peers` needs",
    )
    flags.honour(validate, "as for the speaker: ")
    validate.add_argument("--json", action="store_true", help="one JSON object on stdout")
    validate.set_defaults(command=_validate, working="reading the manifests")


def _add_keygen(commands: Commands) -> None:
    keygen = commands.add_parser(
        "keygen",
        help="make the key that hosts share, or replace it",
        description="Writes a new key file, mode 0600; an existing one is never overwritten. To replace the key on "
        "running hosts: --add, copy the file to every host, --promote, copy, --retire, copy. A running "
        "speaker reads its key file again when it changes, and hosts one step apart accept each other.",
    )
    keygen.add_argument("file", metavar="FILE", type=Path, nargs="?", default=DEFAULT_KEY, help="(default %(default)s)")
    steps = keygen.add_mutually_exclusive_group()
    steps.add_argument("--add", action="store_true", help="add a second key, which is accepted but does not sign yet")
    steps.add_argument("--promote", action="store_true", help="swap the keys: the second one signs from now on")
    steps.add_argument("--retire", action="store_true", help="remove the second key")
    keygen.set_defaults(command=_keygen)


def _validate(args: argparse.Namespace) -> int:
    from speaker.tools.validate import addresses_here, validate

    honoured = parse_balancers(args.honour_annotations)
    return validate(args.directory, sys.stdout, args.json, args.with_peers, addresses_here, honoured)


def _keygen(args: argparse.Namespace) -> int:
    from speaker.tools.keygen import Step, keygen

    step = next((step for step in Step if getattr(args, step.value, False)), Step.MAKE)
    for line in keygen(args.file, step):
        print(line)  # noqa: T201
    return 0
