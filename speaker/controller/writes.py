"""What the controller writes into the API, as values: patches, removals, Events. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from speaker.allocator.refusals import RefusalReason
from speaker.api.kinds import Condition, FullMetadata, Ingress
from speaker.api.reading import Verdict
from speaker.telemetry.lines import Transition


def in_camel_case(reason: str) -> str:
    """As the API has reasons."""
    return "".join(word.capitalize() for word in reason.split("_"))


LOGGED = {
    "Assigned": "assigned",
    "Released": "released",
    "Flagged": "flagged",
    "Unheeded": "unheeded",
    "DuplicateAddress": "duplicate address",
    "NotServed": "not served",
    "Announced": "announced",
    "Moved": "moved",
    "FailedOver": "failed over",
    "HeldByNobody": "held by nobody",
    "ConflictBegun": "conflict begun",
    "ConflictEnded": "conflict ended",
}
"""Reasons of Events that judge nothing → the log's words for what happened."""
JUDGED = {in_camel_case(reason.value): reason.value for reason in RefusalReason} | {
    verdict.value: verdict.value.lower() for verdict in Verdict
}
"""The others → the log's, which are the metrics' labels."""

_NAMED = 200
"""Characters of an object's name in an Event's: a pool's may have 253, and so may an Event's."""
_VERSIONS = {"Service": "v1", "Eip": "eip-speaker.io/v1alpha1"}


@dataclass(frozen=True, slots=True)
class Event:
    """``reason`` and ``message`` about an object, told once the write it belongs to is done. ``level``: Normal or
    Warning; ``at``: RFC 3339; ``mark``: what tells it from others about the same version. The body is made when it is
    sent, as 10,000 may wait."""

    kind: str
    about: FullMetadata
    level: str
    reason: str
    message: str
    at: str
    mark: str = ""
    """Of what it tells, where that is not a change of the object."""

    @property
    def path(self) -> str:
        """Where it is created."""
        return f"/api/v1/namespaces/{self._namespace}/events"

    def joined(self, later: "Event") -> "Event":
        """One that tells of both, in place of the later one."""
        return replace(later, message=f"{later.message} ({self.message})")

    def body(self) -> dict[str, Any]:
        """Named after the version it was decided from: who tells it a second time is refused, and it is told once."""
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
        """Any that judges a Service is a refusal."""
        meta, level = self.about, "warning" if self.level == "Warning" else "info"
        kind, name = ("service", f"{meta.namespace}/{meta.name}") if self.kind == "Service" else ("pool", meta.name)
        if (words := LOGGED.get(self.reason)) is not None:
            return Transition(level, words, kind, name, self.reason, {"message": self.message})
        fields = {"reason": JUDGED[self.reason], "message": self.message}
        return Transition(level, "refused" if kind == "service" else "pool judged", kind, name, self.reason, fields)

    @property
    def _namespace(self) -> str:
        return self.about.namespace or "default"  # Events on what is cluster scoped live there


@dataclass(frozen=True, slots=True)
class Write:
    """A merge patch that is refused unless the object still has ``version``. Equal ones say the same.

    ``conditions`` take their place among ``others``; None for a write that leaves conditions alone.
    """

    path: str
    version: str
    content: Mapping[str, Any] = field(default_factory=dict)
    ingress: tuple[Ingress, ...] | None = None
    """Of a Service, where it changes."""
    others: Sequence[Condition] | None = None
    conditions: Sequence[Condition] = ()
    since: str = field(default="", compare=False)
    """RFC 3339: ``lastTransitionTime`` of the conditions."""
    event: Event | None = field(default=None, compare=False)
    lazy: bool = False
    """Nobody waits for it: a later one may overtake it."""

    def body(self) -> dict[str, Any]:
        patch: dict[str, Any] = {**self.content}
        if self.ingress is not None:
            written = [{"ip": each.ip, "ipMode": each.ip_mode} for each in self.ingress]
            patch["status"] = {"loadBalancer": {"ingress": written or None}}
        if self.others is not None:
            mine = [{**each, "lastTransitionTime": self.since} for each in self.conditions]
            patch["status"] = {**patch.get("status", {}), "conditions": [*self.others, *mine]}
        patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": self.version}
        return patch


@dataclass(frozen=True, slots=True)
class Removal:
    """Deletes the object, unless it is another or was written since. Nobody waits for it."""

    path: str
    uid: str
    version: str

    def body(self) -> dict[str, Any]:
        """DeleteOptions."""
        conditions = {"uid": self.uid, "resourceVersion": self.version}
        return {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}


Order: TypeAlias = Write | Removal

Orders: TypeAlias = Mapping[str, Order | None]
"""Path → what is wanted there from now on, None for nothing. Of paths that are not in it the same as before is."""
