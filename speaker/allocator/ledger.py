"""The allocator's memory as plain values that JSON can hold: what a restart must not lose.

Addresses are text here because a ledger is a door (a file, or a reading of Service statuses). Seconds are what is
left, not points in time: the allocator's clock starts anew with the machine. Time spent switched off therefore does
not count as rest, which errs on the side of resting longer.
"""

from dataclasses import dataclass

from speaker.model import ServiceKey


@dataclass(frozen=True, slots=True)
class Held:
    """What one Service holds: ``pools[i]`` is where ``addresses[i]`` came from.

    ``suspended`` are those of its addresses that it may not use for now, because it clashes with Services it shares
    them with (see ``Allocator``).
    """

    service: ServiceKey
    addresses: tuple[str, ...]
    pools: tuple[str, ...]
    suspended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resting:
    """A released address that is not given to anybody but ``service``, its last holder, for ``seconds`` more."""

    address: str
    service: ServiceKey
    seconds: float


@dataclass(frozen=True, slots=True)
class Ledger:
    held: tuple[Held, ...] = ()
    resting: tuple[Resting, ...] = ()
    """In the order of their release."""
