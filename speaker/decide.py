"""What this node does with every EIP: the pure decisions of the features, put together.

``run.py`` acts on the result; ``tools/`` explain it. Nothing here knows how anything is done.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from speaker.forwarding.plan import Plan, Planner, without
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


class _Use(NamedTuple):
    """Of one EIP; Services in order."""

    pool: str
    services: tuple[ServiceKey, ...]


def decide(world: World, assignments: Mapping[ServiceKey, Assignment], snapshot: Snapshot, node: Node) -> Decision:
    """Every EIP in use, held or not and why, and the virtual servers that carry its traffic."""
    return Decider(forwards=True).decide(world, assignments, snapshot, node, None)[0]


class Decider:
    """Decides again and again: where little changed, little is decided. ``forwards``: the plan is carried out; else it
    holds only what there is to say of Services that limit their clients."""

    def __init__(self, forwards: bool) -> None:
        self._forwards = forwards
        self._planner = Planner()
        self._uses: dict[IPAddress, _Use] = {}
        self._assigned: Mapping[ServiceKey, Assignment] = {}
        self._eips: dict[IPAddress, Held | NotHeld] = {}

    def decide(
        self,
        world: World,
        assignments: Mapping[ServiceKey, Assignment],
        snapshot: Snapshot,
        node: Node,
        changed: Collection[ServiceKey] | None,
    ) -> tuple[Decision, frozenset[IPAddress] | None]:
        """``changed``: the Services of which anything is other than in the call before, where nothing else is; None:
        anything may be. The decision, and the EIPs that may be decided otherwise than before; None: any."""
        links = _LinkChoice(snapshot)
        if changed is None:
            self._uses = _uses(assignments)
            self._eips = {address: _one(address, use, world, links, node) for address, use in self._uses.items()}
            touched = None
        else:
            touched = self._follow(assignments, changed)
            self._eips = dict(self._eips)  # the decision before keeps its own
            for address in touched:
                self._eips.pop(address, None)
                if (use := self._uses.get(address)) is not None:
                    self._eips[address] = _one(address, use, world, links, node)
        self._assigned = assignments
        # What is this host's own, on a link that leads somewhere, is no EIP here: the guard would shut its sshd.
        own = {bound.address for bound in snapshot.addresses}
        return Decision(self._eips, without(self._plan(world, assignments, node, changed), own)), touched

    def _follow(
        self, assignments: Mapping[ServiceKey, Assignment], changed: Iterable[ServiceKey]
    ) -> frozenset[IPAddress]:
        """Brings the uses up to date; the EIPs that the changed Services had or have."""
        touched: set[IPAddress] = set()
        for key in changed:
            for address in self._addresses(self._assigned, key):
                touched.add(address)
                use = self._uses[address]
                others = tuple(service for service in use.services if service != key)
                if others:
                    self._uses[address] = use._replace(services=others)
                else:
                    del self._uses[address]
            if (now := assignments.get(key)) is not None:
                touched.update(now.addresses)
                _use(self._uses, now)
        return frozenset(touched)

    @staticmethod
    def _addresses(assignments: Mapping[ServiceKey, Assignment], key: ServiceKey) -> tuple[IPAddress, ...]:
        found = assignments.get(key)
        return found.addresses if found is not None else ()

    def _plan(
        self,
        world: World,
        assignments: Mapping[ServiceKey, Assignment],
        node: Node,
        changed: Collection[ServiceKey] | None,
    ) -> Plan:
        if not self._forwards:
            asked = [key for key in (world.services if changed is None else changed) if key in assignments]
            limited = [key for key in asked if (found := world.services.get(key)) is not None and found.source_ranges]
            assignments = {key: assignments[key] for key in limited}
        return self._planner.plan(world, assignments, node.name, changed)


def _uses(assignments: Mapping[ServiceKey, Assignment]) -> dict[IPAddress, _Use]:
    uses: dict[IPAddress, _Use] = {}
    for assignment in assignments.values():
        _use(uses, assignment)
    return uses


def _use(uses: dict[IPAddress, _Use], assignment: Assignment) -> None:
    for address, pool in zip(assignment.addresses, assignment.pools, strict=True):
        sharing = uses[address].services if address in uses else ()
        services = (assignment.service,) if not sharing else tuple(sorted((*sharing, assignment.service)))
        uses[address] = _Use(pool, services)


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
