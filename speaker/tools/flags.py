"""Flags that several commands have: one function each, which adds them to a command's parser."""

import argparse
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from speaker.errors import SettingError
from speaker.model import Forwarding
from speaker.settings import (
    AGENTS_NAMESPACE,
    DEFAULT_ETHERTYPE,
    DEFAULT_HELLO_MS,
    DEFAULT_KEY,
    DEFAULT_METRICS,
    DEFAULT_OUTLIVE,
    DEFAULT_RUNTIME_DIR,
    DEFAULT_SERVICE_ACCOUNT,
    DEFAULT_SETTLE,
    LogFormat,
    LogLevel,
    MqttSettings,
    whole_number,
)

if TYPE_CHECKING:
    from speaker.tools.agents import Cluster

Commands: TypeAlias = "argparse._SubParsersAction[Any]"
"""Where a command is added: ``commands.add_parser(NAME)``, with a function of its own as the default of ``command``."""

DIRECTORY = "whose files *.yaml, *.yml and *.json are read; those of its subdirectories are not"


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


def cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="ask the agents of a cluster, from anywhere, by what `kubectl exec` needs: a kubeconfig, and the right to "
        "create and get pods/exec in their namespace",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="with --cluster (default: as kubectl finds it, or the pod's)",
    )
    parser.add_argument("--context", metavar="NAME", default="", help="of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--namespace", metavar="NAME", default="", help=f"that the agents are in (default {AGENTS_NAMESPACE})"
    )
    parser.add_argument(
        "--nodes", metavar="NAME,…", default="", help="with --cluster: ask only the agents of these nodes"
    )


def asked_cluster(args: argparse.Namespace) -> "Cluster | None":
    """None where this host is asked. Raises SettingError."""
    if not args.cluster:
        for flag in ("kubeconfig", "context", "namespace", "nodes"):
            if getattr(args, flag):
                raise SettingError(f"--{flag}: goes with --cluster")
        return None
    from speaker.cluster.transport.access import Access
    from speaker.tools.agents import Cluster, kubeconfig

    nodes = frozenset(filter(None, args.nodes.split(",")))
    return Cluster(Access(kubeconfig(args.kubeconfig), args.context), args.namespace or AGENTS_NAMESPACE, nodes)


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
        help="milliseconds between two hellos, 20 to 1000, the same on all hosts: shorter makes failover faster "
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


def take_over(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="another load balancer still answers for the EIPs: wait for as long as it does, and take each within a "
        "failover once it falls silent (docs/migration)",
    )


def runtime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime-dir",
        metavar="DIR",
        type=Path,
        default=DEFAULT_RUNTIME_DIR,
        help="facts a reboot makes void, and the control socket; on a tmpfs (default %(default)s)",
    )


def kernel(
    parser: argparse.ArgumentParser,
    forwarder: str = "who carries the traffic (default %(default)s: ipvs where the kernel has it, else nftables)",
) -> None:
    runtime(parser)
    parser.add_argument(
        "--forwarder", choices=[kind.value for kind in Forwarding], default=Forwarding.AUTO.value, help=forwarder
    )


def limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ipvs-timeouts",
        metavar="TCP,TCPFIN,UDP",
        help="with --forwarder ipvs: seconds of silence after which IPVS forgets a connection, as `ipvsadm --set`; "
        "0 leaves one as it is (default: all of them)",
    )
    parser.add_argument(
        "--conntrack-max",
        metavar="N",
        help="raise net.netfilter.nf_conntrack_max to N; it is never lowered (default: left as it is)",
    )
    parser.add_argument(
        "--metrics-real-servers",
        action="store_true",
        help="with --forwarder ipvs: tell the connections of every real server in /metrics, two lines for each that is "
        "in use",
    )


def outlive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--outlive",
        metavar="S",
        type=_seconds,
        default=DEFAULT_OUTLIVE,
        help="seconds for which EIPs are answered for while the main process is away, and longer where no peer takes "
        "over whose own works; the next one takes them over (default %(default)g)",
    )


def settle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--settle",
        metavar="S",
        type=float,
        default=DEFAULT_SETTLE,
        help="what takes much away at once counts when it says so still after S seconds: manifests, or a list of the "
        "API, that lack everything, or many of what was there; 0: at once (default %(default)g)",
    )


def settle_seconds(args: argparse.Namespace) -> float:
    """Raises SettingError."""
    if not 0 <= args.settle < 86400:
        raise SettingError(f"--settle {args.settle:g}: must be seconds from 0 and below a day")
    return float(args.settle)


def _seconds(text: str) -> float:
    if (number := whole_number(text, 9999)) is None:
        raise argparse.ArgumentTypeError("must be whole seconds from 0 to 9999")
    return float(number)


def metrics(parser: argparse.ArgumentParser) -> None:
    """Where this process is watched: its metrics, its page, and a broker that it tells."""
    parser.add_argument(
        "--metrics",
        metavar="ADDRESS:PORT",
        default=DEFAULT_METRICS,
        help="/metrics and /healthz, or 'off' (default %(default)s)",
    )
    parser.add_argument(
        "--page",
        metavar="ADDRESS:PORT",
        default="off",
        help="a page for people that shows what is so, live; nobody is asked who it is (default %(default)s)",
    )
    parser.add_argument(
        "--mqtt",
        metavar="URL",
        help="mqtts://HOST[:PORT][/PREFIX] of a broker that is told of states and events (docs/mqtt.md)",
    )
    parser.add_argument(
        "--mqtt-ca",
        metavar="FILE",
        type=Path,
        help="authorities that the broker's certificate may be of (default: the system's)",
    )
    parser.add_argument("--mqtt-cert", metavar="FILE", type=Path, help="our own certificate, for brokers that want one")
    parser.add_argument("--mqtt-key", metavar="FILE", type=Path, help="its key (default: in the same file)")
    parser.add_argument("--mqtt-login", metavar="FILE", type=Path, help="user name and password, a line each")


def mqtt_settings(args: argparse.Namespace) -> MqttSettings | None:
    """None where no broker is to be told. Raises SettingError."""
    found = MqttSettings.parse(args.mqtt, args.mqtt_ca, args.mqtt_cert, args.mqtt_key, args.mqtt_login)
    if found is not None and find_spec("aiomqtt") is None:
        raise SettingError("--mqtt: needs aiomqtt, which is not installed: pip install 'aiomqtt>=2.5.1,<3'")
    return found


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
