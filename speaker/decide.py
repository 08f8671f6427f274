"""What this node does with every EIP: the pure decisions of the features, put together.

``run.py`` acts on the result; ``tools/`` explain it. Nothing here knows how anything is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from speaker.forwarding.plan import Plan, plan
from speaker.interfaces.resolve import Resolved, Unresolved, resolve
from speaker.interfaces.snapshot import Snapshot
from speaker.model import Assignment, Gratuitous, IPAddress, Link, OwnSubnet, Pool, Selector, ServiceKey, World
from speaker.ownership.eligibility import veto
from speaker.settings import Node


@dataclass(frozen=True, slots=True)
class Held:
    """An EIP this node may answer for, on which link, announced how."""

    address: IPAddress
    pool: str
    services: tuple[ServiceKey, ...]
    link: Link
    gratuitous: Gratuitous


@dataclass(frozen=True, slots=True)
class NotHeld:
    """An EIP in use that this node must not answer for. ``reason`` is a metric label, ``message`` a sentence."""

    address: IPAddress
    pool: str
    services: tuple[ServiceKey, ...]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    eips: Mapping[IPAddress, Held | NotHeld]
    forwarding: Plan

    def held(self) -> dict[IPAddress, Held]:
        return {address: eip for address, eip in self.eips.items() if isinstance(eip, Held)}


@dataclass(frozen=True, slots=True)
class _Use:
    pool: str
    services: tuple[ServiceKey, ...]


def decide(world: World, assignments: Mapping[ServiceKey, Assignment], snapshot: Snapshot, node: Node) -> Decision:
    """Every EIP in use, held or not and why, and the virtual servers that carry its traffic."""
    links = _LinkChoice(snapshot)
    eips = {address: _one(address, use, world, links, node) for address, use in _uses(assignments).items()}
    return Decision(eips, plan(world, assignments, node.name))


def _uses(assignments: Mapping[ServiceKey, Assignment]) -> dict[IPAddress, _Use]:
    uses: dict[IPAddress, _Use] = {}
    for key, assignment in assignments.items():
        for address, pool in zip(assignment.addresses, assignment.pools, strict=True):
            sharing = uses[address].services if address in uses else ()
            uses[address] = _Use(pool, (*sharing, key))
    return uses


def _one(address: IPAddress, use: _Use, world: World, links: "_LinkChoice", node: Node) -> Held | NotHeld:
    pool = world.pools.get(use.pool)
    services = [world.services[key] for key in use.services if key in world.services]
    if (no := veto(address, pool, services, world.endpoints, node)) is not None:
        return NotHeld(address, use.pool, use.services, no.reason.value, no.message)
    match links.choose(pool, address):
        case Resolved(link):
            return Held(address, use.pool, use.services, link, pool.gratuitous if pool else Gratuitous())
        case Unresolved(reason, message):
            return NotHeld(address, use.pool, use.services, reason.value, message)


class _LinkChoice:
    """Resolves once per selector: only ``OwnSubnet`` depends on the address, and a pool may hold thousands."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[Selector, Resolved | Unresolved] = {}

    def choose(self, pool: Pool | None, address: IPAddress) -> Resolved | Unresolved:
        # An EIP outlives its pool until it is released; its own subnet is the best guess left.
        selector = pool.interface if pool is not None else OwnSubnet()
        if isinstance(selector, OwnSubnet):
            return resolve(selector, address, self._snapshot)
        if selector not in self._known:
            self._known[selector] = resolve(selector, address, self._snapshot)
        return self._known[selector]
