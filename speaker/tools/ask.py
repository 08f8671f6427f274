"""``speaker status|drain|undrain|rebalance``: asks the speaker that runs on this host, and puts its answers into words.

Each returns the exit code; EdgeError, where no speaker answers or it refuses, is for ``cli.py``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import msgspec

from speaker.errors import EdgeError
from speaker.node.control import ask
from speaker.tools.terminal import printable, table

QUICK = 10.0
"""Seconds within which a speaker that is well has answered what takes no time."""


def status(runtime_dir: Path, as_json: bool) -> Iterator[str]:
    for answer in ask(runtime_dir, "status", QUICK):
        told = {name: value for name, value in answer.items() if name != "done"}
        if as_json:
            yield json.dumps(told)
        else:
            _read(told, _Status)
            yield from describe(told)


def drain(runtime_dir: Path, out: TextIO, timeout: float) -> int:
    """1 where an EIP found no taker before the speaker gave it up."""
    left: list[str] = []
    for answer in ask(runtime_dir, "drain", timeout):
        if answer.get("done"):
            left = _read(answer, _Drained).left
        else:
            moved = _read(answer, _Moved)
            _write(out, [f"{printable(moved.eip)} → {printable(moved.to or 'nobody')}"])
    if left:
        _write(out, [f"no other host took {', '.join(left)}: nobody answers for them now"])
        return 1
    _write(out, ["drained: this host answers for nothing"])
    return 0


def undrain(runtime_dir: Path, out: TextIO) -> int:
    for _ in ask(runtime_dir, "undrain", QUICK):
        _write(out, ["takes EIPs again"])
    return 0


def rebalance(runtime_dir: Path, out: TextIO) -> int:
    """Every change of the numbers; 1 where a move was refused."""
    told: _Moves | None = None
    for answer in ask(runtime_dir, "rebalance"):
        if "planned" in answer and (moves := _read(answer, _Moves)) != told:
            told = moves
            _write(out, [f"planned {moves.planned}, moved {moves.moved}, refused {moves.refused}"])
    return 1 if told is not None and told.refused else 0


def _write(out: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=out, flush=True)


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
    answering: int | None = None
    ready_endpoints: int | None = None


class SeenPeer(msgspec.Struct):
    alive: bool


class Refused(msgspec.Struct):
    service: str
    message: str


class _Peer(SeenPeer):
    node: str
    link: str
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
    tables: dict[str, _Use] = {}
    refused: list[Refused] = []
    problems: list[str] = []


_T = TypeVar("_T")


def _read(answer: Mapping[str, Any], kind: type[_T]) -> _T:
    """Raises EdgeError: the speaker that runs was perhaps not started again since this program was replaced."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise EdgeError(f"the speaker is of another version than this program: {error}") from error


# ── In words ──────────────────────────────────────────────────────────────────────────────────────────────────


def describe(told: Mapping[str, Any]) -> Iterator[str]:
    """A status as tables: its EIPs, its peers, and a line for everything that is not as it was asked for."""
    eips, peers = told.get("eips", ()), told.get("peers", ())
    yield f"node {told['node']}{': draining' if told['draining'] else ''}"
    if (kube_proxy := told.get("kube_proxy")) is not None:
        yield from _kube_proxy(kube_proxy)
    yield ""
    yield from table(("EIP", "HOLDER", "TERM", "LINK", "MAC", "SINCE (UTC)", "SERVICES"), map(_eip, eips))
    if peers:
        yield ""
        yield from table(("PEER", "LINK", "STATE", "HELLOS LOST"), map(_peer, peers))
    for holder in told.get("handed_over", ()):
        yield ""
        yield "packets of unknown flows of {eips} EIPs go to {address} on {link}, which held them before".format(
            **holder
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


def _eip(eip: Mapping[str, Any]) -> Sequence[str]:
    at = eip.get("since")
    since = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" if at is not None else ""
    services = ", ".join(eip["services"])
    term = str(eip["term"] or "")  # 0: no other node could have claimed it
    mac = eip.get("mac", "") if eip["claimed"] else ""  # ours: not that of another holder
    return eip["address"], eip["holder"] or "nobody", term, eip.get("link", ""), mac, since, services


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
    if not told.get("alone", True) and not any(peer["alive"] for peer in told.get("peers", ())):
        yield "no peer is heard: nobody could take over from this node"
    for eip in told.get("eips", ()):
        if message := eip.get("message"):
            yield f"{eip['address']}: not claimed here: {message}"
        yield from _unserved(eip)
    for refused in told.get("refused", ()):
        yield f"{refused['service']}: refused: {refused['message']}"
    yield from map(str, told.get("problems", ()))


def _unserved(eip: Mapping[str, Any]) -> Iterator[str]:
    """Held or not, its clients may be without it. ``answering`` is known of those that this node asks for."""
    answering, holder = eip.get("answering"), eip["holder"]
    if answering == 0 and holder is not None:
        yield f"{eip['address']}: {holder} holds it, and nobody answers for it"
    elif answering is not None and answering > 1:
        yield f"{eip['address']}: {answering} hosts answer for it"
    if eip.get("ready_endpoints") == 0:
        yield f"{eip['address']}: no endpoint of {', '.join(eip['services'])} is ready"
