"""The commands and their exit codes.

0: done, everything right. 1: it did not work out (a mistake in the manifests, an EIP out of reach), or what there was
to say could not be written. 2: the command line cannot work. 130: Ctrl-C. ``speaker run`` is the product; follow
``_run`` into ``standalone/run.py``.
"""

import argparse
import asyncio
import socket
import sys
from pathlib import Path

from speaker import __version__
from speaker.errors import EdgeError, SettingError
from speaker.model import Forwarding
from speaker.settings import (
    AGENTS_NAMESPACE,
    DEFAULT_ETHERTYPE,
    DEFAULT_HELLO_MS,
    DEFAULT_KEY,
    DEFAULT_SETTLE,
    DEFAULT_STATE,
    Bind,
    Limits,
    Node,
    PeerSettings,
    RunSettings,
)
from speaker.system import streams
from speaker.tools import explain, flags

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
        default=flags.own_name(),
        help="this host's name in EndpointSlices and selectors (default %(default)s)",
    )
    run.add_argument("--node-labels", metavar="K=V,…", default="", help="labels that the pools' nodeSelector sees")
    flags.metrics(run)
    run.add_argument(
        "--settle",
        metavar="S",
        type=float,
        default=DEFAULT_SETTLE,
        help="seconds that a DIR which asks for nothing any more must stay so until that counts as meant "
        "(default %(default)g)",
    )
    run.add_argument("--dry-run", action="store_true", help="print what would be done here, and change nothing")
    flags.peers(run)
    flags.kernel(run)
    flags.limits(run)
    flags.outlive(run)
    flags.log(run)
    run.set_defaults(command=_run)

    _agent_command(commands)
    _controller_command(commands)

    validate = commands.add_parser("validate", help="check the YAML files in DIR; exit 1 when something is wrong")
    validate.add_argument("directory", metavar="DIR", type=Path)
    validate.add_argument(
        "--with-peers",
        action="store_true",
        help="as `speaker run --with-peers` wants them: every Service names its addresses",
    )
    validate.add_argument("--json", action="store_true", help="one JSON object on stdout")
    validate.set_defaults(command=_validate)

    keygen = commands.add_parser(
        "keygen",
        help="make the key that hosts which serve the same EIPs must share",
        description="Writes a new key file, mode 0600; an existing one is never overwritten. To replace the key on "
        "running hosts: --add, copy the file to every host, --promote, copy, --retire, copy. A running "
        "speaker reads its key file again when it changes, and at every moment each host accepts what any other signs.",
    )
    keygen.add_argument("file", metavar="FILE", type=Path, nargs="?", default=DEFAULT_KEY, help="(default %(default)s)")
    steps = keygen.add_mutually_exclusive_group()
    steps.add_argument("--add", action="store_true", help="a second key: accepted, not yet signing")
    steps.add_argument("--promote", action="store_true", help="swap them: the second key signs, the first is accepted")
    steps.add_argument("--retire", action="store_true", help="remove the second key")
    keygen.set_defaults(command=_keygen)

    cleanup = commands.add_parser(
        "cleanup",
        help="remove everything the speaker made in this kernel, and nothing else",
        description="Needs CAP_NET_ADMIN, and that no speaker runs with this --runtime-dir. Ends with 1 where "
        "something is left, or may be, and says what.",
    )
    flags.kernel(cleanup)
    cleanup.set_defaults(command=_cleanup)

    _control_commands(commands)
    explain.add_commands(commands)

    connections = commands.add_parser(
        "connections",
        help="who is connected through which EIP to which real server, as this host's kernel lists it",
    )
    connections.add_argument("eip", metavar="EIP", nargs="?", default="", help="(default: all)")
    connections.add_argument(
        "--limit", metavar="N", default="100", help="connections to print; all are counted (default %(default)s)"
    )
    connections.add_argument("--json", action="store_true", help="one JSON object on stdout")
    flags.runtime(connections)
    connections.set_defaults(command=_connections)

    from speaker.lab import command as lab

    lab_parser = commands.add_parser("lab", help="a LAN in network namespaces with the real speaker in it")
    lab.add_arguments(lab_parser)
    lab_parser.set_defaults(command=lab.main)
    return parser


