"""``speaker explain`` and ``speaker doctor``: facts of this node, judged and told.

The rest is imported when one of them is given: every ``speaker`` command asks this module for its flags.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from speaker.errors import SettingError
from speaker.model import Forwarding
from speaker.tools import flags

LONGEST = 512
FORWARDERS = [kind.value for kind in Forwarding if kind is not Forwarding.AUTO]


def add_commands(commands: flags.Commands) -> None:
    one = commands.add_parser(
        "explain",
        help="why an EIP is not reachable: every step of its way, the first that is broken, and what mends it",
        description="Looks from this host, within 5 s. Ends with 1 where a step is broken, and with 2 where that "
        "cannot be told.",
    )
    one.add_argument("about", metavar="EIP|NAMESPACE/SERVICE|POOL")
    one.set_defaults(command=lambda args: explain(args.runtime_dir, sys.stdout, args.about, args.forwarder, args.json))
    all_ = commands.add_parser(
        "doctor", help="everything that is wrong on this host, the likeliest cause first; 1 where anything is"
    )
    all_.set_defaults(command=lambda args: doctor(args.runtime_dir, sys.stdout, args.forwarder, args.json))
    for parser in (one, all_):
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
        parser.add_argument(
            "--forwarder",
            choices=FORWARDERS,
            default="",
            help="what a speaker that ended should work with",
        )
        flags.runtime(parser)


def explain(runtime_dir: Path, out: TextIO, about: str, forwarder: str, as_json: bool) -> int:
    """0: nothing is broken; 1: a step is, which is named; 2: it cannot be told. Raises SettingError."""
    from speaker.diagnosis.chain import explain as judged
    from speaker.diagnosis.gather import gather
    from speaker.diagnosis.report import chain_json, chain_lines
    from speaker.node.known.knowledge import an_address

    if not about or len(about) > LONGEST or not about.isprintable():
        raise SettingError(f"{about[:80]!r}: must be an EIP, namespace/name of a Service, or the name of a pool")
    address = an_address(about)
    facts = asyncio.run(gather(runtime_dir, str(address) if address is not None else about, forwarder))
    chain = judged(facts)
    _write(out, [json.dumps(chain_json(chain, facts.unseen))] if as_json else chain_lines(chain, facts.unseen))
    return chain.code


def doctor(runtime_dir: Path, out: TextIO, forwarder: str, as_json: bool) -> int:
    """0: nothing is wrong; 1: something is."""
    from speaker.diagnosis.doctor import findings
    from speaker.diagnosis.gather import gather
    from speaker.diagnosis.report import finding_lines, findings_json

    facts = asyncio.run(gather(runtime_dir, forwarder=forwarder))
    found = findings(facts)
    told = findings_json(found, facts.unseen)
    _write(out, [json.dumps(told)] if as_json else finding_lines(found, facts.unseen))
    return 1 if found else 0


def _write(out: TextIO, lines: Iterable[str]) -> None:
    out.writelines(f"{line}\n" for line in lines)
