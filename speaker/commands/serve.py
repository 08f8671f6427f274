"""``speaker run``, ``speaker agent`` and ``speaker controller``: the commands that serve until they are stopped.

Both processes of a node begin here. The first one starts this program again as the main process, and then becomes the
wire process, in ``_wire_end`` (``wire/parent.py``). ``standalone/run.py`` (files) or ``agent/source.py`` (the
Kubernetes API) says what is wanted; the work is the same for both, in ``node/host.py``.
"""

import argparse
import asyncio
import socket
import sys
from functools import partial
from typing import Any

from speaker.errors import SettingError, shown
from speaker.model import Forwarding
from speaker.settings import (
    AGENTS_NAMESPACE,
    DEFAULT_STATE,
    Bind,
    Limits,
    Node,
    NodeSettings,
    PeerSettings,
    RunSettings,
    metrics_of_real_servers,
    parse_balancers,
)
from speaker.telemetry.lateness import run as watched
from speaker.tools import flags
from speaker.tools.flags import Commands
from speaker.tools.terminal import following, progress


def add(commands: Commands) -> None:
    _add_run(commands)
    _add_agent(commands)
    _add_controller(commands)


def _add_run(commands: Commands) -> None:
    run = commands.add_parser("run", help="serve the EIPs that the YAML files in DIR ask for, without Kubernetes")
    run.path("directory", flags.DIRECTORY, metavar="DIR")
    state = "file that remembers which Service has which EIP; must survive a reboot (default %(default)s)"
    run.path("--state", state, DEFAULT_STATE)
    node = "this host's name in EndpointSlices and selectors (default %(default)s)"
    run.word("--node", "NAME", node, flags.own_name())
    run.word("--node-labels", "K=V,…", "labels for the pools' nodeSelector")
    flags.honour(run)
    run.switch("--wait", "wait for DIR if it does not exist yet, instead of ending")
    run.switch("--dry-run", "print what would be done here, and change nothing")
    run.switch(
        "--with-peers",
        "share the EIPs with other hosts that have the same manifests; every Service must name its addresses",
    )
    flags.kernel(run)
    flags.node(run)
    run.set_defaults(command=_run)


def _add_agent(commands: Commands) -> None:
    agent = commands.add_parser("agent", help="serve this node's share of a Kubernetes cluster's EIPs")
    agent.word("--node", "NAME", "this host's Node in the API (default %(default)s)", flags.own_name())
    flags.api(agent)
    namespace = "namespace of the agents' Leases (default: the pod's own, or eip-speaker-agents)"
    agent.word("--namespace", "NAME", namespace)
    agent.switch(
        "--ignore-exclude-label",
        "also hold EIPs on nodes labelled node.kubernetes.io/exclude-from-external-load-balancers, as kubeadm "
        "labels control planes",
    )
    agent.switch("--drain-cordoned", "a cordoned node (kubectl cordon) hands its EIPs over")
    revision = "in a rolling upgrade, EIPs move to nodes with a higher number (default %(default)s)"
    agent.word("--revision", "NUMBER", revision, "0")
    flags.runtime(agent)
    forwarder = "what forwards the traffic, the same on all nodes (default %(default)s: kube-proxy does)"
    flags.forwarder_of_cluster(agent, forwarder)
    flags.node(agent)
    agent.set_defaults(command=_agent)


def _add_controller(commands: Commands) -> None:
    controller = commands.add_parser(
        "controller", help="give EIPs to the Services of a Kubernetes cluster; one of several replicas works at a time"
    )
    flags.api(controller)
    controller.word("--namespace", "NAME", "namespace of its Lease (default: the pod's own, or eip-speaker)")
    forwarder = "what forwards the traffic, as for the agents; none and assist: kube-proxy (default %(default)s)"
    flags.forwarder_of_cluster(controller, forwarder)
    agents = "namespace of the agents' Leases and key (default %(default)s)"
    controller.word("--agents-namespace", "NAME", agents, AGENTS_NAMESPACE)
    controller.switch(
        "--make-key",
        "create the Secret with the agents' key if there is none; needs the right to create Secrets there",
    )
    controller.switch(
        "--mark-pods-not-ready",
        "mark a dead node's pods as not ready, half a minute before kube-controller-manager does, if most agents "
        "miss the node and its kubelet is silent; needs the right to write pods' status",
    )
    flags.honour(controller)
    flags.serving(controller)
    controller.set_defaults(command=_controller)


