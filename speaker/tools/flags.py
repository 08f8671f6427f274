"""The command line: its parser, and the flags that several commands have, each group added by a function.

Errors are for people: they name the flag, its value, the rule, and what was probably meant.
"""

import argparse
import re
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, get_args

from speaker import settings
from speaker.api.fields import did_you_mean
from speaker.errors import SettingError, written
from speaker.model import Forwarding, Group
from speaker.tools.terminal import printable

if TYPE_CHECKING:
    from speaker.tools.agents import Cluster

_RULES: dict[object, str] = {float: "must be a number", int: "must be a whole number"}
_IN_WORDS = (
    (re.compile(r"^argument (\S+): not allowed with argument (\S+)$"), r"\1: not together with \2"),
    (re.compile(r"^argument (.*)$"), r"\1"),
    (re.compile(r"^the following arguments are required: (.*)$"), r"\1 is missing"),
    (re.compile(r"^(\S+): expected (?:one|at least one) argument$"), r"\1: needs a value"),
    (re.compile(r"^(\S+): ignored explicit argument '?(.*?)'?$"), r"\1=\2: takes no value"),
    (re.compile(r"^ambiguous option: (\S+) could match (.*)$"), r"\1: could be any of \2"),
)
"""argparse's messages, in every Python version that we support, and ours. Each is tried once, in order."""