def _agent_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    agent = commands.add_parser("agent", help="serve this node's share of a Kubernetes cluster's EIPs")
    agent.add_argument(
        "--node", metavar="NAME", default=flags.own_name(), help="this host's Node in the API (default %(default)s)"
    )
    flags.api(agent)
    agent.add_argument(
        "--namespace", default="", help="of the session Leases (default: the pod's own, or eip-speaker-agents)"
    )
    agent.add_argument(
        "--ignore-exclude-label",
        action="store_true",
        help="hold EIPs on nodes labelled node.kubernetes.io/exclude-from-external-load-balancers too, as kubeadm "
        "labels control planes",
    )
    agent.add_argument(
        "--drain-cordoned", action="store_true", help="a cordoned node (kubectl cordon) hands its EIPs over"
    )
    agent.add_argument(
        "--revision",
        metavar="NUMBER",
        default="0",
        help="of what is installed: in a rolling upgrade EIPs go to nodes with a higher one (default %(default)s)",
    )
    agent.add_argument("--key", metavar="FILE", type=Path, help=f"as in `speaker run` (default {DEFAULT_KEY})")
    agent.add_argument("--hello", metavar="MS", help=f"as in `speaker run` (default {DEFAULT_HELLO_MS})")
    agent.add_argument("--ethertype", metavar="NUMBER", help=f"as in `speaker run` (default 0x{DEFAULT_ETHERTYPE:04X})")
    flags.hand_over(agent)
    flags.metrics(agent)
    flags.runtime(agent)
    agent.add_argument(
        "--forwarder",
        choices=[kind.value for kind in Forwarding if kind is not Forwarding.AUTO],
        default=Forwarding.NONE.value,
        help="who carries the traffic, the same on all nodes (default %(default)s: kube-proxy does)",
    )
    flags.limits(agent)
    flags.outlive(agent)
    flags.log(agent)
    agent.set_defaults(command=_agent)


def _controller_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    controller = commands.add_parser(
        "controller", help="give EIPs to the Services of a Kubernetes cluster; of several, one works at a time"
    )
    flags.api(controller)
    controller.add_argument("--namespace", default="", help="of the Lease (default: the pod's own, or eip-speaker)")
    controller.add_argument(
        "--forwarder",
        choices=[kind.value for kind in Forwarding if kind is not Forwarding.AUTO],
        default=Forwarding.NONE.value,
        help="what the agents are told: with none kube-proxy carries the traffic (default %(default)s)",
    )
    controller.add_argument(
        "--agents-namespace",
        default=AGENTS_NAMESPACE,
        help="of the agents' session Leases and key (default %(default)s)",
    )
    controller.add_argument(
        "--make-key",
        action="store_true",
        help="make the Secret with the key that agents share, where there is none; needs the right to create Secrets "
        "there",
    )
    flags.metrics(controller)
    flags.log(controller)
    controller.set_defaults(command=_controller)


