"""``speaker plan`` and ``speaker convert``: what is to come, on any host."""

import argparse
from pathlib import Path

from speaker.settings import DEFAULT_STATE
from speaker.tools.flags import Commands


def add(commands: Commands) -> None:
    _add_plan(commands)
    _add_convert(commands)


def _add_convert(commands: Commands) -> None:
    parser = commands.add_parser("convert", help="make ours of another balancer's pools and Services")
    parser.description = (
        "Reads manifests of OpenELB, MetalLB, kube-vip, PureLB and Cilium, writes ours, and lists what has no equal. "
        "Ends with 1 where something of them needs a decision, and with 2 where the input cannot be read."
    )
    parser.add_argument(
        "sources", metavar="PATH", nargs="*", default=["-"], help="files, directories, or - for stdin (default: -)"
    )
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="write pools.yaml and services.yaml there")
    parser.add_argument("--adopt", action="store_true", help="every Service asks for the address that it has now")
    parser.add_argument(
        "--default-class",
        action="store_true",
        help="Services without a class stay so, as for controllers and agents with this flag",
    )
    parser.add_argument(
        "--from",
        dest="peer",
        metavar="PEER",
        default="",
        help="whose the Services are, if none says it: openelb, metallb, kube-vip, purelb or cilium",
    )
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="NAME",
        action="append",
        default=[],
        help="convert this loadBalancerClass, too; several times",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, with the report in it")
    parser.set_defaults(command=_convert, working="reading what is to be converted")


def _add_plan(commands: Commands) -> None:
    parser = commands.add_parser("plan", help="what would change if other manifests were in force")
    parser.description = (
        "Settles both directories one after the other, as a speaker that remembers --state would; or with --cluster "
        "what a cluster has, and the same with one directory applied to it. Ends with 0 where nothing changes, with 1 "
        "where something does, and with 2 where manifests, state or cluster cannot be read."
    )
    parser.add_argument("now", metavar="NOW", nargs="?", type=Path, help="the manifests that are in force")
    parser.add_argument("then", metavar="THEN", nargs="?", type=Path, help="those that would take their place")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="a live cluster is in force, and the only directory (none: no change but --drain) would be applied to it",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="with --cluster (default: as kubectl finds it, or the pod's)"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--default-class", action="store_true", help="with --cluster: its controllers and agents have this flag"
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        default=DEFAULT_STATE,
        help="what the speaker remembers, as in `speaker run` (default %(default)s; no such file: nothing)",
    )
    parser.add_argument(
        "--drain", metavar="NODE", action="append", default=[], help="and the pods of this node are gone; several times"
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
