"""Who answers for each EIP in use, as this node knows. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from speaker.model import IPAddress
from speaker.node.decide import Held, NotHeld


class Standing(StrEnum):
    """The value is the metric label."""

    HELD = "held"
    """By this node."""
    HELD_BY_PEER = "held_by_peer"
    BY_NOBODY = "by_nobody"
    """As far as this node knows; why not by this one is counted by reason."""
    CONFLICT = "conflict"
    """A stranger was heard to use it, within the last half minute; whether or not this node answers as well."""


WAITS = "waits"
"""Reason: this node may hold it, and does not: it is about to, or its kernel refuses to forward for it."""


class Claim(NamedTuple):
    """What is known of an EIP: whether it is held here; else by which node, if any is known."""

    mine: bool
    holder: str | None


class Standings(NamedTuple):
    states: Mapping[Standing, int]
    by_nobody: Mapping[str, int]
    """By reason."""


def standings(
    eips: Mapping[IPAddress, Held | NotHeld],
    claims: Mapping[IPAddress, Claim],
    rivalled: Collection[str],
) -> Standings:
    """``claims``: of each of the ``eips``; ``rivalled``: those that a stranger uses."""
    states, reasons = Counter(dict.fromkeys(Standing, 0)), Counter[str]()
    for address, eip in eips.items():
        standing = _standing(claims[address], str(address) in rivalled if rivalled else False)
        states[standing] += 1
        if standing is Standing.BY_NOBODY:
            reasons[eip.reason if isinstance(eip, NotHeld) else WAITS] += 1
    return Standings(states, reasons)


def _standing(claim: Claim, rivalled: bool) -> Standing:
    if rivalled:
        return Standing.CONFLICT
    if claim.mine:
        return Standing.HELD
    return Standing.HELD_BY_PEER if claim.holder is not None else Standing.BY_NOBODY