def _control_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Those that ask the speaker that runs on this host."""
    status = commands.add_parser("status", help="who answers for which EIP, as the speaker on this host sees it")
    status.add_argument("--json", action="store_true", help="one JSON object on stdout")
    drain = commands.add_parser("drain", help="hand every EIP of this host to its peers, and take none until `undrain`")
    drain.add_argument(
        "--timeout", metavar="S", type=float, default=30.0, help="seconds to wait for it (default %(default)g)"
    )
    undrain = commands.add_parser("undrain", help="end a drain: this host takes EIPs again")
    rebalance = commands.add_parser("rebalance", help="spread the EIPs evenly over the hosts, with the fewest moves")
    for parser, command in ((status, _status), (drain, _drain), (undrain, _undrain), (rebalance, _rebalance)):
        flags.runtime(parser)
        parser.set_defaults(command=command)


def _run(args: argparse.Namespace) -> int:
    if not 0 <= args.settle < 86400:
        raise SettingError(f"--settle {args.settle:g}: must be seconds from 0 and below a day")
    settings = RunSettings(
        directory=args.directory,
        node=Node.parse(args.node, args.node_labels),
        state=args.state,
        runtime_dir=args.runtime_dir,
        forwarder=Forwarding(args.forwarder),
        metrics=Bind.parse(args.metrics),
        log_format=args.log_format,
        settle_seconds=args.settle,
        peers=PeerSettings.parse(args.with_peers, args.key, args.hello, args.ethertype, args.hand_over),
        limits=Limits.parse(Forwarding(args.forwarder), args.ipvs_timeouts, args.conntrack_max),
        metrics_real_servers=args.metrics_real_servers,
    )
    if args.dry_run:
        from speaker.tools.preview import preview

        return asyncio.run(preview(settings, sys.stdout))
    end = _wire(args, settings.peers)
    from speaker.standalone.run import run
    from speaker.telemetry.lateness import run as watched

    watched(run(end, settings))
    return 0


def _wire(args: argparse.Namespace, peers: PeerSettings | None) -> socket.socket:
    """The end of the wire process that started this one. Without one this is the first process: it becomes it."""
    from speaker.ownership.hellos.keyfile import read_keys
    from speaker.wire.parent import become, inherited

    if (end := inherited()) is not None:
        return end
    if peers is not None:
        read_keys(peers.key_file)  # for its mistakes
    return become(args.argv, args.runtime_dir, args.outlive)


def _agent(args: argparse.Namespace) -> int:
    from speaker.agent.run import AgentSettings, run
    from speaker.agent.view import ViewSettings
    from speaker.cluster.transport.access import Access
    from speaker.telemetry.lateness import run as watched

    forwarder = Forwarding(args.forwarder)
    settings = AgentSettings(
        node=Node.parse(args.node),
        access=Access(args.kubeconfig, server=args.server, service_account=args.service_account),
        namespace=args.namespace,
        view=ViewSettings(
            default_class=args.default_class,
            ignore_exclude=args.ignore_exclude_label,
            drain_cordoned=args.drain_cordoned,
            forwards=forwarder is not Forwarding.NONE,
        ),
        peers=PeerSettings.of_agent(args.key, args.hello, args.ethertype, args.revision, args.hand_over),
        runtime_dir=args.runtime_dir,
        forwarder=forwarder,
        metrics=Bind.parse(args.metrics),
        log_format=args.log_format,
        limits=Limits.parse(forwarder, args.ipvs_timeouts, args.conntrack_max),
        metrics_real_servers=args.metrics_real_servers,
    )
    watched(run(_wire(args, settings.peers), settings))
    return 0


def _controller(args: argparse.Namespace) -> int:
    from speaker.cluster.transport.access import Access
    from speaker.controller.decider import ControllerSettings
    from speaker.controller.run import CommandSettings, run
    from speaker.controller.wanted import IpMode
    from speaker.telemetry.lateness import run as watched

    ip_mode = IpMode.VIP if Forwarding(args.forwarder) is Forwarding.NONE else IpMode.PROXY
    settings = CommandSettings(
        access=Access(args.kubeconfig, server=args.server, service_account=args.service_account),
        namespace=args.namespace,
        agents_namespace=args.agents_namespace,
        make_key=args.make_key,
        controller=ControllerSettings(default_class=args.default_class, ip_mode=ip_mode),
        metrics=Bind.parse(args.metrics),
        log_format=args.log_format,
    )
    watched(run(settings))
    return 0


def _validate(args: argparse.Namespace) -> int:
    from speaker.tools.validate import addresses_here, validate

    return validate(args.directory, sys.stdout, args.json, args.with_peers, addresses_here)


def _keygen(args: argparse.Namespace) -> int:
    from speaker.tools.keygen import Step, keygen

    step = next((step for step in Step if getattr(args, step.value, False)), Step.MAKE)
    for line in keygen(args.file, step):
        print(line)  # noqa: T201
    return 0


def _status(args: argparse.Namespace) -> int:
    from speaker.tools.ask import status

    return status(args.runtime_dir, sys.stdout, args.json)


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
