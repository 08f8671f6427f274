"""Evens out what the nodes of one link hold: plans the fewest moves, and follows them. Pure."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from speaker.model import IPAddress, rank
from speaker.ownership.score import score

Weights: TypeAlias = Mapping[IPAddress, Mapping[str, int]]
"""How much each node is preferred for an EIP; if an EIP is missing, all nodes are equal."""
_ALIKE: Weights = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Move:
    eip: IPAddress
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """Progress: of the ``planned`` moves, ``moved`` are done and ``refused`` were given up.

    ``finished``: nothing more is asked for; what is left, if anything, was left to another node that also rebalances.
    ``preferred``: EIPs that prefer certain nodes, which therefore hold them, however many that are (rule 41).
    """

    planned: int
    moved: int = 0
    refused: int = 0
    finished: bool = False
    preferred: int = 0


# ── The plan ──────────────────────────────────────────────────────────────────────────────────────────────────


def plan(
    holdings: Mapping[str, Collection[IPAddress]],
    me: str,
    may_hold: Collection[IPAddress],
    weights: Weights = _ALIKE,
) -> list[Move]:
    """First moves each EIP to the node that it prefers most. Then, without undoing that, plans the fewest moves after
    which the nodes of ``holdings`` (node → what it holds, including nodes that hold nothing) differ by at most one, or
    as little as preferences and ``me`` allow, which may hold only ``may_hold``. Nothing is known about what others may
    hold: what they may not take, they will not take. Equal arguments give the same result."""
    home = {move.eip: move for move in _homeward(holdings, me, may_hold, weights)}
    at_home = {node: {eip for eip in eips if eip not in home} for node, eips in holdings.items()}
    for move in home.values():
        at_home[move.target].add(move.eip)
    tied = {node: sum(_tied(eip, node, weights, holdings) for eip in eips) for node, eips in at_home.items()}
    for move in _levelling(at_home, me, may_hold, weights, tied):
        before = home.get(move.eip, move)
        home[move.eip] = Move(move.eip, before.source, move.target)
    return [move for move in home.values() if move.source != move.target]


def _homeward(
    holdings: Mapping[str, Collection[IPAddress]], me: str, may_hold: Collection[IPAddress], weights: Weights
) -> Iterable[Move]:
    for source, eip in [(node, eip) for node in sorted(holdings) for eip in holdings[node] if eip in weights]:
        there = weights[eip]
        able = [node for node in holdings if node != me or eip in may_hold]
        best = max(able, key=lambda node: (there.get(node, 0), score(eip, node), node), default=source)
        if there.get(best, 0) > there.get(source, 0):
            yield Move(eip, source, best)


def _tied(eip: IPAddress, node: str, weights: Weights, nodes: Iterable[str]) -> bool:
    """Whether no other node is preferred as much, and some node is preferred less."""
    return eip in weights and not any(_may_go(eip, node, other, weights) for other in nodes if other != node)


def _may_go(eip: IPAddress, source: str, target: str, weights: Weights) -> bool:
    there = weights.get(eip, {})
    return there.get(target, 0) >= there.get(source, 0)


def _levelling(
    holdings: Mapping[str, Collection[IPAddress]],
    me: str,
    may_hold: Collection[IPAddress],
    weights: Weights,
    tied: Mapping[str, int],
) -> list[Move]:
    cap = len(may_hold)
    while True:
        quotas = _quotas({node: len(eips) for node, eips in holdings.items()}, me, cap, tied)
        moves = _moves(holdings, quotas, me, may_hold, weights)
        reached = len(holdings.get(me, ())) + sum(move.target == me for move in moves)
        if reached >= quotas.get(me, 0):
            return moves
        cap = reached  # the others have too little that we may hold, so they share the rest


def _quotas(counts: Mapping[str, int], me: str, cap: int, tied: Mapping[str, int]) -> dict[str, int]:
    """How many each should hold. The nodes with most get the odd ones, so that these need not move."""
    quotas = _level(counts, sum(counts.values()), tied)
    if quotas.get(me, 0) <= cap:
        return quotas
    others = {node: held for node, held in counts.items() if node != me}
    return {me: cap, **_level(others, sum(counts.values()) - cap, tied)}


def _level(counts: Mapping[str, int], total: int, tied: Mapping[str, int]) -> dict[str, int]:
    if not counts:
        return {}
    share, odd = divmod(total, len(counts))
    fullest = max(counts, key=lambda node: (tied[node], node))
    if tied[fullest] > share:  # it keeps the EIPs tied to it, and the others share the rest
        others = {node: held for node, held in counts.items() if node != fullest}
        return {fullest: tied[fullest], **_level(others, total - tied[fullest], tied)}
    by_size = sorted(counts, key=lambda node: (-counts[node], node))
    return {node: share + (place < odd) for place, node in enumerate(by_size)}


def _moves(
    holdings: Mapping[str, Collection[IPAddress]],
    quotas: Mapping[str, int],
    me: str,
    may_hold: Collection[IPAddress],
    weights: Weights,
) -> list[Move]:
    room = {node: quotas[node] - len(eips) for node, eips in holdings.items()}
    moves: list[Move] = []

    def move(eip: IPAddress, source: str, target: str) -> None:
        room[source] += 1
        room[target] -= 1
        moves.append(Move(eip, source, target))

    loose = {node: _by_attachment(node, holdings[node]) for node in sorted(holdings) if room[node] < 0}
    choosy = any(eip not in may_hold for eips in loose.values() for eip in eips)
    if choosy and room.get(me, 0) > 0:  # the others take whatever is left
        for source, eips in loose.items():
            for eip in [e for e in eips if e in may_hold and _may_go(e, source, me, weights)]:
                if room[source] < 0 < room[me]:
                    move(eip, source, me)
                    eips.remove(eip)
    for source, eips in loose.items():
        for eip in eips:
            open_to = [node for node, left in room.items() if left > 0 and not (choosy and node == me)]
            open_to = [node for node in open_to if _may_go(eip, source, node, weights)]
            if room[source] < 0 and open_to:
                move(eip, source, max(open_to, key=lambda node: (score(eip, node), node)))
    return moves


def _by_attachment(node: str, eips: Iterable[IPAddress]) -> list[IPAddress]:
    """First those that prefer another node."""
    return sorted(eips, key=lambda eip: (score(eip, node), rank(eip)))


# ── On the way ────────────────────────────────────────────────────────────────────────────────────────────────


class MovePlan:
    """A plan that is being followed on one link. ``asked``: what this node's hellos ask for now, and since when."""

    def __init__(self, moves: Iterable[Move], preferred: int = 0) -> None:
        self.to_ask = deque(moves)
        self.asked: dict[IPAddress, tuple[Move, float]] = {}
        self.planned = len(self.to_ask)
        self.preferred = preferred
        """EIPs that prefer certain nodes."""
        self.moved = 0
        self.refused = 0

    @property
    def finished(self) -> bool:
        return not self.to_ask and not self.asked

    def abandon(self) -> None:
        self.to_ask.clear()
        self.asked.clear()

    def follow(self, holders: Mapping[IPAddress, str], fit: Collection[str], now: float, patience: float) -> None:
        """Checks what was asked for: ``holders`` are the nodes that hold each EIP now, ``fit`` those that may be given
        more. A move that is not made within ``patience`` seconds is given up."""
        for eip, (move, since) in list(self.asked.items()):
            if holders.get(eip) == move.target:
                self.moved += 1
            elif holders.get(eip) != move.source or move.target not in fit or now >= since + patience:
                self.refused += 1
            else:
                continue
            del self.asked[eip]

    def ask(self, number: int, now: float) -> list[Move]:
        """The next ``number`` moves."""
        asked = [self.to_ask.popleft() for _ in range(min(number, len(self.to_ask)))]
        self.asked.update({move.eip: (move, now) for move in asked})
        return asked
