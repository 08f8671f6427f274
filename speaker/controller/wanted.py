"""What the API should say, as the difference to what it says: statuses, finalizers, and Events for transitions.

The condition ``eip-speaker.io/Assigned`` on a Service is our mark. It remembers what its owner was told last, across
restarts and leaders, and a status without it is only touched where the Service is ours now.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.refusals import Refusal
from speaker.api.kinds import (
    ASSIGNED,
    ASSIGNED_FROM,
    EIPS,
    Condition,
    EipObject,
    Ingress,
    ServiceObject,
    condition_of,
    has_ours,
    in_one_line,
    pools_said,
)
from speaker.api.others import unheeded
from speaker.api.reading import Judged, Parsed, Unreadable, Verdict
from speaker.api.service import RECORD, NotOurs
from speaker.controller.writes import Event, Write, in_camel_case
from speaker.model import Assignment, Family, Service, ServiceKey

READY = "Ready"
UNHEEDED = "Unheeded"
"""It has an EIP, and another balancer's annotations on it are not obeyed."""
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


@dataclass(frozen=True, slots=True)
class _Say:
    """The condition, and whether that is a warning."""

    status: str
    reason: str
    message: str
    warns: bool

    @property
    def condition(self) -> Condition:
        return _condition(self.status, self.reason, self.message)


def service_write(
    found: ServiceObject,
    parsed: Parsed,
    outcome: Outcome,
    record: str | None,
    duplicate: str | None,
    ip_mode: IpMode | None,
    at: str,
) -> Write | None:
    """``record``: the addresses it has, with those it may not use for now, as its annotation says them; ``duplicate``:
    what it is told if it lost an address at the start; ``ip_mode`` None: each address keeps the one it has; ``at``:
    RFC 3339. None where the API says all that already."""
    if isinstance(parsed, NotOurs):
        return _leaving(found, parsed, at)
    unreadable = parsed.message if isinstance(parsed, Unreadable) else ""
    say = _say(outcome.assignment, outcome.refusal, unreadable)
    if isinstance(parsed, Service) and parsed.unheeded:
        say = _beside(say, unheeded(parsed.unheeded))
    return _ours(found, outcome.assignment, say, record, duplicate, ip_mode, at)


@lru_cache(256)
def _condition(status: str, reason: str, message: str) -> Condition:
    """One for all Services that are told the same."""
    return {"type": ASSIGNED, "status": status, "reason": reason, "message": message}


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
        kept = f"{flagged}: kept although its pool does not offer it to this Service any more"
        return _Say(status, "Flagged", kept, warns=True)
    pools = ", ".join(dict.fromkeys(assignment.pools))
    return _Say(status, "Assigned", f"from pool {pools}", warns=False)


def _beside(say: _Say, told: str) -> _Say:
    """What it asks of another balancer is told with it, as a warning where there is no other."""
    reason = say.reason if say.warns else UNHEEDED
    return replace(say, reason=reason, message=f"{say.message}; {told}", warns=True)


def _origin(assignment: Assignment | None) -> Condition | None:
    """The condition that says where its addresses are from; None where nobody knows."""
    if assignment is None:
        return None
    pools = zip(map(Family.of, assignment.addresses), assignment.pools, strict=True)
    return _recorded(said) if (said := pools_said(dict(pools))) else None


@lru_cache(256)
def _recorded(message: str) -> Condition:
    """One for all Services that have theirs from the same pools."""
    return {"type": ASSIGNED_FROM, "status": "True", "reason": "Recorded", "message": message}


def _ours(
    found: ServiceObject,
    assignment: Assignment | None,
    say: _Say,
    record: str | None,
    duplicate: str | None,
    ip_mode: IpMode | None,
    at: str,
) -> Write | None:
    addresses = assignment.addresses if assignment is not None else ()
    before = found.status.load_balancer.ingress
    modes = {} if ip_mode is not None else {each.ip: each.ip_mode for each in before}
    ingress = tuple(Ingress(ip=ip, ip_mode=modes.get(ip) or ip_mode or IpMode.VIP) for ip in map(str, addresses))
    wanted = [each for each in (say.condition, _origin(assignment)) if each is not None]
    former = condition_of(found.status.conditions, ASSIGNED)
    moved = {each.ip for each in ingress} != {each.ip for each in before}
    recorded = found.metadata.annotations.get(RECORD) == record
    if ingress == before and recorded and _tell(found.status.conditions, wanted):
        return None
    event = None
    told = f"{', '.join(map(str, addresses))} {say.message}" if moved and addresses else say.message
    if duplicate is not None and moved:
        event = ("Warning", "DuplicateAddress", duplicate)
    elif say.warns and (former is None or former.get("reason") != say.reason):
        event = ("Warning", say.reason, told if say.reason == UNHEEDED else say.message)
    elif moved and addresses:
        event = ("Normal", "Assigned", told)
    elif moved:
        event = ("Normal", "Released", _listed(before))
    return _service_write(found, ingress, record, wanted, event, at)


