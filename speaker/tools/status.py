"""``speaker status``: of this host, or of every node of a cluster, once or whenever it changes."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from speaker.errors import EdgeError, SettingError, folded
from speaker.model import rank
from speaker.system.decoding import UNFIT
from speaker.tools import ask
from speaker.tools.flags import asked_cluster
from speaker.tools.terminal import printable, table, write

if TYPE_CHECKING:  # they bring the API's client with them
    from speaker.tools.agents import Answers

AGAIN, CLUSTER_AGAIN = 1.0, 5.0
"""Seconds between two looks, of this host and of a cluster, where every look is a process in every agent's pod."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def command(args: argparse.Namespace) -> int:
    """1 where an agent of the cluster, or this host's speaker, did not answer. Raises SettingError."""
    try:
        eip = str(ip_address(args.eip)) if args.eip else ""
    except ValueError as error:
        raise SettingError(f"{args.eip[:80]!r}: must be an EIP") from error
    cluster, out = asked_cluster(args), sys.stdout
    seen: list[Answers[Mapping[str, Any]]] = []

    def look() -> Iterable[str]:
        if cluster is None:
            return ask.status(args.runtime_dir, args.json, eip, summary=args.summary)

        from speaker.tools.agents import ask as ask_agents

        seen[:] = [asyncio.run(ask_agents(cluster, ("status", "--json"), read))]
        whole = together(seen[0])
        if eip:
            whole["eips"] = ask.only(whole["eips"], eip)
        if args.json:
            return [json.dumps(whole)]
        return [each for line in describe(whole, summary=args.summary) for each in folded(line)]

    if args.watch:
        watch(look, out, lambda: time.sleep(AGAIN if cluster is None else CLUSTER_AGAIN), args.json)
    try:
        write(out, look())
    except EdgeError as error:
        if args.json:
            write(out, [json.dumps({"error": str(error)})])
        raise
    return 1 if seen and seen[0].silent else 0


def watch(look: Callable[[], Iterable[str]], out: TextIO, wait: Callable[[], None], as_json: bool) -> None:
    """What ``look`` gives, whenever that is not what it was: on a terminal in place of it, else below. Until ``wait``
    raises. That nobody can be asked is shown, and asked again."""
    shown: list[str] = []
    while True:
        try:
            lines = [*look()]
        except EdgeError as error:
            lines = [json.dumps({"error": str(error)}) if as_json else printable(str(error))]
        if lines != shown:
            if not as_json:
                at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
                write(out, [f"{_CLEAR}{at}" if out.isatty() else at])
            write(out, lines if as_json else [*lines, ""])
            shown = lines
        wait()


class SeenStatus(msgspec.Struct, omit_defaults=True):
    """What is put together of what a node's speaker says, be it of another release."""

    draining: bool
    eips: list[ask.SeenEip]
    ready: bool = True
    problems: list[str] = []


def read(_: str, body: bytes) -> dict[str, Any]:
    """Raises EdgeError."""
    try:
        found = msgspec.json.decode(body, type=SeenStatus)
    except UNFIT as error:
        raise EdgeError(f"this is no status of a speaker: {error}") from error
    told: dict[str, Any] = msgspec.to_builtins(found)
    return told


# ── Of a cluster ──────────────────────────────────────────────────────────────────────────────────────────────


def together(answers: "Answers[Mapping[str, Any]]") -> dict[str, Any]:
    """One entry for each EIP, and each problem with the nodes that tell of it. Pure."""
    eips: dict[str, dict[str, Any]] = {}
    for node, told in answers.told.items():
        for eip in told.get("eips", ()):
            _add(eips.setdefault(eip["address"], {"address": eip["address"], "holders": [], "named": []}), node, eip)
    problems: dict[str, list[str]] = {}
    for node, told in answers.told.items():
        for sentence in ask.troubles(told):
            problems.setdefault(sentence, []).append(node)
    return {
        "eips": sorted(eips.values(), key=_place),
        "problems": [{"nodes": nodes, "problem": sentence} for sentence, nodes in problems.items()],
        "draining": [node for node, told in answers.told.items() if told.get("draining")],
        "silent": dict(answers.silent),
    }


def _add(whole: dict[str, Any], node: str, eip: Mapping[str, Any]) -> None:
    """What a node says of an EIP. Who holds it knows more than the others."""
    whole.setdefault("services", eip["services"])
    if eip["claimed"]:
        whole["holders"].append(node)
        whole |= {name: eip[name] for name in ("term", "since", "link", "mac", "services") if name in eip}
    elif (holder := eip["holder"]) is not None and holder not in whole["named"]:
        whole["named"].append(holder)


def _place(eip: Mapping[str, Any]) -> tuple[Any, ...]:
    try:
        return 0, *rank(ip_address(eip["address"]))
    except ValueError:
        return 1, eip["address"]


def describe(whole: Mapping[str, Any], *, summary: bool = False) -> Iterator[str]:
    rows = [*map(_row, whole["eips"])]
    yield from [printable(ask.held({"holder": row[1]} for row in rows))] if summary else table(ask.HEAD, rows)
    lines = [
        *(f"{node}: draining" for node in whole["draining"]),
        *(f"{', '.join(each['nodes'])}: {each['problem']}" for each in whole["problems"]),
        *(f"{node}: no answer: {why}" for node, why in whole["silent"].items()),
    ]
    if lines:
        yield ""
        yield from map(printable, lines)


def _row(eip: Mapping[str, Any]) -> Sequence[str]:
    """Whom others name, and who did not say so, is none that is known to hold it."""
    named = ", ".join(f"{node}?" for node in eip["named"])
    holder = ", ".join(eip["holders"]) or named
    return ask.row({"term": 0, **eip, "holder": holder})
