"""The allocator's memory as plain values that JSON can hold: what a restart must not lose.

Addresses are text here because a ledger is a door (a file, or a reading of Service statuses). Seconds are what is
left, not points in time: the allocator's clock starts anew with the machine. Time spent switched off therefore does
not count as rest, which errs on the side of resting longer.
"""

from dataclasses import dataclass, field

from speaker.api.eip import parse_interface
from speaker.model import (
    CanReach,
    Gratuitous,
    LabelRule,
    LabelSelector,
    LinkNames,
    OwnSubnet,
    Pool,
    Selector,
    ServiceKey,
)


@dataclass(frozen=True, slots=True)
class HeldAddresses:
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
class Rules:
    """What it takes of a pool to serve its EIPs: they outlive it. ``interface`` as in an ``Eip``; '' for none there."""

    pool: str
    interface: str = ""
    nodes: tuple[LabelRule, ...] = ()
    gratuitous: Gratuitous = field(default_factory=Gratuitous)

    @classmethod
    def of(cls, pool: Pool) -> "Rules":
        return cls(pool.name, _written(pool.interface), pool.node_selector.rules, pool.gratuitous)

    def as_pool(self) -> Pool:
        """One that offers nothing. Raises ValueError where ``interface`` is none."""
        interface = parse_interface(self.interface) if self.interface else OwnSubnet()
        return Pool(
            self.pool, (), interface=interface, node_selector=LabelSelector(self.nodes), gratuitous=self.gratuitous
        )


def _written(selector: Selector) -> str:
    match selector:
        case LinkNames(names):
            return ",".join(names)
        case CanReach(target):
            return f"can_reach:{target}"
        case OwnSubnet():
            return ""


@dataclass(frozen=True, slots=True)
class Ledger:
    held: tuple[HeldAddresses, ...] = ()
    resting: tuple[Resting, ...] = ()
    """In the order of their release."""
    pools: tuple[Rules, ...] = ()
    """Of the EIPs in use. Earlier releases wrote none: an EIP of a pool that is not here, nor anywhere else, is
    announced wherever a link's own subnet holds it."""
