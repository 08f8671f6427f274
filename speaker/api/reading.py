"""Objects of the API → the nouns of ``speaker.model``. A bad one spoils no other: it is read as far as it can be. Pure.

Files go through the same readers (``service``, ``eip``, ``endpoints``), by ``world``: there a mistake refuses them all.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import ip_address
from typing import Any, TypeAlias

import msgspec

from speaker.api import eip, endpoints, service
from speaker.api.addresses import Span, Together, span, without
from speaker.api.endpoints import Slice
from speaker.api.fields import ApiObject, read, read_leniently
from speaker.api.kinds import AssignedObject, EipObject, HostObject, HostStatus, ServiceObject, SliceObject
from speaker.api.objects import Key
from speaker.api.world import EIP, ENDPOINT_SLICE, SERVICE
from speaker.errors import InvalidField, InvalidManifests, set_aside
from speaker.model import Balancer, IPAddress, Pool, Service

SHOWN = 10
"""Problems of one object that are named, and pools; the count tells the rest."""
SHOWN_OF_A_SLICE = 5


@dataclass(frozen=True, slots=True)
class Unreadable:
    """``message`` says what to mend. ``keep`` is the Service with what can be read, which is never more than what was
    meant: it keeps what it holds, and is given nothing new; None where not even its name can be read, or its class."""

    message: str
    keep: Service | None = None


Parsed: TypeAlias = Service | service.NotOurs | Unreadable


def _plain(kind: tuple[str, str], **parts: object) -> ApiObject:
    """By their names in the API."""
    data: dict[str, Any] = msgspec.to_builtins(parts)
    return ApiObject({"apiVersion": kind[0], "kind": kind[1], **data})


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


def read_service(
    found: ServiceObject | AssignedObject,
    *,
    default_class: bool,
    fields_alone: bool = False,
    honoured: Collection[Balancer] = (),
) -> Parsed:
    """As ``service.service``."""
    parsed, problems = read_leniently(
        _plain(SERVICE, metadata=found.metadata, spec=found.spec),
        lambda root: service.service(
            root, default_class=default_class, families_told=True, fields_alone=fields_alone, honoured=honoured
        ),
    )
    if not problems:
        return parsed
    if not isinstance(parsed, Service) or (parsed.key.namespace, parsed.key.name) != (
        found.key.namespace,
        found.key.name,
    ):
        return Unreadable(_listed(problems))
    # Without its wishes: by them it would be given something new.
    return Unreadable(_listed(problems), replace(parsed, addresses=(), pool=None))


def _listed(problems: tuple[InvalidField, ...]) -> str:
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(map(str, problems[:SHOWN])) + more


# ── EndpointSlices ────────────────────────────────────────────────────────────────────────────────────────────


def read_slice(found: SliceObject) -> tuple[Slice, tuple[str, ...]]:
    """What can be read of it, and in sentences what is left out, and why.

    An API server stores ports of any 32-bit number, multicast addresses, and a million pairs of address and port in
    one slice: each of them costs the endpoint that has it, and no other.
    """
    parts = {"addressType": found.address_type, "endpoints": found.endpoints, "ports": found.ports}
    source = _plain(ENDPOINT_SLICE, metadata=found.metadata, **parts)
    slice_, problems = read_leniently(source, endpoints.endpoint_slice)
    told = [f"{problem} (left out)" for problem in problems[:SHOWN_OF_A_SLICE]]
    if len(problems) > SHOWN_OF_A_SLICE:
        told.append(f"{source.subject}: {len(problems) - SHOWN_OF_A_SLICE} more of its values are left out")
    if found.endpoints and not found.ports:
        told.append(f"{source.subject}: ports: must list the ports of its endpoints: without them none is used")
    return slice_, tuple(told)


# ── Pools: what cannot be read is not used, and of two that overlap only the older ────────────────────────────────


class Verdict(Enum):
    """The value is the condition's reason."""

    ACCEPTED = "Accepted"
    DISABLED = "Disabled"
    INVALID = "Invalid"
    OVERLAP = "Overlap"
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class Judged:
    """``pool`` is None where it must not be used; ``refused`` is what it would be where that can be read."""

    pool: Pool | None
    verdict: Verdict
    message: str = ""
    refused: Pool | None = None
    failed: Exception | None = None
    """A bug of ours that its reading met."""


