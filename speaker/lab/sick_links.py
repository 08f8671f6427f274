"""What clients saw of EIPs while a link was sick, and whether that was as promised (pure).

A ``Sight`` is what one client heard and got; a ``Line`` is what happened to one EIP for that client. Times are seconds
of CLOCK_MONOTONIC; durations say their unit.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from speaker.lab.capture import Move, Reply, moves
from speaker.lab.failover_result import NEVER_PROBED
from speaker.lab.outage import Outage, Sample, by_eip, out_in_sum, outages
from speaker.lab.scene import ASK_INTERVAL
from speaker.lab.sickness import Course, Hosts, Step
from speaker.model import IPAddress, Mac


@dataclass(frozen=True, slots=True)
class Sight:
    """What ``client`` heard, in order, and which of its requests were answered."""

    client: str
    replies: Sequence[Reply]
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class ClaimCount:
    """How often an EIP was claimed, by all nodes together, within ``seconds``."""

    number: int
    seconds: float

    @property
    def a_minute(self) -> float:
        return self.number * 60 / self.seconds

    def __str__(self) -> str:
        return f"{self.number} in {self.seconds:.1f} s ({self.a_minute:.0f} a minute)"


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was begun ``at`` and there ``by``."""

    step: Step
    at: float
    by: float


@dataclass(frozen=True, slots=True)
class Suffered:
    """What happened, and what was seen of it until ``end``. ``before``: who held what."""

    course: Course
    nodes: tuple[str, ...]
    done: Sequence[Done]
    end: float
    before: Mapping[IPAddress, str]
    sights: Sequence[Sight]
    names: Mapping[Mac, str]
    meanwhile: ClaimCount
    """While it lasted; where claims are limited, until then."""
    afterwards: ClaimCount

    @property
    def seconds(self) -> float:
        """That were watched."""
        return self.end - self.done[0].at

    @property
    def macs_before(self) -> dict[IPAddress, Mac]:
        macs = {name: mac for mac, name in self.names.items()}
        return {address: macs[node] for address, node in self.before.items()}

    def name(self, mac: Mac) -> str:
        return self.names.get(mac, "a stranger")

    def reached(self, client: str) -> Hosts:
        """The nodes that heard the client and that it heard, all the time."""
        found = frozenset(self.nodes)
        for each in self.done:
            found &= each.step.in_reach(client, self.nodes)
        return found

    def alone(self, client: str) -> Iterator[tuple[float, float]]:
        """From when to when no node could serve the client."""
        for each, until in self._until():
            if not each.step.in_reach(client, self.nodes):
                yield each.at, until

    @property
    def stood_still(self) -> float:
        """Seconds, of the node that did so for longest, all its stops together."""
        stops = [(each.step.stopped, until - each.at) for each, until in self._until()]
        return max(sum(seconds for stopped, seconds in stops if node in stopped) for node in self.nodes)

    def _until(self) -> Iterator[tuple[Done, float]]:
        """Each step, and when the next one was there."""
        return zip(self.done, [*(each.by for each in self.done[1:]), self.end], strict=True)

    def heals(self) -> Iterator[float]:
        """Each time that all was well again, or just before it."""
        return (each.at for each in self.done if each.step.healthy)


@dataclass(frozen=True, slots=True)
class Line:
    """One EIP, as ``client`` saw it. ``left``: how often it left a node that could serve the client all the time."""

    address: IPAddress
    client: str
    before: str
    sick: bool
    """Its holder could not serve this client all the time."""
    after: str
    moves: int
    left: int
    settled: int
    """How often it came to one holder at a heal, of several that clients apart had it of."""
    twice_ms: float
    """At a time, or in sum, as the promise counts."""
    silence: Outage
    dark_ms: float
    """Unanswered, at a time or in sum."""
    owed_ms: float
    """The most that ``dark_ms`` may be."""

    def as_json(self) -> dict[str, Any]:
        return {
            "address": str(self.address),
            "client": self.client,
            "before": self.before,
            "sick": self.sick,
            "after": self.after,
            "moves": self.moves,
            "left_a_healthy_node": self.left,
            "settled_at_heals": self.settled,
            "answered_twice_ms": round(self.twice_ms, 1),
            "unanswered_ms": round(self.silence.ms, 1),
            "dark_ms": round(self.dark_ms, 1),
            "promised_ms": round(self.owed_ms, 1),
            "asked": self.silence.sent,
            "lost": self.silence.lost,
        }