def _shared(args: argparse.Namespace) -> dict[str, Any]:
    """Settings that all three have in common: where each is watched, and how long it doubts."""
    return {
        "metrics": Bind.parse(args.metrics),
        "page": Bind.parse(args.page, "--page"),
        "mqtt": flags.mqtt_settings(args),
        "log_format": args.log_format,
        "log_level": args.log_level,
        "settle_seconds": flags.settle_seconds(args),
    }


def _of_node(args: argparse.Namespace, forwarder: Forwarding) -> dict[str, Any]:
    """Settings that the two commands on a node have in common."""
    return _shared(args) | {
        "runtime_dir": args.runtime_dir,
        "group": args.group,
        "forwarder": forwarder,
        "limits": Limits.parse(forwarder, args.ipvs_timeouts, args.conntrack_max, args.group),
        "take_over": args.take_over,
        "in_kernel": args.responder != "socket",
        "metrics_real_servers": metrics_of_real_servers(args.metrics_real_servers, forwarder),
    }


def _run(args: argparse.Namespace) -> int:
    settings = RunSettings(
        directory=args.directory,
        node=Node.parse(args.node, args.node_labels),
        state=args.state,
        **_of_node(args, Forwarding(args.forwarder)),
        peers=PeerSettings.parse(args.with_peers, args.key, args.hello, args.ethertype, args.hand_over),
        honoured=parse_balancers(args.honour_annotations),
    )
    if args.dry_run:
        from speaker.tools.plan import preview

        with progress("working out what would be done"):
            code = asyncio.run(preview(settings, sys.stdout))
        if code == 0:
            print(following(*(word for word in args.argv if not word.startswith("--dry"))))  # noqa: T201
        return code
    end = _wire_end(args, settings.peers)
    from speaker.standalone.run import run

    watched(run(end, settings, partial(_examined, settings)))
    return 0


def _examined(settings: NodeSettings) -> list[dict[str, str]]:
    """What the doctor finds here, for the page. Its modules are not loaded unless somebody looks."""
    from speaker.diagnosis.gather import examined

    return examined(settings.runtime_dir, settings.group)


def _wire_end(args: argparse.Namespace, peers: PeerSettings | None) -> socket.socket:
    """Returns only in the main process, with its end of the socket pair to the wire process. The first process becomes
    the wire process, and a copy of it the main process (``wire/fork.py``)."""
    from speaker.ownership.hellos.keyfile import read_keys
    from speaker.wire.fork import divide, inherited

    if (end := inherited()) is not None:
        return end
    if not getattr(args, "wait", True) and not args.directory.is_dir():
        raise SettingError(f"{shown(str(args.directory))}: must be a directory; --wait waits for one")
    if peers is not None:
        read_keys(peers.key_file)  # to find its mistakes early
    if args.responder == "kernel":
        from speaker.layer2.kernel import try_out

        try_out("--responder kernel")
    part = divide(args.runtime_dir)
    if isinstance(part, socket.socket):
        return part
    from speaker.wire.parent import become

    sys.exit(become(part, args.argv, args.outlive))


def _agent(args: argparse.Namespace) -> int:
    forwarder = Forwarding(args.forwarder)
    peers = PeerSettings.of_agent(args.key, args.hello, args.ethertype, args.revision, args.hand_over)
    of_node = {"node": Node.parse(args.node), "peers": peers, **_of_node(args, forwarder)}
    end = _wire_end(args, peers)
    from speaker.agent.source import AgentSettings, run
    from speaker.agent.view import ViewSettings
    from speaker.cluster.access import Access

    settings = AgentSettings(
        access=Access(args.kubeconfig, server=args.server, service_account=args.service_account),
        namespace=args.namespace,
        view=ViewSettings(
            default_class=args.default_class,
            ignore_exclude=args.ignore_exclude_label,
            drain_cordoned=args.drain_cordoned,
            forwards=forwarder.ours,
            assists=forwarder is Forwarding.ASSIST,
        ),
        **of_node,
    )
    watched(run(end, settings, partial(_examined, settings)))
    return 0


def _controller(args: argparse.Namespace) -> int:
    from speaker.cluster.access import Access
    from speaker.controller.decider import ControllerSettings
    from speaker.controller.run import CommandSettings, run
    from speaker.controller.wanted import IpMode

    ip_mode = IpMode.PROXY if Forwarding(args.forwarder).ours else IpMode.VIP
    settings = CommandSettings(
        access=Access(args.kubeconfig, server=args.server, service_account=args.service_account),
        namespace=args.namespace,
        agents_namespace=args.agents_namespace,
        make_key=args.make_key,
        mark_pods=args.mark_pods_not_ready,
        controller=ControllerSettings(args.default_class, parse_balancers(args.honour_annotations), ip_mode=ip_mode),
        **_shared(args),
    )
    watched(run(settings))
    return 0
