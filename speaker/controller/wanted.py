"""What the API should say, as the difference from what it says: statuses, finalizers, and Events. Pure.

The condition ``eip-speaker.io/Assigned`` on a Service is our mark. Across restarts and leaders, it remembers what its
owner was told last. A status without it is touched only if the Service is ours now.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from speaker.allocator.assign import Outcome
from speaker.allocator.refusals import Refusal, RefusalReason
from speaker.api import kinds
from speaker.api.fields import some
from speaker.api.kinds import Condition, EipObject, FullMetadata, Ingress, ServiceObject
from speaker.api.others import unheeded
from speaker.api.reading import Judged, Parsed, Unreadable, Verdict
from speaker.api.service import RECORD, NotOurs
from speaker.model import Assignment, Family, Service, ServiceKey, Usage
from speaker.telemetry.lines import Transition


def in_camel_case(reason: str) -> str:
    """A reason as the API spells it."""
    return "".join(word.capitalize() for word in reason.split("_"))


_HAPPENED = (
    *("assigned", "released", "flagged", "unheeded", "duplicate address", "not served", "announced", "moved"),
    *("failed over", "held by nobody", "conflict begun", "conflict ended"),
)
LOGGED = {in_camel_case(words.replace(" ", "_")): words for words in _HAPPENED}
"""Reasons of Events that are not verdicts → the log's words for what happened."""
JUDGED = {in_camel_case(reason.value): reason.value for reason in RefusalReason} | {
    verdict.value: verdict.value.lower() for verdict in Verdict
}
"""Other reasons → the log's, which are the metrics' labels."""

_NAMED = 200
"""Characters of an object's name in an Event's name: a pool's may have 253, and so may an Event's."""
_VERSIONS = {"Service": "v1", "Eip": "eip-speaker.io/v1alpha1"}


@dataclass(frozen=True, slots=True)
class Event:
    """``reason`` and ``message`` about an object, created once the write it belongs to is done. ``level``: Normal or
    Warning. ``at``: RFC 3339. ``mark``: distinguishes it from other Events about the same version. The body is made
    when it is sent, as 10,000 may be waiting."""

    kind: str
    about: FullMetadata
    level: str
    reason: str
    message: str
    at: str
    mark: str = ""
    """Identifies what it reports, if that is not a change of the object."""

    @property
    def path(self) -> str:
        """The path at which it is created."""
        return f"/api/v1/namespaces/{self._namespace}/events"

    def joined(self, later: "Event") -> "Event":
        """One Event that reports both, in place of the later one."""
        return replace(later, message=f"{later.message} ({self.message})")

    def body(self) -> dict[str, Any]:
        """Named after the version that it was decided from: a second attempt to create it is refused, so it is created
        only once."""
        meta = self.about
        told = f"{meta.uid} {self.mark or meta.resource_version} {self.reason}"
        mark = hashlib.sha256(told.encode()).hexdigest()[:16]
        involved = {
            "apiVersion": _VERSIONS[self.kind],
            "kind": self.kind,
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        }
        if meta.namespace:
            involved["namespace"] = meta.namespace
        return {
            "metadata": {"name": f"{meta.name[:_NAMED].rstrip('-.')}.{mark}", "namespace": self._namespace},
            "involvedObject": involved,
            "type": self.level,
            "reason": self.reason,
            "message": self.message[:1024],  # core/v1 validation
            "source": {"component": "eip-speaker-controller"},
            "firstTimestamp": self.at,
            "lastTimestamp": self.at,
            "count": 1,
        }

    def logged(self) -> Transition:
        """An Event that judges a Service is a refusal."""
        meta, level = self.about, "warning" if self.level == "Warning" else "info"
        kind, name = ("service", f"{meta.namespace}/{meta.name}") if self.kind == "Service" else ("pool", meta.name)
        if (words := LOGGED.get(self.reason)) is not None:
            return Transition(level, words, kind, name, self.reason, {"message": self.message})
        fields = {"reason": JUDGED[self.reason], "message": self.message}
        return Transition(level, "refused" if kind == "service" else "pool judged", kind, name, self.reason, fields)

    @property
    def _namespace(self) -> str:
        return self.about.namespace or "default"  # Events about cluster-scoped objects are in this namespace


