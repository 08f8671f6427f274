"""The allocator: which Service holds which EIP. A pure, incremental state machine; seconds come in as arguments.

A Service keeps what it holds until it is released, or until its owner asks for something else that is available. These
events could take an address from a Service that did nothing. What happens instead:

- **A pool is edited, shrunk, deleted, or no longer selects the Service**: the EIP stays, is flagged, and still belongs
  to that pool (as it was last, if it is deleted). It moves to another pool only if that pool offers the address and its
  own does not, as after a rename. It stays even then if its own pool still exists but must not be used because it
  overlaps an older one, or if the Service names its own pool.
- **A request cannot be met** (another address or pool, a second family): the Service keeps what it holds, and the
  outcome contains the refusal beside the assignment. Of several addresses or pools a Service gets those that are
  available. A Service that holds nothing gets both families of RequireDualStack or nothing; of PreferDualStack it gets
  the available ones, unless it names an address of its primary family.
- **A sharing Service changes so that it clashes with the others on its EIP** (a port, its key, its namespaces, its
  traffic policy): only the Service that changed is *suspended*. It is not served at that address and is told why; the
  others notice nothing. Its place is kept: it is served again when the change is undone or the others leave. Moving it
  to an address of its own would be a change that nobody asked for.
- **A namespace has reached the maximum of a pool, or exceeds it since it was lowered**: it keeps what it has, and gets
  nothing new from the pool. Sharing an EIP that it already has costs nothing.
- **A Service asks for its release** (``release: now``): each address that its pool no longer offers to it is replaced,
  if another is available. The request works once; addresses that are stranded later stay until it is made again.
- **A pool is disabled**: it gives nothing new, and keeps serving what it gave.
- **A host has the EIP as its own address**: the Service is suspended there until the host gives the address up, because
  an address that two machines answer for is of no use to anybody.

A Service with a share key that names no address joins an EIP of that key if it may (same key, same IP where possible),
and takes an address of its own otherwise.

An address that its pool avoids or excludes is refused even when a Service names it: whoever declares the pool decides
what it offers, not its tenants. The pool can list such an address singly, or set ``avoidNetworkAndBroadcast: false``.
"""

from collections.abc import Collection, Iterable, KeysView, Mapping
from dataclasses import dataclass

