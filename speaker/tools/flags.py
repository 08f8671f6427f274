"""Flags that several commands have: one function each, which adds them to a command's parser."""

import argparse
import socket
from pathlib import Path
from typing import Any, TypeAlias, get_args

from speaker.model import Forwarding
from speaker.settings import (
    DEFAULT_ETHERTYPE,
    DEFAULT_HELLO_MS,
    DEFAULT_KEY,
    DEFAULT_METRICS,
    DEFAULT_OUTLIVE,
    DEFAULT_RUNTIME_DIR,
    DEFAULT_SERVICE_ACCOUNT,
    LogFormat,
    LogLevel,
    whole_number,
)

Commands: TypeAlias = "argparse._SubParsersAction[Any]"
"""Where a command is added: ``commands.add_parser(NAME)``, with a function of its own as the default of ``command``."""


def api(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="for a process outside the cluster (default: the pod's own)"
    )
    parser.add_argument(
        "--service-account",
        metavar="DIR",
        type=Path,
        default=DEFAULT_SERVICE_ACCOUNT,
        help="where the pod's own is mounted: ca.crt and token (default %(default)s)",
    )
    parser.add_argument("--server", metavar="URL", default="", help="of the API, instead of the one named there")
    parser.add_argument(
        "--default-class", action="store_true", help="serve Services that name no loadBalancerClass as well"
    )


def peers(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--with-peers",
        action="store_true",
        help="several hosts serve these manifests, one of them each EIP; every Service names its addresses",
    )
    run.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        help=f"signs what the hosts tell each other; made by `speaker keygen`, the same on all (default {DEFAULT_KEY})",
    )
    run.add_argument(
        "--hello",
        metavar="MS",
        help="milliseconds between two hellos, the same on all hosts: shorter makes failover faster "
        f"(default {DEFAULT_HELLO_MS})",
    )
    run.add_argument(
        "--ethertype",
        metavar="NUMBER",
        help=f"of the hellos, the same on all hosts (default 0x{DEFAULT_ETHERTYPE:04X})",
    )
    hand_over(run)


def hand_over(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hand-over",
        action=argparse.BooleanOptionalAction,
        help="TCP packets of connections that this host does not know go to the one that held their EIP before, while "
        "it answers: connections outlive a move of their EIP. Otherwise they are reset. Default: where this host "
        "forwards and its kernel can hand packets over",
    )


def runtime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime-dir",
        metavar="DIR",
        type=Path,
        default=DEFAULT_RUNTIME_DIR,
        help="facts a reboot makes void, and the control socket; on a tmpfs (default %(default)s)",
    )


def kernel(parser: argparse.ArgumentParser) -> None:
    runtime(parser)
    parser.add_argument(
        "--forwarder",
        choices=[kind.value for kind in Forwarding],
        default=Forwarding.AUTO.value,
        help="who carries the traffic (default %(default)s: ipvs where the kernel has it, else nftables)",
    )


def limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ipvs-timeouts",
        metavar="TCP,TCPFIN,UDP",
        help="seconds of silence after which IPVS forgets a connection, as `ipvsadm --set`; 0 leaves one as it is",
    )
    parser.add_argument(
        "--conntrack-max",
        metavar="N",
        help="raise net.netfilter.nf_conntrack_max to N; it is never lowered",
    )
    parser.add_argument(
        "--metrics-real-servers",
        action="store_true",
        help="tell the connections of every real server in /metrics: two lines for each that is in use",
    )


def outlive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--outlive",
        metavar="S",
        type=_seconds,
        default=DEFAULT_OUTLIVE,
        help="seconds for which EIPs are answered for while the main process is away; the next one takes them over "
        "(default %(default)g)",
    )


def _seconds(text: str) -> float:
    if (number := whole_number(text, 9999)) is None:
        raise argparse.ArgumentTypeError("must be whole seconds from 0 to 9999")
    return float(number)


def metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics",
        metavar="ADDRESS:PORT",
        default=DEFAULT_METRICS,
        help="/metrics and /healthz, or 'off' (default %(default)s)",
    )


def log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-format", choices=get_args(LogFormat), default="text", help="of the lines on stderr (default %(default)s)"
    )
    parser.add_argument(
        "--log-level",
        choices=get_args(LogLevel),
        default="info",
        help="which lines: those of this weight and more (default %(default)s)",
    )


def own_name() -> str:
    return socket.gethostname().lower()
