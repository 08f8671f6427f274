"""What the API should say, as the difference to what it says: statuses, finalizers, and Events for transitions.

The condition ``eip-speaker.io/Assigned`` on a Service is our mark. It remembers what its owner was told last, across
restarts and leaders, and a status without it is only touched where the Service is ours now.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from speaker.allocator.assign import Usage
from speaker.allocator.refusals import Refusal
from speaker.allocator.settle import Settlement
from speaker.api.service import RECORD, NotOurs
from speaker.cluster.kinds import Condition, EipObject, Ingress, ServiceObject, condition_of
from speaker.cluster.pools import Judged, Verdict
from speaker.cluster.reading import Parsed, Unreadable
from speaker.model import Assignment, Family, ServiceKey

ASSIGNED = "eip-speaker.io/Assigned"
READY = "Ready"
FINALIZER = "eip-speaker.io/in-use"
EIPS = "/apis/eip-speaker.io/v1alpha1/eips"

_SHOWN = 10
"""Holders named in a message."""
_INT64_MAX = 2**63 - 1
"""An IPv6 /64 has more addresses than an API number holds."""


class IpMode(StrEnum):
    """``status.loadBalancer.ingress[].ipMode``: who carries the traffic, kube-proxy or the speaker (KEP-1860)."""

    VIP = "VIP"
    PROXY = "Proxy"


@dataclass(frozen=True, slots=True)
class Event:
    """Told once the write it belongs to is done. ``path`` is where it is created."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Write:
    """A merge patch that is refused unless the object still has ``version``. Equal ones say the same.

    ``condition`` takes its place among ``others``; None for a write that leaves conditions alone.
    """

    path: str
    version: str
    content: Mapping[str, Any]
    others: Sequence[Condition] | None = None
    condition: Mapping[str, Any] | None = None
    since: str = field(default="", compare=False)
    """RFC 3339: ``lastTransitionTime`` of the condition."""
    event: Event | None = field(default=None, compare=False)
    lazy: bool = False
    """Nobody waits for it: a later one may overtake it."""

    def body(self) -> dict[str, Any]:
        patch: dict[str, Any] = {**self.content}
        if self.others is not None:
            mine = [] if self.condition is None else [{**self.condition, "lastTransitionTime": self.since}]
            patch["status"] = {**patch.get("status", {}), "conditions": [*self.others, *mine]}
        patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": self.version}
        return patch


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Say:
    """The condition, and whether that is a warning."""

    status: str
    reason: str
    message: str
    warns: bool

    @property
    def condition(self) -> Condition:
        return {"type": ASSIGNED, "status": self.status, "reason": self.reason, "message": self.message}


def service_writes(
    services: Iterable[tuple[ServiceObject, Parsed]],
    settlement: Settlement,
    records: Mapping[ServiceKey, str],
    duplicates: Mapping[ServiceKey, str],
    ip_mode: IpMode,
    at: str,
) -> list[Write]:
    """``records``: the addresses of each Service, with those it may not use for now, as its annotation says them;
    ``duplicates``: what a Service is told that lost an address at the start; ``at``: RFC 3339."""
    writes = []
    for found, parsed in services:
        if isinstance(parsed, NotOurs):
            write = _leaving(found, parsed, at)
        else:
            key = found.service_key
            assignment, refusal = settlement.assignments.get(key), settlement.refusals.get(key)
            unreadable = parsed.message if isinstance(parsed, Unreadable) else ""
            say = _say(assignment, refusal, unreadable)
            write = _ours(found, assignment, say, records.get(key), duplicates.get(key), ip_mode, at)
        if write is not None:
            writes.append(write)
    return writes


def _say(assignment: Assignment | None, refusal: Refusal | None, unreadable: str) -> _Say:
    status = "True" if assignment is not None else "False"
    if unreadable:
        return _Say(status, "Invalid", unreadable, warns=True)
    if refusal is not None:
        return _Say(status, _camel(refusal.reason.value), refusal.message, warns=True)
    if assignment is None:
        raise AssertionError("neither assigned nor refused")
    if assignment.flagged:
        flagged = ", ".join(sorted(map(str, assignment.flagged)))
        return _Say(status, "Flagged", f"{flagged}: kept although no pool offers it to this Service any more", True)
    pools = ", ".join(dict.fromkeys(assignment.pools))
    return _Say(status, "Assigned", f"from pool {pools}", warns=False)