def _leaving(found: ServiceObject, reason: NotOurs, at: str) -> Write | None:
    """The Service is somebody else's now, or nobody's: what is ours in its status goes. Where it names another class
    that class's controller may have been there already, and the ingress is its own."""
    if condition_of(found.status.conditions, ASSIGNED) is None:
        return None
    former = found.status.load_balancer.ingress
    ingress = former if reason is NotOurs.OTHER_CLASS or not has_ours(found.status.conditions) else ()
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
    write = _conditioned(service_status(found.service_key), found, content, conditions, (ASSIGNED, ASSIGNED_FROM), at)
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
    kept: bool = False,
) -> list[Write]:
    """Its status, and the finalizer while it is in use: deleting it waits until its last EIP is released.
    ``assignments``: from this pool. ``kept``: somebody has a place there, served or not."""
    waits = judged.verdict is Verdict.TERMINATING
    condition = _pool_condition(found, judged, _holders(found.metadata.name, assignments) if waits else ())
    writes = (_finalizer(found, in_use=kept or bool(assignments)), _pool_status(found, condition, usage, at))
    return [write for write in writes if write is not None]


def pool_paths(name: str) -> tuple[str, str]:
    """Of its writes."""
    return f"{EIPS}/{name}", f"{EIPS}/{name}/status"


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
    # The API takes no new finalizer on what is being deleted.
    if has == in_use or (in_use and meta.deletion_timestamp is not None):
        return None
    others = [each for each in meta.finalizers if each != FINALIZER]
    content = {"metadata": {"finalizers": [*others, FINALIZER] if in_use else others or None}}
    return Write(pool_paths(meta.name)[0], meta.resource_version, content)


def _pool_condition(found: EipObject, judged: Judged, holders: Sequence[str]) -> Condition:
    message = judged.message
    if judged.verdict is Verdict.TERMINATING:
        more = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
        named = ", ".join(holders[:_SHOWN]) or "Services that keep a place there and are not served at it"
        message = f"waits for {named}{more}: delete these Services, or name another pool in them"
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
    if (text := _addresses_text(found.spec.get("addresses"))) != found.status.addresses_text:
        status["addressesText"] = text
    former = condition_of(found.status.conditions, READY)
    same = former is not None and _says(former, condition)
    if found.status.observed_generation != found.metadata.generation:
        status["observedGeneration"] = found.metadata.generation
    if same and not status:
        return None
    _, path = pool_paths(found.metadata.name)
    write = _conditioned(path, found, {"status": status} if status else {}, (condition,), (READY,), at)
    if same:
        return replace(write, lazy=True)
    warns = condition["status"] == "False"
    if former is None and not warns:
        return write
    if former is not None and former.get("reason") == condition["reason"]:
        return write
    level, message = "Warning" if warns else "Normal", condition["message"] or "in use again"
    return replace(write, event=Event("Eip", found.metadata, level, condition["reason"], message, at))


def _addresses_text(given: object) -> str:
    return in_one_line([str(each) for each in given]) if isinstance(given, list) else ""


def _numbers(usage: Usage | None) -> dict[str, Any] | None:
    return None if usage is None else {"size": min(usage.size, _INT64_MAX), "used": usage.used}


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _conditioned(
    path: str,
    found: ServiceObject | EipObject,
    content: Mapping[str, Any],
    conditions: Sequence[Condition],
    kinds: tuple[str, ...],
    at: str,
) -> Write:
    """``kinds``: of all conditions that are ours, the one that changes with what happens first."""
    former = condition_of(found.status.conditions, kinds[0])
    others = tuple(each for each in found.status.conditions if each.get("type") not in kinds)
    same = former is not None and bool(conditions) and former.get("status") == conditions[0]["status"]
    since = (former.get("lastTransitionTime") or at) if same and former is not None else at
    return Write(path, found.metadata.resource_version, content, None, others, conditions, since)


def _tell(found: Sequence[Condition], wanted: Sequence[Condition]) -> bool:
    """Whether what is wanted stands there already, and nothing else that is ours."""
    ours = [each for each in found if each.get("type") in (ASSIGNED, ASSIGNED_FROM)]
    return len(ours) == len(wanted) and all(
        any(each["type"] == former.get("type") and _says(former, each) for former in ours) for each in wanted
    )


def _says(former: Condition, condition: Condition) -> bool:
    return all(former.get(name) == value for name, value in condition.items())