@dataclass(frozen=True, slots=True)
class Write:
    """A merge patch that is refused unless the object still has ``version``. Equal ones say the same.

    ``conditions`` take their place among ``others``; None for a write that leaves conditions alone.
    """

    path: str
    version: str
    content: Mapping[str, Any] = field(default_factory=dict)
    ingress: tuple[Ingress, ...] | None = None
    """A Service's ingress, if it changes."""
    others: Sequence[Condition] | None = None
    conditions: Sequence[Condition] = ()
    since: Mapping[str, str] = field(default_factory=dict, compare=False)
    """RFC 3339: ``lastTransitionTime`` of each condition."""
    event: Event | None = field(default=None, compare=False)
    lazy: bool = False
    """Nobody waits for it: a later write may overtake it."""

    def body(self) -> dict[str, Any]:
        patch: dict[str, Any] = {**self.content}
        if self.ingress is not None:
            written = [{"ip": each.ip, "ipMode": each.ip_mode} for each in self.ingress]
            patch["status"] = {"loadBalancer": {"ingress": written or None}}
        if self.others is not None:
            mine = [{**each, "lastTransitionTime": self.since[each["type"]]} for each in self.conditions]
            patch["status"] = {**patch.get("status", {}), "conditions": [*self.others, *mine]}
        patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": self.version}
        return patch


@dataclass(frozen=True, slots=True)
class Removal:
    """Deletes the object, unless it was replaced or written since. Nobody waits for it."""

    path: str
    uid: str
    version: str

    def body(self) -> dict[str, Any]:
        """DeleteOptions."""
        conditions = {"uid": self.uid, "resourceVersion": self.version}
        return {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}


Order: TypeAlias = Write | Removal

Orders: TypeAlias = Mapping[str, Order | None]
"""Path → what is wanted there from now on, None for nothing. For other paths nothing changes."""


# ── What is wanted ──────────────────────────────────────────────────────────────────────────────────────────

READY = "Ready"
NAMESPACES_FULL = "NamespacesFull"
"""For a pool with ``perNamespace``: whether namespaces have all that they may have, and which."""
STALLED = "Stalled"
"""For a pool with a mistake, which waiting does not fix: tools that use kstatus (Flux, Helm 4) give up at once."""
UNHEEDED = "Unheeded"
"""The Service has an EIP, but another balancer's annotations on it are not obeyed."""
FINALIZER = "eip-speaker.io/in-use"

_SHOWN = 10
"""Holders named in a message."""
_INT64_MAX = 2**63 - 1
"""An IPv6 /64 has more addresses than an API number holds."""


class IpMode(StrEnum):
    """``status.loadBalancer.ingress[].ipMode``: who carries the traffic, kube-proxy or the speaker (KEP-1860)."""

    VIP = "VIP"
    PROXY = "Proxy"


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


_OF_A_SERVICE, _OF_A_POOL = (kinds.ASSIGNED, kinds.ASSIGNED_FROM), (READY, NAMESPACES_FULL, STALLED)
"""Our conditions."""


class _Say(NamedTuple):
    """Content of the condition, and whether it is a warning."""

    status: str
    reason: str
    message: str
    warns: bool


