"""What is promised (ownership.md, "Promises"), checked after every step of a world."""

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from simulation.apiserver import ApiServer
from simulation.clock import Clock, Trace
from simulation.host import Host
from simulation.network import Network
from simulation.schedule import Schedule
from simulation.service import Heal, Service
from simulation.stations import Stations
from speaker.model import IPAddress
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import Yielded

_WRITTEN = 0.5
"""Seconds within which a record follows a move."""
_BLINK = 0.003
"""Seconds; a gap this short is the simulation's, not the cluster's. An answer this short ends no gap."""


class Promise(Enum):
    ONE_ANSWER = "one answer"
    WIRE = "one answer on the wire"
    SERVED = "served"
    NO_CAUSE = "no move without a cause"
    HEAL_MOVES = "nothing moves at a heal"
    CRASH = "crash"
    PLANNED = "planned move"
    FREEZE = "freeze"
    ANSWERED = "answered"
    HEAL = "heal"
    NEIGHBOURS = "neighbours"
    RECORD_RIGHT = "record right"
    WRITES = "writes"
    QUIET = "quiet"
    FEWEST_MOVES = "fewest moves"
    LEVEL = "level"
    LEFT = "a sick link is left"
    PREFERRED = "where it is preferred"
    UNSWAYED = "unswayed"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Broken:
    promise: Promise
    at: float
    story: str

    def __str__(self) -> str:
        return f"{self.at:.4f} broke “{self.promise.value}”: {self.story}"


