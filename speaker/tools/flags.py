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

DIRECTORY = "directory of *.yaml, *.yml and *.json files; subdirectories are not read"


def api(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="outside of a pod (default: the pod's service account)"
    )
    parser.add_argument(
        "--service-account",
        metavar="DIR",
        type=Path,
        default=DEFAULT_SERVICE_ACCOUNT,
        help="where the pod's service account is mounted: ca.crt and token (default %(default)s)",
    )
    parser.add_argument("--server", metavar="URL", default="", help="URL of the API server, if not as configured")
    parser.add_argument(
        "--default-class", action="store_true", help="also serve Services that name no loadBalancerClass"
    )


def cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="ask every agent of a cluster, from any machine; needs a kubeconfig and the right to create and get "
        "pods/exec in the agents' namespace",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="with --cluster (default: as kubectl finds it, or the pod's)"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="in the kubeconfig (default: the current one)")
    parser.add_argument(
        "--namespace", metavar="NAME", default="", help=f"namespace of the agents (default {AGENTS_NAMESPACE})"
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
    from speaker.cluster.access import Access
    from speaker.tools.agents import Cluster, kubeconfig

    nodes = frozenset(filter(None, args.nodes.split(",")))
    return Cluster(Access(kubeconfig(args.kubeconfig), args.context), args.namespace or AGENTS_NAMESPACE, nodes)


def peers(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--with-peers",
        action="store_true",
        help="share the EIPs with other hosts that have the same manifests; every Service must name its addresses",
    )
    run.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        help=f"key that signs the hellos, the same on all hosts; see `speaker keygen` (default {DEFAULT_KEY})",
    )
    run.add_argument(
        "--hello",
        metavar="MS",
        help="milliseconds between two hellos, 20 to 1000, the same on all hosts; less makes failover faster "
        f"(default {DEFAULT_HELLO_MS})",
    )
    run.add_argument(
        "--ethertype",
        metavar="NUMBER",
        help=f"EtherType of the hellos, the same on all hosts (default 0x{DEFAULT_ETHERTYPE:04X})",
    )
    hand_over(run)


def hand_over(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hand-over",
        action=argparse.BooleanOptionalAction,
        help="let established TCP connections survive a move of their EIP, by passing their packets to the previous "
        "holder; otherwise they are reset (default: on if this host forwards and its kernel can do it)",
    )


def take_over(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="wait while another load balancer answers for an EIP, and take the EIP when it falls silent "
        "(docs/migration)",
    )


def runtime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime-dir",
        metavar="DIR",
        type=Path,
        default=DEFAULT_RUNTIME_DIR,
        help="for the control socket and what a reboot makes void; must be on a tmpfs (default %(default)s)",
    )


def kernel(
    parser: argparse.ArgumentParser,
    forwarder: str = "what forwards the traffic (default %(default)s: ipvs if the kernel has it, else nftables)",
) -> None:
    runtime(parser)
    parser.add_argument(
        "--forwarder", choices=[kind.value for kind in Forwarding], default=Forwarding.AUTO.value, help=forwarder
    )


def limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ipvs-timeouts",
        metavar="TCP,TCPFIN,UDP",
        help="with --forwarder ipvs: seconds after which IPVS forgets an idle connection, as `ipvsadm --set`; "
        "0 keeps the current value (default: keep all)",
    )
    parser.add_argument(
        "--conntrack-max",
        metavar="N",
        help="raise net.netfilter.nf_conntrack_max to N, but never lower it (default: leave it alone)",
    )
    parser.add_argument(
        "--metrics-real-servers",
        action="store_true",
        help="with --forwarder ipvs: add the connections of every real server to /metrics, two lines for each",
    )


def outlive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--outlive",
        metavar="S",
        type=_seconds,
        default=DEFAULT_OUTLIVE,
        help="seconds for which EIPs stay answered without a main process; longer if no peer can take over "
        "(default %(default)g)",
    )


def settle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--settle",
        metavar="S",
        type=float,
        default=DEFAULT_SETTLE,
        help="if the manifests or the API suddenly lack everything, or many objects, wait S seconds and look again "
        "before believing it; 0: believe it at once (default %(default)g)",
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
        help="where to serve /metrics and /healthz, or 'off' (default %(default)s)",
    )
    parser.add_argument(
        "--page",
        metavar="ADDRESS:PORT",
        default="off",
        help="where to serve a live status page, without a login (default %(default)s)",
    )
    parser.add_argument(
        "--mqtt",
        metavar="URL",
        help="publish states and events to the broker mqtts://HOST[:PORT][/PREFIX] (docs/mqtt.md)",
    )
    parser.add_argument(
        "--mqtt-ca", metavar="FILE", type=Path, help="CAs for the broker's certificate (default: the system's)"
    )
    parser.add_argument("--mqtt-cert", metavar="FILE", type=Path, help="client certificate, if the broker wants one")
    parser.add_argument("--mqtt-key", metavar="FILE", type=Path, help="its key (default: in the same file)")
    parser.add_argument("--mqtt-login", metavar="FILE", type=Path, help="file with user name and password, a line each")


def mqtt_settings(args: argparse.Namespace) -> MqttSettings | None:
    """None where no broker is to be told. Raises SettingError."""
    found = MqttSettings.parse(args.mqtt, args.mqtt_ca, args.mqtt_cert, args.mqtt_key, args.mqtt_login)
    if found is not None and find_spec("aiomqtt") is None:
        raise SettingError("--mqtt: needs aiomqtt, which is not installed: pip install 'aiomqtt>=2.5.1,<3'")
    return found


def log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-format", choices=get_args(LogFormat), default="text", help="of the log on stderr (default %(default)s)"
    )
    parser.add_argument(
        "--log-level",
        choices=get_args(LogLevel),
        default="info",
        help="log only what is at least this important (default %(default)s)",
    )


def own_name() -> str:
    return socket.gethostname().lower()
