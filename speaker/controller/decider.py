"""The decisions of one leader. Pure: changes from the mirrors go in, and what has to be written comes out."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from speaker.allocator.assign import Allocator, Outcome
from speaker.allocator.pools import Catalogue
from speaker.allocator.settle import INVALID, Given, Settling, given, tally
from speaker.api.kinds import ASSIGNED, EipObject, HostObject, ServiceObject, condition_of, has_ours
from speaker.api.objects import Key, Object
from speaker.api.reading import Hosts, Judged, Parsed, Unreadable, judge, read_service
from speaker.api.records import announcement_name
from speaker.api.service import LOAD_BALANCER_CLASS, PREFIX, RECORD, SHARE, SOURCE_RANGES_ANNOTATION, NotOurs
from speaker.controller import wanted
from speaker.controller.announced import Users, Uses
from speaker.controller.restore import RELEASED, Duplicate, in_annotation, in_status, restored
from speaker.controller.wanted import Event, IpMode, Order, Orders
from speaker.errors import set_aside
from speaker.model import Assignment, Balancer, Family, IPAddress, Pool, Service, ServiceKey, Tally, Usage, rank
from speaker.system.supervise import Failures, contained

HINT_SECONDS = 30.0
"""How long a load balancer without a class may wait for another controller."""
_HINT = (
    f"it names no loadBalancerClass, and was not served for {HINT_SECONDS:.0f} s. The speaker serves it with "
    f"spec.loadBalancerClass: {LOAD_BALANCER_CLASS}, or if controllers and agents have --default-class"
)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """``default_class``: Services that name no class are ours as well. ``rest``: seconds, as in ``Allocator``, for
    addresses released under this leader. It does not know what was released before, which may be given out again at
    once."""

    default_class: bool = False
    honoured: frozenset[Balancer] = frozenset()
    """Other load balancers whose annotations on our Services are obeyed."""
    ip_mode: IpMode | None = IpMode.VIP
    """The mode at first; None: each Service keeps its own, and new ones get VIP."""
    rest: float = 60.0


@dataclass(frozen=True, slots=True)
class News:
    """Everything that changed since the last decision, None for what is gone; at first everything."""

    services: Mapping[Key, ServiceObject | None] = field(default_factory=dict)
    eips: Mapping[Key, EipObject | None] = field(default_factory=dict)
    namespaces: Mapping[Key, Object | None] = field(default_factory=dict)
    nodes: Mapping[Key, HostObject | None] = field(default_factory=dict)
    ip_mode: IpMode | None = None
    """The mode from now on; None: unchanged."""
    groups: Mapping[IPAddress, str] | None = None
    """What other groups of speakers hold, and who says so; None: unchanged."""


class Decided(NamedTuple):
    """Everything decided at one moment; ``usage`` is by pool."""

    outcomes: Mapping[ServiceKey, Outcome]
    usage: Mapping[str, Mapping[Family, Usage]]


class Decider:
    """Begins empty; the first ``decide`` restores what the statuses say. ``uses``: the EIPs that any Service has."""

    def __init__(self, settings: ControllerSettings) -> None:
        self.uses = Uses()
        self._settings, self._ip_mode = settings, settings.ip_mode
        self._read: dict[ServiceKey, tuple[ServiceObject, Parsed]] = {}
        self._served: dict[ServiceKey, Service] = {}
        self._mistaken: set[ServiceKey] = set()
        """Our Services with mistakes, which keep what they hold and are given nothing."""
        self._pools = _Pools()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._hosts = Hosts()
        self._groups: Mapping[IPAddress, str] = {}
        self._allocator = Allocator(settings.rest)
        self._settling = Settling(self._allocator, self._served)
        self._duplicates: tuple[Duplicate, ...] = ()
        """Duplicates found at the start that are still in the API."""
        self._begun = False
        self._unclaimed: dict[ServiceKey, float] = {}
        """Load balancers without a class and without an address → since when."""
        self.failed: Failures[ServiceKey] = Failures()
        """Services that met an unexpected error in the last decision. They keep what they have, and are read and
        decided again in the next."""
        self.failed_pools: dict[str, Exception] = {}
        """Pools that met one when they were read. They keep what they gave, and give nothing new."""

    def decide(self, news: News, now: float, at: str) -> Orders:
        """``now``: seconds, as in ``Allocator``; ``at``: RFC 3339, for what people read."""
        turned = news.ip_mode is not None and news.ip_mode is not self._ip_mode
        self._ip_mode = news.ip_mode or self._ip_mode
        again = {
            key: found
            for key, (found, _) in self._read.items()
            if key in self.failed or (turned and SOURCE_RANGES_ANNOTATION in found.metadata.annotations)
        }
        self.failed.clear()
        self.failed_pools.clear()
        heard = {ServiceKey(key.namespace, key.name): found for key, found in news.services.items()}
        services = {**again, **heard}
        self._forget_former(services, now)
        unread = services.keys() - self._read.keys()
        new = unread if self._begun else ()
        came_with = {key: had for key in new if (found := services[key]) is not None and (had := in_annotation(found))}
        changed = self._read_services(services, again) | self._read_namespaces(news.namespaces)
        self._note_unclaimed(services.keys(), now)
        judged = self._pools.judged
        if self._pools.read(news.eips):
            changed |= self._served.keys()
        if self._pools.judged is not judged:
            self.failed_pools = {name: each.failed for name, each in self._pools.judged.items() if each.failed}
        if self._hosts.hear(news.nodes):
            changed |= self._served.keys()
        if news.groups is not None and news.groups != self._groups:
            self._groups = news.groups
            changed |= self._served.keys()
        if not self._begun:
            self._begin(now)
        for key in unread & self._read.keys():  # what it comes with stays its own, whatever agents say
            with contained(key, self.failed):
                self.uses.note(key, self._read[key][0], None)
        self._allocator.set_pools(
            self._pools.used, self._namespaces, self._reserved(), self._pools.withheld, all_known=True
        )
        self._readmit(new)
        moved = self._settling.step(changed, self._mistaken, now, came_with)
        written = moved.keys() | services.keys() | (self._read.keys() if turned else set())
        self.failed |= self._allocator.failed
        return {**self._service_orders(written, at), **self._pool_orders(news.eips, at)}

    def _reserved(self) -> Mapping[IPAddress, str]:
        """Addresses that no Service may get. If a Service already has an address that another group holds, it keeps it:
        an agent's word takes no EIP away, and agents themselves make sure that they do not answer for it."""
        free = {eip: whose for eip, whose in self._groups.items() if announcement_name(eip) not in self.uses}
        return {**free, **self._hosts.reserved} if free else self._hosts.reserved

    def decided(self) -> Decided:
        """Everything decided so far."""
        return Decided(dict(self._settling.outcomes), self._usage())

    def tally(self, now: float) -> Tally:
        """What everybody has, according to the last decision. ``now`` as in ``Allocator``."""
        self._allocator.wake(now)
        services = (
            Given(outcome.assignment is not None, INVALID) if isinstance(parsed, Unreadable) else given(outcome)
            for key, (_, parsed) in self._read.items()
            if not isinstance(parsed, NotOurs)
            for outcome in (self._outcome(key),)
        )
        return tally(services, self._usage())

    def users(self, names: Container[str]) -> dict[str, Users]:
        """The users of these EIPs, by the names of their Announcements."""
        found = {}
        for name, keys in self.uses.of(names).items():
            pools = (self._pools.declared.get(self._pool_of(key, name)) for key in keys)
            pool = next((each.metadata for each in pools if each is not None), None)
            found[name] = Users([self._read[key][0].metadata for key in keys if key in self._read], pool)
        return found

    def _pool_of(self, key: ServiceKey, name: str) -> str:
        """'' if the Service no longer has that EIP."""
        assignment = self._outcome(key).assignment
        pairs = zip(assignment.addresses, assignment.pools, strict=True) if assignment is not None else ()
        return next((pool for address, pool in pairs if announcement_name(address) == name), "")

    def hints(self, now: float, at: str) -> list[Event]:
        """Events about Services that nobody has served for a while and that may be meant for us, one each."""
        due = [key for key, since in self._unclaimed.items() if now - since >= HINT_SECONDS]
        for key in due:
            self._unclaimed[key] = float("inf")
        found = (self._read[key][0].metadata for key in due)
        meant = (meta for meta in found if self._pools.declared or any(map(_is_ours, meta.annotations)))
        return [Event("Service", meta, "Normal", "NotServed", _HINT, at) for meta in meant]

    def _note_unclaimed(self, keys: Iterable[ServiceKey], now: float) -> None:
        for key in keys:
            found, parsed = self._read.get(key, (None, None))
            if found is not None and parsed is NotOurs.NO_CLASS and not found.status.load_balancer.ingress:
                self._unclaimed.setdefault(key, now)
            else:
                self._unclaimed.pop(key, None)

    def _usage(self) -> dict[str, Mapping[Family, Usage]]:
        return {name: self._allocator.usage(name) for name in self._pools.used}

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────

    def _forget_former(self, news: Mapping[ServiceKey, ServiceObject | None], now: float) -> None:
        """A Service deleted and created again under its name is another one, which does not show if both come in one
        batch of news. One that could not be decoded may have no uid."""
        for key, found in news.items():
            known = self._read.get(key)
            if known is not None and found is not None and "" != known[0].metadata.uid != found.metadata.uid != "":
                del self._read[key]
                self._serve(key, None)
                self._unclaimed.pop(key, None)
                self._allocator.release(key, now)

    def _readmit(self, new: Iterable[ServiceKey]) -> None:
        """Services that were there before and come back, as an earlier list lacked them or etcd was restored, keep what
        we wrote into their statuses, as those do that ``_begin`` restores. Annotations are only wishes."""
        back = [(self._read[key][0], self._served[key]) for key in new if key in self._served]
        ours = [(found, each) for found, each in back if has_ours(found.status.conditions)]
        ours.sort(key=lambda entry: (entry[1].created, entry[1].key))
        hosts, nowhere = self._hosts.reserved, Catalogue({})
        self._allocator.readmit((each, in_status(found, each, nowhere, hosts)) for found, each in ours)

    def _read_services(
        self, news: Mapping[ServiceKey, ServiceObject | None], again: Container[ServiceKey]
    ) -> set[ServiceKey]:
        """Returns the Services that ask for something else than before, or no longer ask. ``again``: returned whatever
        they ask for."""
        changed = set()
        for key, found in news.items():
            known = self._read.get(key)
            if found is None:
                self._read.pop(key, None)
                self._serve(key, None)
                changed.add(key)
            elif known is not None and key not in again and _asks(known[0]) == _asks(found):
                self._read[key] = found, known[1]  # as it comes back from a write of ours
            else:
                parsed = self._parse(key, found)
                self._read[key] = found, parsed
                self._serve(key, parsed)
                changed.add(key)
        return changed

    def _parse(self, key: ServiceKey, found: ServiceObject) -> Parsed:
        with contained(key, self.failed):
            default_class, honoured = self._settings.default_class, self._settings.honoured
            fields_alone = self._fields_alone(found)
            return _unranged(
                read_service(found, default_class=default_class, fields_alone=fields_alone, honoured=honoured)
            )
        return Unreadable(set_aside(self.failed[key]), self._served.get(key) or _as_it_stands(key, found))

    def _fields_alone(self, found: ServiceObject) -> bool:
        """As in ``read_service``. Until it is known who forwards, the addresses say for whom they were written."""
        if self._ip_mode is None:
            return all(each.ip_mode != IpMode.PROXY for each in found.status.load_balancer.ingress)
        return self._ip_mode is IpMode.VIP

    def _serve(self, key: ServiceKey, parsed: Parsed | None) -> None:
        self._mistaken.discard(key)
        if isinstance(parsed, Unreadable) and (keep := parsed.keep or self._served.get(key)) is not None:
            self._mistaken.add(key)
            self._served[key] = keep
        elif isinstance(parsed, Service):
            self._served[key] = parsed
        else:
            self._served.pop(key, None)

    def _read_namespaces(self, news: Mapping[Key, Object | None]) -> set[ServiceKey]:
        """Returns the Services of namespaces whose labels have changed."""
        relabelled = set()
        for key, found in news.items():
            if found is None:
                self._namespaces.pop(key.name, None)
            elif self._namespaces.get(key.name) != found.metadata.labels:
                self._namespaces[key.name] = found.metadata.labels
                relabelled.add(key.name)
        return {key for key in self._served if key.namespace in relabelled} if relabelled else set()

    def _begin(self, now: float) -> None:
        ours = [(self._read[key][0], service) for key, service in self._served.items()]
        used, refused = catalogues = Catalogue(self._pools.used), Catalogue(self._pools.refused)
        for each in catalogues:
            each.set_namespaces(self._namespaces, all_known=True)
        was = restored(ours, used, refused, self._hosts.reserved)
        self._allocator.restore(was.ledger, now)
        self._duplicates = was.duplicates
        self._begun = True

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────

    def _outcome(self, key: ServiceKey) -> Outcome:
        return self._settling.outcomes.get(key, _NOTHING)

    def _service_orders(self, keys: Iterable[ServiceKey], at: str) -> dict[str, Order | None]:
        lost = self._lost()
        orders: dict[str, Order | None] = {}
        for key in keys:
            orders[wanted.service_status(key)] = None
            outcome, known = self._outcome(key), self._read.get(key)
            with contained(key, self.failed):
                self.uses.note(key, known[0] if known is not None else None, outcome.assignment)
                if known is not None:
                    orders[wanted.service_status(key)] = self._service_order(key, known, outcome, lost.get(key), at)
                continue
            del orders[wanted.service_status(key)]  # the last status stays
        return orders

    def _service_order(
        self, key: ServiceKey, known: tuple[ServiceObject, Parsed], outcome: Outcome, lost: str | None, at: str
    ) -> Order | None:
        if isinstance(known[1], Unreadable) and key not in self._served:
            return None  # it may be anybody's
        # Sorted, as a restored Service's EIPs may be in a different order from the one in which they were given.
        recorded = [*map(str, sorted(self._allocator.held_by(key), key=rank))]
        record = ",".join([*recorded, RELEASED] if self._allocator.has_released(key) else recorded) or None
        return wanted.service_write(*known, outcome, record, lost, self._ip_mode, at)

    def _pool_orders(self, news: Mapping[Key, EipObject | None], at: str) -> dict[str, Order | None]:
        orders: dict[str, Order | None] = {path: None for key in news for path in wanted.pool_paths(key.name)}
        for name, found in self._pools.declared.items():
            orders |= dict.fromkeys(wanted.pool_paths(name))
            usage = self._allocator.usage(name) if name in self._pools.used else {}
            in_use = self._allocator.is_in_use(name)
            holding = self._holding(name) if in_use and found.metadata.deletion_timestamp is not None else ()
            for write in wanted.pool_writes(found, self._pools.judged[name], holding, usage, at, in_use=in_use):
                orders[write.path] = write
        return orders

    def _holding(self, pool: str) -> list[Assignment]:
        """Looks at all assignments."""
        given = (each.assignment for each in self._settling.outcomes.values())
        return [each for each in given if each is not None and pool in each.pools]

    def _lost(self) -> dict[ServiceKey, str]:
        self._duplicates = tuple(filter(self._stands, self._duplicates))
        return {each.loser: str(each) for each in self._duplicates}

    def _stands(self, duplicate: Duplicate) -> bool:
        known = self._read.get(duplicate.loser)
        return known is not None and str(duplicate.address) in {
            each.ip for each in known[0].status.load_balancer.ingress
        }


