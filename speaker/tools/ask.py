"""``speaker status|drain|undrain|rebalance``: asks the speaker that runs on this host, and puts its answers into words.

Each returns the exit code; EdgeError, where no speaker answers or it refuses, is for ``cli.py``.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from speaker.errors import EdgeError, SettingError, folded
from speaker.node.control import ask
from speaker.tools.terminal import printable, table, write

QUICK = 10.0
"""Seconds within which a speaker that is well has answered what takes no time."""


def status(runtime_dir: Path, as_json: bool, eip: str = "", *, summary: bool = False) -> Iterator[str]:
    """Of all, or of one ``eip``; without them where it is a ``summary``."""
    for answer in ask(runtime_dir, "status", QUICK):
        told = {name: value for name, value in answer.items() if name != "done"}
        if eip:
            told["eips"] = only(told.get("eips", ()), eip)
        if as_json:
            yield json.dumps(told)
        else:
            _read(told, _Status)
            told_in_words = of_one(told["eips"][0]) if eip else describe(told, summary=summary)
            yield from (each for line in told_in_words for each in folded(line))


def only(eips: Iterable[Mapping[str, Any]], eip: str) -> list[Mapping[str, Any]]:
    """Raises EdgeError where it is none of them."""
    if found := [each for each in eips if each.get("address") == eip]:
        return found
    raise EdgeError(f"{eip} is no EIP in use here: ask `speaker explain {eip}`")


def drain(args: argparse.Namespace) -> int:
    """1 where an EIP found no taker before the speaker gave it up."""
    if not 0 < args.timeout < 86400:
        raise SettingError(f"--timeout {args.timeout:g}: must be seconds above 0 and below a day")
    left: list[str] = []
    for answer in ask(args.runtime_dir, "drain", args.timeout):
        if answer.get("done"):
            left = _read(answer, _Drained).left
        else:
            moved = _read(answer, _Moved)
            write(sys.stdout, [f"{printable(moved.eip)} → {printable(moved.to or 'nobody')}"])
    if left:
        write(sys.stdout, [f"no other host took {', '.join(left)}: nobody answers for them now"])
        return 1
    write(sys.stdout, ["drained: this host answers for nothing"])
    return 0


def undrain(args: argparse.Namespace) -> int:
    for _ in ask(args.runtime_dir, "undrain", QUICK):
        write(sys.stdout, ["takes EIPs again"])
    return 0


def rebalance(args: argparse.Namespace) -> int:
    """Every change of the numbers; 1 where a move was refused."""
    told: _Moves | None = None
    for answer in ask(args.runtime_dir, "rebalance"):
        if "planned" in answer and (moves := _read(answer, _Moves)) != told:
            told = moves
            write(sys.stdout, [f"planned {moves.planned}, moved {moves.moved}, refused {moves.refused}"])
    if told is not None and told.preferred:
        write(sys.stdout, [f"{told.preferred} EIPs prefer some of the nodes: they went or stayed there, level or not"])
    return 1 if told is not None and told.refused else 0


# ── What of the answers is read ───────────────────────────────────────────────────────────────────────────────


class _Moved(msgspec.Struct):
    eip: str
    to: str | None


class _Drained(msgspec.Struct):
    left: list[str]


class _Moves(msgspec.Struct):
    planned: int
    moved: int
    refused: int
    preferred: int = 0


LATEST = 253_402_300_799
"""Seconds since 1970, to the end of the year 9999: behind it there is no date."""


class SeenEip(msgspec.Struct, omit_defaults=True):
    address: str
    services: list[str]
    claimed: bool
    holder: str | None
    term: int
    since: Annotated[float, msgspec.Meta(ge=0, le=LATEST)] | None = None
    link: str = ""
    mac: str = ""
    message: str = ""


class _Peer(msgspec.Struct):
    node: str
    link: str
    alive: bool
    draining: bool
    loss: int | None = None
    loses: int = 0
    patience_ms: int = 0


class _KubeProxy(msgspec.Struct):
    mode: str
    evidence: list[str]
    notes: list[str]


class _HandedOver(msgspec.Struct):
    eips: int
    address: str
    link: str


class _Assisted(msgspec.Struct):
    node: str
    since: Annotated[float, msgspec.Meta(ge=0, le=LATEST)]


class _Use(msgspec.Struct):
    connections: int
    size: int


class _Status(msgspec.Struct):
    """What ``describe`` reads."""

    node: str
    draining: bool
    eips: list[SeenEip] = []
    peers: list[_Peer] = []
    kube_proxy: _KubeProxy | None = None
    handed_over: list[_HandedOver] = []
    assisting: list[_Assisted] = []
    tables: dict[str, _Use] = {}
    problems: list[str] = []


_T = TypeVar("_T")


def _read(answer: Mapping[str, Any], kind: type[_T]) -> _T:
    """Raises EdgeError: the speaker that runs was perhaps not started again since this program was replaced."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise EdgeError(f"the speaker is of another version than this program: {error}") from error


