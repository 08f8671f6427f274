"""One leadership's decisions. Pure: what the mirrors hold in, what is to be written out."""

from collections.abc import Iterable
from dataclasses import dataclass

from speaker.allocator.assign import Allocator
from speaker.allocator.pools import Catalogue
from speaker.allocator.refusals import Refusal
from speaker.allocator.settle import Settlement, settle
from speaker.api.service import RECORD
from speaker.cluster.kinds import EipObject, ServiceObject
from speaker.cluster.objects import Key, Object
from speaker.cluster.pools import judge
from speaker.cluster.reading import Parsed, Unreadable, read_service
from speaker.controller.restore import Duplicate, restored
from speaker.controller.wanted import IpMode, Write, pool_writes, service_status, service_writes
from speaker.model import Assignment, Service, ServiceKey, World


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """``default_class``: Services that name no class are ours as well. ``rest``: seconds, as in ``Allocator``."""

    default_class: bool = False
    ip_mode: IpMode = IpMode.VIP
    rest: float = 60.0


class Decider:
    """Begins with nothing; the first ``decide`` restores what the statuses say."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._allocator: Allocator | None = None
        self._read: dict[Key, tuple[ServiceObject, Parsed]] = {}
        """By the object they were made from: of 10,000 Services only those that changed are read again."""
        self._done: dict[Key, tuple[ServiceObject, Assignment | None, Refusal | None]] = {}
        self._recorded = -1
        """The allocator's revision that ``_records`` are of."""
        self._records: dict[ServiceKey, str] = {}
        self._duplicates: tuple[Duplicate, ...] = ()
        """Found at the start, and still in the API."""

    def decide(
        self,
        services: Iterable[ServiceObject],
        eips: Iterable[EipObject],
        namespaces: Iterable[Object],
        now: float,
        at: str,
    ) -> list[Write]:
        """``now``: seconds, as in ``Allocator``; ``at``: RFC 3339, for what people read."""
        eips = tuple(eips)
        self._read = {found.key: self._parse(found) for found in services}
        judged = judge(eips)
        pools = {name: each.pool for name, each in judged.items() if each.pool is not None}
        if self._allocator is None:
            self._allocator = self._restore(Catalogue(pools), now)
        world = World(
            pools=pools,
            services=self._served(self._allocator),
            endpoints={},
            namespaces={found.metadata.name: found.metadata.labels for found in namespaces},
        )
        settlement = settle(self._allocator, world, now)
        usage = {name: self._allocator.usage(name) for name in pools}
        told = self._service_writes(self._allocator, settlement, now, at)
        return told + pool_writes(eips, judged, settlement.assignments.values(), usage, at)

    def _service_writes(self, allocator: Allocator, settlement: Settlement, now: float, at: str) -> list[Write]:
        if allocator.revision != self._recorded:
            self._records = {held.service: ",".join(held.addresses) for held in allocator.ledger(now).held}
            self._recorded = allocator.revision
        open_cases = [(found, parsed) for found, parsed in self._read.values() if not self._is_done(found, settlement)]
        writes = service_writes(open_cases, settlement, self._records, self._lost(), self._settings.ip_mode, at)
        unwritten = {write.path for write in writes}
        for found, _ in open_cases:
            key = found.service_key
            if service_status(found) not in unwritten:
                self._done[found.key] = found, settlement.assignments.get(key), settlement.refusals.get(key)
        for gone in self._done.keys() - self._read.keys():
            del self._done[gone]
        return writes

    def _is_done(self, found: ServiceObject, settlement: Settlement) -> bool:
        """Neither the object nor what the allocator said of it is another than when there was nothing to write."""
        if (done := self._done.get(found.key)) is None:
            return False
        key = found.service_key
        return (
            done[0] is found and done[1] is settlement.assignments.get(key) and done[2] is settlement.refusals.get(key)
        )

    def _parse(self, found: ServiceObject) -> tuple[ServiceObject, Parsed]:
        known = self._read.get(found.key)
        if known is not None and known[0] is found:
            return known
        if known is not None and _asks(known[0]) == _asks(found):
            return found, known[1]  # as it comes back from a write of ours
        return found, read_service(found, default_class=self._settings.default_class)

    def _restore(self, catalogue: Catalogue, now: float) -> Allocator:
        allocator = Allocator(self._settings.rest)
        ours = [(found, service) for found, parsed in self._read.values() if (service := _service(parsed)) is not None]
        was = restored(ours, catalogue)
        allocator.restore(was.ledger, now)
        self._duplicates = was.duplicates
        return allocator

    def _lost(self) -> dict[ServiceKey, str]:
        self._duplicates = tuple(filter(self._stands, self._duplicates))
        return {each.loser: str(each) for each in self._duplicates}

    def _stands(self, duplicate: Duplicate) -> bool:
        known = self._read.get(Key(duplicate.loser.namespace, duplicate.loser.name))
        return known is not None and str(duplicate.address) in {
            each.ip for each in known[0].status.load_balancer.ingress
        }

    def _served(self, allocator: Allocator) -> dict[ServiceKey, Service]:
        served = {}
        for _, parsed in self._read.values():
            service = _service(parsed)
            if service is not None and (parsed is service or service.key in allocator.holders):
                served[service.key] = service
        return served


def _asks(found: ServiceObject) -> tuple[object, ...]:
    """All that a reading depends on."""
    meta = found.metadata
    wishes = {name: value for name, value in meta.annotations.items() if name != RECORD}
    return found.spec, wishes, meta.labels, meta.creation_timestamp


def _service(parsed: Parsed) -> Service | None:
    if isinstance(parsed, Unreadable):
        return parsed.keep
    return parsed if isinstance(parsed, Service) else None
