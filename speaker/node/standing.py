"""Who answers for each EIP in use, which other nodes are heard, and what a node remembers for its reports. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from speaker.model import IPAddress, Link
from speaker.model.events import Counts, EipClaimed, EipYielded, HellosReceived, PeerChanged
from speaker.node.decide import MayHold, MayNotHold


class Standing(StrEnum):
    """The value is the metric label."""

    HELD = "held"
    """By this node."""
    HELD_BY_PEER = "held_by_peer"
    BY_NOBODY = "by_nobody"
    """As far as this node knows. A second metric counts the reasons why this node is not the holder."""
    CONFLICT = "conflict"
    """A stranger was heard to use it within the last half minute, whether or not this node answers as well."""


WAITS = "waits"
"""Reason: this node may hold it but does not. It is about to, or its kernel refuses to forward for it."""


class Claim(NamedTuple):
    """What is known about an EIP: whether it is held here, or else by which node, if known."""

    mine: bool
    holder: str | None


def standings(
    eips: Mapping[IPAddress, MayHold | MayNotHold],
    claims: Mapping[IPAddress, Claim],
    rivalled: Collection[str],
) -> tuple[Counter[Standing], Counter[str]]:
    """How many EIPs are in each state, and for which reasons those that nobody holds are not held. ``claims``: of each
    of the ``eips``. ``rivalled``: EIPs that a stranger uses."""
    states, reasons = Counter(dict.fromkeys(Standing, 0)), Counter[str]()
    for address, eip in eips.items():
        claim = claims[address]
        if rivalled and str(address) in rivalled:
            states[Standing.CONFLICT] += 1
        elif claim.mine or claim.holder is not None:
            states[Standing.HELD if claim.mine else Standing.HELD_BY_PEER] += 1
        else:
            states[Standing.BY_NOBODY] += 1
            reasons[eip.reason if isinstance(eip, MayNotHold) else WAITS] += 1
    return states, reasons


MAX_DEAD = 4000
"""Silent nodes that are remembered: whoever has the key can invent any number of names."""


class Alive:
    """``on``: nodes that are heard, by the index of the link."""

    def __init__(self) -> None:
        self.on: dict[int, set[str]] = {}
        self._dead: dict[str, None] = {}

    def hear(self, event: object) -> None:
        """Notes which peers came or fell silent."""
        if isinstance(event, PeerChanged):
            self._note(event.node, event.link, event.alive)

    def _note(self, node: str, link: Link, alive: bool) -> None:
        nodes = self.on.setdefault(link.index, set())
        self._dead.pop(node, None)
        if alive:
            nodes.add(node)
            return
        nodes.discard(node)
        if not any(node in others for others in self.on.values()):
            self._dead[node] = None
        if len(self._dead) > MAX_DEAD:
            del self._dead[next(iter(self._dead))]

    def unless_dead(self, node: str | None) -> str | None:
        """None for a node that fell silent on all links where it was heard, as it holds nothing."""
        return None if node in self._dead else node


# ── What a node remembers only for its reports: how it came by each EIP, and hellos that it could not read ─────────

MOST = 100_000
"""EIPs that are remembered: those with the latest changes."""


class Noted:
    """``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.decided: Mapping[IPAddress, MayHold | MayNotHold] = {}
        """What was decided last."""
        self._last: dict[IPAddress, EipClaimed | EipYielded] = {}
        """The last change."""
        self._rejected: dict[tuple[str, str], float] = {}
        """Link and reason → when the last was heard."""

    def hear(self, event: object) -> None:
        """Notes the events that concern it."""
        match event:
            case EipClaimed(eip=eip) | EipYielded(eip=eip):
                self._last.pop(eip, None)
                self._last[eip] = event
                if len(self._last) > MOST:
                    del self._last[next(iter(self._last))]
            case Counts(counts=counts):
                for what in counts:
                    if isinstance(what, HellosReceived) and what.rejected is not None:
                        self._rejected[what.link, what.rejected.value] = self._clock()

    def history(self, address: IPAddress) -> str:
        """The last change in words; '' if there was none since the start."""
        match self._last.get(address):
            case EipClaimed(before=before):
                return f"claimed; {before or 'nobody'} had it before"
            case EipYielded(reason=reason, holder=holder):
                return f"let go ({reason}){f', to {holder}' if holder else ''}"
            case None:
                return ""

    def why_not(self, address: IPAddress) -> str:
        """The reason why this node does not hold it; '' if none is known."""
        decided, last = self.decided.get(address), self._last.get(address)
        if isinstance(decided, MayNotHold):
            return decided.reason
        return last.reason if isinstance(last, EipYielded) else ""  # its last event may not have been heard yet

    def failover(self, address: IPAddress) -> tuple[str, float] | None:
        """The node that fell silent ('' if unknown), and the seconds from its last sign to this node's claim. None:
        this node did not get the EIP that way, or has let it go since."""
        last = self._last.get(address)
        if not isinstance(last, EipClaimed) or last.unanswered is None:
            return None
        return last.before or "", last.unanswered

    def rejected(self) -> Collection[tuple[str, str, float]]:
        """Link, reason, and seconds since the last one."""
        now = self._clock()
        return [(link, reason, now - at) for (link, reason), at in self._rejected.items()]
