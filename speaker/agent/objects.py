"""What an agent reads besides Eips: only these fields are decoded. Pure."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from speaker.api.endpoints import MAX_ENDPOINTS
from speaker.api.service import (
    LOAD_BALANCER_CLASS,
    MAX_PORTS,
    MAX_SOURCE_RANGES,
    SCHEDULER,
    SOURCE_RANGES_ANNOTATION,
)
from speaker.cluster.hosts import HostObject, NodeStatus
from speaker.cluster.kinds import (
    ASSIGNED,
    ASSIGNED_FROM,
    UNREADABLE,
    WITHOUT_ROOM,
    FullMetadata,
    Port,
    weight_of_ranges,
)
from speaker.cluster.objects import Object, Repetitive, apart, cut
from speaker.model import ServiceKey

# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────
# Leaner than the controller's: an agent on every node keeps all of them, and looks at little. A namesake that was made
# anew is the same to it: what it says counts.


class Wishes(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The annotations that matter to who forwards."""

    scheduler: str | None = msgspec.field(default=None, name=SCHEDULER)
    source_ranges: str | None = msgspec.field(default=None, name=SOURCE_RANGES_ANNOTATION)


class AssignedMetadata(Repetitive, frozen=True, rename="camel", omit_defaults=True, gc=False):
    REPEATED = ("namespace", "annotations")

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: ClassVar[str] = ""
    annotations: Wishes = Wishes()


class AssignedSpec(Repetitive, frozen=True, rename="camel", omit_defaults=True, gc=False):
    REPEATED = (
        "type",
        "load_balancer_class",
        "ports",
        "ip_families",
        "ip_family_policy",
        "external_traffic_policy",
        "session_affinity",
    )

    type: str = ""
    load_balancer_class: str | None = None
    load_balancer_source_ranges: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    external_traffic_policy: str | None = None
    health_check_node_port: int = 0
    session_affinity: str | None = None
    session_affinity_config: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        cut(self, "load_balancer_source_ranges", MAX_SOURCE_RANGES + 1)
        cut(self, "ports", MAX_PORTS + 1)
        super().__post_init__()


class AssignedIngress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    ip: str = ""
    ip_mode: str = ""


class AssignedLoadBalancer(msgspec.Struct, frozen=True, gc=False):
    ingress: tuple[AssignedIngress, ...] = ()


class AssignedCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""
    message: str = ""


class AssignedStatus(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("conditions",)

    load_balancer: AssignedLoadBalancer = AssignedLoadBalancer()
    conditions: tuple[AssignedCondition, ...] | None = None
    """Ours."""

    def __post_init__(self) -> None:
        ours = tuple(each for each in self.conditions or () if each.type in (ASSIGNED, ASSIGNED_FROM))
        msgspec.structs.force_setattr(self, "conditions", ours)
        super().__post_init__()


class AssignedObject(Object, frozen=True, gc=False):
    """A Service, as far as who announces it and forwards for it is concerned."""

    metadata: AssignedMetadata  # type: ignore[assignment]  # the same, but for its annotations
    spec: AssignedSpec = AssignedSpec()
    status: AssignedStatus = AssignedStatus()

    def weight(self) -> int:
        written = self.metadata.annotations.source_ranges
        return super().weight() + weight_of_ranges(self.spec.load_balancer_source_ranges, written)

    def remnant(self) -> "AssignedObject | None":
        return AssignedRemnant._unserved(replace(self.metadata, annotations=Wishes()), self.status, WITHOUT_ROOM)

    @classmethod
    def remains(cls, raw: msgspec.Raw) -> "AssignedObject | None":
        parts = apart(raw, AssignedMetadata, AssignedStatus)
        return cls._unserved(*parts) if parts is not None else None

    @classmethod
    def _unserved(
        cls, metadata: AssignedMetadata, status: AssignedStatus, kind: str = UNREADABLE
    ) -> "AssignedObject | None":
        """One whose EIP is announced where it has endpoints, and that nobody reaches through us."""
        if all(condition.type != ASSIGNED for condition in status.conditions or ()):
            return None
        spec = AssignedSpec(type=kind, load_balancer_class=LOAD_BALANCER_CLASS, external_traffic_policy=UNREADABLE)
        return cls(metadata, spec, status)


class AssignedRemnant(AssignedObject, frozen=True, gc=False):
    """One that there is no room for."""


# ── EndpointSlices ────────────────────────────────────────────────────────────────────────────────────────────


PAIR_BYTES = 300
"""Memory that a pair of address and port takes once it is read (200, measured with tracemalloc), and what is made of
it."""


class SliceLabels(msgspec.Struct, frozen=True, gc=False):
    service: str = msgspec.field(default="", name="kubernetes.io/service-name")


class SliceMetadata(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("namespace",)

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: ClassVar[str] = ""
    labels: SliceLabels = SliceLabels()


class Conditions(msgspec.Struct, frozen=True, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class SliceEndpoint(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("conditions", "node_name")

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    node_name: str | None = None


class SlicePort(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    protocol: str | None = None
    port: int | None = None


class SliceObject(Object, Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("address_type", "ports")

    metadata: SliceMetadata  # type: ignore[assignment]  # the same, but for its labels
    address_type: str = ""
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None

    def __post_init__(self) -> None:
        """With no more of it than is ever used, and one pair of address and port to tell that there were more."""
        if self.ports:
            cut(self, "ports", MAX_ENDPOINTS + 1)
        if self.endpoints and sum(len(each.addresses) for each in self.endpoints) > MAX_ENDPOINTS:
            msgspec.structs.force_setattr(self, "endpoints", tuple(_first(self.endpoints, MAX_ENDPOINTS + 1)))
        super().__post_init__()

    @property
    def service_key(self) -> ServiceKey:
        return ServiceKey(self.metadata.namespace, self.metadata.labels.service)

    def weight(self) -> int:
        pairs = sum(len(each.addresses) for each in self.endpoints or ()) * len(self.ports or ())
        return super().weight() + PAIR_BYTES * min(pairs, MAX_ENDPOINTS)


def _first(endpoints: Iterable[SliceEndpoint], addresses: int) -> Iterator[SliceEndpoint]:
    for each in endpoints:
        if addresses <= 0:
            return
        yield replace(each, addresses=each.addresses[:addresses])
        addresses -= len(each.addresses)


def by_service(found: SliceObject) -> Iterable[Hashable]:
    """An index: the Service that a slice belongs to."""
    return (found.service_key,)


# ── Nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeObject(HostObject, frozen=True, gc=False):
    metadata: FullMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# ── Announcements and Leases ──────────────────────────────────────────────────────────────────────────────────


class AnnouncementStatus(Repetitive, frozen=True, rename="camel", gc=False):
    REPEATED = ("holder", "link", "mac")

    holder: str = ""
    incarnation: int = 0
    term: int = 0
    link: str = ""
    mac: str = ""
    services: tuple[str, ...] = ()
    services_text: str = ""
    conflict: str = ""
    reason: str = ""


class AnnouncementObject(Object, frozen=True, gc=False):
    status: AnnouncementStatus = AnnouncementStatus()


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    holder_identity: str | None = None


class LeaseObject(Object, frozen=True, gc=False):
    spec: LeaseSpec = LeaseSpec()
