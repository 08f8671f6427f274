"""Those that ask the speaker of this host, or its kernel: ``speaker status``, ``drain``, ``connections`` and others."""

import argparse
import asyncio
import sys
from ipaddress import ip_address

from speaker.errors import SettingError
from speaker.model import Forwarding
from speaker.tools import flags
from speaker.tools.flags import Commands


def add(commands: Commands) -> None:
    _add_cleanup(commands)
    _add_control(commands)
    _add_connections(commands)


def _add_cleanup(commands: Commands) -> None:
    cleanup = commands.add_parser(
        "cleanup",
        help="remove everything that the speaker made in this kernel, and nothing else",
        description="Needs CAP_NET_ADMIN. Refuses while a speaker that forwards runs with this --runtime-dir. Exits "
        "with 1 and an explanation if something is left, or may be left.",
    )
    flags.kernel(cleanup, "which forwarder's entries to remove (default %(default)s: all)")
    cleanup.set_defaults(command=_cleanup, working="removing what the speaker made in this kernel")


def _add_control(commands: Commands) -> None:
    status = commands.add_parser(
        "status",
        help="show who answers for which EIP, as this host's speaker (or with --cluster every agent) sees it",
    )
    status.add_argument(
        "eip", metavar="EIP", nargs="?", default="", help="all that is known of this one (default: all)"
    )
    status.add_argument("--summary", action="store_true", help="count the EIPs instead of listing them")
    status.add_argument("--json", action="store_true", help="one JSON object on stdout")
    status.add_argument("--watch", action="store_true", help="print it again whenever it changes, until Ctrl-C")
    flags.cluster(status)
    drain = commands.add_parser("drain", help="hand every EIP of this host to its peers, and take none until `undrain`")
    drain.add_argument(
        "--timeout", metavar="S", type=float, default=30.0, help="seconds to wait for the peers (default %(default)g)"
    )
    undrain = commands.add_parser("undrain", help="end a drain: this host takes EIPs again")
    rebalance = commands.add_parser("rebalance", help="spread the EIPs evenly over the hosts, with the fewest moves")
    for parser, command in ((status, _status), (drain, _drain), (undrain, _undrain), (rebalance, _rebalance)):
        flags.runtime(parser)
        parser.set_defaults(command=command, working="waiting for the speaker on this host")


def _add_connections(commands: Commands) -> None:
    connections = commands.add_parser(
        "connections",
        help="show who is connected through which EIP to which real server, from this host's kernel",
    )
    connections.add_argument("eip", metavar="EIP", nargs="?", default="", help="(default: all)")
    connections.add_argument(
        "--limit", metavar="N", default="100", help="connections to print; totals count all (default %(default)s)"
    )
    connections.add_argument("--json", action="store_true", help="one JSON object on stdout")
    flags.runtime(connections)
    connections.set_defaults(command=_connections, working="reading the kernel's connections")


def _status(args: argparse.Namespace) -> int:
    from speaker.tools.status import status

    try:
        eip = str(ip_address(args.eip)) if args.eip else ""
    except ValueError as error:
        raise SettingError(f"{args.eip[:80]!r}: must be an EIP") from error
    cluster = flags.asked_cluster(args)
    return status(args.runtime_dir, cluster, sys.stdout, args.json, args.watch, eip, args.summary)


def _drain(args: argparse.Namespace) -> int:
    from speaker.tools.ask import drain

    if not 0 < args.timeout < 86400:
        raise SettingError(f"--timeout {args.timeout:g}: must be seconds above 0 and below a day")
    return drain(args.runtime_dir, sys.stdout, args.timeout)


def _undrain(args: argparse.Namespace) -> int:
    from speaker.tools.ask import undrain

    return undrain(args.runtime_dir, sys.stdout)


def _rebalance(args: argparse.Namespace) -> int:
    from speaker.tools.ask import rebalance

    return rebalance(args.runtime_dir, sys.stdout)


def _connections(args: argparse.Namespace) -> int:
    from speaker.tools.connections import connections

    return connections(args.runtime_dir, sys.stdout, args.eip, args.limit, args.json)


def _cleanup(args: argparse.Namespace) -> int:
    from speaker.tools.cleanup import cleanup

    return asyncio.run(cleanup(Forwarding(args.forwarder), args.runtime_dir, sys.stdout))