class Parser(argparse.ArgumentParser):
    """Ends the process with code 2 and two lines on stderr: what is wrong, and a command that shows what would be
    right."""

    _into: argparse._ActionsContainer | None = None

    def group(self, title: str, text: str) -> None:
        """The flags added after this belong to the group."""
        self._into = self.add_argument_group(title, text)

    def flag(self, name: str, text: str, **how: Any) -> None:
        """``how``: as for ``add_argument``."""
        (self._into or self).add_argument(name, help=text, **how)

    def switch(self, name: str, text: str) -> None:
        self.flag(name, text, action="store_true")

    def word(self, name: str, metavar: str, text: str, default: str | None = "") -> None:
        self.flag(name, text, metavar=metavar, default=default)

    def number(self, name: str, metavar: str, text: str, kind: type = int, default: float | None = None) -> None:
        self.flag(name, text, metavar=metavar, type=kind, default=default)

    def path(self, name: str, text: str, default: Path | None = None, metavar: str = "FILE") -> None:
        self.flag(name, text, metavar=metavar, type=Path, default=default)

    def error(self, message: str) -> NoReturn:
        for pattern, words in _IN_WORDS:
            message = pattern.sub(words, message)
        _, _, command = self.prog.partition(" ")
        self.exit(2, f"{self.prog}: {message}\nNext: speaker help{' ' * bool(command)}{command}\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Refuses words that no argument takes."""
        word = printable(unknown[0])
        if not word.startswith("-"):
            self.error(f"{written(unknown[0])}: is one word too many")
        flag, _, _ = word.partition("=")
        flags = [each for action in self._actions for each in action.option_strings if each.startswith("--")]
        self.error(f"{flag}: no such flag: {did_you_mean(flag, flags)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices, said = [str(choice) for choice in action.choices], str(value)
        hint = did_you_mean(said, choices)
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"{written(said)}: no such command: {hint}")
        meant = f": {hint}" if hint.startswith("did") else ""
        self._cannot_be(action, said, f"must be one of {', '.join(choices)}{meant}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.type is Path and not arg_string:  # from an unset variable
            self._cannot_be(action, arg_string, "must be a path: this directory is .")
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            self._cannot_be(action, arg_string, _RULES.get(action.type, error.message))

    def _cannot_be(self, action: argparse.Action, value: str, rule: str) -> NoReturn:
        self.error(f"{max(action.option_strings, key=len, default=action.metavar)} {written(value)}: {rule}")


def parse(parser: Parser, argv: list[str], **given: Any) -> argparse.Namespace:
    """``given``: attributes that every command gets besides. Ends the process like ``Parser.error``."""
    args, unknown = parser.parse_known_args(argv, argparse.Namespace(argv=argv, parser=parser, **given))
    if unknown:
        getattr(args, "spoken_to", parser).refuse(unknown)
    _place(args)
    return args


def _place(args: argparse.Namespace) -> None:
    """Sets the defaults of a group, unless flags say otherwise. Raises SettingError."""
    args.group = settings.parse_group(getattr(args, "group", ""))
    for name, default in (("runtime_dir", settings.DEFAULT_RUNTIME_DIR), ("state", settings.DEFAULT_STATE)):
        if getattr(args, name, None) is default:
            setattr(args, name, settings.of_group(default, args.group))
    if getattr(args, "metrics", "") is None:
        args.metrics = "off" if args.group.name else settings.DEFAULT_METRICS


def subparsers(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """The commands of ``parser``, by name, in their order."""
    (action,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)


# ── Flags ─────────────────────────────────────────────────────────────────────────────────────────────────────

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""Where a command is added: ``commands.add_parser(NAME)``, with its function as the default of ``command``."""

DIRECTORY = "directory of *.yaml, *.yml and *.json files; subdirectories are not read"
KUBECONFIG = "kubeconfig for --cluster (default: as kubectl finds it, or the pod's)"
CONTEXT = "context of the kubeconfig (default: the current one)"
JSON = "one JSON object on stdout"
FORWARDS = "what forwards the traffic (default %(default)s: ipvs if the kernel has it, else nftables)"


def api(parser: Parser) -> None:
    parser.path("--kubeconfig", "kubeconfig to use outside of a pod (default: the pod's service account)")
    mounted = "where the pod's service account is mounted: ca.crt and token (default %(default)s)"
    parser.path("--service-account", mounted, settings.DEFAULT_SERVICE_ACCOUNT, "DIR")
    parser.word("--server", "URL", "URL of the API server, instead of the configured one")
    parser.switch("--default-class", "also serve Services that name no loadBalancerClass")


def honour(parser: Parser, of: str = "") -> None:
    text = f"{of}obey annotations of metallb, cilium, kube-vip, openelb or purelb, unless there are ours instead"
    parser.word("--honour-annotations", "NAME,…", text)


def cluster(parser: Parser) -> None:
    parser.switch(
        "--cluster",
        "ask every agent of a cluster, from any machine; needs a kubeconfig and the right to create and get "
        "pods/exec in the agents' namespace",
    )
    parser.path("--kubeconfig", KUBECONFIG)
    parser.word("--context", "NAME", CONTEXT)
    parser.word("--namespace", "NAME", f"namespace of the agents (default {settings.AGENTS_NAMESPACE})")
    parser.word("--nodes", "NAME,…", "with --cluster: ask only the agents of these nodes")


def asked_cluster(args: argparse.Namespace) -> "Cluster | None":
    """None if this host is asked. Raises SettingError."""
    if not args.cluster:
        for flag in ("kubeconfig", "context", "namespace", "nodes"):
            if getattr(args, flag):
                raise SettingError(f"--{flag}: goes with --cluster")
        return None
    from speaker.cluster.access import Access
    from speaker.tools.agents import Cluster, kubeconfig

    nodes = frozenset(filter(None, args.nodes.split(",")))
    access = Access(kubeconfig(args.kubeconfig), args.context)
    return Cluster(access, args.namespace or settings.AGENTS_NAMESPACE, nodes, args.group.name)


def serving(parser: Parser) -> None:
    """Flags of all commands that serve: how long each doubts, and where it is watched: its metrics, its page, a broker,
    and its log."""
    lack = (
        "if everything, or much, is suddenly missing from the manifests or the API, wait S seconds and look again "
        "before believing it; 0: believe it at once (default %(default)g)"
    )
    parser.number("--settle", "S", lack, float, settings.DEFAULT_SETTLE)
    where = f"where to serve /metrics and /healthz, or 'off' (default {settings.DEFAULT_METRICS}, with --group off)"
    parser.word("--metrics", "ADDRESS:PORT", where, None)
    page = "where to serve a live status page, without a login (default %(default)s)"
    parser.word("--page", "ADDRESS:PORT", page, "off")
    broker = "publish states and events to the broker mqtts://HOST[:PORT][/PREFIX] (docs/mqtt.md)"
    parser.word("--mqtt", "URL", broker, None)
    parser.path("--mqtt-ca", "CAs for the broker's certificate (default: the system's)")
    parser.path("--mqtt-cert", "client certificate, if the broker wants one")
    parser.path("--mqtt-key", "key of that certificate (default: in the same file)")
    parser.path("--mqtt-login", "file with two lines: user name, password")
    form, least = "format of the log on stderr (default %(default)s)", "log only what has at least this level"
    parser.flag("--log-format", form, choices=get_args(settings.LogFormat), default="text")
    parser.flag("--log-level", f"{least} (default %(default)s)", choices=get_args(settings.LogLevel), default="info")


def node(parser: Parser) -> None:
    """Flags of both commands that work on a node."""
    key = f"key that signs the hellos, the same on all hosts; see `speaker keygen` (default {settings.DEFAULT_KEY})"
    parser.path("--key", key)
    hello = (
        "milliseconds between two hellos, 20 to 1000, the same on all hosts; less makes failover faster "
        f"(default {settings.DEFAULT_HELLO_MS})"
    )
    parser.word("--hello", "MS", hello, None)
    ethertype = f"EtherType of the hellos, the same on all hosts (default 0x{settings.DEFAULT_ETHERTYPE:04X})"
    parser.word("--ethertype", "NUMBER", ethertype, None)
    moved = (
        "let established TCP connections survive a move of their EIP, by passing their packets to the previous "
        "holder; otherwise they are reset (default: on if this host forwards and its kernel can do it)"
    )
    parser.flag("--hand-over", moved, action=argparse.BooleanOptionalAction)
    answers = (
        "what answers ARP requests and neighbour solicitations. auto: a program in the kernel, or sockets if the "
        "kernel refuses it (it needs Linux 5.8, CAP_BPF and CAP_NET_ADMIN); kernel: the same, but do not start "
        "without it (default %(default)s)"
    )
    parser.add_argument("--responder", choices=("auto", "kernel", "socket"), default="socket", help=answers)
    takes = (
        "wait while another load balancer answers for an EIP, and take the EIP when it falls silent (docs/migration)"
    )
    parser.switch("--take-over", takes)
    timeouts = (
        "with --forwarder ipvs: seconds after which IPVS forgets an idle connection, as `ipvsadm --set`; "
        "0 keeps the current value (default: keep all)"
    )
    parser.word("--ipvs-timeouts", "TCP,TCPFIN,UDP", timeouts, None)
    most = "raise net.netfilter.nf_conntrack_max to N, but never lower it (default: leave it alone)"
    parser.word("--conntrack-max", "N", most, None)
    servers = "with --forwarder ipvs: add the connections of every real server to /metrics, two lines for each"
    parser.switch("--metrics-real-servers", servers)
    lives = (
        "seconds to keep answering for EIPs without a main process; longer if no peer can take over "
        "(default %(default)g)"
    )
    parser.flag("--outlive", lives, metavar="S", type=_seconds, default=settings.DEFAULT_OUTLIVE)
    serving(parser)


def runtime(parser: Parser) -> None:
    text = "directory of the control socket, and of what a reboot resets; must be on a tmpfs (default %(default)s)"
    parser.path("--runtime-dir", text, settings.DEFAULT_RUNTIME_DIR, "DIR")
    group = (
        "name of this speaker's group, if several run on this host; the default of --runtime-dir is then "
        f"{settings.of_group(settings.DEFAULT_RUNTIME_DIR, Group('NAME'))} (docs/groups.md)"
    )
    parser.word("--group", "NAME", group)


def kernel(parser: Parser, text: str = FORWARDS) -> None:
    runtime(parser)
    kinds = [kind.value for kind in Forwarding if kind is not Forwarding.ASSIST or text is not FORWARDS]
    parser.add_argument("--forwarder", choices=kinds, default=Forwarding.AUTO.value, help=text)


def forwarder_of_cluster(parser: Parser, text: str) -> None:
    """The same on all of the cluster's nodes: none of them chooses."""
    kinds = [kind.value for kind in Forwarding if kind is not Forwarding.AUTO]
    parser.flag("--forwarder", text, choices=kinds, default=Forwarding.NONE.value)


def settle_seconds(args: argparse.Namespace) -> float:
    """Raises SettingError."""
    if not 0 <= args.settle < 86400:
        raise SettingError(f"--settle {args.settle:g}: must be seconds from 0 and below a day")
    return float(args.settle)


def _seconds(text: str) -> float:
    if (number := settings.whole_number(text, 9999)) is None:
        raise argparse.ArgumentTypeError("must be whole seconds from 0 to 9999")
    return float(number)


def mqtt_settings(args: argparse.Namespace) -> settings.MqttSettings | None:
    """None: there is no broker. Raises SettingError."""
    found = settings.MqttSettings.parse(args.mqtt, args.mqtt_ca, args.mqtt_cert, args.mqtt_key, args.mqtt_login)
    if found is not None and find_spec("aiomqtt") is None:
        raise SettingError("--mqtt: needs aiomqtt, which is not installed: pip install 'aiomqtt>=2.5.1,<3'")
    return found


def own_name() -> str:
    return socket.gethostname().lower()