def service_write(
    found: ServiceObject,
    parsed: Parsed,
    outcome: Outcome,
    record: str | None,
    duplicate: str | None,
    ip_mode: IpMode | None,
    at: str,
) -> Write | None:
    """``record``: the addresses it has, including those it may not use for now, as its annotation says them.
    ``duplicate``: what it is told if it lost an address at the start. ``ip_mode`` None: each address keeps the one it
    has. ``at``: RFC 3339. None if the API already says all that."""
    if isinstance(parsed, NotOurs):
        return _leaving(found, parsed, at)
    assignment, before = outcome.assignment, found.status.load_balancer.ingress
    say = _say(assignment, outcome.refusal, parsed.message if isinstance(parsed, Unreadable) else "")
    if isinstance(parsed, Service) and parsed.unheeded:
        say = _beside(say, unheeded(parsed.unheeded))
    modes = {} if ip_mode is not None else {each.ip: each.ip_mode for each in before}
    addresses = [str(each) for each in assignment.addresses] if assignment is not None else []
    ingress = tuple(Ingress(ip=ip, ip_mode=modes.get(ip) or ip_mode or IpMode.VIP) for ip in addresses)
    wanted = [_condition(kinds.ASSIGNED, *say[:3]), *_origin(assignment)]
    recorded = found.metadata.annotations.get(RECORD) == record
    if ingress == before and recorded and _tell(found.status.conditions, wanted, _OF_A_SERVICE):
        return None
    event = _event(found, say, addresses, duplicate, releases=isinstance(parsed, Service) and parsed.release)
    return _service_write(found, ingress, record, wanted, event, at)


def _event(
    found: ServiceObject, say: _Say, addresses: Collection[str], duplicate: str | None, *, releases: bool
) -> tuple[str, str, str] | None:
    """``addresses``: those that it gets. ``releases``: it asks to be rid of those that it loses."""
    before, former = found.status.load_balancer.ingress, kinds.condition_of(found.status.conditions, kinds.ASSIGNED)
    moved = set(addresses) != {each.ip for each in before}
    if duplicate is not None and moved:
        return "Warning", "DuplicateAddress", duplicate
    told = f"{', '.join(addresses)} {say.message}" if moved and addresses else say.message
    if say.warns and (former is None or former.get("reason") != say.reason):
        return "Warning", say.reason, told if say.reason == UNHEEDED else say.message
    if moved and addresses:
        gone = [each for each in before if each.ip not in addresses] if releases else ()
        if gone:
            return "Normal", "Released", f"{_listed(gone)} replaced by {told}, as eip-speaker.io/release asks"
        return "Normal", "Assigned", told
    return ("Normal", "Released", _listed(before)) if moved else None


