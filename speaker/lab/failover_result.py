"""What a failover scenario saw, what it promised, and whether the promise was kept (pure).

A ``View`` is what one neighbour on the LAN saw of one EIP. All times are seconds of CLOCK_MONOTONIC; durations say
their unit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from speaker.lab.capture import Reply, first_after, moves, relapses
from speaker.lab.outage import Outage
from speaker.model import IPAddress, Mac
from speaker.ownership.parameters import Parameters

CABLE_MS = 150.0
"""A node without carrier gives up its EIPs at once."""
ONE_SEND = 1
"""Answers that a frozen process may still have had inside its last send call."""
LINK_DELAY_MS = 20.0
"""What a hello may take through a switch that was just put together again, on a machine that does other things too."""


@dataclass(frozen=True, slots=True)
class Promise:
    """``outage_ms``: the longest that an EIP may be out, for those who know it and for those who ask for it.

    ``lossless``: not a single probe of any EIP may be lost. ``stale``: answers that the node it happens to may still
    give for what it lost. In any case that node's EIPs move once each, nobody else's do, and nobody answers twice.
    """

    outage_ms: float
    lossless: bool = False
    stale: int = 0


def promise_of(scenario: str, hello_ms: int) -> Promise:
    """What ``scenario`` promises at this hello interval."""
    failover_ms = Parameters.for_hello(hello_ms / 1000).worst_failover * 1000
    match scenario:
        case "cable":
            return Promise(CABLE_MS)
        case "freeze":
            return Promise(failover_ms, stale=ONE_SEND)
        case "drain" | "rejoin":
            return Promise(failover_ms, lossless=True)
        case _:
            return Promise(failover_ms)


@dataclass(frozen=True, slots=True)
class Observations:
    """What one neighbour heard, in order, and got. ``outages``: of datagrams through each EIP; ``silences``: of ARP
    requests for it (IPv4 only). ``before``: who held each EIP when it began."""

    neighbour: str
    replies: Sequence[Reply]
    outages: Mapping[IPAddress, Outage]
    silences: Mapping[IPAddress, Outage]
    before: Mapping[IPAddress, Mac]


@dataclass(frozen=True, slots=True)
class View:
    """One EIP, as ``neighbour`` saw it; ``taken_over_ms``: from the fault until another node claimed it."""

    neighbour: str
    address: IPAddress
    before: str
    after: str
    outage: Outage
    silence: Outage | None
    taken_over_ms: float | None
    moves: int
    duplicates: int
    stale: int

    @property
    def longest_ms(self) -> float:
        """Without an answer of any kind: to a probe, to an ARP request; or, for those who only listen, without a new
        holder."""
        silent = 0.0 if self.silence is None else self.silence.ms
        return max(self.outage.ms, silent, self.taken_over_ms or 0.0)

    def as_json(self) -> dict[str, Any]:
        return {
            "address": str(self.address),
            "neighbour": self.neighbour,
            "before": self.before,
            "after": self.after,
            "outage_ms": round(self.outage.ms, 1),
            "lost": self.outage.lost,
            "sent": self.outage.sent,
            "unanswered_ms": None if self.silence is None else round(self.silence.ms, 1),
            "taken_over_ms": None if self.taken_over_ms is None else round(self.taken_over_ms, 1),
            "moves": self.moves,
            "duplicate_answers": self.duplicates,
            "stale_answers": self.stale,
        }


@dataclass(frozen=True, slots=True)
class Instants:
    """When what happened: ``fault``; ``thawed``, a frozen speaker went on; ``healed``, the halves of a switch were
    joined again."""

    fault: float
    thawed: float | None = None
    healed: float | None = None


def views(seen: Observations, names: Mapping[Mac, str], instants: Instants, hello_ms: int) -> Iterator[View]:
    """One for each EIP, from what a neighbour saw. ``names``: whose MAC is whose.

    A duplicate answer is one of a node that answered within the last hello interval and, after that, another did: both
    still do. The one pair of answers on both sides of a clean handover is none, and two holders that the LAN kept apart
    have ``settle_ms`` to find each other.
    """
    twice = [reply for reply in relapses(seen.replies, hello_ms / 1000) if not _excused(reply, instants, hello_ms)]
    for address, mac in seen.before.items():
        began = Reply(-inf, address, mac, unasked=False)
        said = [began, *_said(seen.replies, address, instants, hello_ms)]
        successor = _successor(said, mac, instants)
        stale = [] if successor is None or instants.thawed is None else _after(said, mac, instants.thawed)
        valid = [reply for reply in said if reply not in stale]
        yield View(
            neighbour=seen.neighbour,
            address=address,
            before=_name(names, mac),
            after=_name(names, valid[-1].mac),
            outage=seen.outages.get(address, NEVER_PROBED),
            silence=seen.silences.get(address),
            taken_over_ms=None if successor is None else (successor.at - instants.fault) * 1000,
            moves=len(moves(valid)),
            duplicates=sum(reply.address == address for reply in twice),
            stale=len(stale),
        )


def _successor(said: Iterable[Reply], mac: Mac, instants: Instants) -> Reply | None:
    """The first word of another node. A side that kept its holder while the LAN was split has none: what it heard
    later is how that was settled."""
    until = inf if instants.healed is None else instants.healed
    first = next(iter(first_after(said, instants.fault, others_than=(mac,)).values()), None)
    return first if first is not None and first.at < until else None


def _after(said: Iterable[Reply], mac: Mac, instant: float) -> list[Reply]:
    return [reply for reply in said if reply.mac == mac and reply.at > instant]


def _excused(reply: Reply, instants: Instants, hello_ms: int) -> bool:
    """Whether two holders may both say that they have it, because they find each other just now."""
    return instants.healed is not None and 0 <= reply.at - instants.healed <= settle_ms(hello_ms) / 1000


def _said(replies: Iterable[Reply], address: IPAddress, instants: Instants, hello_ms: int) -> list[Reply]:
    """What was said of ``address``; of what two holders said while they found each other only the last word."""
    all_of_it = [reply for reply in replies if reply.address == address]
    excused = [reply for reply in all_of_it if _excused(reply, instants, hello_ms)]
    return [reply for reply in all_of_it if reply not in excused or reply is excused[-1]]


NEVER_PROBED = Outage(0.0, 0, 0)


def _name(names: Mapping[Mac, str], mac: Mac) -> str:
    return names.get(mac, "a stranger")


def broken(promise: Promise, victim: str | None, seen: Iterable[View]) -> Iterator[str]:
    """What was promised and not kept, in sentences."""
    stale = 0
    for view in seen:
        stale += view.stale
        who = _who(view)
        yield from _badly_served(promise, view)
        if promise.lossless and view.outage.lost:
            yield f"{who}: lost {view.outage.lost} of {view.outage.sent} probes, promised was none"
        if view.before != victim and view.moves:
            yield f"{who}: left {view.before}, to which nothing happened, for {view.after}"
        # Make before break: both may answer until the successor's first hello is heard, in whatever order it is seen.
        handed_over = promise.lossless and view.moves % 2 == 1 and view.after != victim
        if view.before == victim and view.moves != 1 and not handed_over:
            yield f"{who}: moved {view.moves} times instead of once, and is {view.after}'s now"
    if stale > promise.stale:
        yield f"{victim} said {stale} times that it has what it had lost, promised were at most {promise.stale}"


def _who(view: View) -> str:
    return f"{view.address}, seen by {view.neighbour}"


def _badly_served(promise: Promise, view: View) -> Iterator[str]:
    who, promised = _who(view), f"promised were {promise.outage_ms:.0f}"
    if not view.outage.sent:
        yield f"{who}: was never probed"
    if view.address.version == 4 and (view.silence is None or not view.silence.sent):
        yield f"{who}: nobody asked for it by ARP"
    if not view.outage.over:
        yield f"{who}: is out to this moment"
    elif view.outage.ms > promise.outage_ms:
        yield f"{who}: was out for {view.outage.ms:.0f} ms, {promised}"
    elif view.moves and view.longest_ms > promise.outage_ms:
        yield f"{who}: nobody answered those who asked for it for {view.longest_ms:.0f} ms, {promised}"
    if view.duplicates and not promise.lossless:
        yield f"{who}: {view.duplicates} duplicate answers"


# ── a switch in two, and healed ───────────────────────────────────────────────────────────────────────────────


def settle_ms(hello_ms: int) -> float:
    """How long two holders that find each other may both answer."""
    return 2 * hello_ms + LINK_DELAY_MS


@dataclass(frozen=True, slots=True)
class Healed:
    """One EIP that had two holders, after they found each other: ``both_ms`` is how long the loser still answered,
    ``unaware`` are the neighbours that heard no announcement of the winner."""

    address: IPAddress
    winner: str
    both_ms: float
    unaware: frozenset[str]


def healed(
    seen: Sequence[Observations], winners: Mapping[IPAddress, Mac], names: Mapping[Mac, str], at: float
) -> Iterator[Healed]:
    """One for each EIP, from what the neighbours of all sides heard from ``at`` on."""
    for address, winner in winners.items():
        of_losers = [
            reply.at
            for side in seen
            for reply in side.replies
            if reply.address == address and reply.mac != winner and reply.at > at
        ]
        aware = {
            side.neighbour
            for side in seen
            if any(r.address == address and r.mac == winner and r.unasked and r.at > at for r in side.replies)
        }
        both_ms = (max(of_losers, default=at) - at) * 1000
        yield Healed(address, _name(names, winner), both_ms, frozenset(side.neighbour for side in seen) - aware)


def broken_by_split(promise: Promise, hello_ms: int, seen: Iterable[View], after: Iterable[Healed]) -> Iterator[str]:
    """What a partition promised and did not keep: both sides are served, and soon after it one node is left."""
    for view in seen:
        yield from _badly_served(promise, view)
    promised = settle_ms(hello_ms)
    for eip in after:
        if eip.both_ms > promised:
            yield f"{eip.address}: two nodes answered for {eip.both_ms:.0f} ms, promised were {promised:.0f}"
        for neighbour in sorted(eip.unaware):
            yield f"{eip.address}: {neighbour} was not told that it is {eip.winner}'s"


# ── the result ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FailedOver:
    """A scenario's result; ``victim``: the node that it happened to (None: the switch)."""

    scenario: str
    nodes: int
    hello_ms: int
    victim: str | None
    promise: Promise
    views: tuple[View, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return bool(self.views) and not self.problems

    @property
    def outage_ms(self) -> Mapping[IPAddress, float]:
        """The worst that any neighbour saw of each EIP."""
        found: dict[IPAddress, float] = {}
        for view in self.views:
            found[view.address] = max(found.get(view.address, 0.0), view.outage.ms)
        return found

    @property
    def longest_ms(self) -> float:
        """The longest that any EIP that moved was without an answer of any kind."""
        return max((view.longest_ms for view in self.views if view.moves), default=0.0)

    @property
    def moved(self) -> frozenset[IPAddress]:
        """The EIPs that any neighbour saw move, however often."""
        return frozenset(view.address for view in self.views if view.moves)

    @property
    def probes(self) -> int:
        return sum(view.outage.sent for view in self.views)

    @property
    def requests(self) -> int:
        """By ARP."""
        return sum(view.silence.sent for view in self.views if view.silence is not None)

    @property
    def superseded(self) -> int:
        """Answers of nodes whose successor had answered or claimed already."""
        return sum(view.duplicates + view.stale for view in self.views)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "scenario": self.scenario,
            "nodes": self.nodes,
            "hello_ms": self.hello_ms,
            "victim": self.victim,
            "promised_ms": round(self.promise.outage_ms, 1),
            "outage_ms": {str(address): round(ms, 1) for address, ms in self.outage_ms.items()},
            "duplicate_answers": sum(view.duplicates for view in self.views),
            "moves": sum(view.moves for view in self.views),
            "moved": len(self.moved),
            "eips": [view.as_json() for view in self.views],
            "problems": list(self.problems),
        }
