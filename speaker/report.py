"""What people are told: a log line for every transition, gauges, the status file, health. Never for a non-event."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from speaker.allocator.assign import Usage
from speaker.allocator.settle import Settlement
from speaker.api.world import Reading
from speaker.decide import Decision, Held, NotHeld
from speaker.errors import InvalidManifests, SpeakerError
from speaker.files import write_atomically
from speaker.forwarding.plan import Change
from speaker.model import Family, Link, format_mac
from speaker.telemetry.metrics import Metrics

log = structlog.get_logger()

#: Changes shown in one log line; the count tells the rest.
SHOWN = 50


class Report:
    """Remembers what it said last, to say only what is new. Everything here is safe to lose: nothing reads it back."""

    def __init__(self, metrics: Metrics, runtime_dir: Path) -> None:
        self._metrics = metrics
        self._status_file = runtime_dir / "status.json"
        self._assigned: dict[str, tuple[str, ...]] = {}
        self._flagged: set[str] = set()
        self._refused: dict[str, tuple[str, str]] = {}
        self._eips: dict[str, Held | NotHeld] = {}
        self._problems: tuple[str, ...] = ()
        self._approximations: tuple[str, ...] = ()
        self._manifest_problems: tuple[str, ...] = ()
        self._notices: frozenset[str] = frozenset()
        self._failing: dict[str, str] = {}
        self._martians: int | None = None
        self._ready = False

    def health(self) -> tuple[bool, dict[str, object]]:
        """Well once everything asked for was in force for the first time. Later trouble is told, not acted on: a
        restart would take away the EIPs that still work."""
        details: dict[str, object] = {
            "ready": self._ready,
            "problems": [*self._manifest_problems, *self._problems, *self._failing.values()],
        }
        return self._ready, details

    # ── manifests ──

    def good_manifests(self, reading: Reading) -> None:
        self._metrics.manifests_valid.set(1)
        self._metrics.manifest_problems.set(0)
        notices = frozenset(map(str, reading.notices))
        for notice in sorted(notices - self._notices):
            log.info("notice", message=notice)
        world = reading.world
        log.info("manifests read", pools=len(world.pools), services=len(world.services))
        self._manifest_problems, self._notices = (), notices

    def bad_manifests(self, error: SpeakerError, *, still_serving: bool) -> None:
        problems = tuple(map(str, error.problems)) if isinstance(error, InvalidManifests) else (str(error),)
        self._metrics.manifests_valid.set(0)
        self._metrics.manifest_problems.set(len(problems))
        in_force = "the last good ones stay in force" if still_serving else "nothing is served until they are mended"
        for problem in problems:
            log.error("bad manifest", problem=problem, in_force=in_force)
        self._manifest_problems = problems

    # ── edges ──

    def failed(self, edge: str, error: BaseException) -> None:
        """An edge refused; it is tried again. The same words are not repeated."""
        self._metrics.edge_errors.labels(edge).inc()
        if self._failing.get(edge) != str(error):
            log.warning("edge failed", edge=edge, error=str(error))
        self._failing[edge] = str(error)

    def recovered(self, edge: str) -> None:
        if self._failing.pop(edge, None) is not None:
            log.info("edge recovered", edge=edge)

    def lost_link(self, link: Link, error: Exception) -> None:
        self._metrics.edge_errors.labels("link").inc()
        log.warning("link lost", link=link.name, error=str(error))

    def martians(self, total: int) -> None:
        self._metrics.martians.set(total)
        if self._martians is not None and total > self._martians:
            log.warning(
                "martian source",
                packets=total - self._martians,
                message="packets from outside were dropped because their source is an address bound on this node: "
                "does another node answer for, or a backend send from, an EIP that is bound here?",
            )
        self._martians = total

    # ── what is in force ──

    def settled(self, settlement: Settlement) -> None:
        """Who has which EIP, remembered by now."""
        self._tell_assigned(settlement)
        self._tell_refused(settlement)

    def forwarding(self, changes: Sequence[Change], approximations: tuple[str, ...]) -> None:
        """What the kernel's forwarding was brought to."""
        if changes:
            self._metrics.changes.inc(len(changes))
            log.info("forwarding", count=len(changes), changes=[str(change).strip() for change in changes[:SHOWN]])
        for sentence in _new(approximations, self._approximations):
            log.warning("approximation", message=sentence)
        self._approximations = approximations

    def in_force(
        self,
        settlement: Settlement,
        decision: Decision,
        problems: tuple[str, ...],
        usage: Mapping[str, Mapping[Family, Usage]],
    ) -> None:
        """Everything asked for is in force, but for ``problems``."""
        for problem in _new(problems, self._problems):
            log.warning("problem", message=problem)
        self._problems = problems
        self._count(settlement, decision, usage)
        write_atomically(self._status_file, msgspec.json.encode(_status(settlement, decision, problems)))
        if not self._ready:
            self._ready = True
            log.info("ready", eips=len(decision.held()))

    def _tell_assigned(self, settlement: Settlement) -> None:
        assigned = {str(key): tuple(map(str, a.addresses)) for key, a in settlement.assignments.items()}
        for service, addresses in assigned.items():
            if self._assigned.get(service) != addresses:
                log.info("assigned", service=service, addresses=list(addresses))
        for service in sorted(self._assigned.keys() - assigned.keys()):
            log.info("released", service=service, addresses=list(self._assigned[service]))
        flagged = {f"{a.service} {eip}" for a in settlement.assignments.values() for eip in a.flagged}
        for what in sorted(flagged - self._flagged):
            log.warning("flagged", eip=what, message="kept although its pool no longer offers it; gone when released")
        self._assigned, self._flagged = assigned, flagged

    def _tell_refused(self, settlement: Settlement) -> None:
        refused = {str(key): (r.reason.value, r.message) for key, r in settlement.refusals.items()}
        for service, (reason, message) in refused.items():
            if self._refused.get(service) != (reason, message):
                log.warning("refused", service=service, reason=reason, message=message)
        self._refused = refused

    def decided(self, decision: Decision) -> None:
        """Which EIPs this node answers for from now on, and why not for the others."""
        now = {str(address): eip for address, eip in decision.eips.items()}
        for address, eip in now.items():
            before = self._eips.get(address)
            match eip:
                case Held() if not isinstance(before, Held) or before.link.index != eip.link.index:
                    log.info("claimed", eip=address, link=eip.link.name, mac=format_mac(eip.link.mac), pool=eip.pool)
                case NotHeld() if not isinstance(before, NotHeld) or before.reason != eip.reason:
                    log.warning("not claimed", eip=address, reason=eip.reason, message=eip.message)
                case _:
                    pass
        for address in sorted(self._eips.keys() - now.keys()):
            if isinstance(self._eips[address], Held):
                log.info("withdrawn", eip=address)
        self._eips = now

    def _count(self, settlement: Settlement, decision: Decision, usage: Mapping[str, Mapping[Family, Usage]]) -> None:
        metrics = self._metrics
        metrics.services.labels("assigned").set(len(settlement.assignments))
        metrics.services.labels("refused").set(len(settlement.refusals))
        metrics.refused.clear()
        for reason, count in Counter(r.reason.value for r in settlement.refusals.values()).items():
            metrics.refused.labels(reason).set(count)
        held = len(decision.held())
        metrics.eips.labels("claimed").set(held)
        metrics.eips.labels("not_claimed").set(len(decision.eips) - held)
        metrics.pool_size.clear()
        metrics.pool_used.clear()
        for pool, families in usage.items():
            for family, numbers in families.items():
                metrics.pool_size.labels(pool, family).set(numbers.size)
                metrics.pool_used.labels(pool, family).set(numbers.used)
        metrics.last_reconcile.set(time.time())


def _new(sentences: Iterable[str], known: tuple[str, ...]) -> list[str]:
    return [sentence for sentence in sentences if sentence not in known]


def _status(settlement: Settlement, decision: Decision, problems: tuple[str, ...]) -> dict[str, Any]:
    """``status.json``: for scripts and people on the node; the same facts as the log, all at once."""
    return {
        "eips": [_status_of(eip) for eip in decision.eips.values()],
        "refused": [
            {"service": str(key), "reason": refusal.reason.value, "message": refusal.message}
            for key, refusal in settlement.refusals.items()
        ],
        "problems": list(problems),
    }


def _status_of(eip: Held | NotHeld) -> dict[str, Any]:
    common = {"address": str(eip.address), "services": [str(key) for key in eip.services], "pool": eip.pool}
    match eip:
        case Held(link=link):
            return common | {"claimed": True, "link": link.name, "mac": format_mac(link.mac)}
        case NotHeld(reason=reason, message=message):
            return common | {"claimed": False, "reason": reason, "message": message}