@lru_cache(512)
def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    """One object for all Services that are told the same."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _say(assignment: Assignment | None, refusal: Refusal | None, unreadable: str) -> _Say:
    status = "True" if assignment is not None else "False"
    if unreadable:
        return _Say(status, "Invalid", unreadable, warns=True)
    if refusal is not None:
        return _Say(status, in_camel_case(refusal.reason.value), refusal.told, warns=True)
    if assignment is None:
        raise AssertionError("neither assigned nor refused")
    if assignment.flagged:
        flagged = ", ".join(sorted(map(str, assignment.flagged)))
        kept = f"{flagged}: kept although its pool no longer offers it to this Service"
        return _Say(status, "Flagged", kept, warns=True)
    pools = ", ".join(dict.fromkeys(assignment.pools))
    return _Say(status, "Assigned", f"from pool {pools}", warns=False)


def _beside(say: _Say, told: str) -> _Say:
    """Adds what it asks of another balancer; that makes it a warning if it is not one already."""
    reason = say.reason if say.warns else UNHEEDED
    return say._replace(reason=reason, message=f"{say.message}; {told}", warns=True)


def _origin(assignment: Assignment | None) -> Iterator[Condition]:
    """The condition that says which pools its addresses are from, if that is known."""
    if assignment is not None:
        pools = zip(map(Family.of, assignment.addresses), assignment.pools, strict=True)
        if said := kinds.pools_said(pools):
            yield _condition(kinds.ASSIGNED_FROM, "True", "Recorded", said)


def _leaving(found: ServiceObject, reason: NotOurs, at: str) -> Write | None:
    """The Service is no longer ours, so our part of its status is removed. If it names another class, that class's
    controller may already have written the ingress, so that stays."""
    if kinds.condition_of(found.status.conditions, kinds.ASSIGNED) is None:
        return None
    former = found.status.load_balancer.ingress
    ingress = former if reason is NotOurs.OTHER_CLASS or not kinds.has_ours(found.status.conditions) else ()
    told = _listed(former) if former and not ingress else "its loadBalancerClass is no longer the speaker's"
    return _service_write(found, ingress, None, (), ("Normal", "Released", told), at)


def _service_write(
    found: ServiceObject,
    ingress: tuple[Ingress, ...],
    record: str | None,
    conditions: Sequence[Condition],
    event: tuple[str, str, str] | None,
    at: str,
) -> Write:
    meta = found.metadata
    content: dict[str, Any] = {}
    if record != meta.annotations.get(RECORD):
        # A Service's annotations can be written with its status, unlike a custom resource's: one request, one right.
        content["metadata"] = {"annotations": {RECORD: record}}
    write = _conditioned(service_status(found.service_key), found, content, conditions, _OF_A_SERVICE, at)
    if ingress != found.status.load_balancer.ingress:
        write = replace(write, ingress=ingress)
    return write if event is None else replace(write, event=Event("Service", found.metadata, *event, at))


def service_status(key: ServiceKey) -> str:
    """The path of its writes."""
    return f"/api/v1/namespaces/{key.namespace}/services/{key.name}/status"


def _listed(ingress: Iterable[Ingress]) -> str:
    return ", ".join(each.ip or each.hostname for each in ingress)


# ── Pools ─────────────────────────────────────────────────────────────────────────────────────────────────────


def pool_writes(
    found: EipObject,
    judged: Judged,
    assignments: Collection[Assignment],
    usage: Mapping[Family, Usage],
    at: str,
    *,
    in_use: bool,
) -> list[Write]:
    """Its status, and the finalizer while it is in use: deleting it waits until its last EIP is released.
    ``assignments``: from this pool, if it is being deleted. ``in_use``: a Service has a place there, served or not."""
    condition = _pool_condition(found, judged, _holders(found.metadata.name, assignments))
    limit = judged.pool.per_namespace if judged.pool is not None else None
    conditions = [condition, *([_limit_condition(found, limit, usage)] if limit is not None else [])]
    if judged.verdict in (Verdict.INVALID, Verdict.OVERLAP):
        conditions.append(_observed(found, STALLED, condition["reason"], condition["message"], holds=True))
    writes = (_finalizer(found, in_use=in_use), _pool_status(found, conditions, usage, at))
    return [write for write in writes if write is not None]


def pool_paths(name: str) -> tuple[str, str]:
    """Paths of its writes."""
    return f"{kinds.EIPS}/{name}", f"{kinds.EIPS}/{name}/status"


def _holders(name: str, assignments: Iterable[Assignment]) -> list[str]:
    return [
        f"{address} ({assignment.service})"
        for assignment in sorted(assignments, key=lambda each: each.service)
        for address, pool in zip(assignment.addresses, assignment.pools, strict=True)
        if pool == name
    ]


def _finalizer(found: EipObject, *, in_use: bool) -> Write | None:
    meta = found.metadata
    has = FINALIZER in meta.finalizers
    # The API accepts no new finalizer on an object that is being deleted.
    if has == in_use or (in_use and meta.deletion_timestamp is not None):
        return None
    others = [each for each in meta.finalizers if each != FINALIZER]
    content = {"metadata": {"finalizers": [*others, FINALIZER] if in_use else others or None}}
    return Write(pool_paths(meta.name)[0], meta.resource_version, content)


def _pool_condition(found: EipObject, judged: Judged, holders: Sequence[str]) -> Condition:
    message = judged.message
    if judged.verdict is Verdict.TERMINATING:
        named = some(holders, _SHOWN) or "Services that are not served but keep one of its addresses"
        message = f"waits for {named}: delete these Services, or give them another pool"
    holds = judged.verdict is Verdict.ACCEPTED
    return _observed(found, READY, judged.verdict.value, message, holds=holds)


def _limit_condition(found: EipObject, limit: int, usage: Mapping[Family, Usage]) -> Condition:
    """The condition about namespaces that have all they may have."""
    full = [f"{name} ({number} {family})" for family in usage for name, number in usage[family].full]
    message = f"have the maximum of {limit} addresses: {some(full, _SHOWN)}" if full else ""
    return _observed(found, NAMESPACES_FULL, "LimitReached" if full else "BelowLimit", message, holds=bool(full))


def _observed(found: EipObject, kind: str, reason: str, message: str, *, holds: bool) -> Condition:
    told = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
    return {**told, "observedGeneration": found.metadata.generation}


def _pool_status(
    found: EipObject, conditions: Sequence[Condition], usage: Mapping[Family, Usage], at: str
) -> Write | None:
    condition = conditions[0]
    wanted: dict[str, Any] = {family.lower(): _numbers(usage.get(family)) for family in Family}
    wanted |= _columns(found, usage) | {"observedGeneration": found.metadata.generation}
    shown = msgspec.to_builtins(found.status)
    status = {name: value for name, value in wanted.items() if value != shown[name]}
    former = kinds.condition_of(found.status.conditions, READY)
    if former is not None and former.get("status") == "Unknown":  # the API server's own word: nobody has looked yet
        former = None
    same = former is not None and _tell(found.status.conditions, conditions, _OF_A_POOL)
    if same and not status:
        return None
    _, path = pool_paths(found.metadata.name)
    content = {"status": status} if status else {}
    write = _conditioned(path, found, content, conditions, _OF_A_POOL, at)
    if same:
        return replace(write, lazy=True)
    warns = condition["status"] == "False"
    if former is None and not warns:
        return write
    if former is not None and former.get("reason") == condition["reason"]:
        return write
    level, message = "Warning" if warns else "Normal", condition["message"] or "in use again"
    return replace(write, event=Event("Eip", found.metadata, level, condition["reason"], message, at))


def _columns(found: EipObject, usage: Mapping[Family, Usage]) -> dict[str, str]:
    """Columns of ``kubectl get``, which can show only one line."""
    given = found.spec.get("addresses")
    return {
        "addressesText": kinds.in_one_line([*map(str, given)]) if isinstance(given, list) else "",
        "usedText": _by_family({family: each.used for family, each in usage.items()}),
        "freeText": _by_family({family: each.size - each.used for family, each in usage.items()}),
    }


def _by_family(numbers: Mapping[Family, int]) -> str:
    """With the families' names if there are two."""
    told = {family: str(min(number, _INT64_MAX)) for family, number in numbers.items()}
    return ", ".join(f"{number} {family}" if len(told) > 1 else number for family, number in told.items())


