"""What is logged when something changes: values in, lines out. Pure; ``telemetry/telling.py`` writes them.

The functions say one thing that happened. ``Transitions`` remembers what was said last, to say only what is new: never
a line for a non-event.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum

from speaker.allocator.settle import Settlement
from speaker.forwarding.unknown_flows.rules import NextHop
from speaker.kubeproxy.judge import Findings
from speaker.layer2.links import Placement
from speaker.model import Assignment, IPAddress, Link, Mac, ServiceKey, format_mac, rank
from speaker.node.decide import Decision, MayHold, MayNotHold
from speaker.node.problems import Change, named, new
from speaker.ownership.hellos.frames import Rejected
from speaker.telemetry.lines import Line, Transition, in_lines
from speaker.telemetry.spells import LASTING, Spell

MISTAKES = 20
"""In manifests, that get a line each: they are read one by one."""
_STRANGE = frozenset({Rejected.WRONG_KEY, Rejected.VERSION})


# ── one thing that happened ──


def claimed(
    address: IPAddress, placement: Placement, term: int, before: str | None, unanswered: float | None = None
) -> Transition:
    """``unanswered``: seconds since the last sign of ``before``, where it fell silent."""
    fields = {"link": placement.link.name, "mac": format_mac(placement.link.mac), "term": term, "before": before}
    if unanswered is not None:
        fields |= {"why": "silent", "unanswered": unanswered}
    elif before is None:
        fields |= {"why": "first"}
    return Transition("info", "claimed", "eip", str(address), placement.link.name, fields)


def withdrawn(address: IPAddress, reason: str, holder: str | None) -> Transition:
    return Transition("info", "withdrawn", "eip", str(address), reason, {"reason": reason, "holder": holder})


def conflict(link: Link, address: IPAddress, mac: Mac, held: bool, message: str) -> Transition:
    fields = {"link": link.name, "mac": format_mac(mac), "held": held, "message": message}
    return Transition("error", "conflict", "eip", str(address), (link.name, held), fields)


def waits(link: Link, address: IPAddress, mac: Mac, message: str) -> Transition:
    fields = {"link": link.name, "mac": format_mac(mac), "message": message}
    return Transition("info", "waits", "eip", str(address), (link.name, mac), fields)


def hellos_filtered(link: Link, node: str, mac: Mac, eips: Collection[IPAddress], message: str) -> Transition:
    fields = {"link": link.name, "mac": format_mac(mac), "eips": named(eips), "reason": "hellos_filtered"}
    return Transition("error", "hellos filtered", "peer", node, link.name, fields | {"message": message})


def peer(node: str, link: Link, alive: bool) -> Transition:
    level, event = ("info", "peer heard") if alive else ("warning", "peer silent")
    return Transition(level, event, "peer", node, link.name, {"link": link.name})


def link_lost(link: Link, error: str) -> Transition:
    return Transition("warning", "link lost", "error", error, link.name, {"link": link.name})


def bad_manifests(mistakes: Iterable[str], *, still_serving: bool) -> Iterator[Line]:
    in_force = "the last good ones stay in force" if still_serving else "nothing is served until they are corrected"
    told = (Transition("error", "bad manifest", "problem", each, None, {"in_force": in_force}) for each in mistakes)
    return in_lines(told, MISTAKES)


def kube_proxy(before: Findings | None, now: Findings) -> Line | None:
    """Who implements Services on this node, where that is news."""
    mode = now.kube_proxy.mode
    if before is not None and (before.kube_proxy.mode, before.notes) == (mode, now.notes):
        return None
    fields = {"mode": mode.value, "evidence": list(now.kube_proxy.evidence), "notes": list(now.notes)}
    return Line("info", "kube-proxy", fields)


def problems(change: Change) -> Iterator[Line]:
    yield from sentences("problem", [each.what for each in change.appeared])
    yield from sentences("problem over", [each.what for each in change.over], "info")


def sentences(event: str, found: Iterable[str], level: str = "warning") -> Iterator[Line]:
    return in_lines(Transition(level, event, "message", sentence, None, {}) for sentence in found)


# ── against what was said last ──


class Transitions:
    """What was said last. Safe to lose: then it is said again."""

    def __init__(self) -> None:
        self._assigned: dict[ServiceKey, Assignment] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self._eips: Mapping[IPAddress, MayHold | MayNotHold] = {}
        self._conflicts: frozenset[str] = frozenset()
        self._approximations: tuple[str, ...] = ()
        self._notices: frozenset[str] = frozenset()
        self._failing: dict[str, Spell] = {}
        """By edge."""
        self._away: Spell | None = None
        """The API."""
        self._foreign: set[tuple[str, Enum]] = set()
        self._dropped: tuple[int, int] | None = None

    def notices(self, notices: Iterable[str]) -> Iterator[Line]:
        """Of the manifests that are in force from now on."""
        before, self._notices = self._notices, frozenset(notices)
        return sentences("notice", sorted(self._notices - before), "info")

    def settled(self, settlement: Settlement, changed: Collection[ServiceKey] | None = None) -> list[Transition]:
        """Who has which EIP, remembered by now. ``changed``: only these may be new; None: any."""
        now = settlement.assignments
        asked = [*now, *(self._assigned.keys() - now.keys())] if changed is None else changed
        told = [one for key in asked for one in self._assignment(key, now.get(key))]
        return [*told, *self._refusals(settlement)]

    def _assignment(self, key: ServiceKey, now: Assignment | None) -> Iterator[Transition]:
        before = self._assigned.get(key)
        if now is before:
            return
        if now is None:
            if before is not None:
                yield _given("released", before)
                del self._assigned[key]
            return
        if before is None or now.addresses != before.addresses:
            yield _given("assigned", now)
        for eip in sorted(now.flagged - (before.flagged if before is not None else frozenset()), key=rank):
            message = "kept although its pool no longer offers it; not assigned again once it is released"
            yield Transition("warning", "flagged", "eip", f"{key} {eip}", None, {"message": message})
        self._assigned[key] = now

    def _refusals(self, settlement: Settlement) -> list[Transition]:
        before, self._refused = (
            self._refused,
            {str(key): (refusal.reason.value, refusal.message) for key, refusal in settlement.refusals.items()},
        )
        return [
            Transition("warning", "refused", "service", service, reason, {"reason": reason, "message": message})
            for service, (reason, message) in self._refused.items()
            if before.get(service) != (reason, message)
        ]

    def decided(self, decision: Decision, touched: Collection[IPAddress] | None = None) -> list[Transition]:
        """Which EIPs this node must not answer for from now on, and why. ``touched``: only these may be news."""
        told: list[Transition] = []
        for address in decision.eips if touched is None else touched:
            before, eip = self._eips.get(address), decision.eips.get(address)
            if isinstance(eip, MayNotHold) and (not isinstance(before, MayNotHold) or before.reason != eip.reason):
                fields = {"reason": eip.reason, "message": eip.message}
                told.append(Transition("warning", "not claimed", "eip", str(address), eip.reason, fields))
        self._eips = decision.eips
        return told

    def conflicts(self, conflicts: Mapping[str, str]) -> list[Transition]:
        """EIP → what is told of its rival: who has one since the last time, and who has none any more."""
        before, self._conflicts = self._conflicts, frozenset(conflicts)
        begun = [
            Transition("warning", "conflict begun", "eip", eip, None, {"message": conflicts[eip]})
            for eip in sorted(self._conflicts - before)
        ]
        ended = [Transition("info", "conflict ended", "eip", eip, None, {}) for eip in sorted(before - self._conflicts)]
        return [*begun, *ended]

    def approximations(self, approximations: tuple[str, ...]) -> Iterator[Line]:
        """What the forwarder does in another way than it was asked."""
        before, self._approximations = self._approximations, approximations
        return sentences("approximation", new(approximations, before))

    def edge_failed(self, edge: str, words: str, now: float, patience: float = 0.0) -> Transition | None:
        """The same words are not repeated, and none are said of what is over within ``patience`` seconds."""
        if not self._failing.setdefault(edge, Spell(now)).tells(words, now, patience):
            return None
        return Transition("warning", "edge failed", "error", words, edge, {"edge": edge})

    def edge_recovered(self, edge: str) -> Transition | None:
        spell = self._failing.pop(edge, None)
        if spell is None or spell.said is None:
            return None
        return Transition("info", "edge recovered", "edge", edge, None, {})

    def api(self, up: bool, now: float) -> Line | None:
        """Said when that changes for longer than LASTING."""
        if up:
            passed, self._away = self._away is not None and self._away.said is None, None
            return None if passed else Line("info", "api answers", {})
        self._away = self._away or Spell(now)
        message = "holders go on answering; claims are decided on the LAN alone"
        told = self._away.tells(message, now, LASTING)
        return Line("warning", "api does not answer", {"message": message}) if told else None

    def dropped(self, martians: int, reverse_path: int) -> list[Line]:
        """Packets, since the host started: for their source, and by a reverse path filter. What there is at first is no
        news."""
        before, self._dropped = self._dropped or (martians, reverse_path), (martians, reverse_path)
        told: list[Line] = []
        if martians > before[0]:
            message = (
                "packets from outside were dropped because their source is an address bound on this node: does another "
                "node answer for, or a backend or an upstream balancer send from, an EIP that is bound here? With the "
                "forwarder nftables no EIP is bound"
            )
            told.append(Line("warning", "martian source", {"packets": martians - before[0], "message": message}))
        if reverse_path > before[1]:
            message = (
                "packets from outside were dropped by rp_filter=1 because this node would answer through another link "
                "than they came in on: docs/forwarding.md, Several links"
            )
            told.append(Line("warning", "reverse path", {"packets": reverse_path - before[1], "message": message}))
        return told

    def foreign_hellos(self, link: str, rejected: Enum | None) -> Line | None:
        """Once for each link and reason."""
        if rejected not in _STRANGE or (link, rejected) in self._foreign:
            return None
        self._foreign.add((link, rejected))
        message = (
            "somebody on this link signs hellos with another key: another cluster, or a host with the wrong key file, "
            "which then claims the same EIPs"
        )
        return Line("warning", "foreign hellos", {"link": link, "reason": rejected.value, "message": message})


def holder_silent(hop: NextHop, eips: int) -> Line:
    message = "it does not answer: the connections that it had are reset"
    told = {"address": str(hop.address), "link": hop.link, "eips": eips, "message": message}
    return Line("warning", "previous holder silent", told)


def frozen() -> Line:
    message = "this process did not run for longer than it may answer unheard: what others may have taken was given up"
    return Line("warning", "frozen", {"message": message})


def _given(event: str, assignment: Assignment) -> Transition:
    addresses = list(map(str, assignment.addresses))
    return Transition("info", event, "service", str(assignment.service), None, {"addresses": addresses})