def _ours(
    found: ServiceObject,
    assignment: Assignment | None,
    say: _Say,
    record: str | None,
    duplicate: str | None,
    ip_mode: IpMode,
    at: str,
) -> Write | None:
    addresses = assignment.addresses if assignment is not None else ()
    ingress = tuple(Ingress(ip=str(address), ip_mode=ip_mode) for address in addresses)
    former = condition_of(found.status.conditions, ASSIGNED)
    before = found.status.load_balancer.ingress
    moved = {each.ip for each in ingress} != {each.ip for each in before}
    recorded = found.metadata.annotations.get(RECORD) == record
    if ingress == before and recorded and former is not None and _says(former, say.condition):
        return None
    event = None
    if duplicate is not None and moved:
        event = ("Warning", "DuplicateAddress", duplicate)
    elif say.warns and (former is None or former.get("reason") != say.reason):
        event = ("Warning", say.reason, say.message)
    elif moved and addresses:
        event = ("Normal", "Assigned", f"{', '.join(map(str, addresses))} {say.message}")
    elif moved:
        event = ("Normal", "Released", _listed(before))
    return _service_write(found, ingress, record, say.condition, event, at)


def _leaving(found: ServiceObject, reason: NotOurs, at: str) -> Write | None:
    """The Service is somebody else's now, or nobody's: what is ours in its status goes. Where it names another class
    that class's controller may have been there already, and the ingress is its own."""
    if condition_of(found.status.conditions, ASSIGNED) is None:
        return None
    former = found.status.load_balancer.ingress
    ingress = former if reason is NotOurs.OTHER_CLASS else ()
    told = _listed(former) if former and not ingress else "it is not of the speaker's class any more"
    return _service_write(found, ingress, None, None, ("Normal", "Released", told), at)


def _service_write(
    found: ServiceObject,
    ingress: tuple[Ingress, ...],
    record: str | None,
    condition: Condition | None,
    event: tuple[str, str, str] | None,
    at: str,
) -> Write:
    meta = found.metadata
    content: dict[str, Any] = {}
    if ingress != found.status.load_balancer.ingress:
        written = [{"ip": each.ip, "ipMode": each.ip_mode} for each in ingress]
        content["status"] = {"loadBalancer": {"ingress": written or None}}
    if record != meta.annotations.get(RECORD):
        # A Service's annotations can be written with its status, unlike a custom resource's: one request, one right.
        content["metadata"] = {"annotations": {RECORD: record}}
    write = _conditioned(service_status(found), found, content, condition, ASSIGNED, at)
    return write if event is None else replace(write, event=_event(found, "v1", "Service", event, at))


def service_status(found: ServiceObject) -> str:
    """The path of its writes."""
    return f"/api/v1/namespaces/{found.metadata.namespace}/services/{found.metadata.name}/status"


def _listed(ingress: Iterable[Ingress]) -> str:
    return ", ".join(each.ip or each.hostname for each in ingress)


def _camel(reason: str) -> str:
    return "".join(word.capitalize() for word in reason.split("_"))


# ── Pools ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pool_writes(
    eips: Iterable[EipObject],
    judged: Mapping[str, Judged],
    assignments: Iterable[Assignment],
    usage: Mapping[str, Mapping[Family, Usage]],
    at: str,
) -> list[Write]:
    """Statuses, and the finalizer on every pool in use: deleting it waits until its last EIP is released."""
    assignments = tuple(assignments)
    in_use = {pool for assignment in assignments for pool in assignment.pools}
    writes = []
    for found in eips:
        name = found.metadata.name
        if (write := _finalizer(found, in_use=name in in_use)) is not None:
            writes.append(write)
        waits = judged[name].verdict is Verdict.TERMINATING
        condition = _pool_condition(found, judged[name], _holders(name, assignments) if waits else ())
        if (write := _pool_status(found, condition, usage.get(name, {}), at)) is not None:
            writes.append(write)
    return writes


