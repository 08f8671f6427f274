"""One number for all states of a world from which the same follows.

Instants count from now, and those longer ago than anything asks for are all the same. Lives and sequences count from
the last one of their node, terms from the highest of their EIP. What is only counted, told or remembered to be faster
is left out. What is not named here is taken as it is: a field that somebody adds tells states apart until it is named.
"""

import marshal
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address
from types import FunctionType, MethodType
from typing import Any, cast

from simulation.host import Host
from simulation.owner import Owner, Responder
from simulation.promises import Promises
from simulation.service import Heal
from simulation.world import World
from speaker.ownership.hello import Digest, Heard, Hello, Span
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.silence import UNANSWERED

EPOCH = float(1 << 20)
"""When the clock begins, so that every instant can be told from every length of time."""
PAST = 2.5
"""Seconds, longer than ``assembling`` looks back and than a heal takes. ``_LONGER``: what is asked for longer ago."""
_LONGER = {"frame_at": 5.0}
_ONGOING = 1000.0
"""Seconds ahead: when a fault ends that goes on until it is ended."""
_LIFE = 1 << 31
_MANY = 3
"""``segment.REPEATED``: how often the same was said counts up to that."""

_OLD = 40
"""Hellos since then, after which it does not matter how many."""

_OMITTED = frozenset(
    (
        *("life", "own_keys", "ports", "sent", "wake_at", "_deeds", "_link_of", "_schedule", "_time"),  # of a host
        *("_alarms", "_alarm_order", "_incarnate", "now", "orders", "lives", "times"),  # of its machine
        *("_k", "_rules", "_agenda", "_records", "_claims", "_moves", "_name", "_silence", "_unanswered"),  # twice
        *("claims_heard", "peers_changed", "hearings", "_attempts", "attempt", "number", "expected", "version"),
        *("digest", "sum", "_sum", "_in_order", "_windows", "ended", "clock", "_times"),
        # What silences, losses and answers teach for a minute and more: states that differ in that alone are one.
        *("lenience", "arrivals", "lost", "watches", "sampled_at", "tried", "tries"),
        *("offered_at", "moved_at", "well_at", "ready_at"),  # when an EIP moves to a preferred node: here are none
    )
)
_PLAIN = frozenset((type(None), bool, str, bytes))
_TERMS = frozenset(("claims", "terms", "yielded", "left", "heard_yields"))
"""Of mappings by EIP."""


