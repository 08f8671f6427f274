"""The commands and their exit codes.

0: done, everything right. 1: it did not work out (a mistake in the manifests, an EIP out of reach). 2: the command
line cannot work. ``speaker run`` is the product; follow ``_run`` into ``run.py``.
"""

import argparse
import asyncio
import os
import socket
import sys
from pathlib import Path

from speaker import __version__
from speaker.errors import EdgeError, SettingError
from speaker.model import Forwarding
from speaker.settings import DEFAULT_METRICS, DEFAULT_RUNTIME_DIR, DEFAULT_STATE, Bind, Node, RunSettings


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        code: int = args.command(args)
    except SettingError as error:
        print(f"speaker: {error}", file=sys.stderr)  # noqa: T201 -- a command's word to its user
        return 2
    except EdgeError as error:
        print(f"speaker: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except BrokenPipeError:  # `speaker … | head`: nobody reads on, also not what Python would flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="speaker", description="A layer-2 load balancer for bare-metal Kubernetes.")
    parser.add_argument("--version", action="version", version=f"speaker {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="serve the EIPs that the YAML files in DIR ask for, without Kubernetes")
    run.add_argument("directory", metavar="DIR", type=Path)
    run.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        default=DEFAULT_STATE,
        help="which Service has which EIP; must survive a reboot (default %(default)s)",
    )
    run.add_argument(
        "--node",
        metavar="NAME",
        default=_own_name(),
        help="this host's name in EndpointSlices and selectors (default %(default)s)",
    )
    run.add_argument("--node-labels", metavar="K=V,…", default="", help="labels that the pools' nodeSelector sees")
    run.add_argument(
        "--metrics",
        metavar="ADDRESS:PORT",
        default=DEFAULT_METRICS,
        help="/metrics and /healthz, or 'off' (default %(default)s)",
    )
    run.add_argument("--dry-run", action="store_true", help="print what would be done here, and change nothing")
    _kernel_flags(run)
    _log_flag(run)
    run.set_defaults(command=_run)

    validate = commands.add_parser("validate", help="check the YAML files in DIR; exit 1 when something is wrong")
    validate.add_argument("directory", metavar="DIR", type=Path)
    validate.add_argument("--json", action="store_true", help="one JSON object on stdout")
    validate.set_defaults(command=_validate)

    cleanup = commands.add_parser("cleanup", help="remove everything the speaker made in this kernel, and nothing else")
    _kernel_flags(cleanup)
    cleanup.set_defaults(command=_cleanup)

    from speaker.lab import command as lab

    lab_parser = commands.add_parser("lab", help="a LAN in network namespaces with the real speaker in it")
    lab.add_arguments(lab_parser)
    lab_parser.set_defaults(command=lab.main)
    return parser


def _kernel_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime-dir",
        metavar="DIR",
        type=Path,
        default=DEFAULT_RUNTIME_DIR,
        help="facts a reboot makes void; on a tmpfs (default %(default)s)",
    )
    parser.add_argument(
        "--forwarder",
        choices=[kind.value for kind in Forwarding],
        default=Forwarding.AUTO.value,
        help="who carries the traffic (default %(default)s: ipvs where the kernel has it, else nftables)",
    )


def _log_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-format", choices=["text", "json"], default="text")


def _own_name() -> str:
    return socket.gethostname().lower()


def _run(args: argparse.Namespace) -> int:
    settings = RunSettings(
        directory=args.directory,
        node=Node.parse(args.node, args.node_labels),
        state=args.state,
        runtime_dir=args.runtime_dir,
        forwarder=Forwarding(args.forwarder),
        metrics=Bind.parse(args.metrics),
        log_format=args.log_format,
    )
    if args.dry_run:
        from speaker.tools.preview import preview

        return asyncio.run(preview(settings, sys.stdout))
    from speaker.run import run

    asyncio.run(run(settings))
    return 0


def _validate(args: argparse.Namespace) -> int:
    from speaker.tools.validate import validate

    return validate(args.directory, sys.stdout, args.json)


def _cleanup(args: argparse.Namespace) -> int:
    from speaker.forwarding.forwarder import cleanup

    for line in asyncio.run(cleanup(Forwarding(args.forwarder), args.runtime_dir)):
        print(line)  # noqa: T201
    return 0