class Promises:
    """``broken`` stays None as long as all is kept."""

    def __init__(
        self,
        clock: Clock,
        trace: Trace,
        schedule: Schedule,
        network: Network,
        stations: Stations,
        api: ApiServer,
    ) -> None:
        self._clock, self._trace, self._network, self._stations, self._api = clock, trace, network, stations, api
        self._limits, self._schedule = schedule.limits, schedule
        self.broken: Broken | None = None
        self.moves: list[tuple[float, IPAddress, str, int]] = []
        """(when, EIP, node, term) of every claim."""
        self.failovers: list[float] = []
        """Seconds from a crash to the next answer."""
        self.gaps: list[tuple[IPAddress, float, float]] = []
        self.points_at: dict[tuple[int, IPAddress], str] = {}
        """(host that a client stands beside, EIP) → the node in the client's cache."""
        self._gap_since: dict[IPAddress, float | None] = dict.fromkeys(network.link_of, 0.0)
        self._eligible_since: dict[IPAddress, float] = {}
        self._double: dict[tuple[IPAddress, int, int], float] = {}
        self._crashes: dict[IPAddress, tuple[float, str]] = {}
        self._causes: list[float] = []
        self._came_home: dict[IPAddress, float] = {}
        """When each moved to a node that it prefers, last."""
        self._planned: tuple[float, int] | None = None
        """When the first rebalance began, and the moves planned since."""
        self._service = Service(clock, schedule, network, stations)
        self._heal: Heal | None = None
        self._steps = 0
        limit = self._limits.one_answer
        self._one_answer = schedule.known_within if limit is None else limit

    def _break(self, promise: Promise, story: str) -> None:
        if self.broken is None:
            self.broken = Broken(promise, self._clock.now, self._trace.readable(story))
            self._trace.say(f"!! {self.broken}")

    def _break_if(self, promise: Promise, story: str | None) -> None:
        if story is not None:
            self._break(promise, story)

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────

    def claimed(self, host: Host, eip: IPAddress, term: int) -> None:
        self.moves.append((self._clock.now, eip, host.name, term))
        if self._limits.preferred:
            self._note_preferred(host, eip)
        self._service.claimed(host, eip)
        if self._heal is not None:
            self._break_if(Promise.HEAL_MOVES, self._heal.claimed(host, eip))

    def _note_preferred(self, host: Host, eip: IPAddress) -> None:
        """Taken from one that answers for it, and that nothing keeps from it: for what it prefers."""
        now, failback, network = self._clock.now, self._schedule.failback, self._network
        link = network.link_of[eip]
        quiet = [other for other in network.hosts if other is not host and other.answers(eip) and other.may_hold(eip)]
        stood = [other for other in quiet if now - self._service.holds_since(other, eip) > 0.15]
        near = [other for other in stood if self._hear_each_other(link, host, other)]
        if not near or (self._planned is not None and all(self._worth(host, eip) >= self._worth(n, eip) for n in near)):
            return  # a rebalance may move it as well
        if failback is None or now - self._came_home.get(eip, -failback) < failback:
            last = self._came_home.get(eip)
            self._break(Promise.PREFERRED, f"{host.name} took {eip} from {[h.name for h in near]}, as at {last}")
        self._came_home[eip] = now

    def _worth(self, host: Host, eip: IPAddress) -> int:
        """Nothing, beside one that heeds no preference."""
        schedule, hosts = self._schedule, self._network.hosts
        if any(hosts[old].alive for old in schedule.heedless):
            return 0
        preference = schedule.preference(host.index, [*self._network.link_of].index(eip))
        return preference.weight if preference is not None else 0

    def _hear_each_other(self, link: int, one: Host, other: Host) -> bool:
        pairs = (one.index, other.index), (other.index, one.index)
        calm = all(self._clock.now - self._network.heard_since.get((link, *pair), 0.0) > 1.0 for pair in pairs)
        return calm and all(self._network.hears(link, *pair) for pair in pairs)

    def yielded(self, host: Host, eip: IPAddress, reason: Yielded) -> None:
        if reason is Yielded.DRAINED:
            self._causes.append(self._clock.now)  # it waited for a successor as long as it was promised
        if reason is Yielded.DEAF:
            if self._heal is not None:
                self._heal.deaf(host, eip)
            if self._service.hears_nobody(host, eip):
                self._causes.append(self._clock.now)
        self._break_if(Promise.NO_CAUSE, self._service.without_cause(host, eip, reason))

    def booted(self, host: Host) -> None:
        self._service.booted(host)

    def rewired(self) -> None:
        """Frames go other ways than before."""
        if self._service.watches:
            self._look_at_all()

    def fault_begins(self, mended: bool) -> None:
        self._service.fault_begins(mended)

    def fault_ends(self, began: float) -> None:
        heal = self._heal = self._service.fault_ends(began)
        if heal is not None:
            self._clock.at(heal.due, lambda: self._break_if(Promise.HEAL_MOVES, heal.judge()))

    def crashed(self, host: Host, held: list[IPAddress]) -> None:
        self._causes.append(self._clock.now)
        for eip in held:
            if not self._answering(eip):
                self._crashes[eip] = (self._clock.now, host.name)
        self._look_at_all()

    def disturbed(self) -> None:
        """Something that may leave an EIP unanswered for a while."""
        self._causes.append(self._clock.now)
        self._look_at_all()

    def rebalanced(self, begun: Rebalancing | None) -> None:
        since, planned = self._planned or (self._clock.now, 0)
        self._planned = since, planned + (begun.planned if begun is not None and not begun.finished else 0)

    def _look_at_all(self) -> None:
        for eip in self._network.link_of:
            self.changed(eip)

    def announced(self, host: Host, eip: IPAddress, link: int) -> None:
        for place in self._stations.places:
            if self._network.carries(link, host.index, self._stations.client(place)):
                self.points_at[place, eip] = host.name

    def answered(self, host: Host, eip: IPAddress, asked_at: float) -> None:
        """A request was answered: not if it waited through a freeze, nor by one whom somebody replaced meanwhile."""
        froze, thawed = host.thawed
        now = self._clock.now
        times = self._schedule.times
        if froze < asked_at < thawed and (thawed - asked_at > times.request_age or thawed - froze > times.dead):
            age = (now - asked_at) * 1000
            self._break(Promise.FREEZE, f"{host.name} answered for {eip} what had waited {age:.0f} ms while frozen")
        elif thawed > 0 and now - thawed < 0.15 and (thawed - froze > times.dead or self._nothing_lost()):
            for other in self._network.hosts:
                since = self._service.holds_since(other, eip)
                if (
                    other is not host
                    and other.answers(eip)
                    and froze < since < thawed
                    and self._network.hears(self._network.link_of[eip], other.index, host.index)
                    and self._beaten(host, other, eip)
                ):
                    self._break(
                        Promise.FREEZE,
                        f"{host.name}, frozen for {(thawed - froze) * 1000:.0f} ms, answered for {eip} though "
                        f"{other.name} had claimed it",
                    )

    def _nothing_lost(self) -> bool:
        """A freeze shorter than the self-lease is safe as long as hellos arrive; a successor's claim that was lost adds
        what every lost hello adds (see test_frozen_holder.py)."""
        network = self._network
        return not self._schedule.loss and not any(network.cuts.values()) and self._clock.now - network.last_cut > 0.5

    def _beaten(self, host: Host, other: Host, eip: IPAddress) -> bool:
        return other.machine.known.eips[eip].term > host.machine.known.eips[eip].term

    # ── What is ───────────────────────────────────────────────────────────────────────────────────────────────

    def _answering(self, eip: IPAddress) -> list[Host]:
        return [host for host in self._network.hosts if host.answers(eip)]

    def changed(self, eip: IPAddress) -> None:
        """Looked at often: what is nearly always empty is asked for first."""
        now = self._clock.now
        answering = self._answering(eip)
        since = self._gap_since[eip]
        if answering and since is not None:
            self.gaps.append((eip, since, now))
            self._gap_since[eip] = None
        elif not answering and since is None:
            self._gap_since[eip] = self._gap_began(eip)
        left = self._limits.left
        if left is not None and now >= left[1] and self._network.hosts[left[0]] in answering:
            self._break(Promise.LEFT, f"n{left[0]} still answers for {eip}")
        if self._crashes and answering and eip in self._crashes:
            self._failed_over(eip, *self._crashes.pop(eip))
        if self._double or len(answering) > 1:
            self._note_doubles(eip, answering)
        able = [host for host in self._network.hosts if host.may_hold(eip)]
        if able:
            self._eligible_since.setdefault(eip, now)
        else:
            self._eligible_since.pop(eip, None)
        if self._service.watches:
            self._service.look(eip, answering, able)

    def _gap_began(self, eip: IPAddress) -> float:
        """Now; or before the last answer, where that was a blink: of two that claim at once one falls silent again."""
        last = next((gap for gap in reversed(self.gaps) if gap[0] == eip), None)
        if last is None or self._clock.now - last[2] > _BLINK:
            return self._clock.now
        self.gaps.remove(last)
        return last[1]

    def _note_doubles(self, eip: IPAddress, answering: list[Host]) -> None:
        pairs = {(eip, a.index, b.index) for a in answering for b in answering if a.index < b.index}
        for pair in pairs:
            self._double.setdefault(pair, self._clock.now)
        for pair in [p for p in self._double if p[0] == eip and p not in pairs]:
            del self._double[pair]

    def _failed_over(self, eip: IPAddress, at: float, node: str) -> None:
        took = self._clock.now - at
        self.failovers.append(took)
        if self._limits.crash is not None and took > self._limits.crash:
            self._break(Promise.CRASH, f"{eip} was answered only {took * 1000:.0f} ms after {node} crashed")

    def check(self) -> None:
        self._steps += 1
        if self._double:
            self._check_doubles()
        if self._service.waits:
            self._break_if(Promise.SERVED, self._service.unserved())
            self._break_if(Promise.WIRE, self._service.served_twice())
        if self._steps % 16 == 0:
            for eip in self._network.link_of:
                self.changed(eip)
                self._check_answered(eip)

    def _check_doubles(self) -> None:
        network, now = self._network, self._clock.now
        for (eip, a, b), began in self._double.items():
            one, two = network.hosts[a], network.hosts[b]
            link = network.link_of[eip]
            if network.hears(link, a, b) and network.hears(link, b, a):
                since = max(
                    began,
                    *(network.heard_since.get((link, *p), 0.0) for p in ((a, b), (b, a))),
                    one.thawed[1],
                    two.thawed[1],
                )
                lost = any(network.overtaken.get((link, *p), -1.0) >= since for p in ((a, b), (b, a)))
                if now - since > self._one_answer + lost * self._schedule.times.hello:  # each lost one adds one
                    return self._break(
                        Promise.ONE_ANSWER,
                        f"{one.name} and {two.name} both answer for {eip} for {(now - since) * 1000:.0f} ms, "
                        "hearing each other",
                    )
        return None

    def _check_answered(self, eip: IPAddress) -> None:
        since, eligible = self._gap_since[eip], self._eligible_since.get(eip)
        if since is not None and eligible is not None:
            gap = self._clock.now - max(since, eligible)
            never_answered = since == 0.0
            if gap > self._limits.unanswered + (2 * self._schedule.longest_listen if never_answered else 0):
                self._break(Promise.ANSWERED, f"nobody answers for {eip} for {gap:.2f} s though somebody may")

    # ── At the end ────────────────────────────────────────────────────────────────────────────────────────────

    def check_end(self) -> None:
        if self.broken is not None:
            return
        for eip in self._network.link_of:
            self.changed(eip)
            if self._limits.settled:
                self._check_settled(eip)
        if self._limits.preferred:
            self._check_preferred()
        self._check_moves()
        self._check_writes()
        self._check_gaps()
        self._check_balance()

    def _check_preferred(self) -> None:
        schedule, hosts = self._schedule, self._network.hosts
        if schedule.failback is None or any(hosts[old].alive for old in schedule.heedless):
            return
        for number, eip in enumerate(self._network.link_of):
            weights = {host: each.weight for host in hosts if (each := schedule.preference(host.index, number))}
            able = [host for host in weights if host.may_hold(eip) and not host.demoted[self._network.link_of[eip]]]
            best = max((weights[host] for host in able), default=0)
            for host in self._answering(eip):
                if host in able and weights[host] < best:
                    self._break(Promise.PREFERRED, f"{eip} is at {host.name}, of {weights[host]} where {best} is best")

    def _check_settled(self, eip: IPAddress) -> None:
        for place in self._stations.places:
            if self.broken is None:
                self._check_client(eip, place)
        if any(moved == eip and at > self._clock.now - _WRITTEN for at, moved, *_ in self.moves):
            return
        holders, record = self._answering(eip), self._api.records.get(eip)
        said = record.holder if record is not None else None
        if self._schedule.api and len(holders) == 1 and said != holders[0].name and not holders[0].api_cuts:
            self._break(Promise.RECORD_RIGHT, f"{eip} is held by {holders[0].name}, its record says {record}")
        for host in self._network.hosts:
            if said == host.name and host.alive and eip in host.ineligible and not host.api_cuts:
                self._break(Promise.RECORD_RIGHT, f"{eip} is not for {said} to hold, and its record names it")

    def _check_client(self, eip: IPAddress, place: int) -> None:
        """One answers it, if one could, and that one is in its cache."""
        link, client = self._network.link_of[eip], self._stations.client(place)

        def reached(host: Host) -> bool:
            return self._stations.reach(link, client, host)

        if not any(host.may_hold(eip) and reached(host) for host in self._network.hosts):
            return
        names = [host.name for host in self._answering(eip) if reached(host)]
        points_at = self.points_at.get((place, eip))
        if len(names) != 1:
            self._break(Promise.HEAL, f"the client beside n{place} is answered by {names} for {eip} at the end")
        elif points_at != names[0]:
            story = f"{eip} is held by {names[0]}, the client beside n{place} has {points_at} in its cache"
            self._break(Promise.NEIGHBOURS, story)

    def _check_moves(self) -> None:
        quiet = self._limits.quiet_after
        # Two claims at one term, of nodes that start together, are one move: the score settles whose.
        moves = Counter(eip for eip, _ in {(eip, term) for _, eip, _, term in self.moves})
        for at, eip, node, term in self.moves:
            if quiet is not None and at > quiet:
                self._break(
                    Promise.QUIET, f"{eip} went to {node} (term {term}) at {at:.3f}, after the dust had settled"
                )
        if self._limits.claims_from is not None:
            since, most = self._limits.claims_from
            late = [move for move in self.moves if move[0] >= since]
            if len(late) > most:
                self._break(Promise.QUIET, f"{len(late)} claims since {since:.3f}: {late}")
        if self._limits.takes_nothing is not None:
            flapping, since = self._limits.takes_nothing
            for at, eip, name, _ in self.moves:
                if at > since and name == self._network.hosts[flapping].name:
                    self._break(Promise.QUIET, f"{name}, whose port comes and goes, took {eip} at {at:.3f}")
        for eip, times in moves.items():
            allowed, last = (
                self._limits.claims_per_crash,
                self._schedule.faults[-1].at if self._schedule.faults else 0.0,
            )
            claims = [move for move in self.moves if move[1] == eip and last <= move[0] < last + 1.5]
            if allowed is not None and len(claims) > allowed:
                self._break(Promise.QUIET, f"one crash, and {eip} was claimed {len(claims)} times: {claims}")
            if self._limits.moves is not None and times > self._limits.moves:
                self._break(Promise.QUIET, f"{eip} moved {times} times")

    def _check_writes(self) -> None:
        for eip, times in self._api.writes.items():
            if self._limits.writes is not None and times > self._limits.writes:
                self._break(Promise.WRITES, f"the record of {eip} was written {times} times")

    def _check_balance(self) -> None:
        if self._planned is not None:
            since, planned = self._planned
            moves = [move for move in self.moves if move[0] > since]
            if len(moves) > planned and self._limits.fewest:
                self._break(Promise.FEWEST_MOVES, f"{planned} moves were planned, {len(moves)} made: {moves}")
        if self._limits.level:
            counts = Counter({host.name: 0 for host in self._network.hosts if host.alive})
            counts.update(host.name for eip in self._network.link_of for host in self._answering(eip))
            if max(counts.values()) > min(counts.values()) + 1:
                self._break(Promise.LEVEL, f"EIPs by node at the end: {dict(counts)}")

    def _check_gaps(self) -> None:
        open_gaps = [(eip, since, self._clock.now) for eip, since in self._gap_since.items() if since is not None]
        for eip, begin, end in self.gaps + open_gaps:
            planned = self._limits.planned
            if planned is not None and planned[0] <= begin < planned[1] and end > begin:
                self._break(Promise.PLANNED, f"{eip} was unanswered for {(end - begin) * 1000:.1f} ms at {begin:.3f}")
            # That one has given way the other hears a frame's way later.
            if not self._limits.causeless or end - begin <= _BLINK + self._schedule.delay or not self._schedule.faults:
                continue
            if begin > self._schedule.faults[0].at and not any(c - 0.001 <= begin <= c + 0.45 for c in self._causes):
                self._break(
                    Promise.KEPT,
                    f"{eip} was unanswered for {(end - begin) * 1000:.0f} ms at {begin:.3f}, without cause",
                )