class Canon:
    """At one instant of one world."""

    def __init__(self, world: World) -> None:
        self._world, self._now = world, world.clock.now
        self._within: list[FunctionType] = []
        """Those that are being looked at: some know each other."""
        live = [host for host in world.hosts if host.life]
        self._lives = {host.index + 1: host.life for host in live}
        self._sequences = {host.index + 1: host.machine.name._sequence for host in live}
        self._terms = {
            eip: max((h.machine.known.eips[eip].maxterm for h in live if eip in h.machine.known.eips), default=0)
            for eip in world.eips
        }
        self._by_type: dict[type, Callable[[Any], Any]] = {
            float: self._float, int: self._int, Hello: self._hello, Eip: self._eip, Peer: self._peer, Host: self._host,
            Digest: lambda digest: digest.count, Span: lambda span: "span", Heal: lambda heal: "heal",
            Heard: lambda heard: (self._life(heard.incarnation), heard.age, heard.link),
            FunctionType: self._function, MethodType: self._method, partial: self._partial,
        }  # fmt: skip

    def key(self, *more: object) -> int:
        world = self._world
        network, promises = world.network, world.promises
        state: Any = (
            [self._whole(host) for host in world.hosts],
            [self.of(paths) for paths in (network.cuts, network.eaten, network.strangers)],
            [self._instants(d) for d in (network.heard_since, network.overtaken)],
            self._queue(),
            self._judge(promises),
            [self.of(record) for record in world.api.records.values()],
            more,
        )
        return int.from_bytes(blake2b(marshal.dumps(state, 2), digest_size=8).digest(), "big") or 1

    def _queue(self) -> list[Any]:
        due = sorted(world_entry[:2] for world_entry in self._world.clock._queue)
        works = {entry[:2]: entry[2] for entry in self._world.clock._queue}
        found = [(self._float(at), self.of(works[at, order])) for at, order in due]
        return sorted((entry for entry in found if entry[1] is not None), key=repr)

    def _judge(self, promises: Promises) -> list[Any]:
        service = promises._service
        timers = (
            promises._gap_since, promises._eligible_since, promises._double, promises._crashes, promises.points_at,
            service._fit_since, service._unserved, service._twice, service._holds_since,
        )  # fmt: skip
        heal = promises._heal
        since = () if heal is None or self._now > heal.due else (self._float(heal._ended), self.of(heal._held))
        return [*(self.of(timer) for timer in timers), since, self.of(heal._before) if since and heal else ()]

    # ── Hosts ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _host(self, host: Host) -> Any:
        """Where something else speaks of it."""
        return host.index

    def _whole(self, host: Host) -> Any:
        fields = {name: value for name, value in vars(host).items() if name not in _OMITTED}
        waits = fields.pop("waiting"), fields.pop("unread")
        machine, owner = fields.pop("machine", None), fields.pop("owner", None)
        if not host.alive:
            return self._fields({**fields, "left_at": None, "told_at": None, "asked_at": None})
        stale = host.frozen_at is not None and self._now - host.frozen_at > PAST
        waiting = () if stale else [sorted({repr(self.of(w)) for w in some}) for some in waits]
        return self._fields(fields), waiting, self.of(machine), self._owner(owner)

    def _owner(self, owner: Owner) -> Any:
        """What is answered, and until when."""
        layer2 = owner._layer2
        found = cast(dict[tuple[int, object], Responder], layer2._responders)
        responders = [
            (index, self._float(r.claims.deadline), sorted(a for a, part in r.claims.arp.items() if part is not None))
            for (index, _), r in found.items()
        ]
        return responders, sorted(int(eip) for eip in owner._owner.placements)

    # ── Values ────────────────────────────────────────────────────────────────────────────────────────────────

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if (own := self._by_type.get(kind)) is not None:
            return own(value)
        if isinstance(value, IPv4Address | IPv6Address):
            return int(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, set | frozenset):
            return _in_order([self.of(each) for each in value])
        if isinstance(value, tuple) and len(value) == 3 and type(value[0]) is int and value[0] >= _LIFE:
            return self._stamp(*value)
        if isinstance(value, list | tuple | deque):
            return [self.of(each) for each in value]
        if isinstance(value, Enum):
            return value.name
        return self._fields(_fields_of(value)) if _is_state(cast(Any, kind)) else kind.__name__

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        if not value:
            return ()
        if isinstance(value, OrderedDict):
            return [self.of(key) for key in value]
        if isinstance(value, Counter):
            value = {each: times for each, times in value.items() if times}
        return _in_order([(self.of(key), self.of(each)) for key, each in value.items()])

    def _fields(self, fields: Mapping[str, Any]) -> list[Any]:
        """By name in one order, so that names need not be said."""
        return [
            value if type(value) in _PLAIN else self._field(name, value)
            for name, value in fields.items()
            if name not in _OMITTED
        ]

    def _field(self, name: str, value: Any) -> Any:
        if name in _TERMS and isinstance(value, Mapping):
            return sorted((int(eip), self._term(eip, term)) for eip, term in value.items() if eip in self._terms)
        if name == "_sequence":
            return 0
        if name == "_turn":
            return value % 2  # of two EIPs at most
        if name == "_repeated":
            return min(value, _MANY)
        if name in _LONGER:
            return self._float(value, _LONGER[name])
        return self.of(value)

    def _term(self, eip: Any, term: Any) -> Any:
        """Or a term and when."""
        if isinstance(term, tuple):
            return self._term(eip, term[0]), self._float(term[1])
        return self._terms[eip] - term if term else -1

    def _float(self, value: float, past: float = PAST) -> Any:
        if not EPOCH / 2 < value < EPOCH * 8:
            return round(value, 6)
        since = value - self._now
        return "ongoing" if since > _ONGOING else round(since, 5) if since > -past else "past"

    def _instants(self, times: Mapping[Any, float]) -> list[Any]:
        return [entry for entry in self.of(times) if entry[1] != "past"]

    def _int(self, value: int) -> Any:
        return value if value < _LIFE else self._life(value)

    def _life(self, value: int) -> Any:
        number = value % _LIFE
        return number, self._lives.get(number, 0) - value // _LIFE

    def _stamp(self, life: int, sequence: int, part: Any) -> Any:
        number, ago = self._life(life)
        return number, ago, max(sequence - self._sequences.get(number, 0), -_OLD) if ago == 0 else sequence, part

    def _hello(self, hello: Hello) -> Any:
        fields = {name: value for name, value in hello._asdict().items() if name not in ("incarnation", "sequence")}
        return self._stamp(hello.incarnation, hello.sequence, hello.part), self._fields(fields)

    def _eip(self, x: Eip) -> Any:
        fields = {name: value for name, value in _fields_of(x).items() if name not in ("term", "maxterm", "held_by")}
        fields["worse_claims"] = [(n, [self._term(x.address, t) for t in two]) for n, two in x.worse_claims.items()]
        fields["heard_yields"] = [(node, self._term(x.address, term)) for node, term in x.heard_yields.items()]
        terms = [self._term(x.address, term) for term in (x.term, x.maxterm, x.held_by[0])]
        return terms, x.held_by[1], self._fields(fields)

    def _peer(self, peer: Peer) -> Any:
        fields = _fields_of(peer)
        fields["unanswered"] = {eip: min(times, UNANSWERED) for eip, times in peer.unanswered.items()}
        return peer.synced(), fields.pop("left_at") > peer.stamp, self._fields(fields)

    # ── What is to be done ────────────────────────────────────────────────────────────────────────────────────

    def _function(self, work: FunctionType) -> Any:
        if work.__qualname__.startswith("Host.step"):
            return None  # an alarm, which follows from the machine
        if work in self._within:
            return work.__qualname__
        self._within.append(work)
        cells = _cells(work)
        host = next((cell for cell in cells.values() if isinstance(cell, Host)), None)
        if host is not None and "life" in cells:
            cells["life"] = host.life - cells["life"]
        if "asked" in cells:  # a renewal counts as long as it is the last one
            cells["asked"] -= next(found for cell in (work, *cells.values()) if (found := _answered(cell)) is not None)
        cells.pop("answered", None)
        found = (
            work.__qualname__,
            [self.of(cell) for cell in cells.values()],
            [self.of(d) for d in work.__defaults__ or ()],
        )
        self._within.pop()
        return found

    def _method(self, work: MethodType) -> Any:
        return work.__qualname__, self.of(work.__self__)

    def _partial(self, work: "partial[Any]") -> Any:
        if "announce" in work.func.__qualname__:
            return None  # said once more, to those who have it
        return self.of(work.func), [self.of(each) for each in work.args], sorted(work.keywords.items())


@cache
def _is_state(kind: Any) -> bool:
    return str(kind.__module__).startswith("speaker.ownership")


@cache
def _slots(kind: Any) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))


def _fields_of(value: Any) -> dict[str, Any]:
    """The slots of a class are always all there."""
    return {**{name: getattr(value, name) for name in _slots(cast(Any, type(value)))}, **getattr(value, "__dict__", {})}


def _in_order(found: list[Any]) -> list[Any]:
    return found if len(found) < 2 else sorted(found, key=repr)


def _cells(work: FunctionType) -> dict[str, Any]:
    """What a function knows from where it was made."""
    found = zip(work.__code__.co_freevars, work.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in found}


def _answered(work: Any) -> Any:
    """The number of the renewal that was answered last, as one of ``ApiServer.session`` knows it."""
    return _cells(work).get("answered", [None])[0] if isinstance(work, FunctionType) else None