Moves = Mapping[str, Sequence[Move]]
"""By the client that saw them."""


def ledger(suffered: Suffered, within: float) -> Iterator[Line]:
    """One for each EIP and client. ``within``: seconds between two answers of a node that still answers."""
    promise = suffered.course.promise
    moved = {sight.client: _moves(sight, suffered, within) for sight in suffered.sights}
    excused = settled_at_heals(suffered, moved)
    for sight in suffered.sights:
        reached = suffered.reached(sight.client)
        asked = list(_served_to(sight, suffered))
        silences, in_sum = outages(asked, ASK_INTERVAL), out_in_sum(asked, ASK_INTERVAL)
        for address, before in suffered.before.items():
            found = [move for move in moved[sight.client] if move.address == address]
            left = [move for move in found if suffered.name(move.before) in reached]
            both = twice((reply for reply in sight.replies if reply.address == address), within)
            silence = silences.get(address, NEVER_PROBED)
            sick = before not in reached
            yield Line(
                address=address,
                client=sight.client,
                before=before,
                sick=sick,
                after=suffered.name(found[-1].mac) if found else before,
                moves=len(found),
                left=len([move for move in left if (sight.client, move) not in excused]),
                settled=len([move for move in found if (sight.client, move) in excused]),
                twice_ms=(sum(both) if promise.in_sum else max(both, default=0.0)) * 1000,
                silence=silence,
                dark_ms=in_sum.get(address, 0.0) * 1000 if promise.in_sum else silence.ms,
                owed_ms=((promise.sick_dark if sick else promise.dark) + suffered.stood_still) * 1000,
            )


def _served_to(sight: Sight, suffered: Suffered) -> Iterator[Sample]:
    """The requests that some node was there to answer, by a clock that stands while none is."""
    alone = list(suffered.alone(sight.client))
    patience = suffered.course.promise.patience
    samples = paired(sight.samples, sight.replies, patience) if patience else sight.samples
    for sample in samples:
        if not any(at <= sample.sent <= until for at, until in alone):
            yield replace(sample, sent=sample.sent - sum(until - at for at, until in alone if until < sample.sent))


def paired(samples: Iterable[Sample], replies: Iterable[Reply], patience: float) -> Iterator[Sample]:
    """The same requests, as many of them answered as replies came within ``patience`` seconds of one.

    A reply does not say which request it is for, and where frames wait many come at once. So what counts is how many
    there were. Two nodes that answer for one address may hide as much silence as they do so (``twice``).
    """
    came: dict[IPAddress, list[float]] = defaultdict(list)
    for reply in sorted(replies, key=lambda reply: reply.at):
        if not reply.unasked:
            came[reply.address].append(reply.at)
    for eip, wanted in by_eip(samples).items():
        answered = pairs([sample.sent for sample in wanted], came[eip], patience)
        yield from (replace(sample, answered=answered.get(number)) for number, sample in enumerate(wanted))


def pairs(asked: Sequence[float], came: Sequence[float], patience: float) -> dict[int, float]:
    """When requests were answered, by their number: each answer, from the last one back, is for the latest request
    before it that has none yet. Both in order of time."""
    found: dict[int, float] = {}
    number = len(asked) - 1
    for at in reversed(came):
        while number >= 0 and asked[number] >= at:
            number -= 1
        if number >= 0 and asked[number] >= at - patience:
            found[number] = at
            number -= 1
    return found


def _moves(sight: Sight, suffered: Suffered, within: float) -> tuple[Move, ...]:
    known = [Reply(-inf, address, mac, unasked=False) for address, mac in suffered.macs_before.items()]
    return moves([*known, *undisputed(sight.replies, within)])