class _Pools:
    """Pools: ``declared`` by name, ``used`` as they are, or ``refused``."""

    def __init__(self) -> None:
        self.declared: dict[str, EipObject] = {}
        self.judged: Mapping[str, Judged] = {}
        self.used: Mapping[str, Pool] = {}
        self.refused: Mapping[str, Pool] = {}
        self.withheld: frozenset[str] = frozenset()
        """Names of all pools that must not be used, whether or not they can be read."""
        self._seen: Mapping[str, object] = {}
        """Everything that decides about them."""

    def read(self, news: Mapping[Key, EipObject | None]) -> bool:
        """Returns whether the pools in use have changed."""
        for key, found in news.items():
            if found is None:
                self.declared.pop(key.name, None)
            else:
                self.declared[key.name] = found
        seen = {name: _declares(found) for name, found in self.declared.items()}
        if seen == self._seen and not any(each.failed for each in self.judged.values()):
            return False
        former, self._seen = (self.used, self.withheld), seen
        self.judged = judge(self.declared.values())
        self.used = {name: each.pool for name, each in self.judged.items() if each.pool is not None}
        self.refused = {name: each.refused for name, each in self.judged.items() if each.refused is not None}
        self.withheld = frozenset(self.judged.keys() - self.used.keys())
        return (self.used, self.withheld) != former