from speaker.allocator.book import Book, Ledger, NotServed
from speaker.allocator.choose import Decision, decide
from speaker.allocator.pools import Catalogue
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.errors import SET_ASIDE
from speaker.model import Assignment, Family, IPAddress, Pool, Service, ServiceKey, Usage
from speaker.system.supervise import Failures, contained


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a Service has and what it was refused: both, if it is served but not with all that it asks for.
    ``assignment`` is None if it is not served at all."""

    assignment: Assignment | None
    refusal: Refusal | None = None


_NO_HOSTS: Mapping[IPAddress, str] = {}

#: Of every Service as a rule: one for all of them.
_NOTHING: frozenset[IPAddress] = frozenset()

#: What an outcome was decided from, as far as it can change without the book changing.
_Seen = tuple[Service, Catalogue, Mapping[str, str]]


class Allocator:
    """``rest`` is how long, in seconds, a released address is kept from others while its pool has any other; ``now``
    must not go backwards from one call to the next. Cost and memory follow the addresses in use."""

    def __init__(self, rest: float = 60.0) -> None:
        self._book = Book(rest)
        self._settled: dict[ServiceKey, tuple[_Seen, Outcome]] = {}
        """Of Services that lack nothing: while they and the pools stay as they are, so does the outcome."""
        self.failed: Failures[ServiceKey] = Failures()
        """Services that met what nobody foresaw when they were last asked."""
        self.outdated: set[ServiceKey] = set()
        """Those whose EIP went to another pool since they were last asked, and whose outcome says something else."""

    @property
    def holders(self) -> KeysView[ServiceKey]:
        """The Services that hold something."""
        return self._book.holdings.keys()

    def held_by(self, key: ServiceKey) -> Collection[IPAddress]:
        """What the Service holds, also where it is not served at it."""
        return self._book.held_by(key)

    def pools_of(self, key: ServiceKey) -> frozenset[str]:
        """Those that it has its EIPs from; '' among them where nobody knows."""
        return frozenset(self._book.eips[address].pool for address in self._book.held_by(key))

    def has_released(self, key: ServiceKey) -> bool:
        """Whether it holds something, and its wish to release was fulfilled."""
        return key in self._book.released

    @property
    def revision(self) -> int:
        """Rises with every change of who holds, rests or may join what: unchanged, there is nothing new to save."""
        return self._book.revision

    def wake(self, now: float) -> None:
        """What has rested is free by ``now``; the calls that give anything see to that by themselves."""
        self._book.wake(now)

    def usage(self, pool: str) -> Mapping[Family, Usage]:
        """Sizes and use of one pool of the last ``set_pools``, for the families it has; KeyError for another."""
        return {
            family: Usage(space.offer.size, space.used, space.resting, self._full(space.pool, family), space.places)
            for family, space in self._book.catalogue.spaces[pool].items()
        }

    def _full(self, pool: Pool, family: Family) -> tuple[tuple[str, int], ...]:
        if pool.per_namespace is None:
            return ()
        shares = self._book.shares.get(pool.name, {}).items()
        return tuple(sorted((name, n) for (name, of), n in shares if of is family and n >= pool.per_namespace))

    @property
    def former_pools(self) -> Mapping[str, Pool]:
        """Those that are gone while their EIPs are in use, by name, as they were last (see ``Rules``)."""
        now = self._book.catalogue.pools
        return {name: pool for name, pool in self._book.pools.items() if name not in now}

    def is_in_use(self, pool: str) -> bool:
        """Whether anybody holds an EIP from there, served at it or not."""
        return pool in self._book.shares

    def set_pools(
        self,
        pools: Mapping[str, Pool],
        namespaces: Mapping[str, Mapping[str, str]],
        reserved: Mapping[IPAddress, str] = _NO_HOSTS,
        withheld: Collection[str] = (),
        *,
        all_known: bool = False,
    ) -> None:
        """The pools and namespace labels from now on; ``reserved``, ``withheld`` and ``all_known`` as in ``Catalogue``.
        Costs next to nothing when equal to the last ones; changed pools cost time in proportion to the addresses in
        use. Takes no address from anybody."""
        if not self._book.catalogue.is_of(pools, reserved, withheld):
            self._book.stock(Catalogue(pools, reserved, withheld))
        self._book.catalogue.set_namespaces(namespaces, all_known=all_known)

    def assign(self, service: Service, now: float) -> Outcome:
        """What the Service has from now on. Repeating it changes nothing; only a refusal may turn out better later."""
        self.failed.pop(service.key, None)
        self.outdated.discard(service.key)
        with contained(service.key, self.failed):
            return self._assign(service, now)
        return self._as_held(service.key, self.failed[service.key])

    def _as_held(self, key: ServiceKey, error: Exception) -> Outcome:
        """Set aside: it keeps what it holds."""
        self._settled.pop(key, None)
        eips = self._book.eips
        held = [a for a in self._book.held_by(key) if eips[a].holders[key] is not NotServed.SUSPENDED]
        kept = Assignment(key, tuple(held), tuple(eips[address].pool for address in held)) if held else None
        told, more = f"{SET_ASIDE}: it keeps what it has", f"{type(error).__name__}: {error}"
        return Outcome(kept, Refusal(key, RefusalReason.INTERNAL_ERROR, told, more))

    def _assign(self, service: Service, now: float) -> Outcome:
        self._book.wake(now)
        catalogue = self._book.catalogue
        seen = (service, catalogue, catalogue.namespace_labels(service.key.namespace))
        settled = self._settled.get(service.key)
        if settled is not None and settled[0] == seen:
            return settled[1]
        for address in self._book.held_by(service.key):
            self._account(address, service)
        decisions, refusal = decide(self._book, service)
        self._carry_out(service, decisions, now)
        self._book.note_released(service)
        outcome = Outcome(self._assignment(service, decisions), refusal)
        if refusal is None:
            self._settled[service.key] = (seen, outcome)
        else:
            self._settled.pop(service.key, None)
        return outcome

    def _account(self, address: IPAddress, asking: Service | None = None) -> None:
        if self._book.account(address, asking):
            for key in self._book.eips[address].holders:
                self._settled.pop(key, None)
                if asking is None or key != asking.key:
                    self.outdated.add(key)

    def _leave(self, key: ServiceKey, address: IPAddress, now: float) -> None:
        self._book.leave(key, address, now)
        if address in self._book.eips:
            self._account(address)

    def release(self, key: ServiceKey, now: float) -> None:
        """The Service is gone: its addresses rest, unless others share them. Unknown keys are fine."""
        self._book.wake(now)
        self._settled.pop(key, None)
        self.failed.pop(key, None)
        self.outdated.discard(key)
        for address in list(self._book.held_by(key)):
            self._leave(key, address, now)

    def remind(self, service: Service, addresses: Iterable[IPAddress], now: float) -> None:
        """It had these addresses, says somebody who need not be right. So it gets back at once what nobody holds and a
        pool would choose for it."""
        self._book.wake(now)
        catalogue = self._book.catalogue
        for address in addresses:
            if any(catalogue.chooses(space.pool, service) for space in catalogue.offering(address)):
                self._book.note_left(service.key, address, now)

    def readmit(self, had: Iterable[tuple[Service, Iterable[tuple[IPAddress, str]]]]) -> None:
        """Services that come back with these addresses, each with its pool ('' if unknown), have them again, whatever
        the pools say now, unless another has one without sharing it with them. They are to be asked next."""
        back: dict[ServiceKey, Service] = {}
        for service, places in had:
            back[service.key] = service
            for address, pool in places:
                eip = self._book.eips.get(address)
                others = [back.get(key, each) for key, each in eip.holders.items()] if eip is not None else []
                if all(isinstance(each, Service) and each.share == service.share is not None for each in others):
                    self._book.enter(service.key, address, pool, NotServed.UNSEEN)

    def ledger(self, now: float) -> Ledger:
        """All that a fresh allocator needs to carry on (see ``Ledger``), in an order that does not jump about."""
        self._book.wake(now)
        return self._book.ledger(now)

    def restore(self, ledger: Ledger, now: float) -> None:
        """Take over a ledger; the allocator must be fresh. Before or after ``set_pools``: nothing is dropped because
        a pool is missing or was edited. A Service in the ledger that no longer exists has to be released.

        A Kubernetes controller makes the ledger from the Services' statuses. Raises ValueError, having changed
        nothing, when an address or a Service appears where it cannot: the ledger is damaged.
        """
        if self._book.revision:
            raise ValueError("only a fresh allocator can take over a ledger")
        self._book.restore(ledger, now)

    def _carry_out(self, service: Service, decisions: Collection[Decision], now: float) -> None:
        wanted = {each.address for each in decisions}
        for address in [each for each in self._book.held_by(service.key) if each not in wanted]:
            self._leave(service.key, address, now)
        for decision in decisions:
            if decision.address is not None:
                holder = NotServed.SUSPENDED if decision.suspended else service
                self._book.enter(service.key, decision.address, decision.pool, holder)

    def _assignment(self, service: Service, decisions: Collection[Decision]) -> Assignment | None:
        served = [(each.address, each.pool) for each in decisions if each.address is not None and not each.suspended]
        if not served:
            return None
        return Assignment(
            service.key,
            addresses=tuple(address for address, _ in served),
            pools=tuple(pool for _, pool in served),
            flagged=frozenset(each[0] for each in served if not self._book.catalogue.offers(*each, service))
            or _NOTHING,
        )
