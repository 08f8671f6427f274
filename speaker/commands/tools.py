"""The commands that end on their own; their work is in ``tools/``.

What a command needs is imported only when that command is used, because every ``speaker`` command asks this module for
its flags.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from speaker import __version__
from speaker.api.fields import did_you_mean
from speaker.errors import SettingError
from speaker.settings import DEFAULT_API_PORT, DEFAULT_ETHERTYPE, DEFAULT_IMAGE, DEFAULT_KEY, DEFAULT_STATE, KUBEADMS_CA
from speaker.tools import flags
from speaker.tools.flags import Commands, subparsers
from speaker.tools.terminal import printable

SHELLS = ("bash", "zsh", "fish")

EXIT_CODES = """\
exit codes:
  0    everything is done and right
  1    it did not work, or the output could not be written
  2    the command line cannot work
  130  Ctrl-C
  141  the reader of a pipe has ended (`speaker … | head`)

Colours appear only on a terminal, and not if NO_COLOR is set. `speaker help COMMAND` explains a command."""


def _of(module: str, name: str = "command") -> Callable[[argparse.Namespace], int]:
    """A function of a module of ``tools/`` that carries a command out; imported when it is called."""

    def command(args: argparse.Namespace) -> int:
        code: int = getattr(import_module(f"speaker.tools.{module}"), name)(args)
        return code

    return command


# ── Files, on any host ────────────────────────────────────────────────────────────────────────────────────────


def add_validate(commands: Commands) -> None:
    parser = commands.add_parser("validate", help="check the YAML files in DIR; exits with 1 if something is wrong")
    parser.path("directory", flags.DIRECTORY, metavar="DIR")
    parser.switch(
        "--with-peers", "also check that every Service names its addresses, as `speaker run --with-peers` needs"
    )
    flags.honour(parser, "as for the speaker: ")
    parser.switch("--json", flags.JSON)
    parser.set_defaults(command=_of("validate"), working="reading the manifests")


def add_keygen(commands: Commands) -> None:
    parser = commands.add_parser(
        "keygen",
        help="make the key that hosts share, or replace it",
        description="Writes a new key file, mode 0600; an existing one is never overwritten. To replace the key on "
        "running hosts: --add, copy the file to every host, --promote, copy, --retire, copy. A running "
        "speaker reads its key file again when it changes, and hosts one step apart accept each other.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", default=DEFAULT_KEY, help="(default %(default)s)")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--add", action="store_true", help="add a second key, which is accepted but does not sign yet")
    steps.add_argument("--promote", action="store_true", help="swap the keys: the second one signs from now on")
    steps.add_argument("--retire", action="store_true", help="remove the second key")
    parser.set_defaults(command=_keygen)


def _keygen(args: argparse.Namespace) -> int:
    from speaker.tools.keygen import Step, keygen

    step = next((step for step in Step if getattr(args, step.value, False)), Step.MAKE)
    for line in keygen(args.file, step):
        print(line)  # noqa: T201
    return 0


def add_control_plane(commands: Commands) -> None:
    parser = commands.add_parser(
        "control-plane",
        help="write what a node needs to share one address of the API servers, before there is an API server",
        description="Writes manifests for `speaker run`, a key, and a static pod or a systemd unit. Run it on the "
        "first node with --bootstrap before `kubeadm init`, and on the others, with a copy of the key, before "
        "`kubeadm join` (docs/control-plane.md). Files that are already there and would not change are left alone.",
    )
    parser.add_argument("address", metavar="ADDRESS", help="the address that the API servers share")
    servers = "the API servers' own addresses, of the same family; one of them is this host's"
    parser.add_argument("--servers", metavar="IP,…", required=True, help=servers)
    interface = "link for the address: a name, or can_reach:IP (default: the link whose own subnet holds it)"
    parser.word("--interface", "NAME", interface)
    parser.word("--port", "N", "port of the address and of the API servers (default %(default)s)", DEFAULT_API_PORT)
    parser.switch(
        "--bootstrap",
        "this is the first node: make the key if there is none, and prefer this node while no API server is healthy",
    )
    root = "write below DIR, as if it were the root directory (default %(default)s)"
    parser.path("--output", root, Path("/"), "DIR")
    parser.path("--ca", "CA that must have signed the API servers' certificates (default %(default)s)", KUBEADMS_CA)
    parser.word("--image", "NAME", "image of the static pod (default %(default)s)", DEFAULT_IMAGE)
    parser.switch("--systemd", "write a systemd unit instead of a static pod")
    parser.set_defaults(command=_control_plane)


def _control_plane(args: argparse.Namespace) -> int:
    from speaker.tools.control_plane.site import Site, control_plane, starter, was_first
    from speaker.tools.validate import addresses_here, cannot_hold

    first = args.bootstrap or was_first(args.output)
    site = Site.parse(args.address, args.servers, addresses_here(), args.port, args.interface, args.ca, first)
    program = shutil.which("speaker") or str(Path(sys.executable).with_name("speaker"))
    starts = starter(site, args.image, program, args.systemd)
    for line in control_plane(site, args.output, args.bootstrap, starts):
        print(line)  # noqa: T201
    if why := cannot_hold(site.address, site.interface):
        print(f"Attention: this host cannot hold {site.address}: {why}. See --interface")  # noqa: T201
    return 0


def add_plan(commands: Commands) -> None:
    parser = commands.add_parser("plan", help="show what different manifests would change")
    parser.description = (
        "Compares two directories of manifests, or with --cluster a live cluster before and after one "
        "directory is applied, and shows what each Service would gain or lose. Exits with 0 if nothing changes, "
        "with 1 if something does, and with 2 if manifests, state or cluster cannot be read."
    )
    parser.add_argument("now", metavar="NOW", nargs="?", type=Path, help="the current manifests")
    parser.add_argument("then", metavar="THEN", nargs="?", type=Path, help="the manifests that would replace them")
    parser.switch("--cluster", "compare with a live cluster, to which one directory (or none) would be applied")
    parser.path("--kubeconfig", flags.KUBECONFIG)
    parser.word("--context", "NAME", flags.CONTEXT)
    parser.switch("--default-class", "with --cluster: set it if controllers and agents have this flag")
    flags.honour(parser, "as for the speaker or the controllers: ")
    state = "the state file of `speaker run`; it may be missing (default %(default)s)"
    parser.path("--state", state, DEFAULT_STATE)
    drain = "assume this node's pods are gone; repeatable"
    parser.add_argument("--drain", metavar="NODE", action="append", default=[], help=drain)
    parser.switch("--json", flags.JSON)
    parser.set_defaults(command=_plan, working="working out what would change")


def _plan(args: argparse.Namespace) -> int:
    return _of("plan_cluster" if args.cluster else "plan")(args)


def add_convert(commands: Commands) -> None:
    parser = commands.add_parser("convert", help="translate another load balancer's pools and Services")
    parser.description = (
        "Reads manifests of OpenELB, MetalLB, kube-vip, PureLB and Cilium, or keepalived.conf, writes ours, and lists "
        "what has no equivalent. Exits with 1 if something needs your decision, and with 2 if it cannot read or write."
    )
    sources = "files, directories, or - for stdin (default: -)"
    parser.add_argument("sources", metavar="PATH", nargs="*", default=["-"], help=sources)
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="write pools.yaml and services.yaml there")
    parser.switch("--adopt", "every Service asks for the address that it has now")
    parser.switch(
        "--default-class", "leave Services without a class as they are; use it if controllers and agents have this flag"
    )
    whose = "whose Services these are, if they do not say so: openelb, metallb, kube-vip, purelb or cilium; "
    whose += "keepalived: the input is a keepalived.conf, whatever its name"
    parser.add_argument("--from", dest="peer", metavar="PEER", default="", help=whose)
    also = "also convert Services of this loadBalancerClass; may be repeated"
    parser.add_argument("--class", dest="classes", metavar="NAME", action="append", default=[], help=also)
    which = "for keepalived: lines @ID are for this host (default: this host's name)"
    parser.add_argument("--config-id", metavar="ID", default="", help=which)
    parser.switch("--json", "one JSON object on stdout, including the report")
    parser.set_defaults(command=_of("convert"), working="reading the input")


# ── The speaker of this host, or its kernel ───────────────────────────────────────────────────────────────────


def add_cleanup(commands: Commands) -> None:
    parser = commands.add_parser(
        "cleanup",
        help="remove everything that the speaker made in this kernel, and nothing else",
        description="Removes what speakers without a group (or those of --group) made, and never what others made. "
        "Needs CAP_NET_ADMIN. Refuses while a speaker that forwards runs with this --runtime-dir. Exits "
        "with 1 and an explanation if something is left, or may be left.",
    )
    flags.kernel(parser, "which forwarder's entries to remove (default %(default)s: all)")
    parser.set_defaults(command=_of("cleanup"), working="removing what the speaker made in this kernel")


def add_control(commands: Commands) -> None:
    status = commands.add_parser(
        "status", help="show who answers for which EIP, as this host's speaker (or with --cluster every agent) sees it"
    )
    eip = "everything known about this one (default: all)"
    status.add_argument("eip", metavar="EIP", nargs="?", default="", help=eip)
    status.switch("--summary", "count the EIPs instead of listing them")
    status.switch("--json", flags.JSON)
    status.switch("--watch", "print it again whenever it changes, until Ctrl-C")
    flags.cluster(status)
    drain = commands.add_parser("drain", help="hand every EIP of this host to its peers, and take none until `undrain`")
    timeout = "seconds to wait for the peers (default %(default)g)"
    drain.add_argument("--timeout", metavar="S", type=float, default=30.0, help=timeout)
    undrain = commands.add_parser("undrain", help="end a drain: this host takes EIPs again")
    rebalance = commands.add_parser("rebalance", help="spread the EIPs evenly over the hosts, with the fewest moves")
    status.set_defaults(command=_of("ask"))
    for name, parser in (("drain", drain), ("undrain", undrain), ("rebalance", rebalance)):
        parser.set_defaults(command=_of("ask", name))
    for parser in (status, drain, undrain, rebalance):
        flags.runtime(parser)
        parser.set_defaults(working="waiting for the speaker on this host")


def add_connections(commands: Commands) -> None:
    parser = commands.add_parser(
        "connections", help="show from this host's kernel who is connected through which EIP to which real server"
    )
    parser.add_argument("eip", metavar="EIP", nargs="?", default="", help="(default: all)")
    parser.word("--limit", "N", "connections to print; totals count all (default %(default)s)", "100")
    parser.switch("--json", flags.JSON)
    flags.runtime(parser)
    parser.set_defaults(command=_connections, working="reading the kernel's connections")


def _connections(args: argparse.Namespace) -> int:
    from speaker.tools.connections import connections

    return connections(args.runtime_dir, sys.stdout, args.eip, args.limit, args.json, args.group)


def add_capture(commands: Commands) -> None:
    parser = commands.add_parser(
        "capture",
        help="describe hellos, ARP and NDP on a link in words; needs the extra `tools`",
        description="Shows who asks, answers, announces and claims which EIP, and marks with ! what should not happen, "
        "such as a stranger who answers for a claimed EIP. Needs CAP_NET_RAW, unless it reads a file, and scapy, an "
        "extra because its licence is GPL-2.0: pip install 'scapy>=2.6,<3'.",
    )
    parser.add_argument("target", metavar="LINK|FILE", help="a link of this host, or a pcap or pcapng file")
    parser.add_argument("--seconds", metavar="S", type=float, help="how long to listen (default: until Ctrl-C)")
    parser.path("--write", "save what was shown in a new pcap file")
    parser.path("--key", "verify hellos with this key; without one they are shown as unverified")
    parser.word("--ethertype", "NUMBER", f"EtherType of the hellos (default 0x{DEFAULT_ETHERTYPE:04X})", None)
    parser.switch("--all", "show every hello, not only changes")
    parser.switch("--json", "one JSON object per line")
    parser.set_defaults(command=_of("capture.capture"))


# ── The command line itself ───────────────────────────────────────────────────────────────────────────────────


def add_about(commands: Commands) -> None:
    helped = commands.add_parser("help", help="explain the speaker, or one of its commands")
    helped.add_argument("topic", metavar="COMMAND", nargs="?", help="(default: list all commands)")
    helped.set_defaults(command=_help)
    commands.add_parser("version", help="print the version").set_defaults(command=_version)
    completion = commands.add_parser(
        "completion",
        help="print a script for shell completion",
        description='bash: eval "$(speaker completion bash)" in ~/.bashrc. '
        "zsh: speaker completion zsh > DIR/_speaker, with a DIR of $fpath. "
        "fish: speaker completion fish > ~/.config/fish/completions/speaker.fish",
    )
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    completion.set_defaults(command=_completion)


def _help(args: argparse.Namespace) -> int:
    known = subparsers(args.parser)
    if args.topic is None:
        args.parser.print_help()
    elif args.topic in known:
        known[args.topic].print_help()
    else:
        raise SettingError(f"help: {printable(args.topic)}: no such command: {did_you_mean(args.topic, known)}")
    return 0


def _version(_: argparse.Namespace) -> int:
    print(f"speaker {__version__}")  # noqa: T201
    return 0


def _completion(args: argparse.Namespace) -> int:
    import shtab

    for parser in subparsers(args.parser).values():
        for action in parser._actions:
            if action.type is Path:
                action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(args.parser, args.shell))  # noqa: T201
    return 0