def read_pool(found: EipObject) -> Pool | Unreadable:
    try:
        return read(_plain(EIP, metadata=found.metadata, spec=found.spec), eip.pool)
    except InvalidManifests as error:
        return Unreadable(_listed(error.problems))


def judge(eips: Iterable[EipObject]) -> Mapping[str, Judged]:
    """By name. The older is the one that was created earlier; of two made in one second the first by name.

    What one pool excludes another may offer: that is how an address is moved between pools.
    """
    judged: dict[str, Judged] = {}
    offered = Together(())
    owners: list[str] = []
    for found in sorted(eips, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name)):
        name = found.metadata.name
        try:
            pool = read_pool(found)
            spans = _offered(pool, len(owners)) if isinstance(pool, Pool) else []
        except Exception as error:
            judged[name] = replace(_refused(found, Verdict.INVALID, set_aside(error)), failed=error)
            continue
        if isinstance(pool, Unreadable):
            judged[name] = _refused(found, Verdict.INVALID, pool.message)
            continue
        if rivals := sorted({owners[other.index] for one in spans for other in offered.meeting(one)}):
            rule = "an address belongs to one pool; this pool is the newer one, so nothing is assigned from it"
            more = f" and {len(rivals) - SHOWN} more" if len(rivals) > SHOWN else ""
            overlap = f"overlaps with Eip {', '.join(rivals[:SHOWN])}{more}: {rule}"
            judged[name] = _refused(found, Verdict.OVERLAP, overlap, pool)
            continue
        for each in spans:
            offered.add(each)
        owners.append(name)
        judged[name] = _accepted(found, pool)
    return judged


def _refused(found: EipObject, verdict: Verdict, message: str, pool: Pool | None = None) -> Judged:
    """Of one that is being deleted nobody has to mend anything: what matters is whom it waits for."""
    return Judged(None, Verdict.TERMINATING if _is_deleted(found) else verdict, message, pool)


def _is_deleted(found: EipObject) -> bool:
    return found.metadata.deletion_timestamp is not None


def _accepted(found: EipObject, pool: Pool) -> Judged:
    if _is_deleted(found):
        return Judged(replace(pool, disabled=True), Verdict.TERMINATING)
    return Judged(pool, Verdict.DISABLED if pool.disabled else Verdict.ACCEPTED)


def _offered(pool: Pool, index: int) -> list[Span]:
    return without((span(range_, index) for range_ in pool.addresses), (span(range_, index) for range_ in pool.exclude))


# ── Nodes: their addresses are no EIP, whatever a pool says ───────────────────────────────────────────────────────


class Hosts:
    """Nodes come and go, and say much that is no news here."""

    def __init__(self) -> None:
        self._addresses: dict[str, frozenset[IPAddress]] = {}

    def hear(self, told: Mapping[Key, HostObject | None]) -> bool:
        """None: that Node is gone. Whether anybody has other addresses than before."""
        before = dict(self._addresses)
        for key, found in told.items():
            self._addresses.pop(key.name, None)
            if found is not None and (addresses := addresses_of(found.status)):
                self._addresses[key.name] = addresses
        return self._addresses != before

    def reserved(self) -> Mapping[IPAddress, str]:
        """As in ``World``."""
        return {
            address: f"node {name}"
            for name in sorted(self._addresses, reverse=True)
            for address in self._addresses[name]
        }


def addresses_of(status: HostStatus) -> frozenset[IPAddress]:
    found = set()
    for each in status.addresses or ():
        try:
            found.add(ip_address(each.address))
        except ValueError:  # a host name
            continue
    return frozenset(found)