def _numbers(usage: Usage | None) -> dict[str, Any] | None:
    return None if usage is None else {"size": min(usage.size, _INT64_MAX), "used": usage.used}


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _conditioned(
    path: str,
    found: ServiceObject | EipObject,
    content: Mapping[str, Any],
    conditions: Sequence[Condition],
    ours: tuple[str, ...],
    at: str,
) -> Write:
    """``ours``: the kinds of conditions that are ours."""
    others = tuple(each for each in found.status.conditions if each.get("type") not in ours)
    since = {
        each["type"]: _since(kinds.condition_of(found.status.conditions, each["type"]), each, at) for each in conditions
    }
    return Write(path, found.metadata.resource_version, content, None, others, conditions, since)


def _since(former: Condition | None, now: Condition, at: str) -> str:
    same = former is not None and former.get("status") == now["status"]
    return (former.get("lastTransitionTime") or at) if same and former is not None else at


def _tell(found: Sequence[Condition], wanted: Sequence[Condition], ours: Sequence[str]) -> bool:
    """Whether what is wanted is already there, and nothing else of ours."""
    there = [each for each in found if each.get("type") in ours]
    return len(there) == len(wanted) and all(any(_says(former, each) for former in there) for each in wanted)


def _says(former: Condition, condition: Condition) -> bool:
    return all(former.get(name) == value for name, value in condition.items())