def _holders(name: str, assignments: Iterable[Assignment]) -> list[str]:
    return [
        f"{address} ({assignment.service})"
        for assignment in assignments
        for address, pool in zip(assignment.addresses, assignment.pools, strict=True)
        if pool == name
    ]


def _finalizer(found: EipObject, *, in_use: bool) -> Write | None:
    meta = found.metadata
    has = FINALIZER in meta.finalizers
    # The API takes no new finalizer on what is being deleted.
    if has == in_use or (in_use and meta.deletion_timestamp is not None):
        return None
    others = [each for each in meta.finalizers if each != FINALIZER]
    content = {"metadata": {"finalizers": [*others, FINALIZER] if in_use else others or None}}
    return Write(f"{EIPS}/{meta.name}", meta.resource_version, content)


def _pool_condition(found: EipObject, judged: Judged, holders: Sequence[str]) -> Condition:
    message = judged.message
    if judged.verdict is Verdict.TERMINATING:
        more = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
        message = f"waits for {', '.join(holders[:_SHOWN])}{more}: delete these Services, or name another pool in them"
    return {
        "type": READY,
        "status": "True" if judged.verdict is Verdict.ACCEPTED else "False",
        "reason": judged.verdict.value,
        "message": message,
        "observedGeneration": found.metadata.generation,
    }


def _pool_status(found: EipObject, condition: Condition, usage: Mapping[Family, Usage], at: str) -> Write | None:
    wanted = {family: _numbers(usage.get(family)) for family in Family}
    status: dict[str, Any] = {
        family.lower(): numbers
        for family, numbers in wanted.items()
        if numbers != (found.status.ipv4 if family is Family.IPV4 else found.status.ipv6)
    }
    former = condition_of(found.status.conditions, READY)
    same = former is not None and _says(former, condition)
    if found.status.observed_generation != found.metadata.generation:
        status["observedGeneration"] = found.metadata.generation
    if same and not status:
        return None
    path = f"{EIPS}/{found.metadata.name}/status"
    write = _conditioned(path, found, {"status": status} if status else {}, condition, READY, at)
    if same:
        return replace(write, lazy=True)
    warns = condition["status"] == "False"
    if former is None and not warns:
        return write
    event = ("Warning" if warns else "Normal", condition["reason"], condition["message"] or "in use again")
    if former is not None and former.get("reason") == condition["reason"]:
        return write
    return replace(write, event=_event(found, "eip-speaker.io/v1alpha1", "Eip", event, at))


def _numbers(usage: Usage | None) -> dict[str, Any] | None:
    return None if usage is None else {"size": min(usage.size, _INT64_MAX), "used": usage.used}


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _conditioned(
    path: str,
    found: ServiceObject | EipObject,
    content: Mapping[str, Any],
    condition: Condition | None,
    kind: str,
    at: str,
) -> Write:
    former = condition_of(found.status.conditions, kind)
    others = [each for each in found.status.conditions if each.get("type") != kind]
    same = former is not None and condition is not None and former.get("status") == condition["status"]
    since = (former.get("lastTransitionTime") or at) if same and former is not None else at
    return Write(path, found.metadata.resource_version, content, others, condition, since)


def _says(former: Condition, condition: Condition) -> bool:
    return all(former.get(name) == value for name, value in condition.items())


def _event(found: ServiceObject | EipObject, version: str, kind: str, said: tuple[str, str, str], at: str) -> Event:
    """Named after the version it was decided from: who tells it a second time is refused, and it is told once."""
    meta = found.metadata
    level, reason, message = said
    namespace = meta.namespace or "default"  # Events on what is cluster scoped live there
    mark = hashlib.sha256(f"{meta.uid} {meta.resource_version} {reason}".encode()).hexdigest()[:16]
    involved = {
        "apiVersion": version,
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    if meta.namespace:
        involved["namespace"] = meta.namespace
    return Event(
        f"/api/v1/namespaces/{namespace}/events",
        {
            "metadata": {"name": f"{meta.name}.{mark}", "namespace": namespace},
            "involvedObject": involved,
            "type": level,
            "reason": reason,
            "message": message[:1024],  # core/v1 validation
            "source": {"component": "eip-speaker-controller"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        },
    )
