"""What this node may do with every EIP: the features' pure decisions, put together.

May this node answer for it (``ownership/eligibility.py``), and on which link (``interfaces/resolve.py``)? Which virtual
servers carry its traffic (``forwarding/plan.py``)? ``host.py`` acts on the result, and ``tools/`` explain it. Several
nodes may be allowed to hold an EIP; which of them does is decided in the wire process, by
``ownership/machine/rules.py``.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from speaker.forwarding.plan import Plan, Planner, without
from speaker.interfaces.resolve import Resolved, Unresolved, resolve
from speaker.interfaces.snapshot import Snapshot
from speaker.model import (
    Assignment,
    Gratuitous,
    IPAddress,
    Link,
    OwnSubnet,
    Pool,
    Preference,
    Selector,
    ServiceKey,
    World,
    of_speakers,
)
from speaker.ownership.eligibility import Ineligible, Veto, veto
from speaker.ownership.preference import preference
from speaker.settings import Node
from speaker.system.supervise import Failures, contained


class MayHold(NamedTuple):
    """An EIP that this node may answer for, on which link, and how it is announced."""

    address: IPAddress
    pool: str
    services: tuple[ServiceKey, ...]
    link: Link
    gratuitous: Gratuitous
    preference: Preference | None = None


class MayNotHold(NamedTuple):
    """An EIP in use that this node must not answer for. ``reason`` is a metric label, ``message`` a sentence."""

    address: IPAddress
    pool: str
    services: tuple[ServiceKey, ...]
    reason: str
    message: str


class Decision(NamedTuple):
    eips: Mapping[IPAddress, MayHold | MayNotHold]
    forwarding: Plan

    def may_hold(self) -> dict[IPAddress, MayHold]:
        return {address: eip for address, eip in self.eips.items() if isinstance(eip, MayHold)}


class _Use(NamedTuple):
    """How one EIP is used; Services in order."""

    pool: str
    services: tuple[ServiceKey, ...]


def decide(world: World, assignments: Mapping[ServiceKey, Assignment], snapshot: Snapshot, node: Node) -> Decision:
    """Every EIP in use, whether this node may hold it and why not, and the virtual servers that carry its traffic.

    May raise unexpected errors; a ``NodeDecider`` then sets one Service aside.
    """
    decider = NodeDecider(forwards=True)
    decision, _ = decider.decide(world, assignments, snapshot, node, None)
    for error in decider.failed.values():
        raise error
    return decision


class NodeDecider:
    """Decides again and again, with little work where little changed. ``forwards``: this node carries the plan out.
    Otherwise the plan has only what concerns Services that limit their clients."""

    def __init__(self, forwards: bool) -> None:
        self._forwards = forwards
        self._planner = Planner()
        self._uses: dict[IPAddress, _Use] = {}
        self._assigned: Mapping[ServiceKey, Assignment] = {}
        self._eips: dict[IPAddress, MayHold | MayNotHold] = {}
        self._failed: Failures[IPAddress] = Failures()

    @property
    def failed(self) -> Mapping[ServiceKey, Exception]:
        """Services set aside because of an unexpected error in the last decision: they stay as they were."""
        uses = {address: self._uses[address] for address in self._failed if address in self._uses}
        deciding = {key: self._failed[address] for address, use in uses.items() for key in use.services}
        return deciding | self._planner.failed

    def decide(
        self,
        world: World,
        assignments: Mapping[ServiceKey, Assignment],
        snapshot: Snapshot,
        node: Node,
        changed: Collection[ServiceKey] | None,
    ) -> tuple[Decision, frozenset[IPAddress] | None]:
        """``changed``: the Services that differ from the previous call, if nothing else does; None: anything may.
        Services that failed are decided again. Returns the decision, and the EIPs whose decision may have changed;
        None: any."""
        changed = changed if changed is None else {*changed, *self.failed}
        links = _LinkChoice(snapshot)
        if changed is None:
            self._uses = _uses(assignments)
            self._failed.clear()
            self._eips = {address: self._one(address, use, world, links, node) for address, use in self._uses.items()}
            touched = None
        else:
            touched = self._follow(assignments, changed)
            eips = dict(self._eips)  # the previous decision keeps its own
            for address in touched:
                eips.pop(address, None)
                self._failed.pop(address, None)
                if (use := self._uses.get(address)) is not None:
                    eips[address] = self._one(address, use, world, links, node)
            self._eips = eips
        self._assigned = assignments
        # An address of this host, on a link that leads somewhere, is not an EIP here: the guard would shut its sshd.
        own = {bound.address for bound in snapshot.addresses}
        own.update(address for address, link in snapshot.own.items() if of_speakers(link))
        return Decision(self._eips, without(self._plan(world, assignments, node, changed), own)), touched

    def _one(
        self, address: IPAddress, use: "_Use", world: World, links: "_LinkChoice", node: Node
    ) -> MayHold | MayNotHold:
        with contained(address, self._failed):
            return _one(address, use, world, links, node)
        before, error = self._eips.get(address), self._failed[address]
        if before is not None and before.services == use.services:
            return before
        return MayNotHold(address, use.pool, use.services, "internal_error", f"{type(error).__name__}: {error}")

    def _follow(
        self, assignments: Mapping[ServiceKey, Assignment], changed: Iterable[ServiceKey]
    ) -> frozenset[IPAddress]:
        """Brings the uses up to date. Returns the EIPs that the changed Services had or have."""
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


def _one(address: IPAddress, use: _Use, world: World, links: "_LinkChoice", node: Node) -> MayHold | MayNotHold:
    pool = world.pools.get(use.pool)
    if (refused := _refused(address, use.pool, world, links)) is not None:
        return MayNotHold(address, use.pool, use.services, refused.reason.value, refused.message)
    services = [world.services[key] for key in use.services if key in world.services]
    if (no := veto(address, pool, services, world.endpoints, node)) is not None:
        return MayNotHold(address, use.pool, use.services, no.reason.value, no.message)
    match links.choose(pool, address):
        case Resolved(link):
            gratuitous, preferred = pool.gratuitous if pool else Gratuitous(), preference(pool, services, node.labels)
            return MayHold(address, use.pool, use.services, link, gratuitous, preferred)
        case Unresolved(reason, message):
            return MayNotHold(address, use.pool, use.services, reason.value, message)


def _refused(address: IPAddress, pool: str, world: World, links: "_LinkChoice") -> Veto | None:
    """Why no node may answer for it, as far as this one knows."""
    if (link := links.own(address)) is not None:
        if of_speakers(link):
            message = f"{address} belongs to another group, whose speaker here has it bound on {link}"
            return Veto(Ineligible.OTHER_GROUP, message)
        return Veto(Ineligible.HOST_ADDRESS, f"{address} is this host's own address: it is bound on {link}")
    if (whose := world.reserved.get(address)) is not None:
        return Veto(Ineligible.HOST_ADDRESS, f"{address} is an address of {whose} itself")
    if pool and pool not in world.pools:
        message = f"pool {pool} does not exist, so it is not known which nodes may answer: declare it again"
        return Veto(Ineligible.POOL_UNKNOWN, message)
    return None


class _LinkChoice:
    """Resolves once per selector: only ``OwnSubnet`` depends on the address, and a pool may hold thousands."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[Selector, Resolved | Unresolved] = {}

    def own(self, address: IPAddress) -> str | None:
        return self._snapshot.own.get(address)

    def choose(self, pool: Pool | None, address: IPAddress) -> Resolved | Unresolved:
        # For an EIP whose pool was never recorded, its own subnet is the best guess.
        selector = pool.interface if pool is not None else OwnSubnet()
        if isinstance(selector, OwnSubnet):
            return resolve(selector, address, self._snapshot)
        if selector not in self._known:
            self._known[selector] = resolve(selector, address, self._snapshot)
        return self._known[selector]