_NOTHING = Outcome(None)


def _as_it_stands(key: ServiceKey, found: ServiceObject) -> Service | None:
    """A Service that cannot be read keeps the addresses in its status, if our mark is there."""
    if condition_of(found.status.conditions, ASSIGNED) is None:
        return None
    meta = found.metadata
    return Service(key, (), share=meta.annotations.get(SHARE), created=meta.creation_timestamp)


def _unranged(parsed: Parsed) -> Parsed:
    """Without source ranges: agents need them, but no controller does, and thousands of networks take megabytes."""
    if isinstance(parsed, Unreadable):
        return parsed._replace(keep=replace(parsed.keep, source_ranges=()) if parsed.keep is not None else None)
    return replace(parsed, source_ranges=()) if isinstance(parsed, Service) else parsed


def _is_ours(annotation: str) -> bool:
    return annotation.startswith(PREFIX) and annotation != RECORD


def _asks(found: ServiceObject) -> tuple[object, ...]:
    """Everything that a reading depends on."""
    meta = found.metadata
    wishes = {name: value for name, value in meta.annotations.items() if name != RECORD}
    return found.spec, wishes, meta.labels, meta.creation_timestamp


def _declares(found: EipObject) -> tuple[object, ...]:
    meta = found.metadata
    return found.spec, meta.labels, meta.annotations, meta.creation_timestamp, meta.deletion_timestamp