# ── In words ──────────────────────────────────────────────────────────────────────────────────────────────────


HEAD = "EIP", "HOLDER", "TERM", "LINK", "SINCE (UTC)", "SERVICES"


def of_one(eip: Mapping[str, Any]) -> Iterator[str]:
    """All that is known of an EIP."""
    _, holder, term, link, since, _ = row(eip)
    known = {
        "holder": holder + (" (this node)" if eip["claimed"] else ""), "since": since and f"{since} UTC", "term": term,
        "link": " ".join(filter(None, (link, eip.get("mac", "")))), "pool": eip.get("pool", ""),
        "services": ", ".join(eip["services"]), "answered by": _counted(eip.get("answering"), "host"),
        "ready": _counted(eip.get("ready_endpoints"), "endpoint"), "not held here": eip.get("message", ""),
    }  # fmt: skip
    yield printable(eip["address"])
    yield from (printable(f"  {name}: {value}") for name, value in known.items() if value)


def _counted(number: int | None, what: str) -> str:
    return "" if number is None else f"{number} {what}{'' if number == 1 else 's'}"


def held(eips: Iterable[Mapping[str, Any]]) -> str:
    """How many each node holds."""
    found = Counter(eip["holder"] or "nobody" for eip in eips)
    by = ", ".join(f"{number} by {node}" for node, number in sorted(found.items()))
    return f"{_counted(found.total(), 'EIP')}{f': held {by}' if by else ''}"


def describe(told: Mapping[str, Any], *, summary: bool = False) -> Iterator[str]:
    """A status as tables: its EIPs, its peers, and a line for everything that is not as it was asked for. ``summary``:
    the EIPs are only counted."""
    eips, peers = told.get("eips", ()), told.get("peers", ())
    yield f"node {told['node']}{': draining' if told['draining'] else ''}"
    if (kube_proxy := told.get("kube_proxy")) is not None:
        yield from _kube_proxy(kube_proxy)
    yield ""
    yield from [printable(held(eips))] if summary else table(HEAD, map(row, eips))
    if peers:
        yield ""
        yield from table(("PEER", "LINK", "STATE", "HELLOS LOST"), map(_peer, peers))
    for holder in told.get("handed_over", ()):
        yield ""
        yield "packets of unknown flows of {eips} EIPs go to {address} on {link}, which held them before".format(
            **holder
        )
    for dead in told.get("assisting", ()):
        yield ""
        since = _utc(dead["since"])
        yield printable(
            f"kube-proxy is assisted since {since} UTC: nothing new to endpoints on the dead {dead['node']}"
        )
    if tables := [*_tables(told.get("tables", {}))]:
        yield ""
        yield from tables
    if found := [*troubles(told)]:
        yield ""
        yield from map(printable, found)


def _kube_proxy(found: Mapping[str, Any]) -> Iterator[str]:
    evidence = f" ({'; '.join(found['evidence'])})" if found["evidence"] else ""
    yield f"kube-proxy: {found['mode']}{evidence}"
    yield from (f"  {note}" for note in found["notes"])


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def row(eip: Mapping[str, Any]) -> Sequence[str]:
    at = eip.get("since")
    since = _utc(at) if at is not None else ""
    services = ", ".join(eip["services"])
    term = str(eip["term"] or "")  # 0: no other node could have claimed it
    return eip["address"], eip["holder"] or "nobody", term, eip.get("link", ""), since, services


def _peer(peer: Mapping[str, Any]) -> Sequence[str]:
    state = "alive" if peer["alive"] else "silent"
    state = f"{state}, draining" if peer["draining"] else state
    state += f", dead after {patience} ms" if (patience := peer.get("patience_ms")) else ""
    return peer["node"], peer["link"], state, _lost(peer.get("loss"), peer.get("loses", 0))


def _lost(loss: int | None, loses: int) -> str:
    """Of its hellos here, and of ours there where it says so."""
    here = "" if loss is None else f"{loss} %"
    return f"{here}, of ours {loses} %" if loses else here


def _tables(tables: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if conntrack := tables.get("conntrack"):
        yield f"connections that the kernel tracks: {conntrack['connections']}, at most {conntrack['size']}"
    if ipvs := tables.get("ipvs"):
        bits = ipvs["size"].bit_length() - 1
        yield f"connections of IPVS: {ipvs['connections']}, in {ipvs['size']} buckets (conn_tab_bits {bits})"


def troubles(told: Mapping[str, Any]) -> Iterator[str]:
    """All that is not as it was asked for, a sentence each."""
    if not told.get("ready", True):
        yield "not ready: not everything that is asked for has been in force yet"
    yield from map(str, told.get("problems", ()))
