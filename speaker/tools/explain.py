"""``speaker explain`` and ``speaker doctor``: judge and report the facts of this node, or of every node of a cluster.

Other modules are imported when one of the two is used, because every ``speaker`` command asks this module for its
flags.
"""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from speaker.errors import EdgeError, SettingError
from speaker.model import Forwarding
from speaker.tools import flags
from speaker.tools.terminal import write

if TYPE_CHECKING:
    from speaker.diagnosis.facts import Facts
    from speaker.diagnosis.together import Part
    from speaker.tools.agents import Cluster

LONGEST = 512
CHOICES = 20
"""How many Services of one name are listed."""
FORWARDERS = [kind.value for kind in Forwarding if kind is not Forwarding.AUTO]


def add_commands(commands: flags.Commands) -> None:
    one = commands.add_parser(
        "explain",
        help="why an EIP is not reachable: each step of its way, the first broken one, and how to fix it",
        description="Looks from this host, or with --cluster from every node, for up to 10 s. Exits with 1 if a step "
        "is broken, and with 2 if that is unknown.",
    )
    one.add_argument("about", metavar="EIP|[NAMESPACE/]SERVICE|POOL")
    one.set_defaults(command=_explain, working="looking")
    all_ = commands.add_parser(
        "doctor",
        help="everything that is wrong on this host or in the cluster, likeliest cause first; exits with 1 if any",
    )
    all_.add_argument("--all", action="store_true", help="every finding in full, not only what fits one screen")
    all_.set_defaults(command=_look, working="looking", about="")
    for parser in (one, all_):
        told = parser.add_mutually_exclusive_group()
        told.add_argument("--json", action="store_true", help="one JSON object on stdout")
        told.add_argument("--facts", action="store_true", help="print the facts as JSON, for another machine to judge")
        parser.add_argument(
            "--forwarder", choices=FORWARDERS, default="", help="the forwarder to check for, if no speaker runs"
        )
        flags.runtime(parser)
        flags.cluster(parser)


def _explain(args: argparse.Namespace) -> int:
    """0: nothing is broken; 1: a step is, and is named; 2: unknown."""
    args.about = asked_about(args.about)
    return _look(args)


def _look(args: argparse.Namespace) -> int:
    if (cluster := flags.asked_cluster(args)) is not None:
        return _together(cluster, args)
    from speaker.diagnosis.facts import encode
    from speaker.diagnosis.gather import gather

    facts = asyncio.run(gather(args.runtime_dir, args.about, args.forwarder, args.group))
    if args.facts:
        write(sys.stdout, [encode(facts).decode()])
        return 0
    return _explained(args, facts) if args.about else _examined(args, facts)


def asked_of_each(command: str, about: str, forwarder: str) -> list[str]:
    """The command that every agent of a cluster runs; the remaining flags are for whoever combines the answers."""
    words = [command, "--facts"]
    words += ["--forwarder", forwarder] if forwarder else []
    return [*words, "--", about] if about else words


def asked_about(about: str) -> str:
    """An EIP in its shortest form. Raises SettingError for an impossible name."""
    from speaker.node.known.knowledge import an_address

    if not about or len(about) > LONGEST or not about.isprintable():
        raise SettingError(
            f"{about[:80]!r}: must be an EIP, a Service as name or namespace/name, or the name of a pool"
        )
    address = an_address(about)
    return str(address) if address is not None else about


def _explained(args: argparse.Namespace, facts: "Facts") -> int:
    from speaker.diagnosis.chain import explain
    from speaker.diagnosis.report import chain_json, chain_lines

    if choice := several(args.about, [facts]):
        raise SettingError(choice)
    chain = explain(facts)
    write(sys.stdout, [json.dumps(chain_json(chain))] if args.json else chain_lines(chain))
    return chain.code


def several(about: str, seen: Iterable["Facts"]) -> str:
    """What to ask instead, if Services of several namespaces have that name; '' if it is unambiguous."""
    known = [facts.knowledge for facts in seen]
    keys = sorted({each.key for one in known for each in one.services.first if each.key.partition("/")[2] == about})
    if len(keys) < 2 or any(pool.name == about for one in known for pool in one.pools.first):
        return ""
    return "\n".join(
        [
            f"{about}: Services of {len(keys)} namespaces have that name. Ask for one of them:",
            *(f"  speaker explain {shlex.quote(key)}" for key in keys[:CHOICES]),
        ]
    )


def _examined(args: argparse.Namespace, facts: "Facts") -> int:
    """0: nothing is wrong; 1: something is."""
    from speaker.diagnosis.chain import examine, unseen
    from speaker.diagnosis.report import finding_lines, findings_json

    found, dark = examine(facts), unseen(facts)
    all_ = [each for group in found for each in group.findings]
    told = [json.dumps(findings_json(all_, dark))] if args.json else finding_lines(found, dark, everything=args.all)
    write(sys.stdout, told)
    return 1 if found else 0


def _together(cluster: "Cluster", args: argparse.Namespace) -> int:
    """Each agent looks; what they saw is judged here. Returns the codes of ``explain``."""
    from speaker.diagnosis import report, together
    from speaker.diagnosis.facts import decode
    from speaker.tools.agents import ask, taking

    if args.facts:
        raise SettingError("--facts: are for one node: not together with --cluster")
    judged, merged, told = (
        (together.explaining, together.explanation, report.explanation_lines)
        if args.about
        else (together.examining, together.examination, partial(report.examination_lines, everything=args.all))
    )

    command = asked_of_each("explain" if args.about else "doctor", args.about, args.forwarder)
    seen: list[Facts] = []

    def judge(node: str, body: bytes) -> "Part":
        seen.append(decode(body))
        return judged_with(judged, node, seen[-1])

    answers = asyncio.run(ask(cluster, command, judge))
    if choice := several(args.about, seen):
        raise SettingError(choice)
    beyond, unread = asyncio.run(taking(cluster.access))
    whole = merged([*answers.told.values()], {**answers.silent, **unread}, beyond)
    write(sys.stdout, [json.dumps(report.whole_json(whole))] if args.json else told(whole))
    return whole.code


def judged_with(judge: "Callable[[str, Facts], Part]", node: str, facts: "Facts") -> "Part":
    """Raises EdgeError if that fails, whatever ``node`` sent: the others' answers are shown all the same."""
    try:
        return judge(node, facts)
    except Exception as error:
        raise EdgeError(f"its facts cannot be judged: {type(error).__name__}: {error}") from error