def undisputed(replies: Iterable[Reply], within: float) -> Iterator[Reply]:
    """Those that no other node gainsays ``within`` so many seconds: while two answer, neither has taken over yet."""
    next_of: dict[IPAddress, Reply] = {}
    other: dict[IPAddress, float] = {}  # when a node other than that of ``next_of`` is heard next
    for reply in sorted(replies, key=lambda reply: -reply.at):
        following = next_of.get(reply.address)
        if following is not None and following.mac != reply.mac:
            other[reply.address] = following.at
        next_of[reply.address] = reply
        if other.get(reply.address, inf) - reply.at > within:
            yield reply


def settled_at_heals(suffered: Suffered, moved: Moves) -> set[tuple[str, Move]]:
    """Moves, with who saw them, that cannot be helped: an EIP that clients apart had of several nodes comes to one.

    The first move of an EIP after a heal, to a node that another client had it of. The larger part of a LAN has no
    cause to give way, nor, between two alike, who had the EIP before. All but one of its nodes lose it.
    """
    size = {client: len(suffered.reached(client)) for client in moved}
    found: set[tuple[str, Move]] = set()
    for healed in suffered.heals():
        held = {client: suffered.macs_before | _holders(seen, healed) for client, seen in moved.items()}
        for address in suffered.before:
            spare = len({macs[address] for macs in held.values()}) - 1
            for client, seen in moved.items():
                move = next((move for move in seen if move.address == address and move.at >= healed), None)
                if move is None or spare == 0:
                    continue
                others = [size[other] for other, macs in held.items() if macs[address] == move.mac and other != client]
                first = move.before == suffered.macs_before[address]
                if max(others, default=0) > size[client] or (size[client] in others and not first):
                    found.add((client, move))
                    spare -= 1
    return found


def _holders(seen: Iterable[Move], at: float) -> dict[IPAddress, Mac]:
    """Who has each EIP that had moved by then."""
    return {move.address: move.mac for move in seen if move.at < at}


def twice(replies: Iterable[Reply], within: float) -> list[float]:
    """The times, in seconds, for which two nodes both answered for one address.

    Each from the first answer of the one to the last after one of the other, as long as each answers again ``within``
    so many seconds. A clean handover is no time at all.
    """
    times: list[float] = []
    began, ended = 0.0, -inf
    last: dict[Mac, float] = {}
    previous: Reply | None = None
    since = -inf  # the first answer of the node that answered last, after any other's
    for reply in sorted((reply for reply in replies if not reply.unasked), key=lambda reply: reply.at):
        if previous is not None and reply.mac != previous.mac:
            own = last.get(reply.mac, -inf)
            if reply.at - own <= within:
                if since - ended > within:
                    began = since
                    times.append(0.0)
                else:
                    began = min(began, since)
                ended = reply.at
                times[-1] = ended - began
            since = reply.at
        last[reply.mac] = reply.at
        previous = reply
    return times


# ── What is promised of it, and whether that was kept ────────────────────────────────────────────────────────────────

