"""``speaker plan`` and ``speaker convert``: what is to come, on any host."""

import argparse
from pathlib import Path

from speaker.settings import DEFAULT_STATE
from speaker.tools import flags
from speaker.tools.flags import Commands


def add(commands: Commands) -> None:
    _add_plan(commands)
    _add_convert(commands)


def _add_convert(commands: Commands) -> None:
    parser = commands.add_parser("convert", help="translate another load balancer's pools and Services")
    parser.description = (
        "Reads manifests of OpenELB, MetalLB, kube-vip, PureLB and Cilium, writes ours, and lists what has no "
        "equivalent. Exits with 1 if something needs your decision, and with 2 if the input cannot be read."
    )
    parser.add_argument(
        "sources", metavar="PATH", nargs="*", default=["-"], help="files, directories, or - for stdin (default: -)"
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="write pools.yaml and services.yaml there")
    parser.add_argument("--adopt", action="store_true", help="every Service asks for the address that it has now")
    parser.add_argument(
        "--default-class",
        action="store_true",
        help="leave Services without a class as they are; use it if controllers and agents have this flag",
    )
    parser.add_argument(
        "--from",
        dest="peer",
        metavar="PEER",
        default="",
        help="whose the Services are, if they do not say so: openelb, metallb, kube-vip, purelb or cilium",
    )
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="NAME",
        action="append",
        default=[],
        help="also convert Services of this loadBalancerClass; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, including the report")
    parser.set_defaults(command=_convert, working="reading what is to be converted")


def _add_plan(commands: Commands) -> None:
    parser = commands.add_parser("plan", help="show what other manifests would change")
    parser.description = (
        "Compares two directories of manifests, or with --cluster a live cluster with the same cluster after one "
        "directory is applied to it, and shows what each Service would gain or lose. Exits with 0 if nothing changes, "
        "with 1 if something does, and with 2 if manifests, state or cluster cannot be read."
    )
    parser.add_argument("now", metavar="NOW", nargs="?", type=Path, help="the current manifests")
    parser.add_argument("then", metavar="THEN", nargs="?", type=Path, help="the manifests that would replace them")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="compare with a live cluster, to which the one directory (or none) would be applied",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="with --cluster (default: as kubectl finds it, or the pod's)"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="in the kubeconfig (default: the current one)")
    parser.add_argument(
        "--default-class", action="store_true", help="with --cluster: set it if controllers and agents have this flag"
    )
    flags.honour(parser, "as for the speaker or the controllers: ")
    parser.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        default=DEFAULT_STATE,
        help="the state file of `speaker run`; it may be missing (default %(default)s)",
    )
    parser.add_argument(
        "--drain", metavar="NODE", action="append", default=[], help="assume this node's pods are gone; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(command=_plan, working="working out what would change")


def _plan(args: argparse.Namespace) -> int:
    if args.cluster:
        from speaker.tools.planning.cluster import command as of_cluster

        return of_cluster(args)
    from speaker.tools.planning.plan import command

    return command(args)


def _convert(args: argparse.Namespace) -> int:
    from speaker.tools.convert import command

    return command(args)
