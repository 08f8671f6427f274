"""``speaker status|drain|undrain|rebalance``: asks the speaker on this host, or for ``status`` all agents of a cluster,
and puts the answers into words.

Each returns the exit code. If no speaker answers, or it refuses, an EdgeError goes to ``cli.py``.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import msgspec

from speaker.errors import EdgeError, SettingError, as_edge_error, folded
from speaker.model import rank
from speaker.node.control import ask, read_answer
from speaker.system.decoding import UNFIT
from speaker.tools.flags import asked_cluster
from speaker.tools.terminal import printable, table, write

if TYPE_CHECKING:  # they need the API's client
    from speaker.tools.agents import Answers, Cluster

QUICK = 10.0
"""A speaker that is well answers within so many seconds, if the answer takes no work."""


def status(runtime_dir: Path, as_json: bool, eip: str = "", *, summary: bool = False) -> Iterator[str]:
    """All EIPs, or one ``eip``; none in a ``summary``."""
    for answer in ask(runtime_dir, "status", QUICK):
        told = {name: value for name, value in answer.items() if name != "done"}
        if eip:
            told["eips"] = only(told.get("eips", ()), eip)
        if as_json:
            yield json.dumps(told)
        else:
            read_answer(told, _Status)
            told_in_words = of_one(told["eips"][0]) if eip else describe(told, summary=summary)
            yield from (each for line in told_in_words for each in folded(line))


def only(eips: Iterable[Mapping[str, Any]], eip: str) -> list[Mapping[str, Any]]:
    """Raises EdgeError if it is not among them."""
    if found := [each for each in eips if each.get("address") == eip]:
        return found
    raise EdgeError(f"{eip} is not an EIP in use here: ask `speaker explain {eip}`")


def drain(args: argparse.Namespace) -> int:
    """Returns 1 if nobody took an EIP before the speaker gave it up."""
    if not 0 < args.timeout < 86400:
        raise SettingError(f"--timeout {args.timeout:g}: must be seconds above 0 and below a day")
    left: list[str] = []
    for answer in ask(args.runtime_dir, "drain", args.timeout):
        if answer.get("done"):
            left = read_answer(answer, _Drained).left
        else:
            moved = read_answer(answer, _Moved)
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
    """Prints every change of the numbers. Returns 1 if a move was refused."""
    told: _Moves | None = None
    for answer in ask(args.runtime_dir, "rebalance"):
        if "planned" in answer and (moves := read_answer(answer, _Moves)) != told:
            told = moves
            write(sys.stdout, [f"planned {moves.planned}, moved {moves.moved}, refused {moves.refused}"])
    if told is not None and told.preferred:
        write(sys.stdout, [f"{told.preferred} EIPs prefer certain nodes: they went or stayed there, balanced or not"])
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
"""Seconds since 1970, to the end of the year 9999; there are no dates after that."""


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
    """The parts that ``describe`` reads."""

    node: str
    draining: bool
    eips: list[SeenEip] = []
    peers: list[_Peer] = []
    kube_proxy: _KubeProxy | None = None
    handed_over: list[_HandedOver] = []
    assisting: list[_Assisted] = []
    tables: dict[str, _Use] = {}
    problems: list[str] = []


# ── In words ──────────────────────────────────────────────────────────────────────────────────────────────────


HEAD = "EIP", "HOLDER", "TERM", "LINK", "SINCE (UTC)", "SERVICES"


def of_one(eip: Mapping[str, Any]) -> Iterator[str]:
    """Everything known about an EIP."""
    _, holder, term, link, since, _ = _eip(eip)
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
    """How many EIPs each node holds."""
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
    yield from [printable(held(eips))] if summary else table(HEAD, map(_eip, eips))
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
        yield printable(f"kube-proxy is assisted since {since} UTC: no new connections to the dead node {dead['node']}")
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


def _eip(eip: Mapping[str, Any]) -> Sequence[str]:
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
    """Lost hellos: the peer's here, and ours there if the peer says so."""
    here = "" if loss is None else f"{loss} %"
    return f"{here}, of ours {loses} %" if loses else here