FEW = 3
"""EIPs that a problem names."""
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Endured:
    """A scenario's result."""

    scenario: str
    hello_ms: int
    suffered: Suffered
    lines: tuple[Line, ...]

    @property
    def course(self) -> Course:
        return self.suffered.course

    @property
    def problems(self) -> tuple[str, ...]:
        """What was promised and not kept, in sentences."""
        return (*_broken(self), *_restless(self.suffered))

    @property
    def ok(self) -> bool:
        return bool(self.lines) and not self.problems

    def eips(self, *, sick: bool) -> Sequence[Line]:
        """Those, for each client, whose holder could not serve it all the time, or those whose holder could."""
        return [line for line in self.lines if line.sick is sick]

    @property
    def left(self) -> frozenset[IPAddress]:
        """The EIPs that left a healthy node."""
        return frozenset(line.address for line in self.lines if line.left)

    def moved(self, *, sick: bool) -> Sequence[Line]:
        return [line for line in self.eips(sick=sick) if line.moves > line.settled]

    @property
    def settled(self) -> frozenset[IPAddress]:
        return frozenset(line.address for line in self.lines if line.settled)

    @property
    def twice_ms(self) -> float:
        return max(line.twice_ms for line in self.lines)

    @property
    def twice_owed_ms(self) -> float:
        """The most that ``twice_ms`` may be: a hello interval, a minute where all times count together, and more where
        nodes cannot hear of each other sooner."""
        promise = self.course.promise
        return (
            self.hello_ms * (math.ceil(self.suffered.seconds / MINUTE) if promise.in_sum else 1) + promise.twice * 1000
        )

    @property
    def worst(self) -> Line:
        """The EIP that was unanswered for most of what it may be."""
        return max(self.lines, key=lambda line: line.dark_ms / line.owed_ms)

    @property
    def unanswered_ms(self) -> float:
        return max(line.silence.ms for line in self.lines)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "scenario": self.scenario,
            "nodes": len(self.suffered.nodes),
            "hello_ms": self.hello_ms,
            "left_a_healthy_node": len(self.left),
            "moved_of_healthy": len(self.moved(sick=False)),
            "healthy": len(self.eips(sick=False)),
            "moved_of_sick": len(self.moved(sick=True)),
            "sick": len(self.eips(sick=True)),
            "settled_at_heals": len(self.settled),
            "answered_twice_ms": round(self.twice_ms, 1),
            "unanswered_ms": round(self.unanswered_ms, 1),
            "dark_ms": round(self.worst.dark_ms, 1),
            "promised_ms": round(self.worst.owed_ms, 1),
            "claims_meanwhile": _as_json(self.suffered.meanwhile),
            "claims_afterwards": _as_json(self.suffered.afterwards),
            "eips": [line.as_json() for line in self.lines],
            "problems": list(self.problems),
        }


def _as_json(claims: ClaimCount) -> dict[str, float]:
    return {"number": claims.number, "seconds": round(claims.seconds, 1), "a_minute": round(claims.a_minute, 1)}


def judge(scenario: str, hello_ms: int, suffered: Suffered) -> Endured:
    """Hold what was seen against the promise."""
    within = hello_ms / 1000 + suffered.course.promise.apart
    return Endured(scenario, hello_ms, suffered, tuple(ledger(suffered, within)))


def _broken(found: Endured) -> Iterator[str]:
    lines, promise = found.lines, found.course.promise
    so_long = "in sum for" if promise.in_sum else "for"
    if unasked := [line for line in lines if not line.silence.sent]:
        yield f"nobody asked for {_which(unasked)}"
    if promise.still and (left := [line for line in lines if line.left]):
        yield f"left a healthy node: {_which(left)}"
    if doubled := [line for line in lines if line.twice_ms > found.twice_owed_ms]:
        longest = max(line.twice_ms for line in doubled)
        promised = f"promised were at most {found.twice_owed_ms:.0f}"
        yield f"answered by two nodes {so_long} up to {longest:.0f} ms, {promised}: {_which(doubled)}"
    for owed in sorted({line.owed_ms for line in lines}):
        if silent := [line for line in lines if line.owed_ms == owed and line.dark_ms > owed]:
            longest = max(line.dark_ms for line in silent)
            promised = f"promised were at most {owed:.0f}"
            yield f"answered by nobody {so_long} up to {longest:.0f} ms, {promised}: {_which(silent)}"


def _which(lines: Iterable[Line]) -> str:
    found: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        found[line.client].append(str(line.address))
    return "; ".join(f"{_list(eips)} as {client} saw it" for client, eips in found.items())


def _list(eips: Sequence[str]) -> str:
    return ", ".join(eips) if len(eips) <= FEW else f"{', '.join(eips[:FEW])} and {len(eips) - FEW} more"


def _restless(suffered: Suffered) -> Iterator[str]:
    course = suffered.course
    if course.claims is not None and suffered.afterwards.number > course.claims.most:
        yield f"EIPs claimed after the second flap: {suffered.afterwards}, promised were at most {course.claims.most}"
