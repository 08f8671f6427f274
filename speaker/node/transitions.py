"""What is logged when something happens: events in, lines out. Pure; ``telemetry/logs.py`` writes them.

``told`` is the log's table of events. ``Transitions`` remembers what was said last, so that only news is logged.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from speaker.allocator.settle import Settlement
from speaker.forwarding.handing_over import NextHop
from speaker.kubeproxy.judge import Judgement
from speaker.model import Assignment, IPAddress, Placement, ServiceKey, events, format_mac, rank
from speaker.model.events import Event
from speaker.node.decide import Decision, MayHold, MayNotHold
from speaker.node.problems import Change, named, new
from speaker.ownership.events import NameClash, NameFree, PeersAddress
from speaker.ownership.hellos.frames import Rejected
from speaker.telemetry.lines import LASTING, Line, Spell, Transition, in_lines
from speaker.wire.messages import Before, Began, WireEvent

MISTAKES = 20
"""How many mistakes in manifests get a line each, as people read them one by one."""
FROZEN = "this process did not run for longer than the self-lease, so it gave up EIPs that others may have taken"
FLAGGED = "kept although its pool no longer offers it; not assigned again once it is released"
_STRANGE = frozenset({Rejected.WRONG_KEY, Rejected.VERSION})

_BY_THEIR_FIELDS: Mapping[type[Event], tuple[str, str, str]] = {
    events.Assigned: ("info", "assigned", "service"),
    events.Released: ("info", "released", "service"),
    events.Refused: ("warning", "refused", "service"),
    events.NotClaimed: ("warning", "not claimed", "eip"),
    events.ConflictBegun: ("warning", "conflict begun", "eip"),
    events.ConflictEnded: ("info", "conflict ended", "eip"),
    events.EndpointUnwell: ("warning", "endpoint unwell", "endpoint"),
    events.EndpointWell: ("info", "endpoint well", "endpoint"),
    events.EdgeRecovered: ("info", "edge recovered", "edge"),
    events.EipYielded: ("info", "withdrawn", "eip"),
}
"""Level, event, and what the first field of the event names. The other fields are said as they are, and a ``reason``
is the cause."""

# ── one thing that happened ──


def told(event: Began | WireEvent, message: str = "") -> Transition | Line | None:
    """``message``: the words of ``problems.py``, if something is wrong."""
    fields: dict[str, Any]
    match event:
        case events.Flagged(service=service, eip=eip):
            return Transition("warning", "flagged", "eip", f"{service} {eip}", None, {"message": FLAGGED})
        case events.EdgeFailed(edge=edge, error=error):
            return Transition("warning", "edge failed", "error", error, edge, {"edge": edge})
        case events.ApiAnswers():
            return Line("info", "api answers", {})
        case events.ApiSilent():
            return Line("warning", "api does not answer", {"message": events.API_SILENT})
        case events.EipClaimed(eip=eip, placement=Placement(link=link)):
            fields = {"link": link.name, "mac": format_mac(link.mac), "term": event.term, "before": event.before}
            return Transition("info", "claimed", "eip", str(eip), link.name, fields | event.why)
        case events.Conflict(link=link, eip=eip, mac=mac, held=held):
            fields = {"link": link.name, "mac": format_mac(mac), "held": held, "message": message}
            return Transition("error", "conflict", "eip", str(eip), (link.name, held), fields)
        case events.HellosFiltered(link=link, mac=mac, eips=eips):
            fields = {"link": link.name, "mac": format_mac(mac), "eips": named(eips), "reason": "hellos_filtered"}
            return Transition("error", "hellos filtered", "peer", event.node, link.name, fields | {"message": message})
        case events.PeerChanged(node=node, link=link, alive=alive):
            level, name = ("info", "peer heard") if alive else ("warning", "peer silent")
            return Transition(level, name, "peer", node, link.name, {"link": link.name})
        case events.LinkLost(link=link, error=error):
            return Transition("warning", "link lost", "error", error, link.name, {"link": link.name})
        case events.SocketsAnswer(link=link, error=error):
            return Transition("warning", "sockets answer", "error", error, link.name, {"link": link.name})
        case PeersAddress(eip=eip, node=str(node)):
            return Line("error", "peer's address", {"eip": str(eip), "peer": node, "message": message})
        case NameClash(silent=silent):
            return Line("error", "name clash", {"message": message, "silent": silent})
        case NameFree():
            message = "no other host with this node's name was heard for a while"
            return Line("info", "name free", {"message": message})
        case events.WasFrozen():
            return Line("warning", "frozen", {"message": FROZEN})
        case Began(before=Before(end=end, away=away), found=found) if end:
            message = "the wire process went on with what it was last offered"
            fields = {"end": end, "away": f"{away:.1f} s", "held": len(found.held), "message": message}
            return Line("warning", "main process replaced", fields)
        case events.Event() if (words := _BY_THEIR_FIELDS.get(type(event))) is not None:
            name, *others = event.__struct_fields__
            fields = {other: _plain(getattr(event, other)) for other in others}
            return Transition(*words, str(getattr(event, name)), fields.get("reason"), fields)
        case _:
            return None


def _plain(value: object) -> object:
    return [*map(str, value)] if isinstance(value, tuple) else value


def waits(event: events.Conflict, message: str) -> Transition:
    """This node waits for another load balancer, which still answers."""
    fields = {"link": event.link.name, "mac": format_mac(event.mac), "message": message}
    return Transition("info", "waits", "eip", str(event.eip), (event.link.name, event.mac), fields)


def bad_manifests(mistakes: Iterable[str], *, still_serving: bool) -> Iterator[Line]:
    in_force = "the last good ones stay in force" if still_serving else "nothing is served until they are corrected"
    told = (Transition("error", "bad manifest", "problem", each, None, {"in_force": in_force}) for each in mistakes)
    return in_lines(told, MISTAKES)


def kube_proxy(before: Judgement | None, now: Judgement) -> Line | None:
    """Which program implements Services on this node, if that is news."""
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
    """Remembers what was said last. Safe to lose: then it is said again."""

    def __init__(self) -> None:
        self._assigned: dict[ServiceKey, Assignment] = {}
        self._refused: dict[ServiceKey, events.Refused] = {}
        self._eips: Mapping[IPAddress, MayHold | MayNotHold] = {}
        self._conflicts: frozenset[str] = frozenset()
        self._approximations: tuple[str, ...] = ()
        self._notices: frozenset[str] = frozenset()
        self._failing: dict[str, Spell] = {}
        """Edge → how long it has failed."""
        self._away: Spell | None = None
        """How long the API has been away."""
        self._foreign: set[tuple[str, Enum]] = set()
        self._dropped: tuple[int, int] | None = None

    def notices(self, notices: Iterable[str]) -> Iterator[Line]:
        """Notices about the manifests that are now in force."""
        before, self._notices = self._notices, frozenset(notices)
        return sentences("notice", sorted(self._notices - before), "info")

    def settled(self, settlement: Settlement, changed: Collection[ServiceKey] | None = None) -> list[Event]:
        """Which Service has which EIP from now on. ``changed``: only these may be new; None: any."""
        now = settlement.assignments
        asked = [*now, *(self._assigned.keys() - now.keys())] if changed is None else changed
        happened = [one for key in asked for one in self._assignment(key, now.get(key))]
        return [*happened, *self._refusals(settlement)]

    def _assignment(self, key: ServiceKey, now: Assignment | None) -> Iterator[Event]:
        before = self._assigned.get(key)
        if now is before:
            return
        if now is None:
            if before is not None:
                yield events.Released(key, before.addresses)
                del self._assigned[key]
            return
        if before is None or now.addresses != before.addresses:
            yield events.Assigned(key, now.addresses)
        for eip in sorted(now.flagged - (before.flagged if before is not None else frozenset()), key=rank):
            yield events.Flagged(key, eip)
        self._assigned[key] = now

    def _refusals(self, settlement: Settlement) -> list[Event]:
        refusals = settlement.refusals.items()
        now = {key: events.Refused(key, refusal.reason.value, refusal.message) for key, refusal in refusals}
        before, self._refused = self._refused, now
        return [refused for key, refused in now.items() if before.get(key) != refused]

    def decided(self, decision: Decision, touched: Collection[IPAddress] | None = None) -> list[Event]:
        """Which EIPs this node must not answer for from now on, and why. ``touched``: only these may be new."""
        happened: list[Event] = []
        for address in decision.eips if touched is None else touched:
            before, eip = self._eips.get(address), decision.eips.get(address)
            if isinstance(eip, MayNotHold) and (not isinstance(before, MayNotHold) or before.reason != eip.reason):
                happened.append(events.NotClaimed(address, eip.reason, eip.message))
        self._eips = decision.eips
        return happened

    def conflicts(self, conflicts: Mapping[str, str]) -> list[Event]:
        """``conflicts``: EIP → what is reported about its rival. Events for new rivals, and for those that are gone."""
        before, self._conflicts = self._conflicts, frozenset(conflicts)
        begun = [events.ConflictBegun(eip, conflicts[eip]) for eip in sorted(self._conflicts - before)]
        return [*begun, *map(events.ConflictEnded, sorted(before - self._conflicts))]

    def approximations(self, approximations: tuple[str, ...]) -> Iterator[Line]:
        """What the forwarder does differently from what it was asked."""
        before, self._approximations = self._approximations, approximations
        return sentences("approximation", new(approximations, before))

    def edge_failed(self, edge: str, words: str, now: float, patience: float = 0.0) -> Event | None:
        """None for words already said, and for an error that is over within ``patience`` seconds."""
        if not self._failing.setdefault(edge, Spell(now)).tells(words, now, patience):
            return None
        return events.EdgeFailed(edge, words)

    def edge_recovered(self, edge: str) -> Event | None:
        spell = self._failing.pop(edge, None)
        return events.EdgeRecovered(edge) if spell is not None and spell.said is not None else None

    def api(self, up: bool, now: float) -> Event | None:
        """None unless the change lasted longer than LASTING."""
        if up:
            passed, self._away = self._away is not None and self._away.said is None, None
            return None if passed else events.ApiAnswers()
        self._away = self._away or Spell(now)
        return events.ApiSilent() if self._away.tells(events.API_SILENT, now, LASTING) else None

    def dropped(self, martians: int, reverse_path: int) -> list[Line]:
        """Packets dropped since the host started: for their source, and by a reverse path filter. The first counts are
        not news."""
        before, self._dropped = self._dropped or (martians, reverse_path), (martians, reverse_path)
        told: list[Line] = []
        if martians > before[0]:
            message = (
                "packets from outside were dropped because their source is an address bound on this node: another node "
                "may answer for an EIP that is bound here, or a backend or upstream balancer sends from one. With the "
                "nftables forwarder no EIP is bound"
            )
            told.append(Line("warning", "martian source", {"packets": martians - before[0], "message": message}))
        if reverse_path > before[1]:
            message = (
                "packets from outside were dropped by rp_filter=1 because this node would answer through another link "
                "than they came in on: see docs/forwarding.md, Several links"
            )
            told.append(Line("warning", "reverse path", {"packets": reverse_path - before[1], "message": message}))
        return told

    def foreign_hellos(self, link: str, rejected: Enum | None) -> Line | None:
        """Once for each link and reason."""
        if rejected not in _STRANGE or (link, rejected) in self._foreign:
            return None
        self._foreign.add((link, rejected))
        message = (
            "a host on this link signs hellos with another key: it is in another cluster, or it has the wrong key file "
            "and claims the same EIPs"
        )
        return Line("warning", "foreign hellos", {"link": link, "reason": rejected.value, "message": message})


def holder_silent(hop: NextHop, eips: int) -> Line:
    message = "it does not answer, so the connections that it had are reset"
    told = {"address": str(hop.address), "link": hop.link, "eips": eips, "message": message}
    return Line("warning", "previous holder silent", told)
