"""Which faults a seed means, of the functions that a site was seen to run. Pure."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain, zip_longest
from typing import TypeAlias

KINDS = ("Exception", "OSError", "CancelledError", "StopIteration", "MemoryError")
"""Of which one is drawn."""
FORESEEN = "EdgeError"
"""What an edge raises on purpose. It ends less, and so may go untold: it is to be in the log and counted."""


class Phase(Enum):
    """What goes on while a function raises."""

    STEADY = "nothing is asked of the speaker"
    EDIT = "manifests, addresses and keys change, and people ask how it is"
    CLAIM = "EIPs change their holder: nodes are drained, and share anew"
    DEATH = "a peer is killed, and comes back"
    START = "the process is started"
    STOP = "the speaker is told to end, and starts again"


Ran: TypeAlias = Mapping[str, Mapping[str, Collection[Phase]]]
"""Process → function as ``module:name`` → the phases in which it ran there."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``place`` raises ``kind`` in ``process`` during ``phase``: once, or for some seconds."""

    process: str
    place: str
    kind: str
    lasts: bool
    phase: Phase

    def __str__(self) -> str:
        """As ``read`` takes it."""
        return f"{self.process} {self.place} {self.kind} {'lasting' if self.lasts else 'once'} {self.phase.name}"


def read(words: str) -> Fault:
    """Raises ValueError where it is none."""
    process, place, kind, lasts, phase = words.split()
    if lasts not in ("once", "lasting") or kind not in (*KINDS, FORESEEN) or phase not in Phase.__members__:
        raise ValueError(words)
    return Fault(process, place, kind, lasts == "lasting", Phase[phase])


def drawn(ran: Ran, seed: int) -> Iterator[Fault]:
    """One fault of every function, the processes in turn. What is drawn for one function does not depend on which
    others ran: the same seed means the same tomorrow."""
    each = [sorted(_faults(process, ran[process], seed)) for process in sorted(ran)]
    return (fault for _, fault in filter(None, chain.from_iterable(zip_longest(*each))))


def _faults(process: str, ran: Mapping[str, Collection[Phase]], seed: int) -> Iterator[tuple[bytes, Fault]]:
    for place, phases in ran.items():
        dice = hashlib.sha256(f"{seed} {process} {place}".encode()).digest()
        phase = min(phases, key=lambda phase: hashlib.sha256(dice + phase.name.encode()).digest())
        yield dice, Fault(process, place, KINDS[dice[-1] % len(KINDS)], bool(dice[-2] % 2), phase)