def _tables(tables: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if conntrack := tables.get("conntrack"):
        yield f"connections that the kernel tracks: {conntrack['connections']}, at most {conntrack['size']}"
    if ipvs := tables.get("ipvs"):
        bits = ipvs["size"].bit_length() - 1
        yield f"connections of IPVS: {ipvs['connections']}, in {ipvs['size']} buckets (conn_tab_bits {bits})"


def troubles(told: Mapping[str, Any]) -> Iterator[str]:
    """Everything that is not as it was asked for, a sentence each."""
    if not told.get("ready", True):
        yield "not ready: not everything requested has been in force yet"
    yield from map(str, told.get("problems", ()))


# ── Once or whenever it changes, of this host or of every node of a cluster ───────────────────────────────────

AGAIN, CLUSTER_AGAIN = 1.0, 5.0
"""Seconds between two looks, at this host and at a cluster, where every look starts a process in every agent's pod."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def command(args: argparse.Namespace) -> int:
    """Returns 1 if this host's speaker, or an agent of the cluster, did not answer. Raises SettingError."""
    try:
        eip = str(ip_address(args.eip)) if args.eip else ""
    except ValueError as error:
        raise SettingError(f"{args.eip[:80]!r}: must be an EIP") from error
    cluster, out = asked_cluster(args), sys.stdout
    seen: list[Answers[Mapping[str, Any]]] = []

    def look() -> Iterable[str]:
        if cluster is None:
            return status(args.runtime_dir, args.json, eip, summary=args.summary)

        answers, unserved = asyncio.run(_cluster(cluster))
        seen[:] = [answers]
        whole = together(answers) | {"unserved": unserved}
        if eip:
            whole |= {"eips": only(whole["eips"], eip), "unserved": []}
        if args.json:
            return [json.dumps(whole)]
        return [each for line in describe_cluster(whole, summary=args.summary) for each in folded(line)]

    if args.watch:
        watch(look, out, lambda: time.sleep(AGAIN if cluster is None else CLUSTER_AGAIN), args.json)
    try:
        write(out, look())
    except EdgeError as error:
        if args.json:
            write(out, [json.dumps({"error": str(error)})])
        raise
    return 1 if seen and seen[0].silent else 0


async def _cluster(cluster: "Cluster") -> tuple["Answers[Mapping[str, Any]]", list[str]]:
    from speaker.tools.agents import ask as ask_agents
    from speaker.tools.agents import unserved

    answers, refused = await asyncio.gather(ask_agents(cluster, ("status", "--json"), read), unserved(cluster.access))
    return answers, refused


def watch(look: Callable[[], Iterable[str]], out: TextIO, wait: Callable[[], None], as_json: bool) -> None:
    """Prints what ``look`` yields whenever it has changed: on a terminal in place of the last print, otherwise below
    it. Ends when ``wait`` raises. If nobody can be asked, prints that and tries again."""
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
    """The parts of a node's status that are combined; the node may run another release."""

    draining: bool
    eips: list[SeenEip]
    ready: bool = True
    problems: list[str] = []


def read(_: str, body: bytes) -> dict[str, Any]:
    """Raises EdgeError."""
    with as_edge_error("this is not a speaker's status", UNFIT):
        found = msgspec.json.decode(body, type=SeenStatus)
    told: dict[str, Any] = msgspec.to_builtins(found)
    return told


# ── Of a cluster ──────────────────────────────────────────────────────────────────────────────────────────────


def together(answers: "Answers[Mapping[str, Any]]") -> dict[str, Any]:
    """One entry for each EIP, and each problem with the nodes that report it. Pure."""
    eips: dict[str, dict[str, Any]] = {}
    for node, told in answers.told.items():
        for eip in told.get("eips", ()):
            _add(eips.setdefault(eip["address"], {"address": eip["address"], "holders": [], "named": []}), node, eip)
    problems: dict[str, list[str]] = {}
    for node, told in answers.told.items():
        for sentence in troubles(told):
            problems.setdefault(sentence, []).append(node)
    return {
        "eips": sorted(eips.values(), key=_place),
        "problems": [{"nodes": nodes, "problem": sentence} for sentence, nodes in problems.items()],
        "draining": [node for node, told in answers.told.items() if told.get("draining")],
        "silent": dict(answers.silent),
    }


def _add(whole: dict[str, Any], node: str, eip: Mapping[str, Any]) -> None:
    """Adds what a node says about an EIP. The holder knows more than the others."""
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


MOST_UNSERVED = 20
"""The most lines about Services and pools, so that problems of nodes stay on the screen."""


def describe_cluster(whole: Mapping[str, Any], *, summary: bool = False) -> Iterator[str]:
    rows = [*map(_row, whole["eips"])]
    yield from [printable(held({"holder": row[1]} for row in rows))] if summary else table(HEAD, rows)
    unserved = whole.get("unserved", [])
    more = len(unserved) - MOST_UNSERVED
    lines = [
        *unserved[:MOST_UNSERVED],
        *([f"{more} more Services and pools: --json has them all"] if more > 0 else []),
        *(f"{node}: draining" for node in whole["draining"]),
        *(f"{', '.join(each['nodes'])}: {each['problem']}" for each in whole["problems"]),
        *(f"{node}: no answer: {why}" for node, why in whole["silent"].items()),
    ]
    if lines:
        yield ""
        yield from map(printable, lines)


def _row(eip: Mapping[str, Any]) -> Sequence[str]:
    """A node that others name as the holder, but that did not say so itself, is not known to hold it."""
    named = ", ".join(f"{node}?" for node in eip["named"])
    holder = ", ".join(eip["holders"]) or named
    return _eip({"term": 0, **eip, "holder": holder})
